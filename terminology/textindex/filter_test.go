package textindex

import (
	"strings"
	"testing"
)

func TestTextFilter(t *testing.T) {
	tests := []struct {
		display, filter string
		want            bool
	}{
		{"Never Married", "married", true},
		{"Never Married", "never married", true},
		{"Never Married", "married never", true},
		{"Never Married", "mar nev", true},
		{"Never Married", "arried", false},
		{"Never Married", "never divorced", false},
		{"Never Married", "  MARRIED ", true},
		{"Never Married", "v", true},
		{"Never Married", "z", false},
		{"Never Married", " D ", true},
		{"Never Married", "n m", true},
		{"Never Married", "e m", false}, // only a filter of one letter matches anywhere
		{"Never Married", "", true},
		{"Never Married", "   ", true},
		{"Diabetes mellitus type 2", "diabetes type 2", true},
		{"Diabetes mellitus, type-2", "type 2 diab", true},
		{"Alternative/Complementary", "compl", true},
		{"Ménière's disease", "meniere", true},
		{"Meniere disease", "Ménière", true},
		{"Ångström", "angstrom", true},
		{"Straße", "straße", true},
		{"Straße", "STRASSE", true},
		{"strasse", "straß", true},
		{"Œdème", "oedeme", true},
		{"Oedème", "œDÈME", true},
		{"Œdème", "oe", true},
		{"Œdème", "edeme", true}, // matches the American spelling
		{"Œdème", "deme", false},
		{"Cæcum", "caec", true},
		{"Ǽdificium", "aedif", true}, // æ with an accent
		{"Blødning", "BLODN", true},
		{"Blodning", "blødn", true},
		{"Łódź", "lodz", true},
		{"Lodz", "łódź", true},
		{"Đorđević", "dordevic", true},
		{"Þvagfærasýking", "thvagfaerasyking", true},
		{"Guðrún", "gudrun", true},
		{"STRAẞE", "strasse", true},
		{"Ciltaltı", "ciltalti", true},
		{"ΣΊΣΥΦΟΣ", "σίσυφος", true},
		{"Σίσυφος", "σισυφοσ", true},
		{"ﬁbrosis", "fib", true},
		{"Ⅳ stage", "iv", true},
		{"e\u0301tude", "étude", true},
		{"İstanbul", "istanbul", true},
		{"日本語", "日本", true},
		{"日本語", "本", true},
		{"Ωmega", "ω", true},
		{"100 %", "%", true},
		{"100", "%", false},
		{"a (b)", "(", true},
		{"café", "é", true},
		{"plain", "\xff", false},
	}
	for _, test := range tests {
		filter := NewFilter(test.filter, nil)
		if filter == nil && test.want {
			continue // a nil filter matches everything
		}
		d := documents{{Code: "?", Display: test.display}}
		_, total, _ := searchScan(d, nil, filter, strictMatch, 0, 1, func(int) error { return nil })
		if got := total > 0; got != test.want {
			t.Errorf("display %q, filter %q: got %v", test.display, test.filter, got)
		}
	}
}

// TestWordsInside checks which words begin inside other words.
func TestWordsInside(t *testing.T) {
	tests := map[string]string{
		"activityDefinition of":     " activitydefinition activity definition of",
		"DefinitionDeEvento":        " definitiondeevento definition de evento",
		"HbA1c, pH 500MG":           " hba1c hb a1c ph p h 500mg 500 mg",
		"mRNA XMLHttp HIVTest":      " mrna m rna xmlhttp hivtest",
		"CD4T SARS-CoV-2":           " cd4t cd4 t sars cov sarscov co v 2 sarscov2",
		"a B, type 2 A":             " a b type 2 a",
		"étude\u0301Étude, x²Y":     " etudeetude etude etude x2y x2 y",
		"ДневнойСтационар ωΔ日A":     " дневноистационар дневнои стационар ωδ日a ω δ日a",
		"\u01c6\u01c5 straßeẞ TypⅣ": " dzdz dz dz strassess strasse ss typiv typ iv",
	}
	for text, want := range tests {
		if got := insideWords(text); got != want {
			t.Errorf("words in %q: %q, want %q", text, got, want)
		}
	}
}

// TestHeads checks which words are in the heads of texts.
func TestHeads(t *testing.T) {
	for text, want := range map[string]string{
		"a b, c d": "a b", "a; b": "a", "a: b": "a", "a of b": "a", "of a": "of a", ", a b": "a b", "a-b c": "a b ab c",
		"a (b) c": "a c", "a [b] c": "a c", "a (b [c] d) e": "a e", "a) b (c": "a b", "a (b, c) d, e": "a d",
	} {
		s, got := tokenizer{language: languageOf("en")}, []string(nil)
		s.add(nil, []byte(text))
		for _, spot := range s.tokens {
			if spot.inHead {
				got = append(got, string(spot.word))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// insideWords returns the words of a text, each after a space, including those that begin inside other words.
func insideWords(text string) string {
	s, all := tokenizer{language: languageOf("en")}, []byte(nil)
	s.add(nil, []byte(text))
	for _, spot := range s.tokens {
		all = append(append(all, ' '), spot.word...)
	}
	return string(all)
}

// TestWordsInsideAreBounded checks a text in which a word begins at every other letter.
func TestWordsInsideAreBounded(t *testing.T) {
	text := strings.Repeat("aB", 100_000)
	if got := insideWords(text); len(got) > 3*len(text) {
		t.Errorf("%d bytes became %d", len(text), len(got))
	}
}

func TestWords(t *testing.T) {
	tests := map[string]string{
		"":                  "",
		" -- ":              "",
		"Never Married":     " never married",
		"  (HL7)v3-ActCode": " hl7 v3 actcode",
		"Pérez\u00a0Ñandú":  " perez nandu",
		"o\u0302ne two":     " one two",
		"vitamin-s a.s":     " vitamin s a s",
		"\xffbroken":        " broken",
		"हिन्दी":            " हिनदी",
	}
	var f textFolder
	for text, want := range tests {
		if got := string(f.words([]byte(text))); got != want {
			t.Errorf("words(%q) = %q, want %q", text, got, want)
		}
	}
}
