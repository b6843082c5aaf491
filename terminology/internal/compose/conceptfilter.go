package compose

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// filters evaluates compose.include.filter, either for all concepts of a code system or for a single concept.
type filters struct {
	spend       func(steps int) error
	regexStates int                         // maximum number of automaton states of a regex
	relatives   map[relativesKey]bitset.Set // ancestors or descendants of the probe's concept
}

// relativesKey identifies the ancestors or descendants of the probe's concept.
type relativesKey struct {
	codeSystem  *definitions.CodeSystem
	descendants bool
}

// matchAll returns the concepts that match all filters.
func (fs *filters) matchAll(cs *definitions.CodeSystem, list []definitions.Filter) (selected bitset.Set, err error) {
	for i, f := range list {
		matching, err := fs.matchingConcepts(cs, f)
		if err != nil {
			return nil, prependExpression(err, "filter", i)
		}
		if selected == nil {
			selected = matching
			continue
		}
		for i := range selected {
			selected[i] &= matching[i]
		}
	}
	return selected, nil
}

// matchingConcepts returns the concepts that match a filter.
func (fs *filters) matchingConcepts(cs *definitions.CodeSystem, f definitions.Filter) (bitset.Set, error) {
	if set, ok, err := cs.Concepts.FilterEvaluator.EvaluateFilter(f.Property, f.Op, f.Value, fs.spend); ok || err != nil {
		return set, err
	}
	if isHierarchical(f) {
		other, err := filterConcept(cs, f)
		if err != nil {
			return nil, err
		}
		return fs.relatedConcepts(cs, f.Op, other.Number)
	}
	test, err := newCondition(cs, f, fs.regexStates, fs.spend)
	if err != nil {
		return nil, err
	}
	matching := bitset.New(cs.Concepts.Len())
	for concept := range uint32(cs.Concepts.Len()) {
		matches, err := test.matchesConcept(codesystem.ConceptAt(concept))
		if err != nil {
			return nil, err
		}
		if matches {
			matching.Add(concept)
		}
	}
	return matching, nil
}

// relatedConcepts returns the concepts with the hierarchical relation op to other.
func (fs *filters) relatedConcepts(cs *definitions.CodeSystem, op string, other uint32) (bitset.Set, error) {
	hierarchy, n := cs.Concepts.Hierarchy, cs.Concepts.Len()
	matching := bitset.New(n)
	if op == "child-of" {
		for _, child := range hierarchy.Children(other) {
			matching.Add(child)
		}
		return matching, fs.spend(n/64 + len(hierarchy.Children(other)))
	}
	closure := hierarchy.Below
	if op == "generalizes" {
		closure = hierarchy.Above
	}
	related, err := closure(other, fs.spend)
	if err != nil {
		return nil, err
	}
	add := func(concept uint32) {
		if hasRelation(cs, op, codesystem.ConceptAt(concept), codesystem.ConceptAt(other), related.Has(concept)) {
			matching.Add(concept)
		}
	}
	if op != "is-not-a" {
		related.Each(add)
		add(other)
		return matching, nil
	}
	for concept := range uint32(n) {
		add(concept)
	}
	return matching, fs.spend(n)
}

// matches reports whether the probe's concept matches a filter.
func (fs *filters) matches(cs *definitions.CodeSystem, concept codesystem.Concept, f definitions.Filter) (bool, error) {
	if concept.Code != nil {
		if matches, ok, err := cs.Concepts.FilterEvaluator.MatchesFilter(concept, f.Property, f.Op, f.Value, fs.spend); ok || err != nil {
			return matches, err
		}
	}
	test, err := fs.newTest(cs, f)
	if err != nil {
		return false, err
	}
	return test(concept)
}

