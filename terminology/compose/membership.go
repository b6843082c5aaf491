package compose

import (
	"bytes"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Found is where a value set has a code: the entry that an expansion would have for it.
type Found struct {
	definitions.LocatedEntry
	Index    uint32 // the code system searched, or none
	Excluded bool   // inactive, while inactive codes are left out
}

// Membership looks for a code in value sets without expanding them.
type Membership struct {
	Composer
	Code     []byte                                                     // the code to look for
	Choose   func(set *definitions.ConceptSet) (index uint32, use bool) // the version of the code system that an include means
	Imported []*definitions.ValueSet                                    // the value sets searched
	Places   map[*definitions.ValueSet][]Found                          // where they have the code
	Seen     map[*definitions.ValueSet]bool                             // by checkImports

	relatives map[relatives]bitset.Set // of the code's concept
	Chosen    int                      // how many versions of code systems choose has returned
}

// Find returns where a value set has the code, in the order of its includes. Each value set is searched once, however
// many import it: otherwise work would double with each level of imports.
func (m *Membership) Find(vs *definitions.ValueSet) ([]Found, error) {
	if in, ok := m.Places[vs]; ok {
		return slices.Clone(in), m.spend(len(in))
	}
	in, err := m.search(vs)
	if err == nil {
		m.Places[vs] = slices.Clone(in)
	}
	return in, err
}

func (m *Membership) search(vs *definitions.ValueSet) ([]Found, error) {
	if err := m.enter(vs); err != nil {
		return nil, err
	}
	outer := m.Used
	m.Used = &CodeList{}
	defer func() { m.Used, m.Path = outer, m.Path[:len(m.Path)-1] }()
	include, exclude, err := m.sets(vs)
	if err != nil {
		return nil, err
	}
	in, err := m.inAny(include)
	if err != nil || len(in) == 0 {
		return nil, err
	}
	byVersion := m.Used.byVersion
	out, err := m.inAny(exclude)
	if err == nil {
		err = m.spend(len(in) * len(out) / budget.PlainBytes)
	}
	if err != nil {
		return nil, err
	}
	in = slices.DeleteFunc(in, func(f Found) bool {
		return slices.ContainsFunc(out, func(x Found) bool { // a code that is only listed matches any version
			return !byVersion || x.Index == f.Index || !x.IsKnown() && x.Listed != 0
		})
	})
	if outermost := len(m.Path) == 1; vs.ActiveOnly || outermost && m.Rules.ActiveOnly == parameters.Yes { // the parameter concerns the result as a whole
		for i := range in {
			in[i].Excluded = m.Library.FlagsOf(in[i].LocatedEntry)&codesystem.FlagInactive != 0
		}
	}
	return in, nil
}

// CheckImports fails if value sets import each other, whether or not the imports matter for the code.
func (m *Membership) CheckImports(vs *definitions.ValueSet) error {
	if err := m.enter(vs); err != nil {
		return err
	}
	defer func() { m.Path = m.Path[:len(m.Path)-1] }()
	m.Seen[vs] = true
	for _, sets := range [][]definitions.ConceptSet{vs.Include, vs.Exclude} {
		for i := range sets {
			for _, reference := range sets[i].ValueSets {
				imported, err := m.importedValueSet(reference)
				if err != nil || m.Seen[imported] && !slices.Contains(m.Path, imported) {
					continue // a value set that is missing matters only where it is needed
				}
				if err := m.CheckImports(imported); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// inAny returns where includes or excludes have the code.
func (m *Membership) inAny(sets []definitions.ConceptSet) ([]Found, error) {
	var list []Found
	for i := range sets {
		f, ok, err := m.in(&sets[i])
		if err != nil {
			return nil, outcome.Located(err, "ValueSet.compose.include", i)
		}
		if ok {
			list = append(list, f)
		}
	}
	return list, nil
}

func (m *Membership) in(set *definitions.ConceptSet) (f Found, ok bool, err error) {
	if err := m.validate(set); err != nil {
		return f, false, err
	}
	if set.System != "" {
		if f, ok, err = m.inSystem(set); err != nil || !ok {
			return f, false, err
		}
	}
	for i, reference := range set.ValueSets {
		vs, err := m.importedValueSet(reference)
		if err != nil {
			return f, false, err
		}
		definitions.AddTo(&m.Imported, vs)
		if err := m.spend(len(m.Imported) / budget.PlainBytes); err != nil {
			return f, false, err
		}
		in, err := m.Find(vs)
		in = slices.DeleteFunc(in, func(f Found) bool { return f.Excluded })
		if err != nil || len(in) == 0 {
			return f, false, err
		}
		if i == 0 && set.System == "" {
			f = in[0]
		}
	}
	return f, true, nil
}

// inSystem looks for the code in an include's code system. It checks the filters even if the include is of another
// system, since a broken filter makes the value set invalid.
func (m *Membership) inSystem(set *definitions.ConceptSet) (f Found, ok bool, err error) {
	index, use := m.Choose(set)
	if use {
		if err := m.spend(8*(1+len(m.Library.Systems.Versions(set.System))) + m.Chosen/budget.PlainBytes); err != nil {
			return f, false, err
		}
	}
	f = Found{LocatedEntry: definitions.LocatedEntry{Entry: UnknownEntry}, Index: index}
	if !use {
		return f, false, nil
	}
	var cs *definitions.CodeSystem
	if index != definitions.None && m.Library.Systems.CodeSystems[index].Content.HasConcepts() {
		cs = m.Library.Systems.CodeSystems[index]
		if err := cs.Usable("code system"); err != nil {
			return f, false, err
		}
		definitions.AddTo(&m.Used.CodeSystems, index)
		if at, ok := cs.Concepts.Locate(m.Code); ok {
			f.LocatedEntry = definitions.LocatedEntry{Entry: definitions.Entry{CodeSystem: index, Concept: cs.Number(at)}, At: at}
		}
	}
	switch {
	case set.Enumerated:
		return m.inList(set, cs, f)
	case cs != nil && !f.IsKnown() && cs.Content == definitions.ContentFragment && len(set.Filters) == 0:
		return f, true, nil // it may be in another fragment
	case cs == nil || !f.IsKnown():
		return f, false, m.checkFilters(set, cs)
	}
	for i, filter := range set.Filters {
		holds, err := m.holds(cs, f.At, filter)
		if err != nil || !holds {
			return f, false, outcome.Located(err, "filter", i)
		}
	}
	return f, true, nil
}

// holds reports whether a filter holds for the code's concept, without computing all concepts for which it does.
func (m *Membership) holds(cs *definitions.CodeSystem, concept codesystem.Concept, f definitions.Filter) (bool, error) {
	if !f.IsHierarchical() {
		test, err := m.condition(cs, f)
		if err != nil {
			return false, err
		}
		return test.holds(concept)
	}
	other, err := cs.Related(f)
	if err != nil {
		return false, err
	}
	if f.Op == "child-of" {
		parents := cs.Concepts.Hierarchy.Parents(concept.Number)
		return slices.Contains(parents, other.Number), m.spend(len(parents))
	}
	relatives, err := m.relativesOf(cs, concept.Number, f.Op == "generalizes")
	if err != nil {
		return false, err
	}
	related, same := relatives.Has(other.Number), cs.IsSame(concept, other)
	switch f.Op {
	case "descendent-of":
		return related && !same, nil
	case "descendent-leaf":
		return related && !same && len(cs.Concepts.Hierarchy.Children(concept.Number)) == 0, nil
	case "is-not-a":
		return !related && !same, nil
	}
	return related || same, nil
}

// relatives are the ancestors or descendants of the code's concept.
type relatives struct {
	codeSystem *definitions.CodeSystem
	below      bool
}

// relativesOf computes relatives once. They are few, while a filter may select half of a code system.
func (m *Membership) relativesOf(cs *definitions.CodeSystem, concept uint32, below bool) (bitset.Set, error) {
	key := relatives{codeSystem: cs, below: below}
	if found, ok := m.relatives[key]; ok {
		return found, nil
	}
	closure := cs.Concepts.Hierarchy.Above
	if below {
		closure = cs.Concepts.Hierarchy.Below
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

func (m *Membership) checkFilters(set *definitions.ConceptSet, cs *definitions.CodeSystem) error {
	for i, filter := range set.Filters {
		if filter.Value == "" && cs != nil {
			return outcome.Located(cs.NoValue(filter), "filter", i)
		}
	}
	return nil
}

func (m *Membership) inList(set *definitions.ConceptSet, cs *definitions.CodeSystem, f Found) (Found, bool, error) {
	if err := m.spend(int(set.Last-set.First)/2 + int(set.Last-set.First)*len(m.Code)/budget.PlainBytes); err != nil {
		return f, false, err
	}
	for row := set.First; row < set.Last; row++ {
		table, at := m.Library.Rows.Row(row)
		code := table.Texts.At(table.Code[at])
		same := bytes.Equal(code, m.Code) || cs != nil && !cs.CaseSensitive && codesystem.EqualFold(code, m.Code)
		if !same {
			continue
		}
		f.Listed = row
		return f, f.IsKnown() || cs == nil || !cs.IsWhole(), nil
	}
	return f, false, nil
}
