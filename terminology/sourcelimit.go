package terminology

import (
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// tooLargeError is the error for definitions that are larger than they may be.
type tooLargeError struct {
	what string
	most int64
}

// Error says what is too large, and what to do.
func (e *tooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than %s, the most that is read", e.what, sizeText(e.most))
}

// valueSource is what a decoder reads from: it ends with an error when the value that the decoder is at takes
// more than is to be held in memory at once, or when the context is done.
type valueSource struct {
	ctx  context.Context
	src  io.Reader
	dec  *jsontext.Decoder
	read int64
	most int64
}

// Read reads on.
func (v *valueSource) Read(b []byte) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	if v.read-v.dec.InputOffset() > v.most {
		return 0, &tooLargeError{what: "a value", most: v.most}
	}
	n, err := v.src.Read(b)
	v.read += int64(n)
	return n, err
}

// newSourceReader returns a reader of the resources in a file.
func newSourceReader(ctx context.Context, src io.Reader, o *Options, short *shortage) *reader {
	v := &valueSource{ctx: ctx, src: src, most: o.MaxValue}
	r := newReader(v)
	v.dec = r.dec
	r.short = short
	return r
}

// shortage sums up by how much the elements of arrays are shorter than what is held of each. There is no more
// memory than that, beside what is as large as the JSON: of five million empty objects a hundred times as much
// would be held as they are long.
type shortage struct{ bytes, most int64 }

// What counts as short, in bytes of JSON: an element of an array; one of those that take more memory, in concept maps and
// in the includes of value sets; a definition.
const (
	shortElement    = 32
	shortPart       = 160
	shortDefinition = 1024
)

// How much may be short of what a request brings along, and in a file or package.
const (
	maxShort       = 16 << 20
	maxShortInFile = 64 << 20
)

// add counts something of so many bytes, of which something shorter than that is short.
func (s *shortage) add(length, short int64) error {
	if s.bytes += max(0, short-length); s.bytes > s.most {
		return fmt.Errorf("too many definitions, or elements of a few bytes, which would take much more memory than they are long")
	}
	return nil
}

// counted counts what is read of a source.
type counted struct {
	src io.Reader
	n   int64
}

// Read reads on.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.src.Read(b)
	c.n += int64(n)
	return n, err
}

// unpacked is what a package unpacks to. It ends with an error where that is too much, or too much for the size of
// the package: definitions shrink to a tenth or a thirtieth, and what shrinks to a thousandth was made to fill the memory.
type unpacked struct {
	packed *counted
	src    io.Reader
	n      int64
	most   int64
}

// How much larger than a package what it unpacks to may be, and how much it may be in any case.
const (
	maxRatio = 50
	anyRatio = 16 << 20
)

// Read reads on.
func (u *unpacked) Read(b []byte) (int, error) {
	n, err := u.src.Read(b)
	u.n += int64(n)
	switch {
	case u.n > u.most:
		return 0, &tooLargeError{what: "what the package unpacks to", most: u.most}
	case u.n > anyRatio && u.n > maxRatio*u.packed.n:
		return 0, fmt.Errorf("the package unpacks to more than %d times its size: no package of definitions does; unpack it into a folder if it is to be read all the same", maxRatio)
	}
	return n, err
}
