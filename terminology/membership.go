package terminology

import (
	"bytes"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// found is where a value set has a code: the entry that an expansion would have for it.
type found struct {
	locatedEntry
	index    uint32 // the code system searched, or none
	excluded bool   // inactive, while inactive codes are left out
}

// membership looks for a code in value sets without expanding them.
type membership struct {
	composer
	code     []byte
	choose   func(set *conceptSet) (index uint32, use bool) // the version of the code system that an include means
	imported []*valueSet                                    // the value sets searched
	places   map[*valueSet][]found                          // where they have the code
	seen     map[*valueSet]bool                             // by checkImports

	relatives map[relatives]bitset.Set // of the code's concept
	chosen    int                      // how many versions of code systems choose has returned
}

// find returns where a value set has the code, in the order of its includes. Each value set is searched once, however
// many import it: otherwise work would double with each level of imports.
func (m *membership) find(vs *valueSet) ([]found, error) {
	if in, ok := m.places[vs]; ok {
		return slices.Clone(in), m.spend(len(in))
	}
	in, err := m.search(vs)
	if err == nil {
		m.places[vs] = slices.Clone(in)
	}
	return in, err
}

func (m *membership) search(vs *valueSet) ([]found, error) {
	if err := m.enter(vs); err != nil {
		return nil, err
	}
	outer := m.used
	m.used = &codeList{}
	defer func() { m.used, m.path = outer, m.path[:len(m.path)-1] }()
	include, exclude, err := m.sets(vs)
	if err != nil {
		return nil, err
	}
	in, err := m.inAny(include)
	if err != nil || len(in) == 0 {
		return nil, err
	}
	byVersion := m.used.byVersion
	out, err := m.inAny(exclude)
	if err == nil {
		err = m.spend(len(in) * len(out) / plainBytes)
	}
	if err != nil {
		return nil, err
	}
	in = slices.DeleteFunc(in, func(f found) bool {
		return slices.ContainsFunc(out, func(x found) bool { // a code that is only listed matches any version
			return !byVersion || x.index == f.index || !x.isKnown() && x.listed != 0
		})
	})
	if outermost := len(m.path) == 1; vs.activeOnly || outermost && m.rules.ActiveOnly == Yes { // the parameter concerns the result as a whole
		for i := range in {
			in[i].excluded = m.library.flagsOf(in[i].locatedEntry)&codesystem.FlagInactive != 0
		}
	}
	return in, nil
}

// checkImports fails if value sets import each other, whether or not the imports matter for the code.
func (m *membership) checkImports(vs *valueSet) error {
	if err := m.enter(vs); err != nil {
		return err
	}
	defer func() { m.path = m.path[:len(m.path)-1] }()
	m.seen[vs] = true
	for _, sets := range [][]conceptSet{vs.include, vs.exclude} {
		for i := range sets {
			for _, reference := range sets[i].valueSets {
				imported, err := m.importedValueSet(reference)
				if err != nil || m.seen[imported] && !slices.Contains(m.path, imported) {
					continue // a value set that is missing matters only where it is needed
				}
				if err := m.checkImports(imported); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// inAny returns where includes or excludes have the code.
func (m *membership) inAny(sets []conceptSet) ([]found, error) {
	var list []found
	for i := range sets {
		f, ok, err := m.in(&sets[i])
		if err != nil {
			return nil, located(err, "ValueSet.compose.include", i)
		}
		if ok {
			list = append(list, f)
		}
	}
	return list, nil
}

func (m *membership) in(set *conceptSet) (f found, ok bool, err error) {
	if err := m.validate(set); err != nil {
		return f, false, err
	}
	if set.system != "" {
		if f, ok, err = m.inSystem(set); err != nil || !ok {
			return f, false, err
		}
	}
	for i, reference := range set.valueSets {
		vs, err := m.importedValueSet(reference)
		if err != nil {
			return f, false, err
		}
		addTo(&m.imported, vs)
		if err := m.spend(len(m.imported) / plainBytes); err != nil {
			return f, false, err
		}
		in, err := m.find(vs)
		in = slices.DeleteFunc(in, func(f found) bool { return f.excluded })
		if err != nil || len(in) == 0 {
			return f, false, err
		}
		if i == 0 && set.system == "" {
			f = in[0]
		}
	}
	return f, true, nil
}

// inSystem looks for the code in an include's code system. It checks the filters even if the include is of another
// system, since a broken filter makes the value set invalid.
func (m *membership) inSystem(set *conceptSet) (f found, ok bool, err error) {
	index, use := m.choose(set)
	if use {
		if err := m.spend(8*(1+len(m.library.versions(set.system))) + m.chosen/plainBytes); err != nil {
			return f, false, err
		}
	}
	f = found{locatedEntry: locatedEntry{entry: unknownEntry}, index: index}
	if !use {
		return f, false, nil
	}
	var cs *codeSystem
	if index != none && m.library.codeSystems[index].content.hasConcepts() {
		cs = m.library.codeSystems[index]
		if err := cs.usable("code system"); err != nil {
			return f, false, err
		}
		addTo(&m.used.codeSystems, index)
		if at, ok := cs.concepts.Locate(m.code); ok {
			f.locatedEntry = locatedEntry{entry: entry{codeSystem: index, concept: cs.number(at)}, at: at}
		}
	}
	switch {
	case set.enumerated:
		return m.inList(set, cs, f)
	case cs != nil && !f.isKnown() && cs.content == contentFragment && len(set.filters) == 0:
		return f, true, nil // it may be in another fragment
	case cs == nil || !f.isKnown():
		return f, false, m.checkFilters(set, cs)
	}
	for i, filter := range set.filters {
		holds, err := m.holds(cs, f.at, filter)
		if err != nil || !holds {
			return f, false, located(err, "filter", i)
		}
	}
	return f, true, nil
}

// holds reports whether a filter holds for the code's concept, without computing all concepts for which it does.
func (m *membership) holds(cs *codeSystem, concept codesystem.Concept, f filter) (bool, error) {
	if !f.isHierarchical() {
		test, err := m.condition(cs, f)
		if err != nil {
			return false, err
		}
		return test.holds(concept)
	}
	other, err := cs.related(f)
	if err != nil {
		return false, err
	}
	if f.op == "child-of" {
		parents := cs.concepts.Hierarchy.Parents(concept.Number)
		return slices.Contains(parents, other.Number), m.spend(len(parents))
	}
	relatives, err := m.relativesOf(cs, concept.Number, f.op == "generalizes")
	if err != nil {
		return false, err
	}
	related, same := relatives.Has(other.Number), cs.isSame(concept, other)
	switch f.op {
	case "descendent-of":
		return related && !same, nil
	case "descendent-leaf":
		return related && !same && len(cs.concepts.Hierarchy.Children(concept.Number)) == 0, nil
	case "is-not-a":
		return !related && !same, nil
	}
	return related || same, nil
}

// relatives are the ancestors or descendants of the code's concept.
type relatives struct {
	codeSystem *codeSystem
	below      bool
}

// relativesOf computes relatives once. They are few, while a filter may select half of a code system.
func (m *membership) relativesOf(cs *codeSystem, concept uint32, below bool) (bitset.Set, error) {
	key := relatives{codeSystem: cs, below: below}
	if found, ok := m.relatives[key]; ok {
		return found, nil
	}
	closure := cs.concepts.Hierarchy.Above
	if below {
		closure = cs.concepts.Hierarchy.Below
	}
	found, err := closure(concept, m.spend)
	if err == nil {
		if m.relatives == nil {
			m.relatives = make(map[relatives]bitset.Set)
		}
		m.relatives[key] = found
	}
	return found, err
}

func (m *membership) checkFilters(set *conceptSet, cs *codeSystem) error {
	for i, filter := range set.filters {
		if filter.value == "" && cs != nil {
			return located(cs.noValue(filter), "filter", i)
		}
	}
	return nil
}

func (m *membership) inList(set *conceptSet, cs *codeSystem, f found) (found, bool, error) {
	if err := m.spend(int(set.last-set.first)/2 + int(set.last-set.first)*len(m.code)/plainBytes); err != nil {
		return f, false, err
	}
	for row := set.first; row < set.last; row++ {
		table, at := m.library.row(row)
		code := table.texts.At(table.code[at])
		same := bytes.Equal(code, m.code) || cs != nil && !cs.caseSensitive && codesystem.EqualFold(code, m.code)
		if !same {
			continue
		}
		f.listed = row
		return f, f.isKnown() || cs == nil || !cs.isWhole(), nil
	}
	return f, false, nil
}
