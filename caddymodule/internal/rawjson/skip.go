package rawjson

// scanner checks what is in a text from an offset on. It knows how deep that is, and the names of the objects around it.
type scanner struct {
	source           source
	depth            int
	names            []name // of the objects that are open
	allowsDuplicates bool
}

// skip checks the value at i, and returns where it ends.
func (s *scanner) skip(i int) (int, error) {
	i = s.source.next(i)
	first := s.source.peek(i)
	switch first {
	case '"':
		end, _, err := s.source.stringEnd(i + 1)
		return end, err
	case '{', '[':
		if s.depth == MaxDepth {
			return i, &Error{Offset: i, Err: ErrDepth}
		}
		s.depth++
		end, err := s.skipNested(i+1, first+2) // as far behind are the closing ones in ASCII
		s.depth--
		return end, err
	case 't':
		return s.source.word(i, "true")
	case 'f':
		return s.source.word(i, "false")
	case 'n':
		return s.source.word(i, "null")
	default:
		if kinds[first] != Number {
			return i, s.source.syntaxError(i, "expected a value")
		}
		return s.source.numberEnd(i)
	}
}

// skipNested checks the object or array that is open before i, and returns what is behind the closing bracket.
func (s *scanner) skipNested(i int, closing byte) (int, error) {
	isObject, kept := closing == '}', closing == '}' && !s.allowsDuplicates
	seen := s.noNames(kept)
	at, more := s.source.open(i, closing)
	for more {
		var err error
		if isObject {
			if _, _, at, err = s.name(&seen, at, kept); err != nil {
				return at, err
			}
		}
		end := plainEnd(s.source.text, at)
		if end == 0 {
			if end, err = s.skip(at); err != nil {
				return end, err
			}
		}
		if at = end + 1; follows(s.source.text, end, ',') {
			continue
		}
		if at, more, err = s.source.separate(end, closing); err != nil {
			return at, err
		}
	}
	s.names = s.names[:seen.from]
	return at, nil
}

// numberEnd checks the number at i, and returns where it ends.
func (s *source) numberEnd(i int) (int, error) {
	if s.peek(i) == '-' {
		i++
	}
	end, err := s.digitsEnd(i)
	if err != nil {
		return end, err
	}
	if s.text[i] == '0' && end > i+1 {
		return i, s.syntaxError(i, "leading zero in a number")
	}
	if s.peek(end) == '.' {
		if end, err = s.digitsEnd(end + 1); err != nil {
			return end, err
		}
	}
	if s.peek(end)|0x20 != 'e' {
		return end, nil
	}
	if b := s.peek(end + 1); b == '+' || b == '-' {
		end++
	}
	return s.digitsEnd(end + 1)
}

// digitsEnd returns the end of the digits at i, of which there must be one at least.
func (s *source) digitsEnd(i int) (int, error) {
	start := i
	for i < len(s.text) && '0' <= s.text[i] && s.text[i] <= '9' {
		i++
	}
	if i == start {
		return i, s.syntaxError(i, "expected a digit")
	}
	return i, nil
}
