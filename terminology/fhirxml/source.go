package fhirxml

import "io"

// maxToken bounds a tag with its attributes, or a text. The longest string allowed, of 4 MiB, fits. Without a bound,
// attributes would take twenty times their length.
const maxToken = 5 << 20

// source is the document for a decoder. It fails in the middle of a token that is too long.
type source struct {
	document  []byte
	at, begin int // how far it is read; where the token began
}

// ReadByte implements [io.ByteReader].
func (s *source) ReadByte() (byte, error) {
	if s.at == len(s.document) {
		return 0, io.EOF
	}
	if s.at-s.begin > maxToken {
		return 0, errToken
	}
	s.at++
	return s.document[s.at-1], nil
}

// Read implements [io.Reader]. The decoder does not use it.
func (s *source) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c, err := s.ReadByte()
	if err != nil {
		return 0, err
	}
	b[0] = c
	return 1, nil
}
