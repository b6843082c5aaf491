package textindex

// spot is a word of a text, and where it is.
type spot struct {
	word []byte

	// head says that the word is in the head of its text: what comes before the first comma or the first stop word, and
	// is not in brackets.
	head bool
}

// spotter cuts texts into spots. It keeps buffers between calls.
type spotter struct {
	folder
	language *language
	spots    []spot
}

// addAll adds texts, of which the last ones, so many as foreign says, have no heads.
func (s *spotter) addAll(room []byte, texts [][]byte, foreign int) []byte {
	for i, text := range texts {
		from := len(s.spots)
		room = s.add(room, text)
		if i >= len(texts)-foreign {
			for at := range s.spots[from:] {
				s.spots[from+at].head = false
			}
		}
	}
	return room
}

// add appends the words of a text to spots: also those that begin inside others, and those that hyphens join, written
// together. They are valid as long as room, to which their letters are appended.
func (s *spotter) add(room, text []byte) []byte {
	line := s.words(text)
	start := len(room)
	room = append(room, line...)
	line = room[start:]
	head, depth, chain, inner, marks := true, 0, 0, s.inner, s.marks
	for at := 0; at < len(line); {
		word, rest := nextWord(line[at:])
		joined := false
		for ; len(marks) > 0 && marks[0].at <= at; marks = marks[1:] {
			switch sign := marks[0].sign; {
			case sign == '(':
				depth++
			case sign == ')':
				depth = max(0, depth-1)
			case sign == '-':
				joined = true
			case at > 0 && depth == 0:
				head = false
			}
		}
		if at > 0 && s.language.stops[string(word)] {
			head = false
		}
		end := len(line) - len(rest)
		s.spots = append(s.spots, spot{word: word, head: head && depth == 0})
		if !joined {
			chain = at
		} else { // for beta-2-agonist, also beta2 and beta2agonist
			s.spots = append(s.spots, spot{word: appendJoined(nil, line[chain:end]), head: head && depth == 0})
		}
		if len(inner) > 0 && inner[0] < end {
			s.spots = append(s.spots, spot{word: line[at+1 : inner[0]], head: head && depth == 0})
		}
		for ; len(inner) > 0 && inner[0] < end; inner = inner[1:] {
			next := end
			if len(inner) > 1 {
				next = min(end, inner[1])
			}
			s.spots = append(s.spots, spot{word: line[inner[0]:next]})
		}
		at = end
	}
	return room
}
