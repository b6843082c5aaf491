package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
)

// With returns a copy of an object in which the member with the given name has the given value, a JSON text. A new
// member is appended after the last one. All other bytes stay unchanged.
func With(object []byte, name string, value []byte) ([]byte, error) {
	if err := Check(value); err != nil {
		return nil, err
	}
	m, err := find(object, name)
	if err != nil {
		return nil, err
	}
	if m.found {
		return slices.Concat(object[:m.start], value, object[m.end:]), nil
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	comma := ","
	if m.first {
		comma = ""
	}
	return slices.Concat(object[:m.behind], []byte(comma), quoted, []byte{':'}, value, object[m.behind:]), nil
}

// Without returns a copy of an object without the member with the given name, or of the whole object if the member is
// missing. All other bytes stay unchanged.
func Without(object []byte, name string) ([]byte, error) {
	m, err := find(object, name)
	if err != nil {
		return nil, err
	}
	if !m.found {
		return bytes.Clone(object), nil
	}
	end := m.end
	if m.first && m.followed {
		end += bytes.IndexByte(object[end:], ',') + 1
	}
	return slices.Concat(object[:m.behind], object[end:]), nil
}

// Check validates a whole text: one value, followed by nothing but whitespace.
func Check(text []byte) error {
	c := NewCursor(text)
	if err := c.Skip(); err != nil {
		return err
	}
	return c.End()
}

// memberPlace is the position of a member in an object, or the position for adding it.
type memberPlace struct {
	found           bool
	first, followed bool // whether it is the first member, and whether another member follows
	behind          int  // the end of the preceding text: the value of another member, or the opening brace
	start, end      int  // position of its value
}

// find finds a member. It reads the whole object, so that an invalid text is never changed.
func find(object []byte, wanted string) (memberPlace, error) {
	c := NewCursor(object)
	c.Kind()
	place := memberPlace{first: true, behind: c.Offset() + 1}
	err := c.Object(func(name []byte) error {
		start := c.Offset()
		err := c.Skip()
		switch {
		case place.found:
			place.followed = true
		case string(name) == wanted:
			place.found, place.start, place.end = true, start, c.Offset()
		default:
			place.first, place.behind = false, c.Offset()
		}
		return err
	})
	if err != nil {
		return place, err
	}
	return place, c.End()
}
