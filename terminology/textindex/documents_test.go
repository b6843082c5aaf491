package textindex

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// document is a made-up document.
type document struct {
	Code, Display string
	Others        []string // its designations
	Foreign       []string // those in another language, whose words are in no head
	Place         uint32   // among others that match equally well
	Language      string   // of the corpus, if it is the first document; default: en
	Header        bool     // it cannot be chosen, so it comes after those that can
}

// documents is a made-up corpus.
type documents []document

func (d documents) Len() int                  { return len(d) }
func (d documents) Code(doc uint32) []byte    { return []byte(d[doc].Code) }
func (d documents) Display(doc uint32) []byte { return []byte(cmp.Or(d[doc].Display, d[doc].Code)) }

func (d documents) Language() string {
	if len(d) == 0 {
		return "en"
	}
	return cmp.Or(d[0].Language, "en")
}

func (d documents) Rank(doc uint32) uint32 {
	if d[doc].Header {
		return rankAbstract | d[doc].Place
	}
	return d[doc].Place
}

func (d documents) AppendOthers(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	for _, other := range slices.Concat(d[doc].Others, d[doc].Foreign) {
		dst = append(dst, []byte(other))
	}
	return dst, len(d[doc].Foreign)
}

// String lists the documents, for a failed test.
func (d documents) String() string {
	var b strings.Builder
	for i, doc := range d {
		fmt.Fprintf(&b, "%d: %q %q %q %q %x\n", i, doc.Code, doc.Display, doc.Others, doc.Foreign, d.Rank(uint32(i)))
	}
	return b.String()
}

// randomWords are what random texts are made of: with common beginnings, marks, ligatures, several
// scripts, digits and signs.
var randomWords = []string{
	"a", "ab", "abc", "abcd", "abcde", "diabetes", "diabetic", "mellitus", "Ménière", "meniere", "e\u0301tude", "ÉTUDE",
	"ﬁbrosis", "fibrosis", "Ⅳ", "iv", "日本語", "日本", "本", "हिन्दी", "Ωmega", "ω", "İstanbul", "straße", "x-ray", "xray",
	"E11.9", "e11", "E119", "9", "11", "type-2", "2", "(", ")", "%", "100%", "--", "+", "½", "Å", "\u0301", "b.c", "ba", "cab",
	"ActivityDefinition", "activityDef", "DefinitionDeEvento", "HbA1c", "pH", "mRNA", "HIVTest", "étudeÉTUDE", "straßeÅngström", "日本Ωmega", "définieΔέλτα", "typeⅣ", "x2y",
	"aBcDe", "é́A", "œdème", "Oedeme", "BLØDŁO", "blodlo", "lŁđ", "øØ",
	"appendicitis", "appendectomy", "apendicitis", "diabetse",
	"Crohn's", "crohns", "Crohn’s", "'s", "of", "with", "the", "(with", "in)", "[a", ":", "anaemia", "anemia", "anaemias", "tumour", "tumors", "oestr",
	"two", "II", "ii", "fracture", "fractures", "arteries", "artery", "hypertension", "hypertensive", "beta-2-agonist", "beta2", "x--y", "myocardial", "infarction", "MI",
}

// germanParts are what random compounds are made of, and words beside them.
var germanParts = []string{
	"Knie", "Gelenk", "Schmerz", "Schmerzen", "Lunge", "Lungen", "Embolie", "Embolien", "Herz", "Infarkt", "Blut", "Blutung", "Gefäß", "Erkrankung", "Krankung",
	"Kind", "Alter", "Hüfte", "Hüft", "Bein", "Unter", "Schenkel", "Wirbel", "Säule", "Säulen", "Niere", "Fuß", "Arm", "Ader", "Ende", "Rand", "Enden", "abcdabcd", "und", "durch",
}

// randomGerman makes a German word, which may be a compound of up to n parts.
func randomGerman(r *rand.Rand, n int) string {
	var b strings.Builder
	for i := range 1 + r.IntN(n) {
		part := germanParts[r.IntN(len(germanParts))]
		if i > 0 {
			b.WriteString([]string{"", "", "", "s", "es", "n", "en", "er", "e", "-"}[r.IntN(10)])
			part = strings.ToLower(part)
		}
		b.WriteString(part)
	}
	return b.String()
}

// germanDocuments makes a corpus in German, whose words are compounds for the most part.
func germanDocuments(r *rand.Rand, n int) documents {
	d := randomDocuments(r, n)
	for i := range d {
		words := []string{randomGerman(r, 4), randomGerman(r, 3), randomText(r, 1)}
		d[i].Display, d[i].Language = strings.Join(words[:1+r.IntN(3)], []string{" ", ", ", " im "}[r.IntN(3)]), "de"
		if r.IntN(4) == 0 {
			d[i].Others = append(d[i].Others, randomGerman(r, 4))
		}
	}
	return d
}

// germanFilter makes a filter of parts of German words, some of them with typos.
func germanFilter(r *rand.Rand) string {
	var words []string
	for range 1 + r.IntN(2) {
		word := []rune(randomGerman(r, 2))
		word = word[r.IntN(min(len(word), 4)):]
		if word = word[:1+r.IntN(len(word))]; r.IntN(5) == 0 {
			word[r.IntN(len(word))] = []rune("abdeinß-")[r.IntN(8)]
		}
		words = append(words, string(word))
	}
	return strings.Join(words, " ")
}

// randomText makes a text of up to n words.
func randomText(r *rand.Rand, n int) string {
	var words []string
	for range r.IntN(n + 1) {
		words = append(words, randomWords[r.IntN(len(randomWords))])
	}
	return strings.Join(words, []string{" ", " ", "-", ", ", "; "}[r.IntN(5)])
}

// randomDocuments makes a corpus.
func randomDocuments(r *rand.Rand, n int) documents {
	d := make(documents, n)
	for i := range d {
		d[i] = document{Code: randomWords[r.IntN(len(randomWords))] + randomText(r, 1), Display: randomText(r, 4), Place: r.Uint32N(4), Header: r.IntN(4) == 0}
		for range r.IntN(3) {
			d[i].Others = append(d[i].Others, randomText(r, 3))
		}
		if r.IntN(3) == 0 {
			d[i].Foreign = []string{randomText(r, 3)}
		}
	}
	return d
}

// randomFilter makes a filter that is likely to find something: pieces of words, some of them with typos.
func randomFilter(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(3) {
		word := []rune(randomWords[r.IntN(len(randomWords))])
		word = word[:1+r.IntN(len(word))]
		if r.IntN(4) == 0 {
			word[r.IntN(len(word))] = []rune("abdei9é.")[r.IntN(8)]
		}
		b.WriteString(string(word))
		b.WriteString([]string{" ", " ", "  ", "-", ""}[r.IntN(5)])
	}
	return b.String()
}
