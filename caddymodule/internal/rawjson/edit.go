package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
)

// WithMember returns a copy of an object in which the member with the given name has the given value, a JSON text. A new
// member is appended after the last one. All other bytes stay unchanged.
func WithMember(object []byte, name string, value []byte) ([]byte, error) {
	if err := Check(value); err != nil {
		return nil, err
	}
	m, err := findMember(object, name)
	if err != nil {
		return nil, err
	}
	if m.exists {
		return slices.Concat(object[:m.start], value, object[m.end:]), nil
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	comma := ","
	if m.isFirst {
		comma = ""
	}
	return slices.Concat(object[:m.previousEnd], []byte(comma), quoted, []byte{':'}, value, object[m.previousEnd:]), nil
}

// WithoutMember returns a copy of an object without the member with the given name, or of the whole object if the member is
// missing. All other bytes stay unchanged.
func WithoutMember(object []byte, name string) ([]byte, error) {
	m, err := findMember(object, name)
	if err != nil {
		return nil, err
	}
	if !m.exists {
		return bytes.Clone(object), nil
	}
	end := m.end
	if m.isFirst && m.hasNext {
		end += bytes.IndexByte(object[end:], ',') + 1
	}
	return slices.Concat(object[:m.previousEnd], object[end:]), nil
}

// Check validates a whole text: one value, followed by nothing but whitespace.
func Check(text []byte) error {
	c := NewCursor(text)
	if err := c.Skip(); err != nil {
		return err
	}
	return c.CheckEnd()
}

// memberPosition is the position of a member in an object, or the position for adding it.
type memberPosition struct {
	exists           bool
	isFirst, hasNext bool // whether it is the first member, and whether another member follows
	previousEnd      int  // the end of the preceding text: the value of another member, or the opening brace
	start, end       int  // position of its value
}

// findMember finds a member. It reads the whole object, so that an invalid text is never changed.
func findMember(object []byte, wanted string) (memberPosition, error) {
	c := NewCursor(object)
	c.Kind()
	position := memberPosition{isFirst: true, previousEnd: c.Offset() + 1}
	err := c.Object(func(name []byte) error {
		start := c.Offset()
		err := c.Skip()
		switch {
		case position.exists:
			position.hasNext = true
		case string(name) == wanted:
			position.exists, position.start, position.end = true, start, c.Offset()
		default:
			position.isFirst, position.previousEnd = false, c.Offset()
		}
		return err
	})
	if err != nil {
		return position, err
	}
	return position, c.CheckEnd()
}
