package rawjson

import (
	"bytes"
	"encoding/binary"
)

// fewNames is how many names of an object are compared one by one. Those of larger objects go into a map, so that time
// stays in proportion to the text.
const fewNames = 32

// name is a name that an object has had.
type name struct {
	sum  uint64 // tells most names apart
	text []byte
}

// nameSet is the names of one object: those in Cursor.names from an index on, or many.
type nameSet struct {
	from int
	many map[string]struct{}
}

// skipName goes over the name at i to its value.
func (c *Cursor) skipName(seen *nameSet, i int) (value int, err error) {
	if !c.allowsDuplicates {
		_, value, err = c.newName(seen, i)
		return value, err
	}
	if c.peek(i) != '"' {
		return i, c.syntaxError(i, "expected a name in quotation marks")
	}
	end, _, err := c.stringEnd(i + 1)
	if err != nil {
		return end, err
	}
	return c.colon(end)
}

// newName reads the name at i, which the object must not have had, and goes on to its value.
func (c *Cursor) newName(seen *nameSet, i int) (text []byte, value int, err error) {
	if c.peek(i) != '"' {
		return nil, i, c.syntaxError(i, "expected a name in quotation marks")
	}
	end, escapes, err := c.stringEnd(i + 1)
	if err != nil {
		return nil, end, err
	}
	text = c.said(i+1, end-1, escapes)
	if !c.remember(seen, text) {
		return nil, i, &Error{Offset: i, Err: ErrDuplicate}
	}
	value, err = c.colon(end)
	return text, value, err
}

// colon goes over the colon behind a name.
func (s *source) colon(i int) (value int, err error) {
	if i = s.next(i); s.peek(i) != ':' {
		return i, s.syntaxError(i, "expected a colon")
	}
	return s.next(i + 1), nil
}

// remember adds a name, and reports whether it is new.
func (c *Cursor) remember(seen *nameSet, text []byte) bool {
	if seen.many != nil {
		_, known := seen.many[string(text)]
		seen.many[string(text)] = struct{}{}
		return !known
	}
	sum := sumOf(text)
	for n := seen.from; n < len(c.names); n++ {
		if other := &c.names[n]; other.sum == sum && bytes.Equal(other.text, text) {
			return false
		}
	}
	if c.names == nil {
		c.names = make([]name, 0, 2*fewNames)
	}
	c.names = append(c.names, name{sum, text})
	if len(c.names)-seen.from == fewNames {
		c.manyNames(seen)
	}
	return true
}

// manyNames moves on to a map.
func (c *Cursor) manyNames(seen *nameSet) {
	seen.many = make(map[string]struct{}, 2*fewNames)
	for _, name := range c.names[seen.from:] {
		seen.many[string(name.text)] = struct{}{}
	}
}

// forget drops the names of an object that has been read.
func (c *Cursor) forget(seen *nameSet) { c.names = c.names[:seen.from] }

// sumOf returns a number made of the first and the last bytes of a name.
func sumOf(text []byte) uint64 {
	switch n := len(text); {
	case n >= 8:
		return binary.LittleEndian.Uint64(text) + 31*binary.LittleEndian.Uint64(text[n-8:]) + uint64(n)
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(text)) | uint64(binary.LittleEndian.Uint32(text[n-4:]))<<32
	case n > 0:
		return uint64(text[0]) | uint64(text[n/2])<<8 | uint64(text[n-1])<<16
	default:
		return 0
	}
}
