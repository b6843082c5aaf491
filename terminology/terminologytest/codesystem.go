package terminologytest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

// CodeSystem describes a synthetic code system. The frequency of its words follows Zipf's law, as in real code systems. Codes
// resemble those of ICD-10 (A00.000). The property parent arranges the concepts in a single tree.
type CodeSystem struct {
	// URL is the canonical. Required.
	URL string

	// Concepts is the number of concepts, at most 2,600,000.
	Concepts int

	// Designations is the number of designations per concept, in German, French and Spanish in rotation.
	Designations int

	// Seed makes code systems with otherwise equal fields different.
	Seed uint64
}

// childrenPerConcept is the number of children of each concept that is not a leaf.
const childrenPerConcept = 9

// languages are the languages of the designations.
var languages = []string{"de", "fr", "es"}

// Code returns the code of the concept with the given index.
func (c CodeSystem) Code(concept int) string {
	spread := concept * (2_600_000 / max(1, c.Concepts))
	return fmt.Sprintf("%c%02d.%03d", 'A'+spread/100_000, spread/1000%100, spread%1000)
}

// Write writes the code system to w as a FHIR R4 resource in JSON. The resource's valueSet is the URL followed by /entire.
func (c CodeSystem) Write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	fmt.Fprintf(out, `{"resourceType":"CodeSystem","url":%s,"valueSet":%s,"version":"1","name":"Synthetic","status":"active","content":"complete",`+
		`"property":[{"code":"parent","uri":"http://hl7.org/fhir/concept-properties#parent","type":"code"}],"count":%d,"concept":[`, quote(c.URL), quote(c.URL+"/entire"), c.Concepts)
	words := newVocabulary(c.Seed)
	for concept := range c.Concepts {
		if concept > 0 {
			fmt.Fprint(out, ",\n")
		}
		c.writeConcept(out, words, concept)
	}
	fmt.Fprint(out, "]}\n")
	if err := out.Flush(); err != nil { // returns the first error of all writes
		return fmt.Errorf("writing code system %s: %w", c.URL, err)
	}
	return nil
}

// writeConcept writes one concept.
func (c CodeSystem) writeConcept(out *bufio.Writer, words *vocabulary, concept int) {
	fmt.Fprintf(out, `{"code":"%s","display":%s`, c.Code(concept), quote(words.text("")))
	for i := range c.Designations {
		separator := `,"designation":[`
		if i > 0 {
			separator = ","
		}
		language := languages[i%len(languages)]
		fmt.Fprintf(out, `%s{"language":"%s","value":%s}`, separator, language, quote(words.text(language)))
	}
	if c.Designations > 0 {
		fmt.Fprint(out, "]")
	}
	if concept > 0 {
		fmt.Fprintf(out, `,"property":[{"code":"parent","valueCode":"%s"}]`, c.Code((concept-1)/childrenPerConcept))
	}
	fmt.Fprint(out, "}")
}

// ValueSets returns two ValueSet resources in JSON: URL/all with all codes, URL/tree with the first concept and its subtree.
func (c CodeSystem) ValueSets() (all, tree string) {
	const resource = `{"resourceType":"ValueSet","url":%s,"status":"active","compose":{"include":[{"system":%s%s}]}}`
	filter := fmt.Sprintf(`,"filter":[{"property":"concept","op":"is-a","value":"%s"}]`, c.Code(0))
	return fmt.Sprintf(resource, quote(c.URL+"/all"), quote(c.URL), ""), fmt.Sprintf(resource, quote(c.URL+"/tree"), quote(c.URL), filter)
}

// ListValueSet returns a value set in JSON that enumerates the given number of evenly distributed codes. Its URL is that of the
// code system followed by suffix.
func (c CodeSystem) ListValueSet(suffix string, codes int) string {
	listed := make([]string, codes)
	for i := range listed {
		listed[i] = fmt.Sprintf(`{"code":%q}`, c.Code(i*(c.Concepts/codes)))
	}
	return fmt.Sprintf(`{"resourceType":"ValueSet","url":%s,"status":"active","compose":{"include":[{"system":%s,"concept":[%s]}]}}`,
		quote(c.URL+suffix), quote(c.URL), strings.Join(listed, ","))
}

// quote returns s as a JSON string.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // cannot happen: strings can always be encoded
	}
	return string(text)
}

// vocabulary generates the words of a synthetic code system.
type vocabulary struct {
	random *rand.Rand
	zipf   *rand.Zipf
	words  []string
}

// vocabularySize is the number of distinct words per language.
const vocabularySize = 20_000

// commonWords are the most frequent words, most frequent first.
var commonWords = strings.Fields("of disease left right acute chronic the with unspecified disorder syndrome infection diabetes mellitus type " +
	"fracture without due to and in other injury malignant neoplasm benign heart failure Ménière's artery vein bone joint pain femur " +
	"kidney liver lung skin eye ear hand foot upper lower limb primary secondary initial encounter complication congenital anomaly")

// syllables are the components of all words that are not in commonWords.
var syllables = strings.Fields("car di o ne phro pa thy my al gi a he ma to me ga lo cy ti tis o sis ec to mi plas tia gas tro en te " +
	"ro pul mo na ry cer vi cal lum bar ver te bra oph thal der mal lar yn go bron chi es sen tial qui xe ra zy ju vé")

// newVocabulary returns the vocabulary generated from a seed.
func newVocabulary(seed uint64) *vocabulary {
	random := rand.New(rand.NewPCG(seed, 2026))
	v := &vocabulary{random: random, zipf: rand.NewZipf(random, 1.1, 6, vocabularySize-1), words: append([]string(nil), commonWords...)}
	for len(v.words) < vocabularySize {
		var b strings.Builder
		for range 2 + random.IntN(4) {
			b.WriteString(syllables[random.IntN(len(syllables))])
		}
		v.words = append(v.words, b.String())
	}
	return v
}

// text returns two to eight words. In languages other than English, words have a suffix that English words don't have.
func (v *vocabulary) text(language string) string {
	var b strings.Builder
	for i := range 2 + v.random.IntN(7) {
		word := v.words[v.zipf.Uint64()]
		if i == 0 {
			word = strings.ToUpper(word[:1]) + word[1:]
		} else {
			b.WriteByte(' ')
		}
		b.WriteString(word)
		b.WriteString(language)
	}
	return b.String()
}

// SearchTexts returns n texts that a user might type: a code, or one to three words of a display.
func (c CodeSystem) SearchTexts(n int) []string {
	words := newVocabulary(c.Seed)
	typed := make([]string, n)
	for i := range typed {
		switch i % 4 {
		case 0:
			typed[i] = strings.ToLower(c.Code(words.random.IntN(c.Concepts)))
		default:
			var list []string
			for range i % 4 {
				list = append(list, words.words[words.zipf.Uint64()])
			}
			typed[i] = strings.ToLower(strings.Join(list, " "))
		}
	}
	return typed
}
