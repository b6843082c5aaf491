package terminology

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// folder turns text into words that can be compared: compatibility decomposition (NFKD), without marks,
// in lower case, cut at everything that is neither letter nor digit. It keeps buffers between calls.
type folder struct{ decomposed, folded []byte }

// words returns the words of s, each after a space: " acute appendicitis". So a word that begins with p
// is in it exactly if " "+p is. The result is valid until the next call.
func (f *folder) words(s []byte) []byte {
	f.folded = f.folded[:0]
	if !isASCII(s) {
		f.decomposed = norm.NFKD.Append(f.decomposed[:0], s...)
		s = f.decomposed
	}
	within := false
	for i := 0; i < len(s); {
		r, width := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, width = utf8.DecodeRune(s[i:])
		}
		i += width
		switch {
		case isWordRune(r):
			if !within {
				f.folded = append(f.folded, ' ')
			}
			f.folded = utf8.AppendRune(f.folded, foldCase(r))
			within = true
		case !unicode.Is(unicode.Mn, r):
			within = false
		}
	}
	return f.folded
}

// isWordRune reports whether r is part of a word.
func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return unicode.In(r, unicode.L, unicode.N, unicode.Mc)
}

// isASCII reports whether s has no byte above 127.
func isASCII(s []byte) bool {
	for _, c := range s {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// textFilter is the filter parameter of $expand, ready to be matched.
type textFilter struct {
	anywhere []byte   // the one letter or digit that the filter consists of, or nil
	prefixes [][]byte // its words otherwise, each after a space
	symbols  []byte   // the filter as it is, when it holds neither letter nor digit
}

// newTextFilter prepares a filter; nil matches everything, and so does an empty one.
func newTextFilter(filter string) *textFilter {
	filter = strings.TrimSpace(filter)
	if filter == "" {
		return nil
	}
	var f folder
	words := f.words([]byte(filter))
	if len(words) == 0 {
		return &textFilter{symbols: []byte(filter)}
	}
	if utf8.RuneCount(words) == 2 {
		return &textFilter{anywhere: words[1:]}
	}
	t := &textFilter{}
	for _, word := range bytes.Fields(words) {
		t.prefixes = append(t.prefixes, append([]byte(" "), word...))
	}
	return t
}

// matches reports whether a display matches: each word of the filter begins a word of it, in any order.
// A single letter may stand anywhere; a filter of symbols alone must occur as it is.
func (t *textFilter) matches(display, folded []byte) bool {
	if t == nil {
		return true
	}
	if t.symbols != nil {
		return bytes.Contains(display, t.symbols)
	}
	if t.anywhere != nil {
		return bytes.Contains(folded, t.anywhere)
	}
	for _, prefix := range t.prefixes {
		if !bytes.Contains(folded, prefix) {
			return false
		}
	}
	return true
}
