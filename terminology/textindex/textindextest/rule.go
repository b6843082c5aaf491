package textindextest

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Tier is how well a document matches, as [github.com/caddy-fhir/caddy-fhir/terminology/textindex.Rule] has it: the
// lower, the better.
type Tier uint8

// The tiers, in the order of the rule.
const (
	ByCode Tier = iota
	ByTerm
	ByWholeHead
	ByWhole
	ByBegunHead
	ByBegun
	Lenient
	None
)

// Hit is a document that matches.
type Hit struct {
	// Doc is its place in the corpus.
	Doc uint32

	// Tier is how well it matches.
	Tier Tier
}

// plainCase completes strings.ToLower.
var plainCase = strings.NewReplacer("ß", "ss", "ς", "σ", "æ", "ae", "œ", "oe", "ø", "o", "ł", "l", "đ", "d", "ð", "d", "þ", "th", "ħ", "h", "ŧ", "t", "ı", "i", "ŋ", "n")

// plainApostrophe is one before an s at the end of a word.
var plainApostrophe = regexp.MustCompile(`([\pL\pN\p{Mc}])['’]([sS])([^\pL\pN\p{Mc}]|$)`)

// plain decomposes a text, without marks and such apostrophes.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(text))
	return plainApostrophe.ReplaceAllString(text, "$1$2$3")
}

func isSign(r rune) bool { return !unicode.In(r, unicode.L, unicode.N, unicode.Mc) }

// Words cuts a text into folded words, the long way round.
func Words(text string) []string {
	words := strings.FieldsFunc(plain(text), isSign)
	for i, word := range words {
		words[i] = plainFold(word)
	}
	return words
}

func plainFold(word string) string {
	return plainCase.Replace(strings.ToLower(plainCase.Replace(strings.ToLower(word))))
}

// plainCut is where a word begins inside another.
var plainCut = regexp.MustCompile(`([\p{Ll}\p{N}])(\p{Lu})`)

// plainWord is a word of a text.
type plainWord struct {
	word string
	head bool
}

// plainSpots returns the words of a text, and those inside them, and those that hyphens join.
func plainSpots(text string) (spots []plainWord) {
	rest := plain(text)
	head, depth, chain, first := true, 0, "", true
	for rest != "" {
		at := strings.IndexFunc(rest, func(r rune) bool { return !isSign(r) })
		if at < 0 {
			break
		}
		signs := rest[:at]
		for _, r := range signs {
			switch {
			case strings.ContainsRune("([", r):
				depth++
			case strings.ContainsRune(")]", r):
				depth = max(0, depth-1)
			case strings.ContainsRune(",;:", r) && depth == 0 && !first:
				head = false
			}
		}
		end := strings.IndexFunc(rest[at:]+" ", isSign)
		word := rest[at : at+end]
		rest = rest[at+end:]
		if !first && spoken.stops[plainFold(word)] {
			head = false
		}
		isHead := head && depth == 0
		if signs == "-" && !first {
			chain += plainFold(word)
			spots = append(spots, plainWord{chain, isHead})
		} else {
			chain = plainFold(word)
		}
		spots = append(spots, plainWord{plainFold(word), isHead})
		if inner := Words(plainCut.ReplaceAllString(word, "$1 $2")); len(inner) > 1 {
			for i, part := range inner {
				spots = append(spots, plainWord{part, isHead && i == 0})
			}
		}
		first = false
	}
	return spots
}

// plainFit says how a word of a text fits one of the filter: 0 not, 1 begun, 2 whole.
func plainFit(word, wanted string, begins bool) int {
	spelled := spelled
	if len(wanted) < 4 {
		spelled = func(word string) string { return word }
	}
	alike := stem(wanted) != "" && stem(word) == stem(wanted)
	switch {
	case word == wanted, word == spelled(wanted), spelled(word) == spelled(wanted), sameNumber(word, wanted):
		return 2
	case alike && (strings.HasPrefix(word, wanted) || strings.HasPrefix(wanted, word)):
		return 2
	case begins && (alike || strings.HasPrefix(word, wanted) || strings.HasPrefix(word, spelled(wanted)) || strings.HasPrefix(spelled(word), spelled(wanted))):
		return 1
	}
	return 0
}

// Synonym is a rule.
type Synonym struct {
	// Typed are the words that are typed, without stop words.
	Typed string

	// Other are the words that are also found.
	Other string
}

// Synonyms are the rules that count.
var Synonyms []Synonym

// plainTier is the tier of a word: the best of its places.
func plainWordTier(spots []plainWord, wanted string, begins bool) Tier {
	best := None
	for _, s := range spots {
		tier := []Tier{None, ByBegun, ByWhole}[plainFit(s.word, wanted, begins)]
		if tier != None && s.head {
			tier--
		}
		best = min(best, tier)
	}
	return best
}

