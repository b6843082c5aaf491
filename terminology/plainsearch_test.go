package terminology

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// plainCase completes strings.ToLower.
var plainCase = strings.NewReplacer("ß", "ss", "ς", "σ", "æ", "ae", "œ", "oe", "ø", "o", "ł", "l", "đ", "d", "ð", "d", "þ", "th", "ħ", "h", "ŧ", "t", "ı", "i", "ŋ", "n")

// plainWords cuts a text into folded words, the long way round.
func plainWords(text string) []string {
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
		words = append(words, plainWords(word)...)
		words = append(words, plainWords(plainCut.ReplaceAllString(word, "$1 $2"))[1:]...)
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

// plainTier is TextFilterRule by the letter, but for typos.
func plainTier(d document, filter string) tier {
	display := d.display
	if display == "" {
		display = d.code
	}
	shown, code, wanted := plainWords(display), plainWords(d.code), plainWords(filter)
	joined, line := strings.Join(code, ""), strings.Join(shown, " ")
	all := plainAll(display)
	texts := [][]string{all, code}
	words := slices.Concat(all, code, []string{joined})
	for _, other := range d.others {
		texts = append(texts, plainAll(other))
		words = append(words, plainAll(other)...)
	}
	letter := len(wanted) == 1 && len([]rune(wanted[0])) == 1
	if len(wanted) == 0 {
		return plainSymbols(d.code, display, strings.TrimSpace(filter))
	}
	if letter && !strings.Contains(line, wanted[0]) {
		return tierNone
	}
	for _, term := range strings.Fields(filter) {
		parts := plainWords(term)
		each := !slices.ContainsFunc(parts, func(p string) bool { return !beginsOne(words, p) })
		if !letter && !each && !beginsOne(words, strings.Join(parts, "")) {
			return tierNone
		}
	}
	whole := strings.Join(wanted, " ")
	switch {
	case joined == strings.Join(wanted, ""):
		return tierCode
	case line == whole:
		return tierDisplay
	case strings.HasPrefix(line, whole):
		return tierBeginning
	case letter && beginsOne(all, whole):
		return tierOrdered
	case letter:
		return tierAnywhere
	case strings.HasPrefix(joined, strings.Join(wanted, "")):
		return tierOrdered
	case slices.ContainsFunc(texts, func(t []string) bool { return plainOrder(t, wanted) }):
		return tierOrdered
	case len(wanted) == 1:
		return tierOrdered
	default:
		return tierAnywhere
	}
}

// plainSymbols is plainTier for a filter without letter or digit.
func plainSymbols(code, display, filter string) tier {
	switch {
	case code == filter:
		return tierCode
	case display == filter:
		return tierDisplay
	case strings.HasPrefix(display, filter):
		return tierBeginning
	case strings.Contains(display, filter) || strings.Contains(code, filter):
		return tierOrdered
	default:
		return tierNone
	}
}

// plainSearch is the whole rule by the letter.
func plainSearch(d documents, filter string) []hit {
	filter = strings.ToValidUTF8(filter, "\ufffd")
	var hits []hit
	for doc := range d {
		if t := plainTier(d[doc], filter); t != tierNone {
			hits = append(hits, hit{doc: uint32(doc), tier: t})
		}
	}
	words := plainWords(filter)
	for _, matches := range []func(document, string) bool{plainWithin, plainMeant} {
		if len(hits) > 0 || len([]rune(strings.Join(words, ""))) < 2 {
			break
		}
		for doc := range d {
			if matches(d[doc], filter) {
				hits = append(hits, hit{doc: uint32(doc), tier: tierLenient})
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		length := func(h hit) int { return len([]rune(string(d.display(h.doc)))) }
		switch {
		case a.tier != b.tier:
			return int(a.tier) - int(b.tier)
		case length(a) != length(b):
			return length(a) - length(b)
		case d[a.doc].retired != d[b.doc].retired && d[a.doc].retired:
			return 1
		case d[a.doc].retired != d[b.doc].retired:
			return -1
		}
		return 0
	})
	return hits
}

// plainDocument returns all words of a document.
func plainDocument(d document) []string {
	display := d.display
	if display == "" {
		display = d.code
	}
	words := slices.Concat(plainAll(display), plainWords(d.code), []string{strings.Join(plainWords(d.code), "")})
	for _, other := range d.others {
		words = append(words, plainAll(other)...)
	}
	return words
}

// plainWithin reports whether each word of the filter is in the middle of a word of a document.
func plainWithin(d document, filter string) bool {
	words := plainDocument(d)
	return !slices.ContainsFunc(plainWords(filter), func(part string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, part) })
	})
}

// plainMeant reports whether a document matches with typos.
func plainMeant(d document, filter string) bool {
	words := plainDocument(d)
	for _, term := range strings.Fields(filter) {
		parts := plainWords(term)
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
		if n > 0 && w[0] == t[0] && plainDistance(w[:n], t) <= most {
			return true
		}
	}
	return false
}

// plainDistance is the restricted Damerau-Levenshtein distance, as a whole table.
func plainDistance(a, b []rune) int {
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
