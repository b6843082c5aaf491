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

// condition tells whether a filter that is about a property holds for a concept.
type condition struct {
	values valueVisitor
	match  func(value []byte) bool
	states int  // of the regex, or 0: looking at a value costs as much for each byte
	not    bool // the filter holds where no value matches
	spend  func(n int) error

	visit   func(value []byte) bool // look; made once
	matches bool
	err     error
}

// How many bytes are looked at in one step: by a regex, for each of its states, or otherwise.
const (
	regexBytes = 2
	plainBytes = 32
)

// holds reports whether the filter holds for a concept.
func (t *condition) holds(concept uint32) (bool, error) {
	if err := t.spend(1); err != nil {
		return false, err
	}
	t.matches, t.err = false, nil
	t.values(concept, t.visit)
	return t.matches != t.not, t.err
}

// look looks at one value, and reports whether to go on to the next.
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

// test returns the test for a filter that is not hierarchical.
func (e *filterEvaluator) test(cs *codeSystem, f filter) (*condition, error) {
	if f.value == "" {
		return nil, cs.noValue(f)
	}
	t := &condition{spend: e.spend}
	t.visit = t.look
	var err error
	switch f.op {
	case "=":
		t.match = func(value []byte) bool { return string(value) == f.value }
	case "in", "not-in":
		t.not = f.op == "not-in"
		if err = e.spend(len(f.value) / 4); err == nil {
			t.match = memberOf(f.value)
		}
	case "regex":
		t.match, t.states, err = e.regex(cs, f)
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

// memberOf tests whether a value is in a list with commas between its members.
func memberOf(list string) func(value []byte) bool {
	members := make(map[string]bool)
	for member := range strings.SplitSeq(list, ",") {
		members[strings.TrimSpace(member)] = true
	}
	return func(value []byte) bool { return members[string(value)] }
}

// regex returns what tells whether the whole of a value matches a regex (R4 §4.9.5.3), and how many states that
// has, unless it is too large.
func (e *filterEvaluator) regex(cs *codeSystem, f filter) (match func(value []byte) bool, states int, err error) {
	most := e.regexStates
	if len(f.value) > maxRegexLength(most) {
		return nil, 0, issue(http.StatusUnprocessableEntity, "too-costly", "", "", fmt.Sprintf(
			"the regex in a filter on %s of code system %s is longer than %d bytes", f.property, cs.canonical(), maxRegexLength(most)))
	}
	// A class as \pL has hundreds of ranges, which take as long to read as the rest of the regex.
	classes := strings.Count(f.value, `\p`) + strings.Count(f.value, `\P`)
	if err := e.spend(len(f.value) + classes*classSteps); err != nil {
		return nil, 0, err
	}
	if states = regexStates(f.value); states > most {
		return nil, 0, issue(http.StatusUnprocessableEntity, "too-costly", "", "", fmt.Sprintf(
			"the regex in a filter on %s of code system %s is too large: it takes some %d states, more than %d; shorten it, or lower its repetitions",
			f.property, cs.canonical(), states, most))
	}
	if err := e.spend(4 * states); err != nil {
		return nil, 0, err
	}
	_, err = syntax.Parse(f.value, syntax.Perl) // alone first: it could close the brackets that it is put into
	var expression *regexp.Regexp
	if err == nil {
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

// classSteps is what it takes to read a Unicode class of a regex, as often as that is read until it is compiled.
const classSteps = 2000

// maxRegexLength is how long a regex may be that may have so many states. Only one with long lists of characters
// is longer than that, and reading it takes time too.
func maxRegexLength(states int) int { return 8 * max(states, 1000) }

// regexStates estimates how many states the automaton for a regex has; 0 if it is invalid. Making the automaton to find
// out might take a hundred megabytes.
func regexStates(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return statesOf(parsed)
}

// statesOf returns how many states a part of a regex makes. The parser has bounded the repetitions within each
// other, so that the product fits.
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

// valueVisitor calls visit with a concept's values of some property until visit returns false.
type valueVisitor func(concept uint32, visit func(value []byte) bool)

// valuesOf returns how to get the values of a filter's property: one that every concept has, one of the
// hierarchy, or one that the code system defines.
func (cs *codeSystem) valuesOf(f filter) (valueVisitor, error) {
	switch f.property {
	case "concept", "code":
		return func(concept uint32, visit func([]byte) bool) { visit(cs.Code(concept)) }, nil
	case "display":
		return func(concept uint32, visit func([]byte) bool) {
			if display := cs.Display(concept); display != nil {
				visit(display)
			}
		}, nil
	case "parent":
		return cs.relatedCodes(cs.Parents), nil
	case "child":
		return cs.relatedCodes(cs.Children), nil
	}
	property := slices.IndexFunc(cs.Properties(), func(p codesystem.Property) bool { return p.Code == f.property })
	if property < 0 {
		return nil, cs.unknownProperty(f)
	}
	return func(concept uint32, visit func([]byte) bool) { cs.Values(concept, property, visit) }, nil
}

// relatedCodes visits the codes of the concepts that are related to one.
func (cs *codeSystem) relatedCodes(of func(concept uint32) []uint32) valueVisitor {
	return func(concept uint32, visit func([]byte) bool) {
		for _, other := range of(concept) {
			if !visit(cs.Code(other)) {
				return
			}
		}
	}
}

// unknownProperty is the error for a filter on a property that cannot be judged.
func (cs *codeSystem) unknownProperty(f filter) error {
	return incomplete("not-supported", "code system %s has no property %q that a filter with op %q could use", cs.canonical(), f.property, f.op)
}