func plainAllTier(spots []plainWord, words []string, begins bool) Tier {
	worst := ByWholeHead
	for _, word := range words {
		worst = max(worst, plainWordTier(spots, word, begins))
	}
	return worst
}

// plainTier is the rule by the letter, without what is lenient.
func (q plainQuery) tier(d Document) Tier {
	filter := q.filter
	display, wanted := d.shown(), Words(filter)
	joined := strings.Join(Words(d.Code), "")
	if len(wanted) == 0 {
		return plainSymbols(d.Code, display, strings.TrimSpace(filter))
	}
	tier := ByWholeHead
	if len(wanted) == 1 && len([]rune(wanted[0])) == 1 {
		tier = plainLetter(display, wanted[0])
	} else {
		for _, s := range q.segments() {
			tier = max(tier, q.runTier(s, plainDocument(d)))
		}
	}
	switch {
	case tier == None:
		return None
	case joined == strings.Join(wanted, ""):
		return ByCode
	case !d.Header && slices.Contains(q.lines(), strings.Join(Words(display), " ")):
		return ByTerm
	}
	return tier
}

func plainLetter(display, letter string) Tier {
	switch {
	case slices.ContainsFunc(plainSpots(display), func(s plainWord) bool { return strings.HasPrefix(s.word, letter) }):
		return ByBegun
	case strings.Contains(strings.Join(Words(display), " "), letter):
		return Lenient
	}
	return None
}

// plainSegment is a run of terms, and what else it stands for.
type plainSegment struct {
	terms  []string
	others []string
}

// plainSegments cuts a filter into runs: the longest that there is a synonym for.
func (q plainQuery) segments() (segments []plainSegment) {
	var terms []string
	fields := slices.DeleteFunc(strings.Fields(q.filter), func(f string) bool { return len(Words(f)) == 0 })
	for i, field := range fields {
		if words := Words(field); i == len(fields)-1 || len(words) > 1 || !spoken.stops[words[0]] {
			terms = append(terms, field)
		}
	}
	for len(terms) > 0 {
		run, others := 1, []string(nil)
		for n := len(terms); n > 0 && others == nil; n-- {
			for _, s := range Synonyms {
				if s.Typed == strings.Join(q.asRead(Words(strings.Join(terms[:n], " "))), " ") {
					run, others = n, append(others, s.Other)
				}
			}
		}
		segments = append(segments, plainSegment{terms[:run], others})
		terms = terms[run:]
	}
	return segments
}

// plainLines returns what a display must be to be the filter.
func (q plainQuery) lines() []string {
	lines := []string{strings.Join(Words(q.filter), " ")}
	if segments := q.segments(); len(segments) == 1 {
		lines = append(lines, segments[0].others...)
	}
	return lines
}

func (q plainQuery) runTier(s plainSegment, spots []plainWord) Tier {
	worst := ByWholeHead
	for _, term := range s.terms {
		best := ByWholeHead
		for _, word := range Words(term) {
			best = max(best, q.wordTier(spots, word))
		}
		if words := Words(term); len(words) > 1 {
			best = min(best, q.wordTier(spots, strings.Join(words, "")))
		}
		worst = max(worst, best)
	}
	return min(worst, s.othersTier(spots))
}

// plainSymbols is plainTier for a filter without letter or digit.
func plainSymbols(code, display, filter string) Tier {
	switch {
	case code == filter:
		return ByCode
	case display == filter:
		return ByTerm
	case strings.HasPrefix(display, filter):
		return ByBegunHead
	case strings.Contains(display, filter) || strings.Contains(code, filter):
		return ByBegun
	default:
		return None
	}
}

