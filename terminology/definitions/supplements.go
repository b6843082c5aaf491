package definitions

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// RequiredSupplements returns the supplements to the code systems of an expansion. Each named one must apply, since the
// answer would be wrong without it.
func (t *SystemTable) RequiredSupplements(codeSystems []uint32, named []string) ([]Supplement, error) {
	var list []Supplement
	for _, index := range codeSystems {
		for _, s := range t.SupplementsTo(t.CodeSystems[index], named) {
			list = append(list, Supplement{Of: index, By: s})
		}
	}
	var missing []string
	for _, reference := range named {
		used := func(s Supplement) bool { return t.CodeSystems[s.By].IsNamed(reference) }
		if !slices.ContainsFunc(list, used) {
			AddTo(&missing, reference)
		}
	}
	return list, missingSupplements(missing)
}

// missingSupplements is the error for supplements that are not here, or nil if there are none.
func missingSupplements(list []string) error {
	if len(list) == 0 {
		return nil
	}
	e := outcome.New(http.StatusUnprocessableEntity, "not-found", "not-found", "VALUESET_SUPPLEMENT_MISSING",
		"Required supplement not found: "+strings.Join(list, ", "))
	e.Err = outcome.ErrIncomplete
	for _, reference := range list {
		e.Missing = append(e.Missing, outcome.MissingOf("CodeSystem", reference, "")...)
	}
	return e
}

// CountSupplements returns how many supplements [SystemTable.SupplementsTo] looks at.
func (t *SystemTable) CountSupplements(url string) (n int) {
	for at := &t.supplements; at != nil; at = at.base {
		n += len(at.own[url])
	}
	return n
}

// SupplementsTo returns the supplements to a code system: language packs, and those named by a canonical of the list.
func (t *SystemTable) SupplementsTo(cs *CodeSystem, named []string) []uint32 {
	var list []uint32
	for at := &t.supplements; at != nil; at = at.base {
		for _, index := range at.own[cs.URL] {
			s := t.CodeSystems[index]
			_, version := outcome.Split(s.supplements)
			applies := version == "" || MatchesVersion(cs.Version, version)
			if applies && (s.languagePack || slices.ContainsFunc(named, s.Definition.IsNamed)) {
				AddTo(&list, index)
			}
		}
	}
	return list
}

// CheckSupplements fails if named supplements are not here.
func (t *SystemTable) CheckSupplements(named []string) error {
	var missing []string
	for _, reference := range named {
		url, version := outcome.Split(reference)
		if index := t.CodeSystem(url, version); index == None || t.CodeSystems[index].Content != ContentSupplement {
			missing = append(missing, reference)
		}
	}
	return missingSupplements(missing)
}
