package related

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// group contains the includes of a code system in both value sets.
type group struct {
	sets       [2][]definitions.ConceptSet
	codeSystem *definitions.CodeSystem // nil if it is not loaded
	versions   map[string]bool         // versions that the includes refer to
	hasFilter  bool
}

// codeSteps is the cost of comparing an include or an enumerated code in steps.
const codeSteps = 4

// compareDefinitions determines the relation from the includes, code system by code system. It returns false if the value sets
// must be expanded. That is the case for the same value sets as on HL7's servers.
func (c *comparison) compareDefinitions() (decided bool, err error) {
	for _, vs := range c.valueSets {
		for _, set := range slices.Concat(vs.Include, vs.Exclude) {
			if err := c.budget.Charge(codeSteps * (1 + int(set.EndRow-set.FirstRow))); err != nil {
				return false, err
			}
		}
	}
	groups, ok := c.groups()
	for _, g := range groups {
		if ok && err == nil {
			ok, err = c.compareGroup(g)
		}
	}
	return ok, err
}

// groups returns the includes of both value sets by code system, in order of first use. It returns false if a value set has
// imports, excludes, contained code systems or parameters of its own, or the value sets differ in what they restrict.
func (c *comparison) groups() (list []*group, ok bool) {
	bySystem, rules := make(map[string]*group), &c.query.Expansion.Rules
	for i, vs := range c.valueSets {
		hasDate, hasRules := vs.LockedDate+rules.Date != "", len(vs.Defaults)+len(rules.Versions.Excluded)+len(rules.Versions.Required) > 0
		if hasDate || hasRules || len(vs.Exclude)+len(vs.CodeSystems) > 0 || vs.ActiveOnly != c.valueSets[0].ActiveOnly {
			return nil, false
		}
		for _, set := range vs.Include {
			if set.System == "" || set.Version == "*" || len(set.ValueSets) > 0 || set.IsEnumerated && len(set.Filters) > 0 {
				return nil, false
			}
			g := bySystem[set.System]
			if g == nil {
				g = &group{versions: make(map[string]bool)}
				bySystem[set.System], list = g, append(list, g)
			}
			cs, version := c.codeSystemOf(&set)
			g.codeSystem, g.versions[version] = cmp.Or(cs, g.codeSystem), true
			g.hasFilter = g.hasFilter || len(set.Filters) > 0
			g.sets[i] = append(g.sets[i], set)
		}
	}
	return list, true
}

// codeSystemOf returns the code system of an include, which is nil if it is not loaded, and its version.
func (c *comparison) codeSystemOf(set *definitions.ConceptSet) (*definitions.CodeSystem, string) {
	version, _ := c.query.Expansion.Versions.Apply(set.System, set.Version)
	if index := c.definitions.Systems.CodeSystem(set.System, version); index != definitions.None {
		cs := c.definitions.Systems.CodeSystems[index]
		return cs, cs.Version
	}
	return nil, version
}

// compareGroup adds the relation of the includes of a code system. It returns false if the includes do not determine it.
func (c *comparison) compareGroup(g *group) (decided bool, err error) {
	r := &c.relation
	switch {
	case len(g.versions) > 1 && (c.isVersioned(g.codeSystem) || g.hasFilter && c.query.VersionPolicy != versionsNever):
		return false, nil
	case isEnumerated(g.sets[0]) && isEnumerated(g.sets[1]) && !c.omitsCodes():
		c.compareLists(g)
		return true, nil
	case includesAll(g.sets[0]) && includesAll(g.sets[1]), slices.Equal(c.elements(g.sets[0]), c.elements(g.sets[1])):
		return true, c.detectCodes(&r.common, g.sets[0], nil)
	case c.omitsCodes():
		return false, nil
	}
	for i, sets := range g.sets {
		switch others := g.sets[1-i]; {
		case len(others) == 0:
			return true, c.detectCodes(&r.only[i], sets, nil)
		case includesAll(sets):
			return true, errors.Join(c.detectCodes(&r.common, others, nil), c.detectCodes(&r.only[i], sets, others))
		}
	}
	return c.compareFilters(g)
}

// compareFilters compares two is-a filters. It returns false for other includes, and if only some of the codes are common.
func (c *comparison) compareFilters(g *group) (decided bool, err error) {
	r, both := &relation{}, g.sets[0][0]
	both.Filters = nil
	for i, sets := range g.sets {
		if len(sets) != 1 || len(sets[0].Filters) != 1 || sets[0].Filters[0].Op != "is-a" {
			return false, nil
		}
		both.Filters = append(both.Filters, sets[0].Filters...)
		err = errors.Join(err, c.detectCodes(&r.only[i], sets, g.sets[1-i]))
	}
	err = errors.Join(err, c.detectCodes(&r.common, []definitions.ConceptSet{both}, nil))
	c.relation.common = c.relation.common || r.common
	c.relation.only = [2]bool{c.relation.only[0] || r.only[0], c.relation.only[1] || r.only[1]}
	return !r.common || !r.only[0] || !r.only[1], err
}

