// Package asciicase converts the case of ASCII letters only. Unicode case mapping turns İ into i and equates ſ and s, so that
// one name could be mistaken for another.
package asciicase

import "strings"

// Lower returns text with the letters A to Z in lower case.
func Lower(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
