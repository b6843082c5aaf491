package textindex

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// slow runs all random samples and long lists instead of a tenth of them.
var slow = flag.Bool("slow", false, "try all samples, not a tenth of them")

// samples returns how many of the given number of samples to run.
func samples(all int) int {
	if *slow {
		return all
	}
	return all / 10
}

// search searches a single part and returns its hits and their total number.
func search(p Part, f *Filter, from, to int) ([]Hit, int) {
	hits, total, _ := Search([]Part{p}, f, from, to, nil) // Search returns errors only from spend, which is nil
	return hits, total
}

// unindexedPart returns a part that has no index, so that a search scans all documents.
func unindexedPart(d documents) Part { return Part{Corpus: d, Compounds: NewCompounds(d)} }

// waysToSearch returns a part for each search method, by name.
func waysToSearch(d documents) map[string]Part {
	return map[string]Part{"index": {Index: New(d)}, "scan": unindexedPart(d)}
}

// checkIndex checks that an index returns the same hits as a scan, both in full and page by page.
func checkIndex(t *testing.T, ways map[string]Part, filter string, synonyms *Synonyms) {
	t.Helper()
	f := NewFilter(filter, synonyms)
	if f == nil {
		return
	}
	want, n := search(ways["scan"], f, 0, math.MaxInt)
	size := 1 + len(filter)%5
	for from := 0; from <= n; from += size {
		all, total := search(ways["index"], f, 0, math.MaxInt)
		page, pages := search(ways["index"], f, from, from+size)
		if !slices.Equal(all, want) || total != n || pages != n || !slices.Equal(page, want[min(from, n):min(from+size, n)]) {
			t.Fatalf("filter %q: got %v, total %d, and from %d %v, total %d; want %v\n%v", filter, all, total, from, page, pages, want, ways["scan"].Corpus)
		}
	}
}

// TestIndexAgainstScan compares an index with a scan for random documents and filters.
func TestIndexAgainstScan(t *testing.T) {
	synonyms := readSynonyms(t, randomRules)
	for seed := range uint64(samples(150)) {
		r := rand.New(rand.NewPCG(seed, 11))
		english, german := waysToSearch(randomDocuments(r, 1+r.IntN(60))), waysToSearch(germanDocuments(r, 1+r.IntN(60)))
		for range 30 {
			checkIndex(t, english, randomFilter(r), nil)
			checkIndex(t, english, randomSynonym(r), synonyms)
			checkIndex(t, german, germanFilter(r), nil)
		}
	}
}

// TestSearchLarge searches so many documents that some prefixes have stored sets and some letters have bitsets.
func TestSearchLarge(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 11))
	d := randomDocuments(r, 6000)
	for i := range 5000 { // words that many documents contain, but few at the beginning
		d[i].Display = "often " + d[i].Display + ", seldom"
		if i%500 == 0 {
			d[i].Display = "Seldom " + d[i].Display
		}
	}
	d[5999].Display = "oftener" // so that the prefix often matches several words
	x := New(d)
	if len(x.common.from) == 0 || len(x.common.sets) == 0 {
		t.Error("no common prefix, or no sets of any")
	}
	filters := []string{"a", "diab mel", "sel", "seldom", "often sel", "diab often", "seldom oft"}
	if *slow {
		filters = append(filters, "ab", "abc", "d", "mel diab", "日", "%", "(", "e11.9", "b", "é", "diabx", "2 type", "di", "diabetes", "m", "me", "e11", "x", "xr", "日本", "ab a")
	}
	for _, typed := range filters {
		filter := NewFilter(typed, nil)
		want, _ := search(unindexedPart(d), filter, 0, math.MaxInt)
		got, total := search(Part{Index: x}, filter, 0, math.MaxInt)
		if !slices.Equal(got, want) || total != len(want) {
			t.Errorf("filter %q: got %d hits, total %d, want %d", typed, len(got), total, len(want))
		}
		for _, window := range [][2]int{{0, 1}, {0, 20}, {7, 27}, {30, firstsPerRange}, {30, firstsPerRange + 1}, {100, 300}, {5900, 6100}} {
			page, total := search(Part{Index: x}, filter, window[0], window[1])
			from, to := min(window[0], len(want)), min(window[1], len(want))
			if !slices.Equal(page, want[from:to]) || total != len(want) {
				t.Errorf("filter %q: got %d and page %v, want %d and %v", typed, total, page, len(want), want[from:to])
			}
		}
	}
}