// newTest returns a function that reports whether a concept matches a filter, without computing all matches. For a hierarchical
// filter, the function may be called for only one concept.
func (fs *filters) newTest(cs *definitions.CodeSystem, f definitions.Filter) (func(c codesystem.Concept) (bool, error), error) {
	if set, ok, err := cs.Concepts.FilterEvaluator.EvaluateFilter(f.Property, f.Op, f.Value, fs.spend); ok || err != nil {
		return func(c codesystem.Concept) (bool, error) { return set.Has(c.Number), nil }, err
	}
	if !isHierarchical(f) {
		test, err := newCondition(cs, f, fs.regexStates, fs.spend)
		if err != nil {
			return nil, err
		}
		return test.matchesConcept, nil
	}
	other, err := filterConcept(cs, f)
	return func(concept codesystem.Concept) (bool, error) {
		if f.Op == "child-of" {
			parents := cs.Concepts.Hierarchy.Parents(concept.Number)
			return slices.Contains(parents, other.Number), fs.spend(len(parents))
		}
		relatives, err := fs.relativesOf(cs, concept.Number, f.Op == "generalizes")
		return err == nil && hasRelation(cs, f.Op, concept, other, relatives.Has(other.Number)), err
	}, err
}

// relativesOf returns the ancestors (or descendants if below is set) of the probe's concept. They are computed once. There are
// few of them, whereas the matches of a filter may be half of a code system.
func (fs *filters) relativesOf(cs *definitions.CodeSystem, concept uint32, below bool) (bitset.Set, error) {
	key := relativesKey{codeSystem: cs, descendants: below}
	if found, ok := fs.relatives[key]; ok {
		return found, nil
	}
	closure := cs.Concepts.Hierarchy.Above
	if below {
		closure = cs.Concepts.Hierarchy.Below
	}
	found, err := closure(concept, fs.spend)
	if err == nil {
		if fs.relatives == nil {
			fs.relatives = make(map[relativesKey]bitset.Set)
		}
		fs.relatives[key] = found
	}
	return found, err
}

// hierarchicalOperators are the filter operators that use the hierarchy.
var hierarchicalOperators = []string{"is-a", "descendent-of", "descendent-leaf", "is-not-a", "child-of", "generalizes"}

// isHierarchical reports whether a filter uses the hierarchy.
func isHierarchical(f definitions.Filter) bool { return slices.Contains(hierarchicalOperators, f.Op) }

// newNoValueError returns the error for a filter without a value.
func newNoValueError(cs *definitions.CodeSystem, f definitions.Filter) error {
	e := outcome.New(http.StatusUnprocessableEntity, "invalid", "vs-invalid", "UNABLE_TO_HANDLE_SYSTEM_FILTER_WITH_NO_VALUE",
		fmt.Sprintf("The system %s filter with property = %s, op = %s has no value", cs.URL, f.Property, f.Op))
	e.Expression = []string{""} // prependExpression adds the location
	return e
}

// filterConcept returns the concept that a hierarchical filter refers to.
func filterConcept(cs *definitions.CodeSystem, f definitions.Filter) (c codesystem.Concept, err error) {
	if f.Value == "" {
		return c, newNoValueError(cs, f)
	}
	if f.Property != "concept" && f.Property != "code" {
		return c, newPropertyError(cs, f)
	}
	c, ok := cs.Concepts.Locate([]byte(f.Value))
	if !ok || c.Code != nil && cs.Concepts.List != nil { // the hierarchy contains only listed concepts
		return c, outcome.NewIncomplete("not-found", "code system %s has no concept %q, to which a filter with op %q refers", cs.Canonical(), f.Value, f.Op)
	}
	return c, nil
}

// hasRelation reports whether concept has the hierarchical relation op, but not child-of, to other. related specifies whether
// concept is below other or, for generalizes, above it. In a cyclic hierarchy, a concept may be below itself.
func hasRelation(cs *definitions.CodeSystem, op string, concept, other codesystem.Concept, related bool) bool {
	same := cs.IsSame(concept, other)
	switch op {
	case "descendent-of":
		return related && !same
	case "descendent-leaf":
		return related && !same && len(cs.Concepts.Hierarchy.Children(concept.Number)) == 0
	case "is-not-a":
		return !related && !same
	}
	return related || same
}

