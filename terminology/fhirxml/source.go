package fhirxml

import "bytes"

// maxToken bounds a tag with its attributes, or a text. The longest string allowed, of 4 MiB, fits. Without a bound,
// attributes would take twenty times their length.
const maxToken = 5 << 20

// source is the document for a decoder. It fails in the middle of a token that is too long.
type source struct {
	*bytes.Reader
	left int // how much was left when the token began
}

// ReadByte implements [io.ByteReader], which the decoder uses.
func (s *source) ReadByte() (byte, error) {
	if s.Len() > 0 && s.left-s.Len() > maxToken {
		return 0, errToken
	}
	return s.Reader.ReadByte()
}
