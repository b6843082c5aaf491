package terminology

import (
	"fmt"
	"io"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// What counts as short, in bytes of JSON: an element that takes more memory, in concept maps and in the includes of
// value sets; a definition.
const (
	shortPart       = 160
	shortDefinition = 1024
)

// maxShortInFile is how much may be short in a file or package.
const maxShortInFile = 64 << 20

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
		return 0, &fhirjson.TooLargeError{What: "what the package unpacks to", Most: u.most}
	case u.n > anyRatio && u.n > maxRatio*u.packed.n:
		return 0, fmt.Errorf("the package unpacks to more than %d times its size: no package of definitions does; unpack it into a folder if it is to be read all the same", maxRatio)
	}
	return n, err
}
