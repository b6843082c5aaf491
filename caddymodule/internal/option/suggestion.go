package option

import (
	"maps"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/suggestion"
)

// DidYouMean is the end of an error message that suggests what an unknown word probably stands for; it may be empty.
func DidYouMean(word string, known []string) string {
	if near := suggestion.Nearest(word, known); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

// didYouMeanKey is didYouMean for the keys of a map.
func didYouMeanKey[V any](word string, known map[string]V) string {
	return DidYouMean(word, slices.Collect(maps.Keys(known)))
}
