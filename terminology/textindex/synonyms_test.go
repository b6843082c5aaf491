package textindex

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// readSynonyms returns synonyms with the given rules.
func readSynonyms(t *testing.T, rules string) *Synonyms {
	t.Helper()
	s := new(Synonyms)
	if err := s.Read(strings.NewReader(rules)); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSynonyms(t *testing.T) {
	t.Parallel()
	s := readSynonyms(t, `#! en
# a comment

htn = hypertension = high blood pressure
mi, heart attack => myocardial infarction
ckd => chronic kidney disease
kidney stone => calculus of kidney
fever => fever of unknown origin
dvt => deep vein thrombosis
dvt leg => thrombosis of unspecified vein
stenoses => mitral stenosis
fuo => fever of unknown origin
`)
	d := documents{
		0:  {Code: "1", Display: "Essential hypertension"},
		1:  {Code: "2", Display: "High blood pressure in pregnancy"},
		2:  {Code: "3", Display: "Myocardial infarction"},
		3:  {Code: "4", Display: "Chronic kidney disease, stage 4"},
		4:  {Code: "5", Display: "Calculus of kidneys"},
		5:  {Code: "6", Display: "Heart attack, old"},
		6:  {Code: "7", Display: "Fever"},
		7:  {Code: "8", Display: "Fever of unknown origin", Place: 1},
		8:  {Code: "9", Display: "Mitral stenosis"},
		9:  {Code: "10", Display: "Deep vein thrombosis of left leg"},
		10: {Code: "11", Display: "Thrombosis of unspecified vein"},
		11: {Code: "12", Display: "Stenoses"},
		12: {Code: "13", Display: "Unknown origin, fever", Place: 2},
	}
	checkFindings(t, d, []filterCase{
		{"the same", "htn", "0 1"},
		{"the other way round", "high blood pressure", "0 1"},
		{"one way", "mi", "2 8"},
		{"not the other way round", "myocardial infarction", "2"},
		{"a term that is the whole filter goes first", "heart attack", "2 5"},
		{"a run among other words, and a number", "ckd stage iv", "3"},
		{"an inflection of a rule's word", "kidney stones", "4"},
		{"words in another order, and stop words", "stone of the kidney", "4"},
		{"in another order, with other words", "stage 4 disease chronic kidney", "3"},
		{"a stop word within", "kidney of stone", "4"},
		{"a prefix is not a word of a rule", "hypert", "0"},
		{"a typo in a word of a rule", "kidny stone", "4"},
		{"the display first that a rule names", "fever", "6 7 12"},
		{"what a rule names, before what else begins so", "steno", "8 11"},
		{"not before a whole word", "stenoses", "8 11"},
		{"stop words of the match", "fuo", "7 12"},
		{"a shorter run does not count where the longest finds something", "leg dvt", "10"},
		{"a shorter run, as nothing is found", "left leg dvt", "9"},
	}, s)
}

func TestInvalidSynonyms(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"htn", "= a", "a =>", "a b c d e f => g", "a => b c d e f g h i j k l m n", "a => b1,b2,b3,b4,b5,b6,b7,b8,b9,b10,b11,b12,b13,b14,b15,b16,b17"} {
		if err := new(Synonyms).Read(strings.NewReader("#! en\n" + rule)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", rule, err)
		}
	}
}

// randomRules contains synonyms that occur in random texts. randomSynonyms contains filters that match them.
const randomRules = "mi = myocardial infarction\ndiabetes mellitus => iv of xray\nmi fracture => a b c\nhypertensive, ab hypertensive => hypertension"

var randomSynonyms = strings.Split("mi|MI a|a myocardial infarction|myocardial|diabetes mellitus|diabetes the mellitus 2|diabetes diabetes mellitus|mi mi|mellitus diabetes|"+
	"infarction a myocardial|infarction myocardial a|fracture mi|fracture mi diab|the mi fracture ii|hyper|hyp|hyperten|a hyper|ab hyper", "|")

// randomSynonym returns a filter that may have synonyms.
func randomSynonym(r *rand.Rand) string { return randomSynonyms[r.IntN(len(randomSynonyms))] }

// TestSynonymPrefixAmongMany checks that displays equal to a synonym come first if its typed words begin with the filter.
func TestSynonymPrefixAmongMany(t *testing.T) {
	t.Parallel()
	s := readSynonyms(t, "chronic dementia => chronic dementia without other disease")
	for name, other := range map[string]string{"in heads": "Chronic dementia, late", "in a tail": "Late, with chronic dementia"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := documents{{Code: "a", Display: other}}
			for i := range 40 {
				d = append(d, document{Code: strconv.Itoa(i), Display: "Chronic dementia " + strconv.Itoa(i)})
			}
			d = append(d, document{Code: "z", Display: "Chronic dementia without other disease"})
			f := NewFilter("chronic demen", s)
			want, _ := search(unindexedPart(d), f, 0, math.MaxInt)
			got, total := search(Part{Index: New(d)}, f, 0, math.MaxInt)
			if total != 42 || got[0].Doc != 41 || !slices.Equal(got, want) {
				t.Errorf("got %v, total %d, want %v", got, total, want)
			}
		})
	}
}
