package guardattack

import (
	"fmt"
	"regexp"
)

// Token returns a string that is unique to one record: its id or, followed by "m", part of its content.
func Token(owner byte, number int) string { return fmt.Sprintf("zq%c%04d", owner, number) }

// Nobody is the owner letter of ids that don't belong to any record.
const Nobody = 'y'

var tokens = regexp.MustCompile(`zq[a-z][0-9]{4}m?`)

// Tokens returns the tokens in a text, without duplicates.
func Tokens(text []byte) map[string]bool {
	found := map[string]bool{}
	for _, token := range tokens.FindAll(text, -1) {
		found[string(token)] = true
	}
	return found
}

// ReplaceToken replaces a record's token with that of an absent record. For an id, it also replaces the content strings.
func ReplaceToken(text, token string) string {
	pattern := regexp.MustCompile(regexp.QuoteMeta(token) + `(m?)\b`)
	return pattern.ReplaceAllString(text, token[:2]+string(Nobody)+token[3:]+"$1")
}
