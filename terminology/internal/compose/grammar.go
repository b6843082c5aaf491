package compose

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// grammarInclude is an include without concepts of a code system that cannot be listed, or not wholly.
type grammarInclude struct {
	evaluator *Evaluator
	set       *definitions.ConceptSet
	index     uint32
	cs        *definitions.CodeSystem
}

// entries returns the codes at hand that the code system has and that meet the filters.
func (g *grammarInclude) entries() (entries []definitions.Entry, err error) {
	c := g.evaluator
	candidates, err := g.atHand()
	if err == nil {
		err = c.spend(len(candidates) * parseSteps)
	}
	if err != nil {
		return nil, err
	}
	meets, err := c.filters.testAll(g.cs, g.set.Filters)
	if err != nil {
		return nil, err
	}
	for _, e := range candidates {
		at, ok := g.cs.Concepts.Locate(c.library.Code(e))
		if !ok || c.library.Systems.List[c.library.SystemOf(e)].URL != g.cs.URL {
			continue
		}
		if ok, err = meets(at); err != nil {
			return nil, err
		}
		if ok && c.among == nil {
			e = definitions.Entry{CodeSystem: g.index, Concept: definitions.Unlisted, Listed: e.Listed}
		}
		if ok && (e.Listed != 0 || e.IsNumbered()) {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// atHand returns the codes that there are to choose from: of an exclude, those that it is excluded from; else those of a
// value set that the include names as well; else those in common use.
func (g *grammarInclude) atHand() ([]definitions.Entry, error) {
	c := g.evaluator
	if c.among != nil {
		c.used.relative = true
		return *c.among, nil
	}
	if len(g.set.ValueSets) > 0 {
		x, err := c.imported(g.set.ValueSets[0])
		if err != nil {
			return nil, err
		}
		return x.Entries, nil
	}
	vs, ok := c.library.AnyValueSet(g.cs.Common, c.rules.Date)
	if !ok {
		return nil, g.cs.NotListed()
	}
	x, err := c.ValueSet(vs)
	if err != nil {
		return nil, err
	}
	basis := Basis{CodeSystem: g.index}
	if len(g.set.Filters) == 0 {
		basis.On = vs
	}
	definitions.AddTo(&c.used.Based, basis)
	return x.Entries, nil
}

// excluded evaluates what is excluded from entries.
func (c *Evaluator) excluded(sets []definitions.ConceptSet, entries []definitions.Entry) ([]definitions.Entry, error) {
	outer := c.among
	if c.Probe == nil {
		c.among = &entries
	}
	defer func() { c.among = outer }()
	return c.union(sets, "exclude")
}

// testAll returns what tells whether a concept of a grammar meets all filters.
func (fs *filters) testAll(cs *definitions.CodeSystem, list []definitions.Filter) (func(c codesystem.Concept) (bool, error), error) {
	tests := make([]func(codesystem.Concept) (bool, error), len(list))
	for i, f := range list {
		test, err := fs.test(cs, f)
		if err != nil {
			return nil, located(err, "filter", i)
		}
		tests[i] = test
	}
	return func(c codesystem.Concept) (holds bool, err error) {
		for i, test := range tests {
			if holds, err = test(c); err != nil || !holds {
				return false, located(err, "filter", i)
			}
		}
		return true, nil
	}, nil
}
