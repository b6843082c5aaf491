package compose

import (
	"fmt"
	"net/http"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// What looking at values costs.
const (
	regexBytes = 2    // looked at in one step by one state of a regex
	classSteps = 2000 // the cost of a Unicode class such as \pL, which has hundreds of ranges to compile
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
	cost := 1 + len(value)/budget.PlainBytes
	if t.states > 0 {
		cost = 1 + len(value)*t.states/regexBytes
	}
	if t.err = t.spend(cost); t.err != nil {
		return false
	}
	t.matches = t.match(value)
	return !t.matches
}

// newCondition returns the condition of a filter that is not hierarchical, whose regex may have so many states.
func newCondition(cs *definitions.CodeSystem, f definitions.Filter, regexStates int, spend func(steps int) error) (*condition, error) {
	if f.Value == "" {
		return nil, noValue(cs, f)
	}
	values, property, err := valuesOf(cs, f)
	if err != nil {
		return nil, err
	}
	t := &condition{values: values, spend: spend}
	t.visit = t.look
	switch f.Op {
	case "=":
		f.Value, err = readValue(cs, f, property, f.Value)
		t.match = func(value []byte) bool { return string(value) == f.Value }
	case "in", "not-in":
		t.not = f.Op == "not-in"
		if err = spend(len(f.Value) / 4); err == nil {
			t.match, err = memberOf(f.Value, func(member string) (string, error) { return readValue(cs, f, property, member) })
		}
	case "regex":
		t.match, t.states, err = newRegex(cs, f, regexStates, spend)
	case "exists":
		t.match = func([]byte) bool { return true }
		t.not = f.Value == "false"
		if f.Value != "true" && f.Value != "false" {
			err = outcome.Unprocessable("invalid", "the filter on %s of code system %s with op exists has the value %q, not true or false", f.Property, cs.Canonical(), f.Value)
		}
	default:
		err = outcome.Incomplete("not-supported", "the filter operator %q on %s of code system %s is not supported", f.Op, f.Property, cs.Canonical())
	}
	return t, err
}

// readValue returns the value that a filter on a property means.
func readValue(cs *definitions.CodeSystem, f definitions.Filter, property int, value string) (string, error) {
	if property < 0 {
		return value, nil
	}
	value, err := cs.Concepts.FilterReader.FilterValue(property, value)
	if err != nil {
		return "", outcome.Unprocessable("invalid", "the filter on %s of code system %s has the value %q: %v", f.Property, cs.Canonical(), f.Value, err)
	}
	return value, nil
}

// memberOf tests whether a value is in a list separated by commas, whose members are to be read.
func memberOf(list string, read func(member string) (string, error)) (func(value []byte) bool, error) {
	members := make(map[string]bool)
	for member := range strings.SplitSeq(list, ",") {
		value, err := read(strings.TrimSpace(member))
		if err != nil {
			return nil, err
		}
		members[value] = true
	}
	return func(value []byte) bool { return members[string(value)] }, nil
}

// newRegex returns what tests whether a regex matches a whole value (R4 §4.9.5.3), and the number of its states. It fails if
// the regex is too large.
func newRegex(cs *definitions.CodeSystem, f definitions.Filter, most int, spend func(steps int) error) (match func(value []byte) bool, states int, err error) {
	// Only a regex with long lists of characters has so many bytes for each state, and reading it takes time too.
	if longest := 8 * max(most, 1000); len(f.Value) > longest {
		return nil, 0, outcome.Unprocessable("too-costly",
			"the regex in a filter on %s of code system %s is longer than %d bytes", f.Property, cs.Canonical(), longest)
	}
	classes := strings.Count(f.Value, `\p`) + strings.Count(f.Value, `\P`)
	if err := spend(len(f.Value) + classes*classSteps); err != nil {
		return nil, 0, err
	}
	states, err = regexStates(f.Value)
	if states > most {
		return nil, 0, outcome.Unprocessable("too-costly",
			"the regex in a filter on %s of code system %s is too large: it takes some %d states, more than %d; shorten it, or lower its repetitions",
			f.Property, cs.Canonical(), states, most)
	}
	if err := spend(4 * states); err != nil {
		return nil, 0, err
	}
	var expression *regexp.Regexp
	if err == nil { // it does not close the brackets that it is put into
		expression, err = regexp.Compile(`\A(?:` + f.Value + `)\z`)
	}
	if err != nil {
		return nil, 0, &outcome.Error{
			Status: http.StatusUnprocessableEntity, Code: "invalid", Err: fmt.Errorf("filter: %w", err),
			Text: fmt.Sprintf("the regex %q in a filter on %s of code system %s is wrong: %v", f.Value, f.Property, cs.Canonical(), err),
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
