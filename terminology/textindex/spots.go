package textindex

import "bytes"

// spot is a word of a text, and where it is.
type spot struct {
	word []byte

	// head says that the word is in the head of its text: what comes before the first comma or the first stop word, and
	// is not in brackets.
	head bool
}

// spotter cuts texts into spots. It keeps buffers between calls.
type spotter struct {
	folder   folder
	language *language
	spots    []spot
}

// addAll adds the other texts of a document, whose display has the given words. The last ones, so many as foreign says, have
// no heads.
func (s *spotter) addAll(room []byte, texts [][]byte, foreign int, display []byte) []byte {
	for i, text := range texts {
		from := len(s.spots)
		room = s.add(room, text)
		s.leaveOutShort(from, display)
		if i >= len(texts)-foreign {
			for at := range s.spots[from:] {
				s.spots[from+at].head = false
			}
		}
	}
	return room
}

// leaveOutShort leaves out, of the spots of a text, the words that are the display's cut short, if the text is the display in
// short: it has such a word and one of the display, or two that are cut short. None of its other words is in a head then,
// as its punctuation and stop words are not the display's. So what begins "diabetes" comes no sooner in "Type 2 diab w oth
// comp" than in "Type 2 diabetes with other complications".
func (s *spotter) leaveOutShort(from int, display []byte) {
	if len(display) > longestDisplay {
		return
	}
	same, short, kept := 0, 0, s.spots[:from]
	for _, spot := range s.spots[from:] {
		if in, begins := amongWords(display, spot.word); in {
			same = 1
		} else if begins && len(spot.word) > 1 {
			short++
		}
	}
	if short == 0 || same+short < 2 {
		return
	}
	for _, spot := range s.spots[from:] {
		if in, begins := amongWords(display, spot.word); in || !begins {
			spot.head = false
			kept = append(kept, spot)
		}
	}
	s.spots = kept
}

// longestDisplay is up to how many bytes of words of a display are compared with each word of other texts.
const longestDisplay = 256

// amongWords reports whether a word is one of some words, and whether it begins one and has no digit: 1 is not short for 11.
func amongWords(words, word []byte) (in, begins bool) {
	for len(words) > 0 {
		var longer []byte
		longer, words = nextWord(words)
		if bytes.HasPrefix(longer, word) {
			in = in || len(longer) == len(word)
			begins = true
		}
	}
	return in, begins && !bytes.ContainsAny(word, "0123456789")
}

// add appends the words of a text to spots: also those that begin inside others, and those that hyphens join, written
// together. They are valid as long as room, to which their letters are appended.
func (s *spotter) add(room, text []byte) []byte {
	line := s.folder.words(text)
	start := len(room)
	room = append(room, line...)
	line = room[start:]
	at, chain, inner, marks := place{head: true}, 0, s.folder.inner, s.folder.marks
	for from := 0; from < len(line); {
		word, rest := nextWord(line[from:])
		end := len(line) - len(rest)
		marks = at.pass(marks, from)
		if from > 0 && s.language.stops[string(word)] {
			at.head = false
		}
		head := at.head && at.depth == 0
		s.spots = append(s.spots, spot{word, head})
		if !at.joined {
			chain = from
		} else { // for beta-2-agonist, also beta2 and beta2agonist
			s.spots = append(s.spots, spot{appendJoined(nil, line[chain:end]), head})
		}
		inner = s.addInner(line, from, end, inner, head)
		from = end
	}
	return room
}

// addInner adds the words that begin inside one, and what of it is before these, which alone may be in a head.
func (s *spotter) addInner(line []byte, from, end int, inner []int, head bool) (rest []int) {
	if len(inner) > 0 && inner[0] < end {
		s.spots = append(s.spots, spot{line[from+1 : inner[0]], head})
	}
	for ; len(inner) > 0 && inner[0] < end; inner = inner[1:] {
		next := end
		if len(inner) > 1 {
			next = min(end, inner[1])
		}
		s.spots = append(s.spots, spot{word: line[inner[0]:next]})
	}
	return inner
}
