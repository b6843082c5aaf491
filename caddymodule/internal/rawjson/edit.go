package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
)

// WithMember returns a copy of an object in which the named member has the given value, which is a JSON text. A new member is
// appended after the last one. All other bytes are unchanged.
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

// WithoutMember returns a copy of an object without the named member. If the member is missing, the copy is identical. All
// other bytes are unchanged.
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

// Check returns an error unless the text consists of one valid value, optionally surrounded by whitespace.
func Check(text []byte) error {
	c := NewCursor(text)
	if err := c.Skip(); err != nil {
		return err
	}
	return c.CheckEnd()
}

// memberPosition is the position of a member in an object, or the position at which it can be added.
type memberPosition struct {
	exists           bool
	isFirst, hasNext bool // the member comes first in the object; another member follows it
	previousEnd      int  // end of the preceding text: of the previous member's value or of the opening brace
	start, end       int  // position of the member's value
}

// findMember finds a member. It reads the entire object, so that invalid texts are never modified.
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