// FuzzFilter checks that the index returns the same hits as a scan for any filter.
func FuzzFilter(f *testing.F) {
	for _, word := range append(randomWords, "e11.9 diab", "\xff", "\xc3", " \x00 ", "a\u2028b", "gelenk schmerz", "lungenembolie", "infrakt", "ǆ", "가", strings.Repeat("a", 300)) {
		f.Add(word)
	}
	english := waysToSearch(randomDocuments(rand.New(rand.NewPCG(1, 11)), 60))
	german := waysToSearch(germanDocuments(rand.New(rand.NewPCG(1, 19)), 60))
	f.Fuzz(func(t *testing.T, filter string) {
		if len(filter) <= 1000 {
			checkIndex(t, english, filter, nil)
			checkIndex(t, german, filter, nil)
		}
	})
}

// filterCase is a filter and the documents that it should find, in order.
type filterCase struct{ name, filter, want string }

// checkFindings checks the results of both search methods (index and scan).
func checkFindings(t *testing.T, d documents, tests []filterCase, synonyms ...*Synonyms) {
	t.Helper()
	ways := waysToSearch(d)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for name, p := range ways {
				hits, _ := search(p, NewFilter(test.filter, append(synonyms, nil)[0]), 0, math.MaxInt)
				var got []string
				for _, h := range hits {
					got = append(got, fmt.Sprint(h.Doc))
				}
				if strings.Join(got, " ") != test.want {
					t.Errorf("%s: filter %q: got %v, want %s", name, test.filter, got, test.want)
				}
			}
		})
	}
}

// TestRankingInside checks how words that begin inside other words are ranked.
func TestRankingInside(t *testing.T) {
	d := documents{
		0: {Code: "ActivityDefinition", Display: "ActivityDefinition"},
		1: {Code: "c1", Display: "Request orchestration"},
		2: {Code: "c2", Display: "ServiceRequest"},
		3: {Code: "c3", Display: "Event", Designations: []string{"DefinitionDeEvento"}},
		4: {Code: "codeOnly", Display: "Haemoglobin HbA1c"},
		5: {Code: "c5", Display: "pH"},
		6: {Code: "bareCode"},
	}
	checkFindings(t, d, []filterCase{
		{"inside and at the beginning", "def", "3 0"},
		{"the whole word", "activityd", "0"},
		{"over the middle", "activitydefinition", "0"},
		{"both", "activity def", "0"},
		{"the other way round", "def act", "0"},
		{"the beginning, before or inside", "req", "1 2"},
		{"one letter: words and those inside, then the rest", "r", "1 2 6"},
		{"after a digit and a letter", "a1c", "4"},
		{"short ones stay whole", "ph", "5"},
		{"a code is not cut", "only", ""},
		{"code equal to the display", "code", "6 4"},
	})
}

// TestRanking checks each criterion of Rule's order.
func TestRanking(t *testing.T) {
	d := documents{
		0: {Code: "E11", Display: "Type 2 diabetes mellitus", Header: true},
		1: {Code: "E11.9", Display: "Type 2 diabetes mellitus without complications", Place: 2},
		2: {Code: "e119x", Display: "Other"},
		3: {Code: "dm", Display: "Diabetes", Header: true},
		4: {Code: "D2", Display: "Diabetes type 2", Place: 1},
		5: {Code: "D1", Display: "History of diabetes (gestational diabetes)"},
		6: {Code: "D3", Display: "Diabetes, type 3", Place: 1},
		7: {Code: "mi", Display: "Myocardial infarction", Designations: []string{"Heart attack", "Herzinfarkt"}},
		8: {Code: "ha", Display: "Attack of the heart", Place: 1},
		9: {Code: "x1", Display: "Diabetic nephropathy"},
	}
	checkFindings(t, d, []filterCase{
		{"the code first", "dm", "3"},
		{"the code without dots", "e119", "1 2"},
		{"the code with dots", "e11.9", "1 2"},
		{"the beginning of a code, the code itself first, though it cannot be chosen", "e11", "0 1 2"},
		{"the whole term", "diabetes type 2", "4 1 0"},
		{"the whole term, in any order no longer", "type 2 diabetes", "4 1 0"},
		{"whole words in heads, headers last; in tails; begun", "diabetes", "4 6 1 0 3 5 9"},
		{"the head ends at a comma", "diabetes type", "4 1 0 6"},
		{"begun in heads and tails", "diab", "9 4 6 1 0 3 5"},
		{"a designation in its head before a display in its tail", "heart att", "7 8"},
		{"stop words", "attack of the heart", "8 7"},
		{"the last word counts though it is one", "attack of", "8"},
		{"a designation", "herz", "7"},
		{"one letter anywhere, in the display only", "k", "8"},
		{"one letter: beginnings of words, then the rest", "m", "7 1 0"},
		{"in the middle of words, as nothing begins so", "betes", "5 4 6 1 0 3"},
		{"in the middle of several words", "betes ellit", "1 0"},
		{"not in the middle of a code with few letters", "19x", ""},
		{"nothing", "tyx", ""},
	})
}

