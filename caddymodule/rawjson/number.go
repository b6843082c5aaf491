package rawjson

// numberEnd checks the number at i, and returns where it ends.
func (c *Cursor) numberEnd(i int) (int, error) {
	if c.peek(i) == '-' {
		i++
	}
	end, err := c.digitsEnd(i)
	if err != nil {
		return end, err
	}
	if c.text[i] == '0' && end > i+1 {
		return i, c.syntaxError(i, "leading zero in a number")
	}
	if c.peek(end) == '.' {
		if end, err = c.digitsEnd(end + 1); err != nil {
			return end, err
		}
	}
	return c.exponentEnd(end)
}

func (c *Cursor) exponentEnd(i int) (int, error) {
	if c.peek(i)|0x20 != 'e' {
		return i, nil
	}
	i++
	if b := c.peek(i); b == '+' || b == '-' {
		i++
	}
	return c.digitsEnd(i)
}

// digitsEnd returns the end of the digits at i, of which there must be one at least.
func (c *Cursor) digitsEnd(i int) (int, error) {
	start := i
	for i < len(c.text) && '0' <= c.text[i] && c.text[i] <= '9' {
		i++
	}
	if i == start {
		return i, c.syntaxError(i, "expected a digit")
	}
	return i, nil
}