// Search returns what a filter finds in documents, in order, as the rule says it by the letter.
func Search(d Documents, filter string) []Hit {
	defer speak(d)()
	q := plainQuery{filter: strings.ToValidUTF8(filter, "\ufffd")}
	hits := q.strictly(d)
	if len(hits) == 0 && len([]rune(strings.Join(Words(filter), ""))) > 1 {
		for doc := range d {
			if q.within(d[doc]) {
				hits = append(hits, Hit{Doc: uint32(doc), Tier: Lenient})
			}
		}
	}
	if len(hits) == 0 {
		if q.correct(d); q.read != nil {
			hits = q.strictly(d)
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int {
		if a.Tier != b.Tier {
			return int(a.Tier) - int(b.Tier)
		}
		return int(d.Rank(a.Doc)) - int(d.Rank(b.Doc))
	})
	return hits
}

// plainDocument returns all words of a document, and their parts.
func plainDocument(d Document) []plainWord { return spoken.withParts(plainSpotsOf(d)) }

// plainSpotsOf returns all words of a document.
func plainSpotsOf(d Document) []plainWord {
	spots := append(plainSpots(d.shown()), plainWord{strings.Join(Words(d.Code), ""), true})
	for _, word := range Words(d.Code) {
		spots = append(spots, plainWord{word, true})
	}
	for _, other := range d.Others {
		spots = append(spots, plainSpots(other)...)
	}
	for _, other := range d.Foreign {
		for _, s := range plainSpots(other) {
			spots = append(spots, plainWord{s.word, false})
		}
	}
	return spots
}

// plainWithin reports whether the long words of a filter are in the middle of words of a document.
func (q plainQuery) within(d Document) bool {
	spots := plainDocument(d)
	for _, s := range q.segments() {
		found := !slices.ContainsFunc(s.terms, func(term string) bool {
			words := Words(term)
			return slices.ContainsFunc(words, func(part string) bool { return !plainlyWithin(spots, part) }) &&
				(len(words) == 1 || plainWordTier(spots, strings.Join(words, ""), true) == None)
		})
		if !found && (s.others == nil || (plainSegment{others: s.others}).othersTier(spots) == None) {
			return false
		}
	}
	return true
}

func (s plainSegment) othersTier(spots []plainWord) Tier {
	best := None
	for _, other := range s.others {
		words := slices.DeleteFunc(Words(other), func(word string) bool { return spoken.stops[word] })
		best = min(best, plainAllTier(spots, words, false))
	}
	return best
}

func plainlyWithin(spots []plainWord, part string) bool {
	return slices.ContainsFunc(spots, func(s plainWord) bool {
		return plainFit(s.word, part, true) > 0 || len([]rune(part)) >= 5 && strings.Contains(s.word, part)
	})
}

// Distance is the restricted Damerau-Levenshtein distance, as a whole table.
func Distance(a, b []rune) int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
		for j := range table[i] {
			switch {
			case i == 0 || j == 0:
				table[i][j] = i + j
			case a[i-1] == b[j-1]:
				table[i][j] = table[i-1][j-1]
			default:
				table[i][j] = 1 + min(table[i-1][j], table[i][j-1], table[i-1][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				table[i][j] = min(table[i][j], table[i-2][j-2]+1)
			}
		}
	}
	return table[len(a)][len(b)]
}

// plainQuery is a filter, and what words with typos are read as.
type plainQuery struct {
	filter string
	read   map[string][]string
}

// asRead returns words as they are read.
func (q plainQuery) asRead(words []string) []string {
	for i, word := range words {
		if read := q.read[word]; read != nil {
			words[i] = read[0]
		}
	}
	return words
}

// wordTier is the tier of a word, or of the best of those it is read as.
func (q plainQuery) wordTier(spots []plainWord, word string) Tier {
	read := q.read[word]
	if read == nil {
		return plainWordTier(spots, word, true)
	}
	best := None
	for _, s := range spots {
		if slices.Contains(read, s.word) || spelled(s.word) == read[0] {
			best = min(best, map[bool]Tier{true: ByWholeHead, false: ByWhole}[s.head])
		}
	}
	return best
}

// strictly returns what matches without being lenient.
func (q plainQuery) strictly(d Documents) (hits []Hit) {
	for doc := range d {
		if t := q.tier(d[doc]); t != None {
			hits = append(hits, Hit{Doc: uint32(doc), Tier: t})
		}
	}
	return hits
}

// correct reads the words that no document has as the most similar ones.
func (q *plainQuery) correct(d Documents) {
	counts := map[string]int{}
	for i := range d {
		seen := map[string]bool{}
		for _, s := range plainDocument(d[i]) {
			if !seen[s.word] {
				seen[s.word] = true
				counts[s.word]++
			}
		}
	}
	for _, typed := range Words(q.filter) {
		if read := plainGuesses(counts, typed); read != nil {
			if q.read == nil {
				q.read = map[string][]string{}
			}
			q.read[typed] = read
		}
	}
}

// plainGuesses returns up to five of the words that are most similar to one.
func plainGuesses(counts map[string]int, typed string) (read []string) {
	best := math.MaxInt
	for word := range counts {
		if plainFit(word, typed, true) > 0 {
			return nil
		}
		score := plainScore([]rune(word), []rune(typed))
		if score < best {
			best, read = score, nil
		}
		if score == best && score < math.MaxInt {
			read = append(read, word)
		}
	}
	slices.SortFunc(read, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	return read[:min(len(read), 5)]
}

// plainScore says how similar a word is to what was typed: the less, the more.
func plainScore(word, typed []rune) int {
	n := len(typed)
	if n < 5 || n > 32 || len(word) == 0 || word[0] != typed[0] || slices.ContainsFunc(append(slices.Clip(word), typed...), unicode.IsNumber) {
		return math.MaxInt
	}
	whole, begun := 2, 2
	if n < 6 {
		whole = 1
	}
	if n < 8 {
		begun = 1
	}
	best := math.MaxInt
	if distance := Distance(word[:min(len(word), n+3)], typed); distance <= whole {
		best = 2 * distance
	}
	for end := max(1, n-begun); end < min(len(word), n+begun+1); end++ {
		if distance := Distance(word[:end], typed); distance <= begun {
			best = min(best, 2*distance+1)
		}
	}
	return best
}