// TestWordMatching checks how words in a text match words in the filter.
func TestWordMatching(t *testing.T) {
	const wholeWord, begun, not = fitWholeWord, fitPrefix, fitNone
	for _, test := range []struct {
		language, word, typed string
		want                  fit
	}{
		{"en", "fracture", "fracture", wholeWord},
		{"en", "fracture", "fract", begun},
		{"en", "fracture", "fractures", wholeWord},
		{"en", "fractures", "fracture", wholeWord},
		{"en", "arteries", "artery", begun},
		{"en", "hypertensive", "hypertension", begun},
		{"en", "anemia", "anaemia", wholeWord},
		{"en", "anaemia", "anemia", wholeWord},
		{"en", "anaemic", "anem", begun},
		{"en", "tumors", "tumours", wholeWord},
		{"en", "leukemia", "leukaem", begun},
		{"en", "2", "ii", wholeWord},
		{"en", "two", "2", wholeWord},
		{"en", "second", "2nd", wholeWord},
		{"en", "iii", "2", not},
		{"en", "crohns", "crohn", wholeWord},
		{"en", "fractur", "fracture", wholeWord},
		{"en", "heart", "health", not},
		{"de", "frakturen", "fraktur", wholeWord},
		{"de", "gelenke", "gelenk", wholeWord},
		{"de-CH", "hamorrhagie", "haemorrhagie", wholeWord},
		{"fr", "fractures", "fracture", wholeWord},
		{"fr", "arteriel", "arterielle", wholeWord},
		{"es", "fracturas", "fractura", wholeWord},
		{"nl", "breuken", "breuk", wholeWord},
		{"xx", "fractures", "fracture", wholeWord},
	} {
		w := languageOf(test.language).newQueryWord([]byte(test.typed), true)
		if got := w.fit([]byte(test.word)); got != test.want {
			t.Errorf("%s: %q for %q: got %d, want %d", test.language, test.word, test.typed, got, test.want)
		}
	}
}

// TestSearchFarApart searches documents with ranks so far apart that a posting takes three bytes.
func TestSearchFarApart(t *testing.T) {
	d := make(documents, 40_000)
	for i := range d {
		d[i] = document{Code: "x", Display: "common"}
	}
	d[0].Display, d[17_000].Display, d[39_999].Display = "needle", "needle", "needle"
	hits, total := search(Part{Index: New(d)}, NewFilter("needle", nil), 0, 10)
	if total != 3 || hits[0].Doc != 0 || hits[1].Doc != 17_000 || hits[2].Doc != 39_999 {
		t.Errorf("got %v, total %d", hits, total)
	}
}

// TestShortDescriptions checks that a prefix of an abbreviated word ranks a short description no higher than the display that
// it abbreviates. The short descriptions of CMS are designations. Other designations are unaffected.
func TestShortDescriptions(t *testing.T) {
	d := documents{
		0: {Code: "E11.9", Display: "Type 2 diabetes mellitus without complications", Designations: []string{"Type 2 diabetes mellitus without complications"}, Place: 1},
		1: {Code: "E08.43", Display: "Diabetes mellitus due to underlying condition with diabetic autonomic (poly)neuropathy", Designations: []string{"Diab due to undrl cond w diabetic autonm (poly)neuropathy"}, Place: 3},
		2: {Code: "E11.37X1", Display: "Type 2 diabetes mellitus with diabetic macular edema, resolved following treatment, right eye", Designations: []string{"Type 2 diab with diab mclr edma rslvd fol trtmt, right eye"}, Place: 4},
		3: {Code: "E11.319", Display: "Type 2 diabetes mellitus with unspecified diabetic retinopathy without macular edema", Designations: []string{"Type 2 diab w unsp diab rtnop w/o macular edema"}, Place: 2},
		4: {Code: "A80", Display: "Acute poliomyelitis", Designations: []string{"Polio"}, Place: 6},
		5: {Code: "Z24", Display: "Poliovirus immunization", Place: 5},
		6: {Code: "V1", Display: "Type 11 collagen disorder", Designations: []string{"Type 1 collagen dis"}, Place: 7},
	}
	checkFindings(t, d, []filterCase{
		{"a word cut short", "diab", "0 3 1 2"},
		{"and others beside it", "type 2 diab", "0 3 2"},
		{"a word that is not at the beginning of the display's", "mclr", "2"},
		{"a stop word cut short does not make a head longer", "diab macular", "3 2"},
		{"all of it", "diab due to undrl cond", "1"},
		{"designation that is no short display", "polio", "4 5"},
		{"a number does not match a longer number", "type 1 collagen", "6"},
	})
}

