package textindex

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// Rule says which documents a filter finds and in which order. docs/search.md explains it.
const Rule = "Words are runs of letters and digits; case and accents do not count (NFKD). " +
	"In displays and designations, not in codes, an upper-case letter after a lower-case letter or a digit also begins a word, " +
	"which ends where the next begins: ActivityDefinition has the words activitydefinition and definition. " +
	"The filter is cut at spaces into terms. A concept is found if every term is: each word of the term begins a word of " +
	"the concept's code, display or designations (those in the languages that are asked for, or in none; else all), " +
	"or the term's words written together begin one of those words or the code written together. " +
	"A filter of one letter or digit is found anywhere in the display, and in nothing else. " +
	"A filter without letter or digit is found where it occurs as it is, in display or code. " +
	"Order: the code is the filter; the display is the filter; the display begins with the filter; " +
	"all words are in one text in the filter's order (or the code begins with the filter); the rest. " +
	"Among these: the shorter display, the active concept, the order of the expansion. " +
	"Only if nothing is found at all may the filter's words be in the middle of others; only if nothing is found then " +
	"may words have typos, their first letter excepted: " +
	"one from four letters, two from eight, none in a word with a digit."

// Filter is what a person typed, prepared for matching. Exactly one of symbols, letter and terms is set.
type Filter struct {
	symbols []byte // the filter as it is, if it has neither letter nor digit
	letter  []byte // the one letter or digit that it consists of
	terms   []term

	line   []byte   // all words, as folder.words returns them
	words  [][]byte // the same, each with the space before it
	joined []byte   // the same, without spaces

	room struct { // holds all of these if they are short, as most are
		text  [96]byte
		words [3][]byte
		terms [1]term
	}
}

// term is a part of a filter between spaces: "e11.9" is one of two words.
type term struct {
	words  [][]byte // each with a space before it
	joined []byte   // all of them after one space; nil if there is only one
}

// leniency is how to look for a filter: strictly first, then, while nothing is found, in ways that find more.
type leniency int

const (
	strictly    leniency = iota // each word begins another
	withinWords                 // or is in the middle of one
	withTypos                   // or begins one, except for typos
)

// allows reports whether to look for a filter in a way. A letter is found anywhere as it is.
func (t *Filter) allows(how leniency) bool {
	switch how {
	case withinWords:
		return len(t.words) > 0
	case withTypos:
		return slices.ContainsFunc(t.words, func(word []byte) bool { return maxTypos(word[1:]) > 0 })
	}
	return true
}

// NewFilter prepares a filter. It is nil, and matches everything, if there is nothing to look for. An invalid byte is a
// sign that no text has, and joins no others.
func NewFilter(filter string) *Filter {
	filter = strings.TrimSpace(strings.ToValidUTF8(filter, "\ufffd"))
	if filter == "" {
		return nil
	}
	var room [64]byte
	f := folder{folded: room[:0]}
	t := &Filter{}
	text := append(t.room.text[:0], f.words([]byte(filter))...)
	t.line = slices.Clip(text)
	switch {
	case len(t.line) == 0:
		return &Filter{symbols: []byte(filter)}
	case utf8.RuneCount(t.line) == 2:
		t.letter = t.line[1:]
	default:
		text = t.cut(text, &f, filter)
	}
	t.joined = appendJoined(text, t.line)[len(text):]
	return t
}

// cut cuts a filter into terms and words, whose text it appends to text.
func (t *Filter) cut(text []byte, f *folder, filter string) []byte {
	t.words, t.terms = t.room.words[:0], t.room.terms[:0]
	for field := range strings.FieldsSeq(filter) {
		start := len(text)
		text = append(text, f.words([]byte(field))...)
		line, first := text[start:], len(t.words)
		if len(line) == 0 {
			continue
		}
		t.words = appendSpaced(t.words, line)
		found := term{words: slices.Clip(t.words[first:])}
		if len(found.words) > 1 {
			start = len(text)
			text = appendJoined(append(text, ' '), line)
			found.joined = slices.Clip(text[start:])
		}
		t.terms = append(t.terms, found)
	}
	return text
}

// appendSpaced appends the words of a line, each with the space before it.
func appendSpaced(words [][]byte, line []byte) [][]byte {
	for len(line) > 0 {
		word, rest := nextWord(line)
		words = append(words, line[:len(word)+1:len(word)+1])
		line = rest
	}
	return words
}

// in reports whether words, as folder.words returns them, match a term.
func (t *term) in(words []byte) bool {
	if t.joined != nil && bytes.Contains(words, t.joined) {
		return true
	}
	return !slices.ContainsFunc(t.words, func(word []byte) bool { return !bytes.Contains(words, word) })
}

// inOrder reports whether all words of the filter begin words of a line, one after the other.
func (t *Filter) inOrder(line []byte) bool {
	for _, word := range t.words {
		at := bytes.Index(line, word)
		if at < 0 {
			return false
		}
		line = line[at+len(word):]
	}
	return true
}

// inOrderIn is inOrder for a text and the words inside its words. It folds only what is not ASCII or has a word inside
// another.
func (t *Filter) inOrderIn(text []byte, folder *folder) bool {
	rest := t.words
	for i := 0; i < len(text); {
		length, begins := beginsASCII(text[i:], rest[0][1:])
		if length < 0 {
			return t.inOrder(folder.withInner(folder.words(text)))
		}
		if begins {
			if rest = rest[1:]; len(rest) == 0 {
				return true
			}
		}
		i += length + 1
	}
	return false
}

// beginsASCII returns the length of a text's first word, which may be 0, and whether the word begins with other, which
// is not empty. The length is negative if there is more than ASCII, or if a word begins inside it.
func beginsASCII(text, other []byte) (length int, begins bool) {
	same, small := 0, false
	for i, c := range text {
		if c >= utf8.RuneSelf {
			return -1, false
		}
		folded := asciiWord[c]
		if folded == 0 {
			return i, same == len(other)
		}
		if small && folded != c {
			return -1, false
		}
		small = folded == c
		if same == i && same < len(other) && folded == other[same] {
			same++
		}
	}
	return len(text), same == len(other)
}

func (t *Filter) theLetter() rune {
	r, _ := utf8.DecodeRune(t.letter)
	return r
}
