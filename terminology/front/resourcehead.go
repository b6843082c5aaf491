package front

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// definitionTypes are the resource types that expansions are made of.
var definitionTypes = []string{"ValueSet", "CodeSystem", "ConceptMap"}

// resourceHead identifies a definition.
type resourceHead struct {
	Type string `json:"resourceType"`
	ID   string `json:"id"`
	URL  string `json:"url"`
}

func (h resourceHead) reference() string { return h.Type + "/" + h.ID }

// readHead reads the head of a resource. It reports whether the resource is a definition.
func readHead(resource []byte) (h resourceHead, ok bool) {
	err := json.Unmarshal(resource, &h, jsontext.AllowDuplicateNames(true))
	return h, err == nil && slices.Contains(definitionTypes, h.Type)
}
