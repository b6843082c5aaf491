package rawjson

import "fmt"

// Cursor reads the values of a JSON text one after the other. An error is final: whatever is called after it fails too,
// even if a caller in between passed the error over. So no part of a text is ever taken for another.
type Cursor struct {
	scan scanner
	at   int
	err  error
}

// NewCursor returns a cursor at the start of text, which must not be changed while it is in use.
func NewCursor(text []byte) *Cursor { return &Cursor{scan: scanner{source: source{text}}} }

// AllowDuplicates makes Skip and Raw accept duplicate names in objects, which makes them a sixth faster. Object still
// refuses them, in the object that it reads. AllowDuplicates returns the cursor itself.
func (c *Cursor) AllowDuplicates() *Cursor {
	c.scan.allowsDuplicates = true
	return c
}

// Offset returns how many bytes precede the cursor. When Object or Array calls a function to read a value, the cursor is
// at its first byte; when a value has been read, right behind its last one.
func (c *Cursor) Offset() int { return c.at }

// Kind returns the kind of the next value, as its first byte tells it.
func (c *Cursor) Kind() Kind {
	if c.err != nil {
		return None
	}
	c.at = c.scan.source.next(c.at)
	return kinds[c.scan.source.peek(c.at)]
}

// Object reads the next value, an object. It calls member with each name, and member must read the value, which is next
// then. The name may be part of the text.
func (c *Cursor) Object(member func(name []byte) error) error { return c.nested(Object, '}', member) }

// Array reads the next value, an array. It calls element for each value in it, and element must read that value.
func (c *Cursor) Array(element func() error) error {
	return c.nested(Array, ']', func([]byte) error { return element() })
}

func (c *Cursor) nested(wanted Kind, closing byte, read func(name []byte) error) error {
	if err := c.expect(wanted); err != nil {
		return err
	}
	if c.scan.depth == MaxDepth {
		return c.fail(&Error{Offset: c.at, Err: ErrDepth})
	}
	c.scan.depth++
	seen := c.scan.noNames(wanted == Object)
	at, err := c.scan.source.next(c.at+1), error(nil)
	more := c.scan.source.peek(at) != closing
	if !more {
		at++
	}
	for more && err == nil {
		at, more, err = c.element(&seen, at, closing, read)
	}
	c.scan.names = c.scan.names[:seen.from]
	c.scan.depth--
	if err != nil {
		return c.fail(err)
	}
	c.at = at
	return nil
}

// element lets a caller's function read the element or member at a place, checks that it did, and goes on to the next.
func (c *Cursor) element(seen *nameSet, at int, closing byte, read func(name []byte) error) (next int, more bool, err error) {
	var said []byte
	if closing == '}' {
		end, escapes, value, err := c.scan.name(seen, at, true)
		if err != nil {
			return end, false, err
		}
		said, at = c.scan.source.said(at+1, end-1, escapes), value
	}
	c.at = at
	switch err := read(said); {
	case err != nil:
		return at, false, err
	case c.err != nil:
		return at, false, c.err
	case c.at == at:
		return at, false, &Error{Offset: at, Err: ErrNotRead}
	}
	return c.scan.source.separate(c.at, closing)
}

// expect goes to the next value, and checks its kind.
func (c *Cursor) expect(wanted Kind) error {
	switch kind := c.Kind(); {
	case kind == wanted:
		return nil
	case c.err != nil:
		return c.err
	case kind == None:
		return c.fail(c.scan.source.syntaxError(c.at, "expected a value"))
	default:
		return c.fail(&Error{Offset: c.at, Err: fmt.Errorf("%w: %v, not %v", ErrKind, kind, wanted)})
	}
}

// fail keeps the first error.
func (c *Cursor) fail(err error) error {
	if c.err == nil {
		c.err = err
	}
	return err
}

// Text reads the next value, a string, and returns what it says.
func (c *Cursor) Text() (string, error) {
	text, err := c.Bytes()
	return string(text), err
}

// Bytes is like Text, but copies nothing unless the string has escapes: what it returns may be part of the text.
func (c *Cursor) Bytes() ([]byte, error) {
	if err := c.expect(String); err != nil {
		return nil, err
	}
	start := c.at + 1
	end, escapes, err := c.scan.source.stringEnd(start)
	if err != nil {
		return nil, c.fail(err)
	}
	c.at = end
	return c.scan.source.said(start, end-1, escapes), nil
}

// Raw reads the next value, and returns that part of the text.
func (c *Cursor) Raw() ([]byte, error) {
	c.Kind()
	start := c.at
	if err := c.Skip(); err != nil {
		return nil, err
	}
	return c.scan.source.text[start:c.at:c.at], nil
}

// Skip reads the next value and checks that it is valid.
func (c *Cursor) Skip() error {
	if c.err != nil {
		return c.err
	}
	at, err := c.scan.skip(c.at)
	if err != nil {
		return c.fail(err)
	}
	c.at = at
	return nil
}

// End checks that only white space follows.
func (c *Cursor) End() error {
	if c.err != nil {
		return c.err
	}
	if c.at = c.scan.source.next(c.at); c.at < len(c.scan.source.text) {
		return c.fail(c.scan.source.syntaxError(c.at, "expected the end"))
	}
	return nil
}

// Kind is a kind of JSON value.
type Kind byte

// The kinds of values. None means that no value is next: the text ends, or is wrong here.
const (
	None Kind = iota
	Object
	Array
	String
	Number
	Bool
	Null
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"none", "object", "array", "string", "number", "boolean", "null"}[k]
}

// kinds are the kinds of values by their first byte.
var kinds = [256]Kind{
	'{': Object, '[': Array, '"': String, 't': Bool, 'f': Bool, 'n': Null, '-': Number,
	'0': Number, '1': Number, '2': Number, '3': Number, '4': Number,
	'5': Number, '6': Number, '7': Number, '8': Number, '9': Number,
}