func isEnumerated(sets []definitions.ConceptSet) bool {
	return len(sets) > 0 && !slices.ContainsFunc(sets, func(set definitions.ConceptSet) bool { return !set.IsEnumerated })
}

func includesAll(sets []definitions.ConceptSet) bool {
	return slices.ContainsFunc(sets, func(set definitions.ConceptSet) bool { return !set.IsEnumerated && len(set.Filters) == 0 })
}

// omitsCodes reports whether both value sets omit inactive or abstract codes.
func (c *comparison) omitsCodes() bool {
	rules := &c.query.Expansion.Rules
	return c.valueSets[0].ActiveOnly || rules.ActiveOnly == parameters.Yes || rules.ExcludeNotForUI == parameters.Yes
}

// compareLists compares enumerated codes. It lists invalid codes too, but they do not affect the relation, because value sets do
// not contain them. The lists replace those of other code systems, as on other servers.
func (c *comparison) compareLists(g *group) {
	codes := [2]map[string]listedCode{c.listedCodes(g.sets[0]), c.listedCodes(g.sets[1])}
	c.result.Common, c.result.Only = nil, [2][]string{}
	for i := range codes {
		for key, item := range codes[i] {
			other, ok := codes[1-i][key]
			switch {
			case !ok:
				c.result.Only[i] = append(c.result.Only[i], item.code)
			case i == 0:
				c.result.Common = append(c.result.Common, item.code)
			}
			c.relation.common = c.relation.common || item.isValid && other.isValid
			c.relation.only[i] = c.relation.only[i] || item.isValid && !other.isValid
		}
	}
	for _, list := range []*[]string{&c.result.Common, &c.result.Only[0], &c.result.Only[1]} {
		slices.Sort(*list)
	}
}

// listedCode is a code that an include enumerates.
type listedCode struct {
	code    string
	isValid bool // the code system may contain the code
}

// listedCodes returns the codes that includes enumerate, by code or, if case does not matter, by lower-case code.
func (c *comparison) listedCodes(sets []definitions.ConceptSet) map[string]listedCode {
	codes := make(map[string]listedCode)
	for _, set := range sets {
		cs, _ := c.codeSystemOf(&set)
		for _, code := range c.codesOf(&set) {
			key := code
			if cs != nil && !cs.CaseSensitive {
				key = strings.ToLower(code)
			}
			isValid := codes[key].isValid || cs == nil || !cs.IsComplete() || set.FromStoredExpansion
			if !isValid {
				_, isValid = cs.Concepts.Locate([]byte(code))
			}
			codes[key] = listedCode{code, isValid}
		}
	}
	return codes
}

// codesOf returns the codes that an include enumerates.
func (c *comparison) codesOf(set *definitions.ConceptSet) (codes []string) {
	for row := set.FirstRow; row < set.EndRow; row++ {
		table, at := c.definitions.TableOfRow(row)
		codes = append(codes, string(table.Texts.At(table.Code[at])))
	}
	return codes
}

// elements returns sorted texts that are equal for equal lists of includes, regardless of the order of includes, codes, filters
// and imported value sets.
func (c *comparison) elements(sets []definitions.ConceptSet) (elements []string) {
	for _, set := range sets {
		_, version := c.codeSystemOf(&set)
		var parts []string
		for _, f := range set.Filters {
			parts = append(parts, strings.Join([]string{f.Property, f.Op, f.Value}, "\x01"))
		}
		slices.Sort(parts)
		parts = append(append(parts, set.System, version), slices.Sorted(slices.Values(set.ValueSets))...)
		text := strings.Join(parts, "\x02")
		for _, code := range c.codesOf(&set) {
			elements = append(elements, text+"\x03"+code)
		}
		if !set.IsEnumerated {
			elements = append(elements, text)
		}
	}
	slices.Sort(elements)
	return slices.Compact(elements)
}

// hasEqualDefinitions reports whether the value sets have the same compose and so the same codes, even if these are unknown.
func (c *comparison) hasEqualDefinitions() bool {
	a, b := c.valueSets[0], c.valueSets[1]
	return a == b || len(a.CodeSystems)+len(a.Contained)+len(b.CodeSystems)+len(b.Contained) == 0 &&
		a.ActiveOnly == b.ActiveOnly && a.LockedDate == b.LockedDate &&
		slices.Equal(c.elements(a.Include), c.elements(b.Include)) && slices.Equal(c.elements(a.Exclude), c.elements(b.Exclude))
}

// detectCodes sets found if include contains codes that exclude lacks. If the codes cannot be listed, it assumes so.
func (c *comparison) detectCodes(found *bool, include, exclude []definitions.ConceptSet) error {
	if *found = *found || len(exclude) == 0 && includesAll(include); *found {
		return nil
	}
	vs := new(definitions.ValueSet)
	vs.HasCompose, vs.Include, vs.Exclude, vs.ActiveOnly = true, include, exclude, c.omitsCodes()
	x, err := compose.NewEvaluator(c.definitions, &c.query.Expansion.Rules, c.budget).Evaluate(vs)
	if budget.IsRequestSpecific(err) {
		return err
	}
	*found = err != nil || x.IsUnclosed(c.definitions) || len(x.Entries) > 0
	return nil
}
