package guardattack

import (
	"fmt"
	"regexp"
)

// Token returns a string that only one record has as its id, or, followed by m, as its content.
func Token(owner byte, number int) string { return fmt.Sprintf("zq%c%04d", owner, number) }

// Nobody is the owner of ids that no record has.
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

// ReplaceToken returns a text with a token replaced by an absent one: an id with the strings that begin with it, or only content.
func ReplaceToken(text, token string) string {
	whole := regexp.MustCompile(regexp.QuoteMeta(token) + `(m?)\b`)
	return whole.ReplaceAllString(text, token[:2]+string(Nobody)+token[3:]+"$1")
}
