package searchparam

import (
	"errors"
	"fmt"
	"strings"
)

// tokenize splits a FHIRPath expression into names, string literals, of which the first quotation mark is left, and
// signs.
func tokenize(s string) (tokens []string, err error) {
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimLeft(s, " \t\r\n") {
		token, length, err := firstToken(s)
		if err != nil {
			return nil, err
		}
		tokens, s = append(tokens, token), s[length:]
	}
	return tokens, nil
}

// firstToken is the first token of what is not empty, and how long it is as it is written.
func firstToken(s string) (token string, length int, err error) {
	switch {
	case strings.IndexByte("().|=", s[0]) >= 0:
		return s[:1], 1, nil
	case s[0] == '\'':
		end := strings.IndexByte(s[1:], '\'')
		if end < 0 || strings.Contains(s[1:1+end], `\`) {
			return "", 0, noPath("a string has no end, or an escape")
		}
		return s[:1+end], end + 2, nil
	case isLetter(s[0]):
		for length < len(s) && (isLetter(s[length]) || '0' <= s[length] && s[length] <= '9') {
			length++
		}
		return s[:length], length, nil
	}
	return "", 0, noPath("it has the sign %q", s[0])
}

func isLetter(c byte) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' }

func noPath(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errExpression}, args...)...)
}

// errExpression says that a FHIRPath expression is none that can be judged here.
var errExpression = errors.New("the expression cannot be judged here")
