package textindex

import "unicode/utf8"

// An index has letters and signs as words of their own, which nobody can type as such: they begin with a byte that says
// where the documents have them.
const (
	letterAnywhere = iota // a letter or digit, anywhere in the display
	letterFirst           // one that begins a word of the display
	signAnywhere          // anything else, in the display or the code
	runeKinds

	firstOfWords = runeKinds // what other words begin with is higher
)

// appendRuneWord appends the word of a letter or sign.
func appendRuneWord(dst []byte, kind byte, r rune) []byte {
	return utf8.AppendRune(append(dst, kind), r)
}

// runeWords adds letters and signs to a stream of words.
type runeWords struct {
	words *wordStream
	ascii [runeKinds][utf8.RuneSelf]uint32 // the numbers of their words, plus one
	room  []byte
}

func (w *runeWords) add(rank uint32, kind byte, r rune) {
	var id uint32
	if r < utf8.RuneSelf {
		id = w.ascii[kind][r]
	}
	if id == 0 {
		w.room = appendRuneWord(w.room[:0], kind, r)
		if id = w.words.number(w.room) + 1; r < utf8.RuneSelf {
			w.ascii[kind][r] = id
		}
	}
	w.words.note(rank, 2*(id-1)+1)
}

// addLine adds the letters and digits of a display.
func (w *runeWords) addLine(rank uint32, line []byte) {
	for i := 0; i < len(line); {
		r, width := utf8.DecodeRune(line[i:])
		if i += width; r != ' ' {
			w.add(rank, letterAnywhere, r)
		}
	}
}

// addSigns adds whatever in a text is neither letter nor digit.
func (w *runeWords) addSigns(rank uint32, text []byte) {
	for i := 0; i < len(text); {
		r, width := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, width = utf8.DecodeRune(text[i:])
		}
		i += width
		if r != ' ' && !isWordRune(r) {
			w.add(rank, signAnywhere, r)
		}
	}
}
