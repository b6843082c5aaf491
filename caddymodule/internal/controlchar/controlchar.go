// Package controlchar finds and removes characters that change how the text around them is displayed. People, apps and identity
// providers choose names, and a name with such characters could look like another one, reverse the text after it (CVE-2021-42574)
// or control a terminal. Names in right-to-left scripts do not need these characters.
package controlchar

import (
	"bytes"
	"unicode"
)

// Is reports whether r is a control character or has the property Bidi_Control (UAX #9).
func Is(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Remove returns text without control characters, except line feeds and tabs.
func Remove(text []byte) []byte {
	isRemoved := func(r rune) bool { return Is(r) && r != '\n' && r != '\t' }
	if !bytes.ContainsFunc(text, isRemoved) {
		return text
	}
	return bytes.Map(func(r rune) rune {
		if isRemoved(r) {
			return -1
		}
		return r
	}, text)
}
