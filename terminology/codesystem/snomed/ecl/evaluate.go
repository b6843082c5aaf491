package ecl

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// ErrInvalid is wrapped by errors for expressions that are not valid for an edition, for example because of an unknown concept.
var ErrInvalid = errors.New("invalid expression")

// Evaluator evaluates expressions against an edition. It is safe for concurrent use.
type Evaluator struct {
	content  Content
	wildcard bitset.Set
	cache    resultCache
}

// NewEvaluator returns an evaluator for content. It caches results of up to cacheBytes.
func NewEvaluator(content Content, cacheBytes int) *Evaluator {
	e := &Evaluator{content: content, wildcard: bitset.New(content.Len()), cache: resultCache{capacity: cacheBytes}}
	content.Active().Each(func(c uint32) {
		if len(content.Parents(c)) > 0 || len(content.Children(c)) > 0 {
			e.wildcard.Add(c)
		}
	})
	return e
}

// Evaluate returns the concepts that satisfy an expression. Callers must not modify the set. spend charges steps of about fifty
// nanoseconds; its error stops the evaluation and is returned. A nil spend means no limit. Other errors wrap [ErrInvalid].
//
// The wildcard means the active concepts of the hierarchy, so that *, << * and << 138875005 are equal (section 6.1); only the
// filter {{ C active }} also sees other concepts. Hierarchy operators and refinements match active concepts only (section 6.9).
// A relationship outside of relationship groups is a group of its own. Reverse attributes do not belong to groups.
func (e *Evaluator) Evaluate(x *Expression, spend func(steps int) error) (set bitset.Set, err error) {
	defer recoverFailure(&err)
	if spend == nil {
		spend = func(int) error { return nil }
	}
	v := &evaluation{
		evaluator: e, content: e.content, rels: e.content.Relationships(), values: e.content.ConcreteValues(),
		canonical: x.canonical, spend: spend,
	}
	return v.evaluate(&cacheable{node: x.root, to: len(x.canonical)}), nil
}

// evaluation is the evaluation of one expression. Its methods panic with a failure. They do not modify sets that they return.
type evaluation struct {
	evaluator *Evaluator
	content   Content
	rels      *Relationships
	values    *ConcreteValues
	canonical string
	spend     func(steps int) error
}

func (v *evaluation) fail(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)})
}

func (v *evaluation) charge(steps int) {
	if err := v.spend(steps); err != nil {
		panic(failure{err})
	}
}

// newSet returns an empty set.
func (v *evaluation) newSet() bitset.Set {
	s := bitset.New(v.content.Len())
	v.charge(1 + len(s)/32)
	return s
}

// clone returns a copy that may be modified.
func (v *evaluation) clone(s bitset.Set) bitset.Set {
	v.charge(1 + len(s)/32)
	return slices.Clone(s)
}

func (v *evaluation) evaluate(n node) bitset.Set {
	switch n := n.(type) {
	case *cacheable:
		return v.cached(n)
	case anyConcept:
		return v.evaluator.wildcard
	case concept, *alternateID:
		s := v.newSet()
		s.Add(v.number(n))
		return s
	case *hierarchy:
		return v.hierarchy(n)
	case *memberOf:
		return v.memberOf(n)
	case *filtered:
		if n.kind == 'C' {
			return v.conceptFilter(n)
		}
		return v.descriptionFilter(n)
	case *history:
		return v.history(n)
	case *compound:
		return v.compound(n)
	case *dotted:
		return v.dotted(n)
	case *refined:
		focus := v.clone(v.evaluate(n.operand))
		focus.Intersect(v.content.Active())
		return v.condition(n.refinement).concepts(focus)
	}
	panic(fmt.Sprintf("unexpected node %T", n))
}

func (v *evaluation) cached(n *cacheable) bitset.Set {
	text := v.canonical[n.from:n.to]
	if s := v.evaluator.cache.get(text); s != nil {
		v.charge(1)
		return s
	}
	s := v.evaluate(n.node)
	v.evaluator.cache.add(strings.Clone(text), s)
	return s
}

// number returns the number of a concept reference.
func (v *evaluation) number(n node) uint32 {
	if id, ok := n.(concept); ok {
		number, known := v.content.Number(uint64(id))
		if !known {
			v.fail("concept %d is not part of the edition", id)
		}
		return number
	}
	alternate := n.(*alternateID)
	number, known := v.content.AlternateIdentifier(alternate.scheme, alternate.code)
	if !known {
		v.fail("alternate identifier %s#%s is not part of the edition", alternate.scheme, alternate.code)
	}
	return number
}

func (v *evaluation) compound(n *compound) bitset.Set {
	result := v.clone(v.evaluate(n.operands[0]))
	for _, operand := range n.operands[1:] {
		switch operand.(type) {
		case concept, *alternateID:
			if n.operator == "OR" { // long lists of concepts are common
				v.charge(1)
				result.Add(v.number(operand))
				continue
			}
		}
		s := v.evaluate(operand)
		v.charge(1 + len(s)/32)
		switch n.operator {
		case "AND":
			result.Intersect(s)
		case "OR":
			result.Union(s)
		default:
			result.Subtract(s)
		}
	}
	return result
}

