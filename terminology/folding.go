package terminology

import (
	"math"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// folder turns text into words that can be compared: compatibility decomposition (NFKD), without marks,
// in lower case, cut at everything that is neither letter nor digit. It keeps buffers between calls.
type folder struct{ decomposed, folded []byte }

// words returns the words of s, each after a space: " acute appendicitis". So a word that begins with p
// is in it exactly if " "+p is. The result is valid until the next call.
func (f *folder) words(s []byte) []byte { return f.beginning(s, math.MaxInt) }

// beginning returns the first bytes of what words returns, as many as there are up to length.
func (f *folder) beginning(s []byte, length int) []byte {
	var ok bool
	if f.folded, ok = appendASCIIWords(f.folded[:0], s, length); !ok {
		f.folded = f.folded[:0]
		f.decompose(s)
	}
	return f.folded[:min(len(f.folded), length)]
}

// decompose appends the words of s, whatever is in it.
func (f *folder) decompose(s []byte) {
	f.decomposed = norm.NFKD.Append(f.decomposed[:0], s...)
	within := false
	for i := 0; i < len(f.decomposed); {
		r, width := utf8.DecodeRune(f.decomposed[i:])
		i += width
		switch {
		case isWordRune(r):
			if !within {
				f.folded = append(f.folded, ' ')
			}
			f.folded = appendFolded(f.folded, r)
			within = true
		case !unicode.Is(unicode.Mn, r):
			within = false
		}
	}
}

// appendFolded appends a letter or digit in lower case, where that is one thing: ß and ẞ are ss, and a sigma
// at the end of a word is a sigma (Unicode CaseFolding.txt).
func appendFolded(dst []byte, r rune) []byte {
	switch r {
	case 'ß', 'ẞ':
		return append(dst, "ss"...)
	case 'ς':
		r = 'σ'
	}
	return utf8.AppendRune(dst, foldCase(r))
}

// appendASCIIWords is folder.words for text of ASCII alone, which nearly all text is. It stops after so many
// bytes, and fails where it comes upon something else before.
func appendASCIIWords(dst, s []byte, length int) (words []byte, ok bool) {
	within := false
	for _, c := range s {
		if c >= utf8.RuneSelf {
			return dst, false
		}
		folded := asciiWord[c]
		if folded == 0 {
			within = false
			continue
		}
		if !within {
			dst = append(dst, ' ')
			within = true
		}
		if dst = append(dst, folded); len(dst) >= length {
			return dst, true
		}
	}
	return dst, true
}

// asciiWord holds for each ASCII letter and digit what it is folded to, and 0 for the rest.
var asciiWord = func() (table [utf8.RuneSelf]byte) {
	for r := range rune(utf8.RuneSelf) {
		if isWordRune(r) {
			table[r] = byte(foldCase(r))
		}
	}
	return table
}()

// appendJoined appends words, as folder.words returns them, without the spaces between them.
func appendJoined(dst, words []byte) []byte {
	for _, c := range words {
		if c != ' ' {
			dst = append(dst, c)
		}
	}
	return dst
}

// nextWord cuts the first word from what folder.words returned.
func nextWord(words []byte) (word, rest []byte) {
	end := 1
	for end < len(words) && words[end] != ' ' {
		end++
	}
	return words[1:end], words[end:]
}

// isWordRune reports whether r is part of a word.
func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return unicode.In(r, unicode.L, unicode.N, unicode.Mc)
}
