package fhirxml

import "io"

// maxToken bounds how long a tag, with its attributes, or a text may be. There is enough room for the longest string
// that is read, of 4 MiB; of attributes without end, twenty times as much would be held as they are long.
const maxToken = 5 << 20

// source is a document that a decoder reads. It ends with an error in the middle of a token that is too long.
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

// Read implements [io.Reader], which a decoder does not use where it can read bytes.
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
