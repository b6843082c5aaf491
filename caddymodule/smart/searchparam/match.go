package searchparam

import (
	"errors"
	"fmt"
	"slices"
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

// Matches reports whether a resource of the parameter's type matches name=value. The value is that of the query,
// decoded: commas in it are alternatives, and a backslash escapes what has a meaning.
func (p Parameter) Matches(r resource.Resource, value string) (bool, error) {
	if len(p.Paths) == 0 {
		return false, fmt.Errorf("%w: %s", errUnsupported, p.Name)
	}
	criteria, err := p.criteria(value)
	if err != nil {
		return false, fmt.Errorf("%s: %w", p.Name, err)
	}
	for _, path := range p.Paths {
		for element := range r.Values(path) {
			if slices.ContainsFunc(criteria, func(c criterion) bool { return c.matches(r, path, element) }) {
				return true, nil
			}
		}
	}
	return false, nil
}

// criteria reads the alternatives of a value. All are read, so that whether a value is malformed does not depend on the
// resource.
func (p Parameter) criteria(value string) ([]criterion, error) {
	var criteria []criterion
	for _, alternative := range split(value, ',') {
		if alternative == "" {
			return nil, errValue
		}
		c, err := p.criterion(alternative)
		if err != nil {
			return nil, err
		}
		criteria = append(criteria, c)
	}
	return criteria, nil
}

// criterion reads one alternative.
func (p Parameter) criterion(s string) (criterion, error) {
	switch p.Kind {
	case Token:
		return readToken(s)
	case Reference:
		return p.readReference(unescape(s)), nil
	case String:
		return readText(s)
	case URI:
		return uri(unescape(s)), nil
	case Date:
		return readDate(s)
	case Number, Quantity:
		return readQuantity(s)
	default:
		return nil, errUnsupported
	}
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
