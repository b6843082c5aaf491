package snomed

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/snomedtest"
)

// TestExpressions checks the display of valid expressions and the reason why others are invalid.
func TestExpressions(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 100})
	site, focus, other := snomedtest.FindingSite, snomedtest.Concept(2), snomedtest.Concept(3)
	term := func(code string) string { return code + "|" + string(s.snapshot.term(s.number(t, code))) + "|" }
	for text, want := range map[string]string{
		focus + ":" + site + "=" + other:                                          term(focus) + ":" + term(site) + "=" + term(other),
		focus + " |wrong| : { " + site + " = " + other + " } ":                    term(focus) + ":{" + term(site) + "=" + term(other) + "}",
		"=== " + focus + " + " + other:                                            "=== " + term(focus) + "+" + term(other),
		focus + ":" + site + "=(" + other + ":" + site + "=" + focus + ")":        term(focus) + ":" + term(site) + "=(" + term(other) + ":" + term(site) + "=" + term(focus) + ")",
		focus + ":{" + snomedtest.Strength + "=#500}{" + site + "=" + other + "}": term(focus) + ":{" + term(snomedtest.Strength) + "=#500},{" + term(site) + "=" + term(other) + "}",
		focus + ":" + snomedtest.Strength + `="a,b"`:                              term(focus) + ":" + term(snomedtest.Strength) + `="a,b"`,
	} {
		c, ok := s.Locate([]byte(text))
		_, display, _ := s.Concept(c)
		if !ok || string(display) != want || string(s.Code(c)) != text {
			t.Errorf("%s: got %s, want %s", text, display, want)
		}
	}
	for text, want := range map[string]string{
		"freetext":                                            `Concept not found (next char = "f", in "freetext") at character 1`,
		focus + ":":                                           `Concept not found (next char = ""`,
		"1234567:" + site + "=" + other:                       "Concept 1234567 not found",
		focus + ":" + other + "=" + focus:                     "Concept " + other + " is not valid in this context",
		focus + ":" + site:                                    "= not found",
		focus + ":{" + site + "=" + other:                     "} not found",
		focus + ":" + site + "=" + other + ")":                "the end not found",
		focus + "|unclosed":                                   "no closing |",
		focus + ":" + site + `="unclosed`:                     "closing quotation mark",
		focus + ":" + strings.Repeat(site+"=("+focus+":", 20): "nested more than 8 deep",
		focus + strings.Repeat(" ", 5000):                     "longer than 4096 bytes",
	} {
		if _, ok := s.Locate([]byte(text)); ok {
			t.Errorf("%s is valid", text)
		}
		if got := s.InvalidReason([]byte(text)); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// FuzzExpression checks that no text makes the parser panic, and that a formatted expression is valid and stays the same.
func FuzzExpression(f *testing.F) {
	s := systemOf(f, snomedtest.Edition{Concepts: 20})
	site, focus := snomedtest.FindingSite, snomedtest.Concept(2)
	for _, text := range []string{"=== " + focus, focus + ":{" + site + "=(" + focus + "+" + focus + "),{" + site + "=#1}", focus + `:` + site + `="a"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := s.snapshot.parseExpression([]byte(text))
		if err != nil {
			return
		}
		formatted := s.snapshot.appendExpression(nil, e, true)
		again, err := s.snapshot.parseExpression(formatted)
		if len(formatted) <= maxExpression && (err != nil || string(s.snapshot.appendExpression(nil, again, true)) != string(formatted)) {
			t.Errorf("%q: %s: %v", text, formatted, err)
		}
	})
}

// TestExpressionFilters checks which filters an expression matches.
func TestExpressionFilters(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 200})
	site, focus, value := snomedtest.FindingSite, snomedtest.Concept(50), snomedtest.Concept(3)
	parent := string(s.snapshot.code(s.Parents(s.number(t, focus))[0]))
	c, ok := s.Locate([]byte(focus + ":{" + site + "=" + value + "}"))
	if !ok {
		t.Fatal("the expression is invalid")
	}
	for _, test := range []struct {
		property, op, value string
		want                bool
	}{
		{"concept", "is-a", focus, true},
		{"concept", "is-a", parent, true},
		{"concept", "is-a", snomedtest.FindingSite, false},
		{"concept", "descendent-of", focus, true},
		{"concept", "is-not-a", focus, false},
		{"concept", "child-of", focus, false},
		{"concept", "in", snomedtest.SimpleRefset, false},
		{"parent", "=", parent, false},
		{"concept", "not-in", snomedtest.SimpleRefset, true},
		{"concept", "is-a", focus + ":" + site + "=" + value, true},
		{"concept", "descendent-of", focus + ":" + site + "=" + value, false},
		{"concept", "is-a", focus + ":" + site + "=" + focus, false},
		{"concept", "generalizes", focus + ":{" + site + "=" + value + "},{" + site + "=" + focus + "}", true},
		{"concept", "generalizes", focus, false},
		{"refset", "exists", "true", false},
		{"refset", "exists", "false", true},
		{"inactive", "=", "false", true},
		{"inactive", "=", "true", false},
		{"expressions", "=", "true", true},
		{"expressions", "=", "false", false},
		{"constraint", "=", "< " + focus, true},
		{"constraint", "=", "<! " + focus, false},
		{"constraint", "=", "> " + parent, false},
		{"constraint", "=", "*", true},
		{"constraint", "=", "<< " + focus + " : " + site + " = << " + value, true},
		{"constraint", "=", "<< " + focus + " : { " + site + " = " + value + " }", true},
		{"constraint", "=", "<< " + focus + " : " + snomedtest.AssociatedWith + " = #1", false},
		{"constraint", "=", "<< " + focus + ` {{ D term = "x" }}`, false},
		{"constraint", "=", "^ " + snomedtest.SimpleRefset, false},
	} {
		matches, ok, err := s.MatchesFilter(c, test.property, test.op, test.value, func(int) error { return nil })
		if !ok || err != nil || matches != test.want {
			t.Errorf("%s %s %s: got %v, %v, %v", test.property, test.op, test.value, matches, ok, err)
		}
	}
	for _, test := range [][3]string{{site, "=", value}, {"normalForm", "=", "x"}, {"sufficientlyDefined", "=", "true"}, {"expressions", "=", "maybe"}, {"refset", "exists", "yes"}} {
		if matches, _, err := s.MatchesFilter(c, test[0], test[1], test[2], func(int) error { return nil }); matches || err == nil {
			t.Errorf("%v: no error", test)
		}
	}
}

// TestPlainExpressions checks that an identifier with a term, and an expression without a refinement, are the concept.
func TestPlainExpressions(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 100})
	code := snomedtest.Concept(2)
	for text, want := range map[string]bool{
		code + " |wrong|": true, code + "|x| + " + code: true, "=== " + code: true, "<<< " + code: false,
		code + "+" + snomedtest.Concept(3): false, code + ":" + snomedtest.FindingSite + "=" + code: false,
	} {
		c, ok := s.Locate([]byte(text))
		if !ok || c.Number != s.number(t, code) || c.Code == nil != want {
			t.Errorf("%s: got %v, %v", text, c, ok)
		}
	}
}

// TestInactiveExpressions checks that an expression with an inactive focus concept is inactive.
func TestInactiveExpressions(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 100})
	refinement := ":" + snomedtest.FindingSite + "=" + snomedtest.Concept(3)
	for text, want := range map[string]string{
		snomedtest.Concept(23) + refinement:                               "inactive",
		snomedtest.Concept(2) + "+" + snomedtest.Concept(23) + refinement: "inactive",
		snomedtest.Concept(2) + refinement:                                "",
	} {
		c, ok := s.Locate([]byte(text))
		_, _, flags := s.Concept(c)
		isInactive := flags == codesystem.FlagInactive|codesystem.FlagHasStatus
		if !ok || s.Status(c) != want || isInactive != (want != "") || !isInactive && flags != 0 {
			t.Errorf("%s: got %q, %v", text, s.Status(c), flags)
		}
	}
}

// TestNestedExpressions checks that constraints see a nested expression as a concept below its focus concepts, and concrete values.
func TestNestedExpressions(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 100})
	site, strength := snomedtest.FindingSite, snomedtest.Strength
	root, value, other, withStrength := snomedtest.ClinicalFinding, snomedtest.Concept(0), snomedtest.Concept(1), snomedtest.Concept(45)
	nested := root + ":" + site + "=(" + value + ":" + strength + "=#7)"
	for _, test := range []struct {
		expression, constraint string
		want                   bool
	}{
		{nested, "*:" + site + "=" + value, false},
		{nested, "*:" + site + "=<" + value, true},
		{nested, "*:" + site + "=<!" + value, false},
		{nested, "*:" + site + "=(<<" + value + ":" + strength + "=#7)", true},
		{nested, "*:" + site + "=(<<" + value + ":" + strength + "=#8)", false},
		{nested, "*:" + strength + "=#7", false},
		{root + ":" + site + "=(" + other + "+" + value + ")", "*:" + site + "=<<" + value, true},
		{root + ":" + site + "=(" + value + " |x|)", "*:" + site + "=" + value, true},
		{root + ":" + strength + "=#7.0", "*:" + strength + "=#7", true},
		{root + ":{" + strength + "=#7," + site + "=" + value + "}", "*:{" + strength + "=#7," + site + "=" + value + "}", true},
		{root + ":" + strength + "=#7," + site + "=" + value, "*:{" + strength + "=#7," + site + "=" + value + "}", false},
		{withStrength + ":" + site + "=" + value, "*:" + strength + "=#45", true},
		{withStrength + ":" + strength + "=#45", "*:[1..1]" + strength + "=#45", true},
		{root + ":" + site + "=" + root + "," + site + "=" + value, "*:[1..1]" + site + "=*", true}, // the first value is more general
	} {
		c, ok := s.Locate([]byte(test.expression))
		if !ok {
			t.Fatalf("%s: %s", test.expression, s.InvalidReason([]byte(test.expression)))
		}
		if got, _, err := s.MatchesFilter(c, "constraint", "=", test.constraint, func(int) error { return nil }); got != test.want || err != nil {
			t.Errorf("%s in %s: got %v, %v", test.expression, test.constraint, got, err)
		}
	}
}

// TestSubsumption checks the relation of two expressions or concepts in both directions.
func TestSubsumption(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 100})
	site, strength, parent, child := snomedtest.FindingSite, snomedtest.Strength, snomedtest.ClinicalFinding, snomedtest.Concept(0)
	first, second := snomedtest.Concept(2), snomedtest.Concept(3)
	for _, test := range []struct {
		a, b     string
		down, up bool
	}{
		{parent + ":" + site + "=" + parent, parent + ":" + site + "=" + child, true, false},
		{parent + ":" + site + "=" + child, child + ":" + site + "=" + child, true, false},
		{first + "+" + second, second + "+" + first, true, true},
		{first + "+" + second, first, false, true},
		{parent + ":" + site + "=" + child, parent + ":{" + site + "=" + child + "}", true, true},
		{parent + ":{" + site + "=" + child + "," + strength + "=#1}", parent + ":" + site + "=" + child + "," + strength + "=#1", false, true},
		{parent + ":" + strength + "=#1", parent + ":" + strength + "=#1.0", true, true},
		{parent + ":" + strength + "=#1", parent + ":" + strength + `="1"`, false, false},
		{parent + ":" + site + "=(" + parent + ":" + strength + "=#1)", parent + ":" + site + "=(" + child + ":" + strength + "=#1)", true, false},
		{parent + ":" + site + "=(" + parent + ":" + strength + "=#45)", parent + ":" + site + "=" + snomedtest.Concept(45), true, false},
		{"<<< " + parent + ":" + site + "=" + child, parent + ":" + site + "=" + child, false, true},
		{"<<< " + parent, "<<< " + parent + "|x|", true, true},
		{"<<< " + parent, parent, false, true},
	} {
		a, err1 := s.snapshot.parseExpression([]byte(test.a))
		b, err2 := s.snapshot.parseExpression([]byte(test.b))
		if err1 != nil || err2 != nil {
			t.Fatal(test, err1, err2)
		}
		x := newSubsumption(s.snapshot, func(int) error { return nil })
		if down, up := x.subsumes(a, b), x.subsumes(b, a); down != test.down || up != test.up || x.err != nil {
			t.Errorf("%s and %s: got %v, %v", test.a, test.b, down, up)
		}
	}
}

// TestSubsumptionBudget checks that an exceeded budget is an error, never an answer.
func TestSubsumptionBudget(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 100})
	code := snomedtest.Concept(2) + ":" + snomedtest.FindingSite + "=(" + snomedtest.Concept(3) + ":" + snomedtest.FindingSite + "=" + snomedtest.Concept(4) + ")"
	c, _ := s.Locate([]byte(code))
	for _, filter := range [][3]string{{"concept", "is-a", code}, {"concept", "is-not-a", snomedtest.FindingSite}, {"constraint", "=", "*"}} {
		limit, failed := 0, errors.New("too costly")
		for ; limit < 10_000; limit++ {
			left := limit
			matches, ok, err := s.MatchesFilter(c, filter[0], filter[1], filter[2], func(int) error {
				if left--; left < 0 {
					return failed
				}
				return nil
			})
			if err == nil && matches {
				break
			}
			if matches || !ok || !errors.Is(err, failed) {
				t.Fatalf("%v with %d steps: got %v, %v, %v", filter, limit, matches, ok, err)
			}
		}
		if limit < 3 || limit == 10_000 {
			t.Errorf("%v: %d charges", filter, limit)
		}
	}
}

// TestExpressionSubsumption checks that a fully defined concept subsumes an expression with all parts of its definition.
func TestExpressionSubsumption(t *testing.T) {
	s := systemOf(t, synthetic)
	free, tested := func(int) error { return nil }, 0
	for concept := range uint32(s.Len()) {
		from, to := s.snapshot.attributes.rowsOf(concept)
		if !s.snapshot.defined.Has(concept) || from == to || len(s.properties.proximalPrimitives(concept)) == 0 {
			continue
		}
		_, definition, _ := strings.Cut(string(s.properties.normalForm(concept, false)), "=== ")
		e, err := s.snapshot.parseExpression([]byte(definition))
		if err != nil {
			t.Fatalf("%s: %v", definition, err)
		}
		plain, x := &expression{focus: []uint32{concept}}, newSubsumption(s.snapshot, free)
		if !x.subsumes(plain, e) || x.err != nil {
			t.Errorf("%s does not subsume %s: %v", s.snapshot.code(concept), definition, x.err)
		}
		if got, err := s.constraints.satisfies(e, "< "+string(s.snapshot.code(concept)), free); !got || err != nil {
			t.Errorf("%s is not below %s: %v", definition, s.snapshot.code(concept), err)
		}
		e.groups = nil
		if x = newSubsumption(s.snapshot, free); len(x.subsumersOf(e).groups) == 0 && x.subsumes(plain, e) {
			t.Errorf("%s subsumes %v", s.snapshot.code(concept), e.focus)
		}
		tested++
	}
	if tested < 100 {
		t.Errorf("only %d concepts", tested)
	}
	if c, ok := s.Locate([]byte(snomedtest.Concept(2) + ":" + snomedtest.FindingSite + "=" + snomedtest.Concept(3))); !ok || s.Status(c) != "" || s.Definition(c) != nil || len(s.AppendValues(nil, c)) > 0 || len(s.AppendFormerTexts([]codesystem.Text{}, c)) > 0 {
		t.Error("an expression has data of its focus concept")
	}
}
