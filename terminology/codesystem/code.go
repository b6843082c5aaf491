package codesystem

import (
	"bytes"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// EqualFold compares codes ignoring case.
func EqualFold(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	for len(a) > 0 && len(b) > 0 {
		r, n := utf8.DecodeRune(a)
		s, m := utf8.DecodeRune(b)
		if textindex.FoldCase(r) != textindex.FoldCase(s) {
			return false
		}
		a, b = a[n:], b[m:]
	}
	return len(a) == len(b)
}
