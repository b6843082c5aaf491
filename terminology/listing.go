package terminology

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/table"
)

// listing is codes of a library, of which it says how much they are used.
type listing struct {
	library *Set
	codes   *codeList
}

// weight returns how much an entry is used, if something other than its code system says so: a file for the value set
// goes before the value set's own extension, and this before a supplement.
func (li listing) weight(e entry) (weight float64, ok bool) {
	l, x := li.library, li.codes
	if x.weights != nil {
		return x.weights.Weight(l.code(e)), true
	}
	if l.usage == (usage{}) {
		return 0, false
	}
	if weight = li.ownWeight(e); weight > 0 {
		return weight, true
	}
	for cs, concept := range l.described(l.locate(e), x.supplements) {
		if cs == l.codeSystems[e.codeSystem] || cs.concepts.Search == nil {
			continue
		}
		if weight = cs.concepts.Search.SearchWeight(concept.Number); weight > 0 {
			return weight, true
		}
	}
	if !e.isKnown() || l.codeSystems[e.codeSystem].concepts.Search == nil {
		return l.usage.files.Of(l.systems[l.systemOf(e)].url).Weight(l.code(e)), true
	}
	return 0, false
}

// ownWeight returns the weight that the value set gives an entry.
func (li listing) ownWeight(e entry) float64 {
	l := li.library
	if !l.usage.items || e.listed == 0 {
		return 0
	}
	rows, _ := l.row(e.listed)
	for _, x := range rows.extensionsOf(e.listed) {
		if x.Kind == codesystem.ExtensionWeight {
			return table.ItemWeight(rows.texts.At(x.Value))
		}
	}
	return 0
}
