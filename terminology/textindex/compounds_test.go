package textindex

import (
	"slices"
	"strings"
	"testing"
)

// TestCompounds checks how the words of a corpus are split into parts.
func TestCompounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, language, words, word, want string }{
		{"parts that are words", "de", "Knie Gelenk Schmerz", "Kniegelenkschmerz", "knie gelenk schmerz"},
		{"a part that is a compound, and its parts", "de", "Knie Gelenk Schmerz Gelenkschmerz", "Kniegelenkschmerz", "knie gelenkschmerz gelenk schmerz"},
		{"the longest first", "de", "Knie Gelenk Schmerz Kniegelenk Gelenkschmerz", "Kniegelenkschmerz", "kniegelenk knie gelenk schmerz"},
		{"a linking element", "de", "Lunge Embolie", "Lungenembolie", "lunge embolie"},
		{"no linking element rather than one", "de", "Gefäß Erkrankung Krankung", "Gefäßerkrankung", "gefass erkrankung"},
		{"a word with an ending", "de", "Rücken Schmerzen", "Rückenschmerz", "rucken schmerz"},
		{"an ending", "de", "Rücken Schmerz", "Rückenschmerzes", "rucken schmerzes"},
		{"a dropped e", "de", "Hüfte Gelenk", "Hüftgelenk", "huft gelenk"},
		{"the beginning of two words", "de", "Chemotherapie Embolie Therapie", "Chemoembolie", "chemo embolie"},
		{"the beginning of no other word", "de", "Embolie Therapie", "Chemoembolie", ""},
		{"parts of other scripts", "de", "Ωmega Gelenk", "Ωmegagelenk", ""},
		{"a part that is too short", "de", "Ohr Schmerz", "Ohrschmerz", ""},
		{"no part known", "de", "Hand Fuß", "Kniegelenkschmerz", ""},
		{"Dutch", "nl", "Knie Gewricht", "Kniegewrichten", "knie gewrichten"},
		{"Swiss", "de-CH", "Knie Gelenk", "Kniegelenk", "knie gelenk"},
		{"English", "en", "foot ball", "football", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := documents{{Code: "1", Display: test.words, Language: test.language}, {Code: "2", Display: test.word}}
			word := strings.TrimSpace(Fold(test.word))
			var got []string
			if c := NewCompounds(d); c != nil {
				for _, p := range c.partsOf([]byte(word)) {
					got = append(got, word[p.from:p.to])
				}
			}
			if !slices.Equal(got, strings.Fields(test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestGermanCompounds checks that parts find compounds, which rank after texts with the parts as words in their head.
func TestGermanCompounds(t *testing.T) {
	checkFindings(t, documents{
		0: {Code: "0", Display: "Kniegelenkschmerz", Language: "de", Place: 1},
		1: {Code: "1", Display: "Gelenkschmerzen"},
		2: {Code: "2", Display: "Schmerz, Knie", Place: 2},
		3: {Code: "3", Display: "Herzinfarkt"},
		4: {Code: "4", Display: "Infarkt"},
		5: {Code: "5", Display: "Verletzung", Designations: []string{"Herzkammerwunde", "Wunde", "Kammer"}},
		6: {Code: "6", Display: "Gelenk Herz", Place: 9},
	}, []filterCase{
		{"a part within", "gelenk", "1 6 0"},
		{"the last part", "schmerz", "2 1 0"},
		{"the beginning of a part", "schme", "2 1 0"},
		{"two parts, and the term", "schmerz knie", "2 0"}, {"two parts", "gelenk knie", "0"},
		{"the first part is in the head", "herz", "3 5 6"},
		{"the first part is whole, before others that begin so", "knie", "0 2"},
		{"a word before parts", "infarkt", "4 3"},
		{"an inflection of a part", "gelenke", "1 6 0"},
		{"a typo in a part", "infrakt", "4 3"},
		{"a designation", "kammer", "5"},
		{"no part", "erzin", "3"},
	})
}
