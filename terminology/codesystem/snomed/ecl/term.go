package ecl

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// anyTerm returns the condition that a text matches one of the search terms.
func anyTerm(terms []searchTerm) func(text []byte) bool {
	var matchers []func(text []byte) bool
	for _, t := range terms {
		matchers = append(matchers, t.matcher())
	}
	return func(text []byte) bool {
		return slices.ContainsFunc(matchers, func(matches func([]byte) bool) bool { return matches(text) })
	}
}

func (t searchTerm) matcher() func(text []byte) bool {
	switch t.kind {
	case "exact":
		exact := unescape(t.text)
		return func(text []byte) bool { return string(text) == exact }
	case "wild":
		return wildMatcher(splitWild(t.text))
	}
	var words [][]byte
	for word := range strings.FieldsSeq(unescape(t.text)) {
		words = append(words, fold(nil, []byte(word), norm.NFKD))
	}
	var buffer []byte
	return func(text []byte) bool {
		buffer = fold(buffer[:0], text, norm.NFKD)
		return !slices.ContainsFunc(words, func(word []byte) bool { return !hasWord(buffer, word) })
	}
}

// fold appends a text in lower case and in a normal form: NFKD separates marks from letters.
func fold(dst, s []byte, form norm.Form) []byte {
	for _, c := range s {
		switch {
		case c >= utf8.RuneSelf:
			return append(dst[:0], bytes.ToLower(form.Bytes(s))...)
		case c >= 'A' && c <= 'Z':
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst
}

// hasWord reports whether a word in text begins with prefix. Both are decomposed. A letter without marks in prefix matches the
// letter with any marks in text, but not the reverse (section 5.5).
func hasWord(text, prefix []byte) bool {
	within := false
	for i, r := range string(text) {
		if !within && hasPrefix(text[i:], prefix) {
			return true
		}
		within = unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
	}
	return false
}

func hasPrefix(text, prefix []byte) bool {
	for len(prefix) > 0 {
		r, n := utf8.DecodeRune(prefix)
		s, m := utf8.DecodeRune(text)
		if r != s {
			return false
		}
		text, prefix = text[m:], prefix[n:]
		if next, _ := utf8.DecodeRune(prefix); len(prefix) > 0 && !unicode.IsMark(next) {
			text = bytes.TrimLeftFunc(text, unicode.IsMark)
		}
	}
	return true
}

// splitWild splits a pattern at its stars and removes escapes. Adjacent stars count as one.
func splitWild(pattern string) (parts [][]byte) {
	part := []byte{}
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*':
			if len(part) > 0 || len(parts) == 0 {
				parts, part = append(parts, part), []byte{}
			}
			continue
		case '\\':
			i++
		}
		part = append(part, pattern[i])
	}
	return append(parts, part)
}

// wildMatcher returns the condition that a text consists of parts with any text between them, ignoring case.
func wildMatcher(parts [][]byte) func(text []byte) bool {
	for i, part := range parts {
		parts[i] = fold(nil, part, norm.NFC)
	}
	first, last := parts[0], parts[len(parts)-1]
	var buffer []byte
	return func(text []byte) bool {
		buffer = fold(buffer[:0], text, norm.NFC)
		text = buffer
		if len(parts) == 1 {
			return bytes.Equal(text, first)
		}
		if len(text) < len(first)+len(last) || !bytes.HasPrefix(text, first) || !bytes.HasSuffix(text, last) {
			return false
		}
		text = text[len(first) : len(text)-len(last)]
		for _, part := range parts[1 : len(parts)-1] {
			i := bytes.Index(text, part)
			if i < 0 {
				return false
			}
			text = text[i+len(part):]
		}
		return true
	}
}