// valueVisitor calls visit with the values of a property of a concept until visit returns false.
type valueVisitor func(concept codesystem.Concept, visit func(value []byte) bool)

// valuesOf returns the visitor for the property of a filter, and the index of the property in the code system. The index is -1
// for hierarchical properties and for those that every concept has (code and display).
func valuesOf(cs *definitions.CodeSystem, f definitions.Filter) (visitor valueVisitor, property int, err error) {
	switch f.Property {
	case "concept", "code":
		return func(concept codesystem.Concept, visit func([]byte) bool) { visit(cs.Concepts.Code(concept)) }, -1, nil
	case "display":
		return func(concept codesystem.Concept, visit func([]byte) bool) {
			if _, display, _ := cs.Concepts.Concept(concept); display != nil {
				visit(display)
			}
		}, -1, nil
	case "parent":
		return relatedCodes(cs, cs.Concepts.Hierarchy.Parents), -1, nil
	case "child":
		return relatedCodes(cs, cs.Concepts.Hierarchy.Children), -1, nil
	}
	property = slices.IndexFunc(cs.Concepts.Filterable.Properties(), func(p codesystem.Property) bool { return p.Code == f.Property })
	if property < 0 {
		return nil, -1, newPropertyError(cs, f)
	}
	return func(concept codesystem.Concept, visit func([]byte) bool) {
		cs.Concepts.Filterable.Values(concept, property, visit)
	}, property, nil
}

func relatedCodes(cs *definitions.CodeSystem, of func(concept uint32) []uint32) valueVisitor {
	return func(concept codesystem.Concept, visit func([]byte) bool) {
		for _, other := range of(concept.Number) {
			if !visit(cs.Concepts.Code(codesystem.ConceptAt(other))) {
				return
			}
		}
	}
}

func newPropertyError(cs *definitions.CodeSystem, f definitions.Filter) error {
	return outcome.NewIncomplete("not-supported", "code system %s has no property %q for a filter with op %q", cs.Canonical(), f.Property, f.Op)
}

// prependExpression prepends list[i] to the Expression of an error for an invalid filter, unless it is already complete.
func prependExpression(err error, list string, i int) error {
	if e, ok := errors.AsType[*outcome.Error](err); ok && len(e.Expression) == 1 && !strings.HasPrefix(e.Expression[0], "ValueSet.") {
		e.Expression[0] = strings.TrimSuffix(fmt.Sprintf("%s[%d].%s", list, i, e.Expression[0]), ".")
	}
	return err
}

// Costs of examining values. One step examines regexBytesPerStep bytes per automaton state.
const (
	regexBytesPerStep = 2    // bytes per step and state
	unicodeClassSteps = 2000 // steps for compiling a Unicode class such as \pL, which has hundreds of ranges
)

// condition tests concepts against a filter on a property.
type condition struct {
	values     valueVisitor
	match      func(value []byte) bool
	stateCount int  // automaton states of a regex, which determine the cost per byte; 0 if there is no regex
	negated    bool // whether the filter matches concepts without a matching value
	spend      func(n int) error

	visit   func(value []byte) bool // t.testValue, allocated only once
	matches bool
	err     error
}

func (t *condition) matchesConcept(concept codesystem.Concept) (bool, error) {
	if err := t.spend(1); err != nil {
		return false, err
	}
	t.matches, t.err = false, nil
	t.values(concept, t.visit)
	return t.matches != t.negated, t.err
}

// testValue tests a value and reports whether the next value must be tested.
func (t *condition) testValue(value []byte) bool {
	cost := 1 + len(value)/budget.PlainBytesPerStep
	if t.stateCount > 0 {
		cost = 1 + len(value)*t.stateCount/regexBytesPerStep
	}
	if t.err = t.spend(cost); t.err != nil {
		return false
	}
	t.matches = t.match(value)
	return !t.matches
}

