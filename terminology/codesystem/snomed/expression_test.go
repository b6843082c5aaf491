package snomed

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/snomedtest"
)

// TestExpressions checks the display of valid expressions and the reason why others are invalid.
func TestExpressions(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 100})
	site, focus, other := snomedtest.FindingSite, snomedtest.Concept(2), snomedtest.Concept(3)
	term := func(code string) string { return code + "|" + string(s.term(s.number(t, code))) + "|" }
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
		e, err := s.parseExpression([]byte(text))
		if err != nil {
			return
		}
		formatted := s.appendExpression(nil, e)
		again, err := s.parseExpression(formatted)
		if len(formatted) <= maxExpression && (err != nil || string(s.appendExpression(nil, again)) != string(formatted)) {
			t.Errorf("%q: %s: %v", text, formatted, err)
		}
	})
}

// TestExpressionFilters checks which filters an expression matches.
func TestExpressionFilters(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 200})
	site, focus, value := snomedtest.FindingSite, snomedtest.Concept(50), snomedtest.Concept(3)
	parent := string(s.code(s.Parents(s.number(t, focus))[0]))
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
}

// TestExpressionSubsumption checks that a fully defined concept subsumes an expression with all parts of its definition.
func TestExpressionSubsumption(t *testing.T) {
	s := systemOf(t, synthetic)
	free, tested := func(int) error { return nil }, 0
	for concept := range uint32(s.Len()) {
		from, to := s.attributes.rowsOf(concept)
		if !s.defined.Has(concept) || from == to || len(s.proximalPrimitives(concept)) == 0 {
			continue
		}
		if first, end := s.attributes.concreteRowsOf(concept); first < end {
			continue
		}
		_, definition, _ := strings.Cut(string(s.normalForm(concept, false)), "=== ")
		e, err := s.parseExpression([]byte(definition))
		if err != nil {
			t.Fatalf("%s: %v", definition, err)
		}
		if got, err := s.subsumesExpression(concept, e, free); !got || err != nil {
			t.Errorf("%s subsumes %s: got %v, %v", s.code(concept), definition, got, err)
		}
		e.groups = nil
		if got, err := s.subsumesExpression(concept, e, free); len(s.relationships(e)) == 0 && got || err != nil {
			t.Errorf("%s subsumes %s: got %v, %v", s.code(concept), definition, got, err)
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
