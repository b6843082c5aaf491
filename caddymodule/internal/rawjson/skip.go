package rawjson

// skip checks the value at i, and returns where it ends.
func (s *scanner) skip(i int) (int, error) {
	i = s.source.next(i)
	first := s.source.peek(i)
	switch first {
	case '"':
		end, _, err := s.source.stringEnd(i + 1)
		return end, err
	case '{', '[':
		return s.skipNested(i, first)
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

func (s *scanner) skipNested(i int, first byte) (end int, err error) {
	if s.depth == MaxDepth {
		return i, &Error{Offset: i, Err: ErrDepth}
	}
	s.depth++
	if first == '{' {
		end, err = s.skipObject(i + 1)
	} else {
		end, err = s.skipArray(i + 1)
	}
	s.depth--
	return end, err
}

func (s *scanner) skipObject(i int) (int, error) {
	seen := s.noSkippedNames()
	at, more := s.source.open(i, '}')
	for more {
		value, err := s.skipName(&seen, at)
		if err != nil {
			return value, err
		}
		end := plainEnd(s.source.text, value)
		if end == 0 {
			if end, err = s.skip(value); err != nil {
				return end, err
			}
		}
		if at = end + 1; follows(s.source.text, end, ',') {
			continue
		}
		if at, more, err = s.source.separate(end, '}'); err != nil {
			return at, err
		}
	}
	s.forget(&seen)
	return at, nil
}

func (s *scanner) skipArray(i int) (int, error) {
	at, more := s.source.open(i, ']')
	for more {
		var err error
		end := plainEnd(s.source.text, at)
		if end == 0 {
			if end, err = s.skip(at); err != nil {
				return end, err
			}
		}
		if at = end + 1; follows(s.source.text, end, ',') {
			continue
		}
		if at, more, err = s.source.separate(end, ']'); err != nil {
			return at, err
		}
	}
	return at, nil
}