// newCondition returns the condition for a non-hierarchical filter. regexStates is the maximum number of automaton states.
func newCondition(cs *definitions.CodeSystem, f definitions.Filter, regexStates int, spend func(steps int) error) (*condition, error) {
	if f.Value == "" {
		return nil, newNoValueError(cs, f)
	}
	values, property, err := valuesOf(cs, f)
	if err != nil {
		return nil, err
	}
	t := &condition{values: values, spend: spend}
	t.visit = t.testValue
	switch f.Op {
	case "=":
		f.Value, err = normalizeValue(cs, f, property, f.Value)
		t.match = func(value []byte) bool { return string(value) == f.Value }
	case "in", "not-in":
		t.negated = f.Op == "not-in"
		if err = spend(len(f.Value) / 4); err == nil {
			t.match, err = newListMatcher(f.Value, func(member string) (string, error) { return normalizeValue(cs, f, property, member) })
		}
	case "regex":
		t.match, t.stateCount, err = newRegexMatcher(cs, f, regexStates, spend)
	case "exists":
		t.match = func([]byte) bool { return true }
		t.negated = f.Value == "false"
		if f.Value != "true" && f.Value != "false" {
			err = outcome.Unprocessable("invalid", "the filter on %s of code system %s with op exists has the value %q, not true or false", f.Property, cs.Canonical(), f.Value)
		}
	default:
		err = outcome.NewIncomplete("not-supported", "the filter operator %q on %s of code system %s is not supported", f.Op, f.Property, cs.Canonical())
	}
	return t, err
}

// normalizeValue normalizes the value of a filter on a property.
func normalizeValue(cs *definitions.CodeSystem, f definitions.Filter, property int, value string) (string, error) {
	if property < 0 {
		return value, nil
	}
	value, err := cs.Concepts.FilterReader.FilterValue(property, value)
	if err != nil {
		return "", outcome.Unprocessable("invalid", "the filter on %s of code system %s has the invalid value %q: %v", f.Property, cs.Canonical(), f.Value, err)
	}
	return value, nil
}

