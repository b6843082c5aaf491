package front

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// definitionTypes are the types of resources that expansions are made of.
var definitionTypes = []string{"ValueSet", "CodeSystem", "ConceptMap"}

// resourceHead is what names a definition.
type resourceHead struct {
	Type string `json:"resourceType"`
	ID   string `json:"id"`
	URL  string `json:"url"`
}

func (h resourceHead) reference() string { return h.Type + "/" + h.ID }

// readHead reads what names a definition, if it is one.
func readHead(resource []byte) (h resourceHead, ok bool) {
	err := json.Unmarshal(resource, &h, jsontext.AllowDuplicateNames(true))
	return h, err == nil && slices.Contains(definitionTypes, h.Type)
}
