package fhirjson

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// TooLargeError is returned for something larger than its bound.
type TooLargeError struct {
	// What says what is too large.
	What string

	// Most is its bound in bytes.
	Most int64
}

// Error says what is too large, and what to do.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than %s, the most that is read", e.What, SizeText(e.Most))
}

// SizeText writes a number of bytes for people.
func SizeText(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// valueSource is the source of a decoder. It fails when a value takes too much memory, or its context is done.
type valueSource struct {
	ctx  context.Context
	src  io.Reader
	dec  *jsontext.Decoder
	read int64
	most int64
}

// Read implements [io.Reader].
func (v *valueSource) Read(b []byte) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	if v.read-v.dec.InputOffset() > v.most {
		return 0, &TooLargeError{What: "a value", Most: v.most}
	}
	n, err := v.src.Read(b)
	v.read += int64(n)
	return n, err
}

// NewSourceReader returns a reader of a file that holds at most most bytes of a value at once.
func NewSourceReader(ctx context.Context, src io.Reader, most int64) *Reader {
	v := &valueSource{ctx: ctx, src: src, most: most}
	r := NewReader(v)
	v.dec = r.dec
	return r
}

// Shortage adds up how much shorter values are than the memory they take. Without a bound, five million empty objects
// would take a hundred times their length.
type Shortage struct{ bytes, most int64 }

// NewShortage returns a sum that may grow to most bytes.
func NewShortage(most int64) *Shortage { return &Shortage{most: most} }

// MaxShort is the default bound of a [Shortage].
const MaxShort = 16 << 20

// shortElement is the least memory that an array element takes, in bytes.
const shortElement = 32

// Add counts a value of length bytes that takes held bytes of memory.
func (s *Shortage) Add(length, held int64) error {
	if s.bytes += max(0, held-length); s.bytes > s.most {
		return errors.New("too many definitions, or elements of a few bytes, which would take much more memory than they are long")
	}
	return nil
}
