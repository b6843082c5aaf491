package rawjson

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
	return s.exponentEnd(end)
}

func (s *source) exponentEnd(i int) (int, error) {
	if s.peek(i)|0x20 != 'e' {
		return i, nil
	}
	i++
	if b := s.peek(i); b == '+' || b == '-' {
		i++
	}
	return s.digitsEnd(i)
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
