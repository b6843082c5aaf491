package smart

import (
	"fmt"
	"slices"
	"strings"
)

// ReservedScopes are open to every client of the authorization server.
var ReservedScopes = []string{"openid", "email", "phone", "profile"}

// CheckScope rejects text that is not exactly one scope (RFC 6749 §3.3), and scopes that begin like a SMART resource scope
// but are malformed.
func CheckScope(scope string) error {
	if parsed, err := ParseScopes(scope); err != nil || len(parsed) != 1 {
		return fmt.Errorf("%q is not a scope (RFC 6749 §3.3)", scope)
	}
	level, _, resource := strings.Cut(scope, "/")
	if resource && slices.Contains([]string{"patient", "user", "system"}, level) {
		if _, ok := ParseResourceScope(scope); !ok {
			return fmt.Errorf("%q is not a scope of SMART App Launch, such as %s/Observation.rs", scope, level)
		}
	}
	return nil
}
