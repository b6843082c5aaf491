package guard

import (
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4/json"
)

// scopes are separated by single spaces, as in [Token].
type scopes string

// UnmarshalJSON reads scopes separated by spaces (RFC 6749 §3.3), or a list of scopes. An element of a list that is no
// scope-token is an error: with a space in it, it would become two scopes, neither of which the issuer granted.
func (s *scopes) UnmarshalJSON(data []byte) error {
	var list []string
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		list = strings.FieldsFunc(text, func(r rune) bool { return r == ' ' })
	} else if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, scope := range list {
		if !isScopeToken(scope) {
			return fmt.Errorf("no scope-token: %q", scope)
		}
	}
	*s = scopes(strings.Join(list, " "))
	return nil
}

// isScopeToken reports whether s is a scope-token (RFC 6749 §3.3):
//
//	1*( %x21 / %x23-5B / %x5D-7E )
func isScopeToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
}
