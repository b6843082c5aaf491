package textindextest

import (
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
	ByDisplay
	ByBeginning
	ByOrdered
	ByAnywhere
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

// Words cuts a text into folded words, the long way round.
func Words(text string) []string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(text) {
		switch {
		case unicode.In(r, unicode.L, unicode.N, unicode.Mc):
			b.WriteString(plainCase.Replace(strings.ToLower(string(r))))
		case !unicode.Is(unicode.Mn, r):
			b.WriteRune(' ')
		}
	}
	return strings.Fields(b.String())
}

// plainCut is where a word begins inside another.
var plainCut = regexp.MustCompile(`([\p{Ll}\p{N}])(\p{Lu})`)

// plainAll returns the words of a text, each with those after it that begin inside it.
func plainAll(text string) (words []string) {
	text = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(text))
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.In(r, unicode.L, unicode.N, unicode.Mc) }) {
		words = append(words, Words(word)...)
		words = append(words, Words(plainCut.ReplaceAllString(word, "$1 $2"))[1:]...)
	}
	return words
}

// beginsOne reports whether word begins one of words.
func beginsOne(words []string, word string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, word) })
}

// plainOrder reports whether the words of a filter begin words of a text one after the other.
func plainOrder(text, filter []string) bool {
	for _, word := range text {
		if len(filter) > 0 && strings.HasPrefix(word, filter[0]) {
			filter = filter[1:]
		}
	}
	return len(filter) == 0
}

// plainTier is the rule by the letter, but for typos.
func plainTier(d Document, filter string) Tier {
	display := d.shown()
	shown, code, wanted := Words(display), Words(d.Code), Words(filter)
	joined, line := strings.Join(code, ""), strings.Join(shown, " ")
	all := plainAll(display)
	texts := [][]string{all, code}
	words := slices.Concat(all, code, []string{joined})
	for _, other := range d.Others {
		texts = append(texts, plainAll(other))
		words = append(words, plainAll(other)...)
	}
	letter := len(wanted) == 1 && len([]rune(wanted[0])) == 1
	if len(wanted) == 0 {
		return plainSymbols(d.Code, display, strings.TrimSpace(filter))
	}
	if letter && !strings.Contains(line, wanted[0]) {
		return None
	}
	for term := range strings.FieldsSeq(filter) {
		parts := Words(term)
		each := !slices.ContainsFunc(parts, func(p string) bool { return !beginsOne(words, p) })
		if !letter && !each && !beginsOne(words, strings.Join(parts, "")) {
			return None
		}
	}
	whole := strings.Join(wanted, " ")
	switch {
	case joined == strings.Join(wanted, ""):
		return ByCode
	case line == whole:
		return ByDisplay
	case strings.HasPrefix(line, whole):
		return ByBeginning
	case letter && beginsOne(all, whole):
		return ByOrdered
	case letter:
		return ByAnywhere
	case strings.HasPrefix(joined, strings.Join(wanted, "")):
		return ByOrdered
	case slices.ContainsFunc(texts, func(t []string) bool { return plainOrder(t, wanted) }):
		return ByOrdered
	case len(wanted) == 1:
		return ByOrdered
	default:
		return ByAnywhere
	}
}

// plainSymbols is plainTier for a filter without letter or digit.
func plainSymbols(code, display, filter string) Tier {
	switch {
	case code == filter:
		return ByCode
	case display == filter:
		return ByDisplay
	case strings.HasPrefix(display, filter):
		return ByBeginning
	case strings.Contains(display, filter) || strings.Contains(code, filter):
		return ByOrdered
	default:
		return None
	}
}

// Search returns what a filter finds in documents, in order, as the rule says it by the letter.
func Search(d Documents, filter string) []Hit {
	filter = strings.ToValidUTF8(filter, "\ufffd")
	var hits []Hit
	for doc := range d {
		if t := plainTier(d[doc], filter); t != None {
			hits = append(hits, Hit{Doc: uint32(doc), Tier: t})
		}
	}
	words := Words(filter)
	for _, matches := range []func(Document, string) bool{plainWithin, plainMeant} {
		if len(hits) > 0 || len([]rune(strings.Join(words, ""))) < 2 {
			break
		}
		for doc := range d {
			if matches(d[doc], filter) {
				hits = append(hits, Hit{Doc: uint32(doc), Tier: Lenient})
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int {
		length := func(h Hit) int { return len([]rune(d[h.Doc].shown())) }
		switch {
		case a.Tier != b.Tier:
			return int(a.Tier) - int(b.Tier)
		case length(a) != length(b):
			return length(a) - length(b)
		case d[a.Doc].Retired != d[b.Doc].Retired && d[a.Doc].Retired:
			return 1
		case d[a.Doc].Retired != d[b.Doc].Retired:
			return -1
		}
		return 0
	})
	return hits
}

// plainDocument returns all words of a document.
func plainDocument(d Document) []string {
	display := d.shown()
	words := slices.Concat(plainAll(display), Words(d.Code), []string{strings.Join(Words(d.Code), "")})
	for _, other := range d.Others {
		words = append(words, plainAll(other)...)
	}
	return words
}

// plainWithin reports whether each word of the filter is in the middle of a word of a document.
func plainWithin(d Document, filter string) bool {
	words := plainDocument(d)
	return !slices.ContainsFunc(Words(filter), func(part string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, part) })
	})
}

// plainMeant reports whether a document matches with typos.
func plainMeant(d Document, filter string) bool {
	words := plainDocument(d)
	for term := range strings.FieldsSeq(filter) {
		parts := Words(term)
		all := !slices.ContainsFunc(parts, func(part string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return plainlyMeant(word, part) })
		})
		if !all && !beginsOne(words, strings.Join(parts, "")) {
			return false
		}
	}
	return true
}

// plainlyMeant reports whether a beginning of word may be meant by typed.
func plainlyMeant(word, typed string) bool {
	w, t := []rune(word), []rune(typed)
	most := 0
	switch digit := strings.ContainsFunc(typed, unicode.IsNumber); {
	case digit || len(t) < 4:
	case len(t) < 8:
		most = 1
	default:
		most = 2
	}
	if most == 0 || strings.HasPrefix(word, typed) {
		return strings.HasPrefix(word, typed)
	}
	for n := range len(w) + 1 {
		if n > 0 && w[0] == t[0] && Distance(w[:n], t) <= most {
			return true
		}
	}
	return false
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
