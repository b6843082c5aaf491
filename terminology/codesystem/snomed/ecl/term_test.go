package ecl

import "testing"

func TestTermMatch(t *testing.T) {
	for _, test := range []struct {
		kind, pattern, text string
		want                bool
	}{
		// section 5.5: letters without marks match letters with marks, but not the reverse
		{"match", "resume", "Résumé", true},
		{"match", "RESUME", "a résumé", true},
		{"match", "résumé", "RÉSUMÉ", true},
		{"match", "résumé", "resume", false},
		{"match", "résume", "Résumé", true},
		{"match", "resumé", "résume", false},
		{"match", "é", "e\u0301a", true},
		{"match", "sjogren", "Sjögren syndrome", true},
		{"match", "gren", "Sjögren", false},
		{"match", "heart att", "attack of (heart)", true},
		{"match", "heart att", "heart failure", false},
		{"match", "eart", "heart", false},
		{"match", "ac", "Lung-ac", true},
		{"match", "2", "type 2", true},
		{"match", "2", "type12", false},
		{"match", `\"x\"`, `say "x"`, true},
		{"match", "heart", "", false},
		{"wild", "cardi*opathy", "Cardiomyopathy", true},
		{"wild", "cardi*opathy", "cardiopathy", true},
		{"wild", "cardi*opathy", "atrial cardiopathy", false},
		{"wild", "cardi*opathy", "Cardiomyopathy (disorder)", false},
		{"wild", "aba*aba", "ababa", false},
		{"wild", "aba*aba", "abaaba", true},
		{"wild", "*b*a*", "ab", false},
		{"wild", "*b*a*", "aba", true},
		{"wild", "**a**", "bab", true},
		{"wild", "*", "", true},
		{"wild", "", "", true},
		{"wild", "", "a", false},
		{"wild", `a\*`, "A*", true},
		{"wild", `a\*`, "ab", false},
		{"wild", "Å*", "ångström", true},
		{"exact", "Heart", "Heart", true},
		{"exact", "Heart", "heart", false},
	} {
		matches := searchTerm{test.kind, test.pattern}.matcher()
		for range 2 { // matchers reuse buffers
			if got := matches([]byte(test.text)); got != test.want {
				t.Errorf("%s:%q, %q: got %v", test.kind, test.pattern, test.text, got)
			}
		}
	}
}
