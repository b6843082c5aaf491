package searchparam

import (
	"fmt"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

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
