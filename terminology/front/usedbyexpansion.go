package front

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// madeOf is the part of an expansion that says what it was made of.
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

// definitionsOf returns the canonicals of the definitions an expansion was made of: the value set, those listed as
// used, and the code systems of its codes, even of those not known here. It returns none for an expansion that leaves
// parts out: then any change of a definition ends it.
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
