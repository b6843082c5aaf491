package textindextest

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

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
func plainSpots(text string, stops map[string]bool) (spots []plainWord) {
	rest := plain(text)
	head, depth, chain, first := true, 0, "", true
	for rest != "" {
		at := strings.IndexFunc(rest, func(r rune) bool { return !isSign(r) })
		if at < 0 {
			break
		}
		signs := rest[:at]
		var comma bool
		depth, comma = plainBrackets(depth, signs)
		head = head && (first || !comma)
		end := strings.IndexFunc(rest[at:]+" ", isSign)
		word := rest[at : at+end]
		rest = rest[at+end:]
		if !first && stops[plainFold(word)] {
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

// plainBrackets returns how deep in brackets the signs before a word leave it, and whether a comma outside of them is there.
func plainBrackets(depth int, signs string) (within int, comma bool) {
	for _, r := range signs {
		switch {
		case strings.ContainsRune("([", r):
			depth++
		case strings.ContainsRune(")]", r):
			depth = max(0, depth-1)
		case strings.ContainsRune(",;:", r) && depth == 0:
			comma = true
		}
	}
	return depth, comma
}

// plainSpotsOf returns all words of a document.
func plainSpotsOf(d Document, stops map[string]bool) []plainWord {
	spots := append(plainSpots(d.shown(), stops), plainWord{strings.Join(Words(d.Code), ""), true})
	for _, word := range Words(d.Code) {
		spots = append(spots, plainWord{word, true})
	}
	for _, other := range d.Others {
		spots = append(spots, d.inFull(plainSpots(other, stops))...)
	}
	for _, other := range d.Foreign {
		for _, s := range d.inFull(plainSpots(other, stops)) {
			spots = append(spots, plainWord{s.word, false})
		}
	}
	return spots
}

// inFull returns the words of a text. If it is the display in short, they are in no head, and those that are words of the
// display cut short are not among them.
func (d Document) inFull(spots []plainWord) []plainWord {
	display := Words(d.shown())
	isShort := func(s plainWord) bool {
		longer := slices.ContainsFunc(display, func(word string) bool { return strings.HasPrefix(word, s.word) })
		return longer && !slices.Contains(display, s.word) && !strings.ContainsAny(s.word, "0123456789")
	}
	same, short := 0, 0
	for _, s := range spots {
		if slices.Contains(display, s.word) {
			same = 1
		}
		if isShort(s) && len(s.word) > 1 {
			short++
		}
	}
	if short == 0 || same+short < 2 {
		return spots
	}
	spots = slices.DeleteFunc(spots, isShort)
	for i := range spots {
		spots[i].head = false
	}
	return spots
}
