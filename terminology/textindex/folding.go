package textindex

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// textFolder converts text to words that can be compared. Text is decomposed (NFKD), marks are removed, and letters are
// converted to lower case. All runes other than letters and digits separate words. It reuses buffers between calls.
type textFolder struct {
	decomposed, folded []byte

	inner []int  // positions in folded at which words begin inside other words
	marks []mark // punctuation that affects heads and hyphenated words
}

// mark is a normalized punctuation sign: ',' for a comma, semicolon or colon, a round bracket for a round or square bracket, or
// '-' for a hyphen between two words.
type mark struct {
	position int // index in folded of the next word
	sign     byte
}

// scanState holds the state of scanning the words of a text.
type scanState struct {
	head   bool // no comma has been read
	depth  int  // nesting depth of brackets
	joined bool // the current word follows a hyphen
}

// applyMarks applies the marks before the word at index word and returns the remaining marks.
func (p *scanState) applyMarks(marks []mark, word int) (rest []mark) {
	p.joined = false
	for ; len(marks) > 0 && marks[0].position <= word; marks = marks[1:] {
		switch sign := marks[0].sign; {
		case sign == '(':
			p.depth++
		case sign == ')':
			p.depth = max(0, p.depth-1)
		case sign == '-':
			p.joined = true
		case word > 0 && p.depth == 0:
			p.head = false
		}
	}
	return marks
}

// words returns the words of s, each after a space: " acute appendicitis". The result contains " "+p if and only if a word
// begins with p. It is valid until the next call of words.
func (f *textFolder) words(s []byte) []byte {
	f.folded, f.inner, f.marks = f.folded[:0], f.inner[:0], f.marks[:0]
	if !f.appendASCIIWords(s) {
		f.folded, f.inner, f.marks = f.folded[:0], f.inner[:0], f.marks[:0]
		f.decompose(s)
	}
	return f.folded
}

// Fold returns the words of s in a form that can be compared, each after a space.
func Fold(s string) string { return string(new(textFolder).words([]byte(s))) }

func (f *textFolder) decompose(s []byte) {
	f.decomposed = removeMarks(norm.NFKD.Append(f.decomposed[:0], s...))
	within, small := false, false // small: the previous rune is a lower-case letter or a digit
	for i := 0; i < len(f.decomposed); {
		r, width := utf8.DecodeRune(f.decomposed[i:])
		i += width
		switch {
		case isWordRune(r):
			if !within {
				f.folded = append(f.folded, ' ')
			} else if small && unicode.IsUpper(r) {
				f.inner = append(f.inner, len(f.folded))
			}
			f.folded = appendFolded(f.folded, r)
			within, small = true, unicode.IsLower(r) || unicode.IsNumber(r)
		case within && (r == '\'' || r == '’') && isPossessive(f.decomposed[i:]):
		default:
			if r < utf8.RuneSelf {
				next, _ := utf8.DecodeRune(f.decomposed[i:])
				f.addMark(byte(r), len(f.folded), within && isWordRune(next))
			}
			within = false
		}
	}
}

// removeMarks removes nonspacing marks.
func removeMarks(text []byte) []byte {
	kept := text[:0]
	for i := 0; i < len(text); {
		r, width := utf8.DecodeRune(text[i:])
		if r < utf8.RuneSelf || !unicode.Is(unicode.Mn, r) {
			kept = append(kept, text[i:i+width]...)
		}
		i += width
	}
	return kept
}

// isPossessive reports whether rest, which follows an apostrophe, is a final s: Crohn's is the single word crohns.
func isPossessive(rest []byte) bool {
	if len(rest) == 0 || rest[0]|0x20 != 's' {
		return false
	}
	next, _ := utf8.DecodeRune(rest[1:])
	return len(rest) == 1 || !isWordRune(next)
}

// addMark records punctuation. Hyphens are recorded only between two words.
func (f *textFolder) addMark(sign byte, at int, betweenWords bool) {
	switch sign {
	case ',', ';', ':':
		sign = ','
	case '(', '[':
		sign = '('
	case ')', ']':
		sign = ')'
	case '-':
		if !betweenWords {
			return
		}
	default:
		return
	}
	f.marks = append(f.marks, mark{position: at, sign: sign})
}

// appendFolded appends a letter or digit in lower case and replaces letters according to plainLetters.
func appendFolded(dst []byte, r rune) []byte {
	r = FoldCase(r)
	if r < utf8.RuneSelf {
		return append(dst, byte(r))
	}
	if r <= lastPlainLetter {
		if plain, ok := plainLetters[r]; ok {
			return append(dst, plain...)
		}
	}
	return utf8.AppendRune(dst, r)
}

// plainLetters maps Latin letters that NFKD does not decompose to their usual transcription, and final sigma to sigma (Unicode
// CaseFolding.txt).
var plainLetters = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th", 'ħ': "h", 'ŧ': "t", 'ı': "i", 'ŋ': "n",
	lastPlainLetter: "σ",
}

// lastPlainLetter is the highest key of plainLetters. Letters of most scripts are higher and need no lookup.
const lastPlainLetter = 'ς'

// appendASCIIWords is like words, but for ASCII text, which is by far the most frequent. It returns false for any other text.
func (f *textFolder) appendASCIIWords(s []byte) bool {
	dst, within, small := f.folded, false, false
	for i, c := range s {
		if c >= utf8.RuneSelf {
			return false
		}
		folded := foldedASCII[c]
		if folded == 0 {
			if c == ' ' {
				within = false
			} else if !within || c != '\'' || !isPossessive(s[i+1:]) {
				f.addMark(c, len(dst), within && i+1 < len(s) && s[i+1] < utf8.RuneSelf && foldedASCII[s[i+1]] != 0)
				within = false
			}
			continue
		}
		if !within {
			dst = append(dst, ' ')
			within = true
		} else if small && folded != c {
			f.inner = append(f.inner, len(dst))
		}
		small = folded == c
		dst = append(dst, folded)
	}
	f.folded = dst
	return true
}

// foldedASCII maps ASCII letters and digits to their folded form, and other ASCII bytes to 0.
var foldedASCII = func() (table [utf8.RuneSelf]byte) {
	for r := range rune(utf8.RuneSelf) {
		if isWordRune(r) {
			table[r] = byte(FoldCase(r))
		}
	}
	return table
}()

// FoldCase returns a rune in lower case.
func FoldCase(r rune) rune {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	return unicode.ToLower(r)
}

// appendJoined appends words, which are in the format of textFolder.words, without spaces.
func appendJoined(dst, words []byte) []byte {
	for _, c := range words {
		if c != ' ' {
			dst = append(dst, c)
		}
	}
	return dst
}

// nextWord splits off the first word of a line in the format of textFolder.words.
func nextWord(words []byte) (word, rest []byte) {
	end := 1
	for end < len(words) && words[end] != ' ' {
		end++
	}
	return words[1:end], words[end:]
}

// appendWords appends the words of a line in the format of textFolder.words to a list.
func appendWords(words [][]byte, line []byte) [][]byte {
	for len(line) > 0 {
		var word []byte
		word, line = nextWord(line)
		words = append(words, word)
	}
	return words
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return unicode.In(r, unicode.L, unicode.N, unicode.Mc)
}
