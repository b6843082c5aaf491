package compose

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
)

// listing is codes of a library, of which it says how much they are used.
type listing struct {
	library *definitions.Set
	codes   *CodeList
}

// weight returns how much an entry is used, if something other than its code system says so: a file for the value set
// goes before the value set's own extension, and this before a supplement.
func (li listing) weight(e definitions.Entry) (weight float64, ok bool) {
	l, x := li.library, li.codes
	if x.weights != nil {
		return x.weights.Weight(l.Code(e)), true
	}
	if l.Usage == (definitions.Usage{}) {
		return 0, false
	}
	if weight = li.ownWeight(e); weight > 0 {
		return weight, true
	}
	for cs, concept := range l.Described(l.Locate(e), x.Supplements) {
		if cs == l.Systems.CodeSystems[e.CodeSystem] || cs.Concepts.Search == nil {
			continue
		}
		if weight = cs.Concepts.Search.SearchWeight(concept.Number); weight > 0 {
			return weight, true
		}
	}
	if !e.IsKnown() || l.Systems.CodeSystems[e.CodeSystem].Concepts.Search == nil {
		return l.Usage.Files.Of(l.Systems.List[l.SystemOf(e)].URL).Weight(l.Code(e)), true
	}
	return 0, false
}

// ownWeight returns the weight that the value set gives an entry.
func (li listing) ownWeight(e definitions.Entry) float64 {
	l := li.library
	if !l.Usage.Items || e.Own() == 0 {
		return 0
	}
	rows, _ := l.Row(e.Listed)
	for _, x := range rows.ExtensionsOf(e.Listed) {
		if x.Kind == codesystem.ExtensionWeight {
			return table.ItemWeight(rows.Texts.At(x.Value))
		}
	}
	return 0
}
