// Package controlchar finds, escapes and removes characters that change how the text around them is displayed. People, apps and
// identity providers choose names. A name with such characters could look like another name, reverse the text after it
// (CVE-2021-42574) or control a terminal. Names in right-to-left scripts do not need these characters.
package controlchar

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
)

// Is reports whether r is a control character or has the property Bidi_Control (UAX #9).
func Is(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// EscapeJSON escapes the control characters in a compact JSON text (RFC 8259 §7). All of them are in the BMP.
func EscapeJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, Is) {
		return text
	}
	var escaped bytes.Buffer
	for _, r := range string(text) {
		if Is(r) {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.Bytes()
}

// Remove returns text without control characters, except those in kept.
func Remove(text, kept string) string {
	return strings.Map(func(r rune) rune {
		if Is(r) && !strings.ContainsRune(kept, r) {
			return -1
		}
		return r
	}, text)
}