func (v *evaluation) hierarchy(n *hierarchy) bitset.Set {
	operand, up := v.evaluate(n.operand), strings.Contains(n.operator, ">")
	if strings.HasPrefix(n.operator, "!!") { // !!> X is X MINUS < X
		result := v.clone(operand)
		result.Subtract(v.related(operand, !up, false))
		return result
	}
	isDirect := strings.HasSuffix(n.operator, "!")
	result := v.related(operand, up, isDirect)
	if len(n.operator) > 1 && n.operator[1] == n.operator[0] {
		result.Union(operand)
	}
	result.Intersect(v.content.Active())
	return result
}

// related returns the ancestors or the descendants of the members of a set, or only the direct ones. Because parents have lower
// numbers than children, one pass over the words is sufficient. It reads memory in order, which is several times faster than
// following the hierarchy.
func (v *evaluation) related(of bitset.Set, up, isDirect bool) bitset.Set {
	reached := v.newSet()
	starts := reached // concepts from which the pass continues
	if isDirect {
		starts = of
	}
	for i := range of {
		if up {
			i = len(of) - 1 - i
		}
		if of[i]|starts[i] != 0 {
			v.addRelated(reached, of, starts, i, up)
		}
	}
	return reached
}

// addRelated adds the parents or the children of the members in a word, including those of members that it adds to starts.
func (v *evaluation) addRelated(reached, of, starts bitset.Set, i int, up bool) {
	for done := uint64(0); ; {
		word := (of[i] | starts[i]) &^ done
		if word == 0 {
			return
		}
		var bit int
		var list []uint32
		if up {
			bit = bits.Len64(word) - 1
			list = v.content.Parents(uint32(i*64 + bit))
		} else {
			bit = bits.TrailingZeros64(word)
			list = v.content.Children(uint32(i*64 + bit))
		}
		done |= 1 << bit
		v.charge(1 + len(list)/8)
		for _, n := range list {
			reached.Add(n)
		}
	}
}

// historyProfiles are the association reference sets of history supplements (section 6.11).
var historyProfiles = map[string][]uint64{
	"MIN": {900000000000527005},
	"MOD": {900000000000527005, 900000000000526001, 900000000000528000, 1186924009},
}

func (v *evaluation) history(n *history) bitset.Set {
	operand := v.evaluate(n.operand)
	result := v.clone(operand)
	for _, refset := range v.historyRefsets(n) {
		components, targets := v.content.Associations(refset)
		v.charge(1 + len(targets)/8)
		for i, target := range targets {
			if target != NoConcept && components[i] != NoConcept && operand.Has(target) {
				result.Add(components[i])
			}
		}
	}
	return result
}

// historyRefsets returns the reference sets of a history supplement. It ignores reference sets that are not part of the edition.
func (v *evaluation) historyRefsets(n *history) (list []uint32) {
	if n.subset != nil {
		v.evaluate(n.subset).Each(func(c uint32) { list = append(list, c) })
		return list
	}
	for _, id := range historyProfiles[n.profile] {
		if number, ok := v.content.Number(id); ok {
			list = append(list, number)
		}
	}
	if n.profile != "MAX" {
		return list
	}
	historical, ok := v.content.Number(900000000000522004)
	if !ok {
		return v.content.Refsets()
	}
	s := v.newSet()
	s.Add(historical)
	v.related(s, false, false).Each(func(c uint32) { list = append(list, c) })
	return list
}

// idTest returns the condition that an SCTID is selected by an expression, or not if the operator is !=. Concept references need not
// be part of the edition: subsets lack metadata concepts.
func (v *evaluation) idTest(operator string, n node) func(id uint64) bool {
	ids, isAny := make(map[uint64]bool), false
	list := []node{n}
	if c, ok := n.(*compound); ok && c.operator == "OR" {
		list = c.operands
	}
	for _, n := range list {
		switch n := n.(type) {
		case concept:
			ids[uint64(n)] = true
		case anyConcept:
			isAny = true
		default:
			v.evaluate(n).Each(func(c uint32) {
				v.charge(1)
				ids[v.content.ID(c)] = true
			})
		}
	}
	return func(id uint64) bool { return (isAny || ids[id]) == (operator == "=") }
}

// compare returns the result of a comparison. difference is negative if the left value is less than the right one.
func compare(operator string, difference int) bool {
	switch operator {
	case "=":
		return difference == 0
	case "!=":
		return difference != 0
	case "<":
		return difference < 0
	case "<=":
		return difference <= 0
	case ">":
		return difference > 0
	}
	return difference >= 0
}

// parseNumber parses a number after #.
func parseNumber(text string) (float64, bool) {
	text, ok := strings.CutPrefix(text, "#")
	value, err := strconv.ParseFloat(text, 64)
	return value, ok && err == nil
}