// newListMatcher returns a function that reports whether a list of values contains a value. read normalizes members.
func newListMatcher(list string, read func(member string) (string, error)) (func(value []byte) bool, error) {
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

// newRegexMatcher returns a function that reports whether a regex matches an entire value (R4 §4.9.5.3), and the number of its
// automaton states. It returns an error if there are too many states or the regex is invalid.
func newRegexMatcher(cs *definitions.CodeSystem, f definitions.Filter, maxStates int, spend func(steps int) error) (match func(value []byte) bool, states int, err error) {
	// Only a regex with long character classes can have so many bytes per state. Parsing it would be costly too.
	if longest := 8 * max(maxStates, 1000); len(f.Value) > longest {
		return nil, 0, outcome.Unprocessable("too-costly",
			"the regex in a filter on %s of code system %s is longer than %d bytes", f.Property, cs.Canonical(), longest)
	}
	classes := strings.Count(f.Value, `\p`) + strings.Count(f.Value, `\P`)
	if err := spend(len(f.Value) + classes*unicodeClassSteps); err != nil {
		return nil, 0, err
	}
	states, err = regexStates(f.Value)
	if states > maxStates {
		return nil, 0, outcome.Unprocessable("too-costly",
			"the regex in a filter on %s of code system %s is too complex: it needs about %d states, more than %d; shorten it or reduce its repetitions",
			f.Property, cs.Canonical(), states, maxStates)
	}
	if err := spend(4 * states); err != nil {
		return nil, 0, err
	}
	var expression *regexp.Regexp
	if err == nil { // otherwise, the added group could balance unbalanced parentheses
		expression, err = regexp.Compile(`\A(?:` + f.Value + `)\z`)
	}
	if err != nil {
		return nil, 0, &outcome.Error{
			Status: http.StatusUnprocessableEntity, Code: "invalid", Err: fmt.Errorf("filter: %w", err),
			Text: fmt.Sprintf("the regex %q in a filter on %s of code system %s is invalid: %v", f.Value, f.Property, cs.Canonical(), err),
		}
	}
	return expression.Match, max(1, states), nil
}

// regexStates estimates the automaton states of a regex without compiling it, which could need 100 MB of memory.
func regexStates(pattern string) (int, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	return countStates(parsed), nil
}

// countStates estimates the automaton states of a part of a regex. The parser limits repetitions, so it cannot overflow.
func countStates(part *syntax.Regexp) int {
	n := 0
	for _, sub := range part.Sub {
		n += countStates(sub)
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

// grammarInclude is an include, without enumerated concepts, from a code system that cannot be listed completely.
type grammarInclude struct {
	evaluator *Evaluator
	set       *definitions.ConceptSet
	index     uint32
	cs        *definitions.CodeSystem
}

// entries returns the candidates that belong to the code system and match the filters.
func (g *grammarInclude) entries() (entries []definitions.Entry, err error) {
	c := g.evaluator
	candidates, err := g.candidates()
	if err == nil {
		err = c.spend(len(candidates) * parseSteps)
	}
	if err != nil {
		return nil, err
	}
	matchesFilters, err := c.filters.newTestAll(g.cs, g.set.Filters)
	if err != nil {
		return nil, err
	}
	for _, e := range candidates {
		at, ok := g.cs.Concepts.Locate(c.definitions.Code(e))
		if !ok || c.definitions.Systems.List[c.definitions.SystemOf(e)].URL != g.cs.URL {
			continue
		}
		if ok, err = matchesFilters(at); err != nil {
			return nil, err
		}
		if ok && c.excludeFrom == nil {
			e = definitions.Entry{CodeSystem: g.index, Concept: definitions.UnlistedConcept, Row: e.Row}
		}
		if ok && (e.Row != 0 || e.HasConceptNumber()) {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// candidates returns the codes that the include may contain. In an exclude, these are the entries from which codes are
// excluded. Otherwise, they are the codes of the first imported value set or, if there is none, the common codes.
func (g *grammarInclude) candidates() ([]definitions.Entry, error) {
	c := g.evaluator
	if c.excludeFrom != nil {
		c.current.dependsOnExcludes = true
		return *c.excludeFrom, nil
	}
	if len(g.set.ValueSets) > 0 {
		x, err := c.expandImport(g.set.ValueSets[0])
		if err != nil {
			return nil, err
		}
		return x.Entries, nil
	}
	vs, ok := c.definitions.ResolveValueSet(g.cs.CommonCodes, c.rules.Date)
	if !ok {
		return nil, g.cs.NotEnumerableError()
	}
	x, err := c.Evaluate(vs)
	if err != nil {
		return nil, err
	}
	basis := GrammarBasis{CodeSystem: g.index}
	if len(g.set.Filters) == 0 {
		basis.ValueSet = vs
	}
	definitions.AppendUnique(&c.current.GrammarBases, basis)
	return x.Entries, nil
}

// evaluateExcludes returns the codes that excludes exclude from entries.
func (c *Evaluator) evaluateExcludes(sets []definitions.ConceptSet, entries []definitions.Entry) ([]definitions.Entry, error) {
	outer := c.excludeFrom
	if c.Probe == nil {
		c.excludeFrom = &entries
	}
	defer func() { c.excludeFrom = outer }()
	return c.union(sets, "exclude")
}

// newTestAll returns a function that reports whether a concept of a grammar matches all filters.
func (fs *filters) newTestAll(cs *definitions.CodeSystem, list []definitions.Filter) (func(c codesystem.Concept) (bool, error), error) {
	tests := make([]func(codesystem.Concept) (bool, error), len(list))
	for i, f := range list {
		test, err := fs.newTest(cs, f)
		if err != nil {
			return nil, prependExpression(err, "filter", i)
		}
		tests[i] = test
	}
	return func(c codesystem.Concept) (matches bool, err error) {
		for i, test := range tests {
			if matches, err = test(c); err != nil || !matches {
				return false, prependExpression(err, "filter", i)
			}
		}
		return true, nil
	}, nil
}
