package terminology

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// document is a document of a corpus that is made up.
type document struct {
	code, display string
	others        []string
	retired       bool
}

// documents is a corpus that is made up.
type documents []document

func (d documents) len() int                 { return len(d) }
func (d documents) code(doc uint32) []byte   { return []byte(d[doc].code) }
func (d documents) inactive(doc uint32) bool { return d[doc].retired }
func (d documents) display(doc uint32) []byte {
	if d[doc].display == "" {
		return []byte(d[doc].code)
	}
	return []byte(d[doc].display)
}

func (d documents) appendOthers(dst [][]byte, doc uint32) [][]byte {
	for _, other := range d[doc].others {
		dst = append(dst, []byte(other))
	}
	return dst
}

// String lists the documents, for a failed test.
func (d documents) String() string {
	var b strings.Builder
	for i, doc := range d {
		fmt.Fprintf(&b, "%d: %q %q %q %v\n", i, doc.code, doc.display, doc.others, doc.retired)
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
}

// randomText makes a text of up to n words.
func randomText(r *rand.Rand, n int) string {
	var words []string
	for range r.IntN(n + 1) {
		words = append(words, randomWords[r.IntN(len(randomWords))])
	}
	return strings.Join(words, []string{" ", " ", "-", ", "}[r.IntN(4)])
}

// randomDocuments makes a corpus.
func randomDocuments(r *rand.Rand, n int) documents {
	d := make(documents, n)
	for i := range d {
		d[i] = document{code: randomWords[r.IntN(len(randomWords))] + randomText(r, 1), display: randomText(r, 4), retired: r.IntN(4) == 0}
		for range r.IntN(3) {
			d[i].others = append(d[i].others, randomText(r, 3))
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
