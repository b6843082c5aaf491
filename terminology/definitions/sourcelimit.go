package definitions

import (
	"fmt"
	"io"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// What counts as short, in bytes of JSON: shortPart for elements that take more memory, in concept maps and the
// includes of value sets; shortDefinition for a definition.
const (
	shortPart       = 160
	shortDefinition = 1024
)

const maxShortInFile = 64 << 20

// counted counts the bytes read from a source.
type counted struct {
	src io.Reader
	n   int64
}

// Read implements [io.Reader].
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.src.Read(b)
	c.n += int64(n)
	return n, err
}

// unpacked is the content of a package. It fails if that is too large, or too large for the package: definitions shrink
// to a tenth or a thirtieth; what shrinks to a thousandth was made to fill the memory.
type unpacked struct {
	counted
	packed *counted
	most   int64
}

// How many times larger than a package its content may be, and how large in any case.
const (
	maxRatio = 50
	anyRatio = 16 << 20
)

// Read implements [io.Reader].
func (u *unpacked) Read(b []byte) (int, error) {
	n, err := u.counted.Read(b)
	switch {
	case u.n > u.most:
		return 0, &fhirjson.TooLargeError{What: "what the package unpacks to", Most: u.most}
	case u.n > anyRatio && u.n > maxRatio*u.packed.n:
		return 0, fmt.Errorf("the package unpacks to more than %d times its size: no package of definitions does; unpack it into a folder if it is to be read all the same", maxRatio)
	}
	return n, err
}
