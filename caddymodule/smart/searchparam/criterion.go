package searchparam

import (
	"errors"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Errors of [Parameter.Matches].
var (
	// errUnsupported says that whether a resource matches the parameter cannot be judged here.
	errUnsupported = errors.New("search parameter cannot be evaluated")
	// errValue says that the value of a parameter is malformed.
	errValue = errors.New("malformed value of a search parameter")
)

// criterion is one of the alternatives that a value has, ready to be compared with elements of a resource.
type criterion interface {
	// matches reports whether an element at the end of a path is what is searched for.
	matches(r resource.Resource, path resource.Path, element []byte) bool
}

// split splits at a separator that is not escaped. The parts are still escaped.
func split(s string, separator byte) []string {
	var parts []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case separator:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// unescape returns what \, \| \$ and \\ stand for. Another backslash stands for itself.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	plain := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte(`,|$\`, s[i+1]) >= 0 {
			i++
		}
		plain = append(plain, s[i])
	}
	return string(plain)
}
