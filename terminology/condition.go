package terminology

import (
	"fmt"
	"net/http"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// condition tests concepts by a filter on a property.
type condition struct {
	values valueVisitor
	match  func(value []byte) bool
	states int  // of a regex: the cost of each byte of a value
	not    bool // the filter holds if no value matches
	spend  func(n int) error

	visit   func(value []byte) bool // look, made once
	matches bool
	err     error
}

const (
	regexBytes = 2    // looked at in one step by one state of a regex
	plainBytes = 32   // looked at in one step otherwise
	classSteps = 2000 // the cost of a Unicode class such as \pL, which has hundreds of ranges to compile
)

func (t *condition) holds(concept codesystem.Concept) (bool, error) {
	if err := t.spend(1); err != nil {
		return false, err
	}
	t.matches, t.err = false, nil
	t.values(concept, t.visit)
	return t.matches != t.not, t.err
}

// look tests one value, and reports whether to go on to the next.
func (t *condition) look(value []byte) bool {
	cost := 1 + len(value)/plainBytes
	if t.states > 0 {
		cost = 1 + len(value)*t.states/regexBytes
	}
	if t.err = t.spend(cost); t.err != nil {
		return false
	}
	t.matches = t.match(value)
	return !t.matches
}

// condition returns the condition of a filter that is not hierarchical.
func (c *composer) condition(cs *codeSystem, f filter) (*condition, error) {
	if f.value == "" {
		return nil, cs.noValue(f)
	}
	t := &condition{spend: c.spend}
	t.visit = t.look
	var err error
	switch f.op {
	case "=":
		t.match = func(value []byte) bool { return string(value) == f.value }
	case "in", "not-in":
		t.not = f.op == "not-in"
		if err = c.spend(len(f.value) / 4); err == nil {
			t.match = memberOf(f.value)
		}
	case "regex":
		t.match, t.states, err = c.regex(cs, f)
	case "exists":
		t.match = func([]byte) bool { return true }
		t.not = f.value == "false"
		if f.value != "true" && f.value != "false" {
			err = unprocessable("invalid", "the filter on %s of code system %s with op exists has the value %q, not true or false", f.property, cs.canonical(), f.value)
		}
	default:
		err = incomplete("not-supported", "the filter operator %q on %s of code system %s is not supported", f.op, f.property, cs.canonical())
	}
	if err != nil {
		return nil, err
	}
	t.values, err = cs.valuesOf(f)
	return t, err
}

// memberOf tests whether a value is in a list separated by commas.
func memberOf(list string) func(value []byte) bool {
	members := make(map[string]bool)
	for member := range strings.SplitSeq(list, ",") {
		members[strings.TrimSpace(member)] = true
	}
	return func(value []byte) bool { return members[string(value)] }
}

// regex returns what tests whether a regex matches a whole value (R4 §4.9.5.3), and the number of its states. It fails if
// the regex is too large.
func (c *composer) regex(cs *codeSystem, f filter) (match func(value []byte) bool, states int, err error) {
	most := c.library.bounds.regexStates
	// Only a regex with long lists of characters has so many bytes for each state, and reading it takes time too.
	if longest := 8 * max(most, 1000); len(f.value) > longest {
		return nil, 0, unprocessable("too-costly",
			"the regex in a filter on %s of code system %s is longer than %d bytes", f.property, cs.canonical(), longest)
	}
	classes := strings.Count(f.value, `\p`) + strings.Count(f.value, `\P`)
	if err := c.spend(len(f.value) + classes*classSteps); err != nil {
		return nil, 0, err
	}
	states, err = regexStates(f.value)
	if states > most {
		return nil, 0, unprocessable("too-costly",
			"the regex in a filter on %s of code system %s is too large: it takes some %d states, more than %d; shorten it, or lower its repetitions",
			f.property, cs.canonical(), states, most)
	}
	if err := c.spend(4 * states); err != nil {
		return nil, 0, err
	}
	var expression *regexp.Regexp
	if err == nil { // it does not close the brackets that it is put into
		expression, err = regexp.Compile(`\A(?:` + f.value + `)\z`)
	}
	if err != nil {
		return nil, 0, &Error{
			Status: http.StatusUnprocessableEntity, Code: "invalid", Err: fmt.Errorf("filter: %w", err),
			Text: fmt.Sprintf("the regex %q in a filter on %s of code system %s is wrong: %v", f.value, f.property, cs.canonical(), err),
		}
	}
	return expression.Match, max(1, states), nil
}

// regexStates estimates how many states the automaton of a regex has, without making it: that might take a hundred
// megabytes.
func regexStates(pattern string) (int, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	return statesOf(parsed), nil
}

// statesOf estimates the states of a part of a regex. The parser bounds nested repetitions, so the product fits.
func statesOf(part *syntax.Regexp) int {
	n := 0
	for _, sub := range part.Sub {
		n += statesOf(sub)
	}
	switch part.Op {
	case syntax.OpLiteral:
		return len(part.Rune)
	case syntax.OpConcat:
		return n
	case syntax.OpRepeat:
		return n * max(1, part.Min, part.Max)
	}
	return n + 1
}

// valueVisitor calls visit with a concept's values of some property until it returns false.
type valueVisitor func(concept codesystem.Concept, visit func(value []byte) bool)

// valuesOf returns the visitor for a filter's property: one that every concept has, one of the hierarchy, or one of the
// code system.
func (cs *codeSystem) valuesOf(f filter) (valueVisitor, error) {
	switch f.property {
	case "concept", "code":
		return func(concept codesystem.Concept, visit func([]byte) bool) { visit(cs.concepts.Code(concept)) }, nil
	case "display":
		return func(concept codesystem.Concept, visit func([]byte) bool) {
			if _, display, _ := cs.concepts.Concept(concept); display != nil {
				visit(display)
			}
		}, nil
	case "parent":
		return cs.relatedCodes(cs.concepts.Hierarchy.Parents), nil
	case "child":
		return cs.relatedCodes(cs.concepts.Hierarchy.Children), nil
	}
	property := slices.IndexFunc(cs.concepts.Filters.Properties(), func(p codesystem.Property) bool { return p.Code == f.property })
	if property < 0 {
		return nil, cs.unknownProperty(f)
	}
	return func(concept codesystem.Concept, visit func([]byte) bool) {
		cs.concepts.Filters.Values(concept, property, visit)
	}, nil
}

func (cs *codeSystem) relatedCodes(of func(concept uint32) []uint32) valueVisitor {
	return func(concept codesystem.Concept, visit func([]byte) bool) {
		for _, other := range of(concept.Number) {
			if !visit(cs.concepts.Code(codesystem.At(other))) {
				return
			}
		}
	}
}

func (cs *codeSystem) unknownProperty(f filter) error {
	return incomplete("not-supported", "code system %s has no property %q that a filter with op %q could use", cs.canonical(), f.property, f.op)
}