func TestContaining(t *testing.T) {
	x := New(documents{{Code: "a", Display: "Hypertension"}, {Code: "b", Display: "Hypotension, arterial"}, {Code: "c", Display: "Ménière"}})
	for _, test := range []struct {
		name, part string
		want       int
	}{
		{"in two words", "tension", 2},
		{"at the end", "terial", 1},
		{"a whole word", "hypertension", 1},
		{"with a letter of two bytes", "日本日本日", 0},
		{"pieces of several words", "hypertension arterial", 0},
		{"all but the last letter", "tensiom", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := len(x.wordsContaining([]byte(test.part))); got != test.want {
				t.Errorf("got %d words, want %d", got, test.want)
			}
			if test.want > 0 && !x.pieces.mayContain([]byte(test.part)) {
				t.Error("its pieces are not there")
			}
		})
	}
	if x.pieces.mayContain([]byte("zzzzz")) {
		t.Error("pieces of no word are there")
	}
}

type document struct {
	Code, Display string
	Designations  []string // other searchable texts
	Foreign       []string // texts in another language than requested, which have no head
	Place         uint32   // rank among equally good matches
	Language      string   // language of the corpus, used only in the first document; default: en
	Header        bool     // abstract; ranks after selectable documents
}

// documents is a corpus for tests.
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

func (d documents) AppendOtherTexts(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	for _, other := range slices.Concat(d[doc].Designations, d[doc].Foreign) {
		dst = append(dst, []byte(other))
	}
	return dst, len(d[doc].Foreign)
}

// String formats the documents for failure messages.
func (d documents) String() string {
	var b strings.Builder
	for i, doc := range d {
		fmt.Fprintf(&b, "%d: %q %q %q %q %x\n", i, doc.Code, doc.Display, doc.Designations, doc.Foreign, d.Rank(uint32(i)))
	}
	return b.String()
}

// randomWords are the words of random texts. They include common prefixes, marks, ligatures, several scripts, digits and signs.
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

// germanParts are the parts of random compounds and words that occur next to them.
var germanParts = []string{
	"Knie", "Gelenk", "Schmerz", "Schmerzen", "Lunge", "Lungen", "Embolie", "Embolien", "Herz", "Infarkt", "Blut", "Blutung", "Gefäß", "Erkrankung", "Krankung",
	"Kind", "Alter", "Hüfte", "Hüft", "Bein", "Unter", "Schenkel", "Wirbel", "Säule", "Säulen", "Niere", "Fuß", "Arm", "Ader", "Ende", "Rand", "Enden", "abcdabcd", "und", "durch",
}

// randomGerman returns a German word, which may be a compound of up to n parts.
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

// germanDocuments returns a German corpus in which most words are compounds.
func germanDocuments(r *rand.Rand, n int) documents {
	d := randomDocuments(r, n)
	for i := range d {
		words := []string{randomGerman(r, 4), randomGerman(r, 3), randomText(r, 1)}
		d[i].Display, d[i].Language = strings.Join(words[:1+r.IntN(3)], []string{" ", ", ", " im "}[r.IntN(3)]), "de"
		if r.IntN(4) == 0 {
			d[i].Designations = append(d[i].Designations, randomGerman(r, 4))
		}
	}
	return d
}

// germanFilter returns a filter that consists of German word parts, some of them with typos.
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

// randomText returns a text of at most n words.
func randomText(r *rand.Rand, n int) string {
	var words []string
	for range r.IntN(n + 1) {
		words = append(words, randomWords[r.IntN(len(randomWords))])
	}
	return strings.Join(words, []string{" ", " ", "-", ", ", "; "}[r.IntN(5)])
}

// randomDocuments returns a random corpus of n documents.
func randomDocuments(r *rand.Rand, n int) documents {
	d := make(documents, n)
	for i := range d {
		d[i] = document{Code: randomWords[r.IntN(len(randomWords))] + randomText(r, 1), Display: randomText(r, 4), Place: r.Uint32N(4), Header: r.IntN(4) == 0}
		for range r.IntN(3) {
			d[i].Designations = append(d[i].Designations, randomText(r, 3))
		}
		if r.IntN(3) == 0 {
			d[i].Foreign = []string{randomText(r, 3)}
		}
	}
	return d
}

// randomFilter returns a filter that is likely to match. It consists of pieces of words, some of them with typos.
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
