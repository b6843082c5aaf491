package loinc

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

var (
	_ codesystem.FilterEvaluator = (*System)(nil)
	_ codesystem.FilterReader    = (*System)(nil)
)

// EvaluateFilter implements [codesystem.FilterEvaluator] for filters on the hierarchy, on links to concepts, and on copyrights
// (Using LOINC with HL7 Standards, "LOINC Filters").
func (s *System) EvaluateFilter(property, op, value string, spend func(steps int) error) (set bitset.Set, ok bool, err error) {
	values := []string{value}
	switch {
	case value == "" || op != "=" && op != "in":
		return nil, false, nil
	case op == "in":
		values = strings.Split(value, ",")
	}
	match := s.matcherOf(property)
	if match == nil {
		return nil, false, nil
	}
	set = bitset.New(s.Len())
	if err := spend(s.Len() / 64); err != nil {
		return nil, true, err
	}
	for _, value := range values {
		if err := match(set, strings.TrimSpace(value), spend); err != nil {
			return nil, true, err
		}
	}
	return set, true, nil
}

// MatchesFilter implements [codesystem.FilterEvaluator]. There are no unlisted concepts.
func (s *System) MatchesFilter(codesystem.Concept, string, string, string, func(int) error) (matches, ok bool, err error) {
	return false, false, nil
}

// matcher adds the concepts with a value of a property to a set. It charges the cost with spend.
type matcher func(set bitset.Set, value string, spend func(steps int) error) error

// matcherOf returns the matcher of a property, or nil if the property is evaluated like those of other code systems.
func (s *System) matcherOf(property string) matcher {
	switch property {
	case "parent":
		return matchRelated(s.Table, direct(s.Len(), s.Children))
	case "child":
		return matchRelated(s.Table, direct(s.Len(), s.Parents))
	case "ancestor":
		return matchRelated(s.Table, s.Below)
	case "descendant":
		return matchRelated(s.Table, s.Above)
	case "LIST", "answers-for":
		return s.matchAnswers
	case "copyright":
		return s.matchCopyright
	}
	number := slices.IndexFunc(s.Properties(), func(p codesystem.Property) bool { return p.Code == property })
	if number < 0 || s.hasTexts[number] {
		return nil
	}
	return s.matchLinked(uint16(number))
}

// relatives returns the concepts that are related to a concept by the hierarchy.
type relatives func(concept uint32, spend func(steps int) error) (bitset.Set, error)

// direct returns the relatives that are parents or children among n concepts.
func direct(n int, of func(concept uint32) []uint32) relatives {
	return func(concept uint32, spend func(steps int) error) (bitset.Set, error) {
		set := bitset.New(n)
		for _, other := range of(concept) {
			set.Add(other)
		}
		return set, spend(n/64 + len(of(concept)))
	}
}

// matchRelated returns a matcher for relatives of a concept.
func matchRelated(t *table.Table, of relatives) matcher {
	return func(set bitset.Set, value string, spend func(steps int) error) error {
		c, ok := t.Locate([]byte(value))
		if !ok {
			return spend(1)
		}
		others, err := of(c.Number, spend)
		set.Union(others)
		return err
	}
}

// matchAnswers adds the answers of a list, or of all lists of a term.
func (s *System) matchAnswers(set bitset.Set, value string, spend func(steps int) error) error {
	c, ok := s.Locate([]byte(value))
	if !ok {
		return spend(1)
	}
	err := s.links.addLinked(set, c.Number, propertyAnswer, false, spend)
	s.links.each(c.Number, propertyAnswerList, false, func(list uint32) {
		if err == nil {
			err = s.links.addLinked(set, list, propertyAnswer, false, spend)
		}
	})
	return err
}

// matchCopyright adds the concepts with the copyright of a third party (3rdParty) or without (LOINC).
func (s *System) matchCopyright(set bitset.Set, value string, spend func(steps int) error) error {
	thirdParty := strings.EqualFold(value, "3rdParty")
	if !thirdParty && !strings.EqualFold(value, "LOINC") {
		return outcome.Unprocessable("invalid", "the filter on copyright of code system %s has the value %q, not LOINC or 3rdParty", URL, value)
	}
	notice := slices.IndexFunc(s.Properties(), func(p codesystem.Property) bool { return p.Code == "EXTERNAL_COPYRIGHT_NOTICE" })
	for concept := range uint32(s.Len()) {
		hasNotice := false
		s.Table.Values(codesystem.ConceptAt(concept), notice, func([]byte) bool { hasNotice = true; return false })
		if hasNotice == thirdParty {
			set.Add(concept)
		}
	}
	return spend(s.Len())
}

// matchLinked returns a matcher for the concepts with a link to a concept with a code or name.
func (s *System) matchLinked(property uint16) matcher {
	link, reverse := direction(property)
	return func(set bitset.Set, value string, spend func(steps int) error) error {
		for _, other := range s.conceptsNamed(value) {
			if err := s.links.addLinked(set, other, link, !reverse, spend); err != nil {
				return err
			}
		}
		return spend(20) // the search by name
	}
}

// conceptsNamed returns the concept with a code, or the parts, answers and groups with a name. It ignores case.
func (s *System) conceptsNamed(value string) []uint32 {
	if c, ok := s.Locate([]byte(value)); ok {
		return []uint32{c.Number}
	}
	value = strings.ToLower(value)
	named := s.named()
	from, _ := slices.BinarySearchFunc(named, value, func(concept uint32, value string) int { return cmp.Compare(lowerName(s.Table, concept), value) })
	to := from
	for to < len(named) && lowerName(s.Table, named[to]) == value {
		to++
	}
	return named[from:to]
}

func lowerName(t *table.Table, concept uint32) string {
	_, name, _ := t.Concept(codesystem.ConceptAt(concept))
	return strings.ToLower(string(name))
}

// sortByName returns all concepts from first on, sorted by name regardless of case.
func sortByName(t *table.Table, first uint32) []uint32 {
	names, sorted := make([]string, t.Len()), make([]uint32, 0, t.Len())
	for concept := first; concept < uint32(t.Len()); concept++ {
		names[concept], sorted = lowerName(t, concept), append(sorted, concept)
	}
	slices.SortStableFunc(sorted, func(a, b uint32) int { return cmp.Compare(names[a], names[b]) })
	return sorted
}

// FilterValue implements [codesystem.FilterReader]: values are compared regardless of case.
func (s *System) FilterValue(property int, value string) (string, error) {
	return cmp.Or(s.spellings[property][strings.ToLower(value)], value), nil
}
