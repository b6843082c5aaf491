package ecl

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// test is a condition for a component of type T.
type test[T any] func(T) bool

// all returns the condition that all tests hold.
func all[T any](tests []test[T]) test[T] {
	return func(x T) bool {
		for _, t := range tests {
			if !t(x) {
				return false
			}
		}
		return true
	}
}

// status are the columns that concepts, descriptions and members of reference sets share, and the definition status of concepts.
type status struct {
	active             bool
	module, definition uint64
	effectiveTime      uint32
}

// statusTest returns the test of a criterion for a common column, or nil for other columns.
func (v *evaluation) statusTest(c *criterion) test[status] {
	switch c.field {
	case "active":
		return func(s status) bool {
			return (c.words[0] == "*" || s.active == (c.words[0] == "1")) == (c.operator == "=")
		}
	case "moduleId":
		isModule := v.idTest(c.operator, c.values)
		return func(s status) bool { return isModule(s.module) }
	case "definitionStatusId":
		isDefinition := v.idTest(c.operator, c.values)
		return func(s status) bool { return isDefinition(s.definition) }
	case "effectiveTime":
		matches := dateTest(c)
		return func(s status) bool { return matches(s.effectiveTime) }
	}
	return nil
}

// dateTest returns the condition that a date satisfies a comparison: with one of the dates, or with all of them if the operator is
// !=. Only = and != match unpublished components (section 6.9).
func dateTest(c *criterion) func(date uint32) bool {
	var dates []int
	for _, word := range c.words {
		date, _ := strconv.Atoi(word) // 0 for the empty string
		dates = append(dates, date)
	}
	isEqual, isUnequal := c.operator == "=", c.operator == "!="
	return func(date uint32) bool {
		return isUnequal != slices.ContainsFunc(dates, func(other int) bool {
			difference := cmp.Compare(int(date), other)
			if isEqual || isUnequal {
				return difference == 0
			}
			return date > 0 && other > 0 && compare(c.operator, difference)
		})
	}
}

func hasActiveCriterion(criteria []criterion) bool {
	return slices.ContainsFunc(criteria, func(c criterion) bool { return c.field == "active" })
}

// testSteps returns the cost of testing a component.
func testSteps(criteria []criterion) int {
	eighths := 8
	for _, c := range criteria {
		eighths += 1 + len(c.words) + 4*len(c.dialects)
		for _, t := range c.terms {
			eighths += 8 + len(t.text)/2
		}
	}
	return eighths / 8
}

func (v *evaluation) conceptFilter(n *filtered) bitset.Set {
	operand, result := v.evaluate(n.operand), v.newSet()
	if isWildcard(n.operand) && hasActiveCriterion(n.criteria) {
		operand = v.newSet()
		for c := range uint32(v.content.Len()) {
			operand.Add(c)
		}
	}
	var tests []test[status]
	for i := range n.criteria {
		tests = append(tests, v.statusTest(&n.criteria[i]))
	}
	matches, active := all(tests), v.content.Active()
	v.charge(1 + operand.Count()*testSteps(n.criteria)/2)
	operand.Each(func(c uint32) {
		m := v.content.Metadata(c)
		if matches(status{active.Has(c), m.Module, m.DefinitionStatus, m.EffectiveTime}) {
			result.Add(c)
		}
	})
	return result
}

func (v *evaluation) descriptionFilter(n *filtered) bitset.Set {
	var tests []test[*Description]
	if !hasActiveCriterion(n.criteria) {
		tests = append(tests, func(d *Description) bool { return d.Active })
	}
	for i := range n.criteria {
		tests = append(tests, v.descriptionTest(&n.criteria[i]))
	}
	matches, operand, result := all(tests), v.evaluate(n.operand), v.newSet()
	if !hasActiveCriterion(n.criteria) {
		operand = v.withWords(operand, n.criteria)
	}
	perDescription := testSteps(n.criteria)
	operand.Each(func(concept uint32) {
		steps := 1
		v.content.EachDescription(concept, func(d *Description) bool {
			steps += perDescription * (1 + len(d.Term)/32)
			if matches(d) {
				result.Add(concept)
			}
			return !result.Has(concept)
		})
		v.charge(steps)
	})
	return result
}

// withWords returns the members of a set that may have descriptions with all words of the criteria.
func (v *evaluation) withWords(operand bitset.Set, criteria []criterion) bitset.Set {
	for _, c := range criteria {
		if c.field != "term" || c.operator != "=" {
			continue
		}
		if found := v.findTerms(c.terms); found != nil {
			v.charge(1 + len(found)/32)
			found.Intersect(operand)
			operand = found
		}
	}
	return operand
}

// findTerms returns a superset of the concepts with one of the search terms, or nil if the content cannot search them.
func (v *evaluation) findTerms(terms []searchTerm) bitset.Set {
	result := v.newSet()
	for _, t := range terms {
		words := strings.Fields(textindex.Fold(unescape(t.text)))
		if t.kind != "match" || len(words) == 0 {
			return nil
		}
		found, ok, err := v.content.FindWords(words, v.spend)
		switch {
		case err != nil:
			panic(failure{err})
		case !ok:
			return nil
		}
		result.Union(found)
	}
	return result
}

func (v *evaluation) descriptionTest(c *criterion) test[*Description] {
	if isStatus := v.statusTest(c); isStatus != nil {
		return func(d *Description) bool {
			return isStatus(status{active: d.Active, module: d.Module, effectiveTime: d.EffectiveTime})
		}
	}
	isEqual := c.operator == "="
	switch c.field {
	case "term":
		matches := anyTerm(c.terms)
		return func(d *Description) bool { return matches(d.Term) == isEqual }
	case "language":
		return func(d *Description) bool { return slices.Contains(c.words, strings.ToLower(d.Language)) == isEqual }
	case "typeId":
		isType := v.idTest(c.operator, c.values)
		return func(d *Description) bool { return isType(d.Type) }
	case "id":
		return func(d *Description) bool { return slices.Contains(c.words, strconv.FormatUint(d.ID, 10)) == isEqual }
	}
	matches := v.dialectTest(c.dialects)
	return func(d *Description) bool { return slices.ContainsFunc(d.Dialects, matches) == isEqual }
}

// dialectTest returns the condition that a row of a language reference set matches one of the alternatives.
func (v *evaluation) dialectTest(list []dialectCriterion) func(Dialect) bool {
	var refsets []func(id uint64) bool
	for _, c := range list {
		refsets = append(refsets, v.idTest("=", c.refsets))
	}
	return func(d Dialect) bool {
		for i, isRefset := range refsets {
			if isRefset(d.Refset) && (list[i].acceptability == nil || slices.Contains(list[i].acceptability, d.Acceptability)) {
				return true
			}
		}
		return false
	}
}
