package smart

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// errParameters says that a query is one that two servers could read differently.
var errParameters = errors.New("ambiguous parameters")

// Parameter is one condition of a search, such as category=laboratory.
type Parameter struct {
	// Name is the parameter, with the modifier or chain that follows it in R4's search.html.
	Name string
	// Value is what it is compared with, with prefixes, commas and backslashes as they were written.
	Value string
}

// inNames are the characters that names of parameters are made of.
const inNames = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-"

// usualParameters is how many parameters there are at most mostly.
const usualParameters = 16

// ParseParameters reads a query, or a form of the same syntax, in its order. Names repeat, which in a search means that
// all of them must hold. A parameter without an equals sign has an empty value, a plus is a space, and empty pairs are
// passed over. What servers read in more than one way is refused:
//
//   - names of anything but letters, digits and "_.:-";
//   - semicolons, which some take for separators, and number signs, which some take for the end;
//   - spaces, control characters and anything but ASCII, unless percent-encoded;
//   - escapes that are malformed, or that make invalid UTF-8 or a NUL.
//
// Errors do not repeat the query, which may hold data of patients.
func ParseParameters(query string) ([]Parameter, error) {
	var list []Parameter
	if query != "" {
		list = make([]Parameter, 0, min(strings.Count(query, "&")+1, usualParameters))
	}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := decode(name)
		if err == nil && (name == "" || strings.Trim(name, inNames) != "") {
			err = fmt.Errorf("%w: a name", errParameters)
		}
		if err != nil {
			return nil, err
		}
		if value, err = decode(value); err != nil {
			return nil, err
		}
		list = append(list, Parameter{Name: name, Value: value})
	}
	return list, nil
}

// decode undoes the percent-encoding of a name or value.
func decode(s string) (string, error) {
	escaped := false
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c > '~' || c == ';' || c == '#' {
			return "", fmt.Errorf("%w: a character", errParameters)
		}
		escaped = escaped || c == '%' || c == '+'
	}
	if !escaped {
		return s, nil
	}
	decoded, err := url.QueryUnescape(s)
	if err != nil || !utf8.ValidString(decoded) || strings.ContainsRune(decoded, 0) {
		return "", fmt.Errorf("%w: an escape", errParameters)
	}
	return decoded, nil
}

// EncodeParameters writes a query that [ParseParameters] reads as the same list.
func EncodeParameters(list []Parameter) string {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(p.Name))
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(p.Value))
	}
	return b.String()
}
