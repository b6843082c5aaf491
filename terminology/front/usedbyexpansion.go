package front

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// madeOf is what an expansion says that it was made of.
type madeOf struct {
	URL  string `json:"url"`
	Meta struct {
		Tag []struct {
			Code string `json:"code"`
		} `json:"tag"`
	} `json:"meta"`
	Expansion struct {
		Parameter []struct {
			Name string `json:"name"`
			URI  string `json:"valueUri"`
		} `json:"parameter"`
		Contains []madeOfSystem `json:"contains"`
	} `json:"expansion"`
}

type madeOfSystem struct {
	System   string         `json:"system"`
	Contains []madeOfSystem `json:"contains"`
}

// definitionsOf names the definitions that an expansion was made of: the value set, those
// that it says it used, and the code systems that its codes are of, which may not be
// known yet. There are none where it does not say so, as it leaves parts out; then
// each change ends it.
func definitionsOf(body []byte) (tags []string) {
	var made madeOf
	if json.Unmarshal(body, &made, jsontext.AllowDuplicateNames(true)) != nil || made.URL == "" || len(made.Meta.Tag) > 0 {
		return nil
	}
	seen := map[string]bool{made.URL: true}
	for _, p := range made.Expansion.Parameter {
		if strings.HasPrefix(p.Name, "used-") {
			seen[p.URI] = true
		}
	}
	addSystems(seen, made.Expansion.Contains)
	return slices.Collect(maps.Keys(seen))
}

func addSystems(to map[string]bool, list []madeOfSystem) {
	for i := range list {
		to[list[i].System] = true
		addSystems(to, list[i].Contains)
	}
	delete(to, "")
}
