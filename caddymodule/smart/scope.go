package smart

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// errMalformed says that a scope string violates the grammar of RFC 6749 §3.3. OAuth answers it with invalid_scope.
var errMalformed = errors.New("malformed scope")

// ParseScopes splits the value of a scope parameter into its scopes, in their order and each once. The grammar is that
// of RFC 6749 §3.3,
//
//	scope       = scope-token *( SP scope-token )
//	scope-token = 1*( %x21 / %x23-5B / %x5D-7E )
//
// and deviations are errors: if two readers split a sloppy string differently, they grant different things. An empty
// string has no scopes, since a parameter without a value counts as omitted (§3.1). No error
// repeats the input.
func ParseScopes(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	tokens := strings.Split(s, " ")
	scopes := make([]string, 0, len(tokens))
	seen := make(map[string]bool, len(tokens))
	for i, token := range tokens {
		if !isScopeToken(token) {
			return nil, fmt.Errorf("%w: scope number %d", errMalformed, i+1)
		}
		if !seen[token] {
			seen[token] = true
			scopes = append(scopes, token)
		}
	}
	return slices.Clip(scopes), nil
}

// isScopeToken reports whether s is a scope-token: visible ASCII without the quotation mark and the backslash.
func isScopeToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < '!' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
}

// launchScope is a scope for launch context: the type of a resource, and perhaps a role.
var launchScope = regexp.MustCompile(`^launch(/[A-Za-z]+(\?role=.+)?)?$`)

// IsDefined reports whether SMART App Launch 2.2 defines a scope. It leaves out those of OpenID Connect, which are open to
// every client.
func IsDefined(scope string) bool {
	_, resource := ParseResourceScope(scope)
	return resource || launchScope.MatchString(scope) || slices.Contains([]string{"fhirUser", "offline_access", "online_access"}, scope)
}

// isMalformed reports whether a scope looks like one of SMART's for resources or launch context, but is none.
func isMalformed(scope string) bool {
	level, _, ok := strings.Cut(scope, "/")
	return ok && (isLevel(level) || level == "launch") && !IsDefined(scope)
}
