package cache

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

type parameter struct{ name, value string }

// parameters are unescaped and sorted by name. Those of the same name keep their order, which may matter.
type parameters []parameter

// errSemicolon is for what some servers read as a separator and others as part of a value.
var errSemicolon = errors.New("invalid semicolon separator in query")

func parseParameters(query string) (list parameters, err error) {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		if strings.Contains(pair, ";") {
			return nil, errSemicolon
		}
		var p parameter
		name, value, _ := strings.Cut(pair, "=")
		if p.name, err = url.QueryUnescape(name); err != nil {
			return nil, fmt.Errorf("the query string is malformed: %w", err)
		}
		if p.value, err = url.QueryUnescape(value); err != nil {
			return nil, fmt.Errorf("the query string is malformed: %w", err)
		}
		list = append(list, p)
	}
	slices.SortStableFunc(list, func(a, b parameter) int { return cmp.Compare(a.name, b.name) })
	return list, nil
}

// take removes the parameters with a name and returns their values.
func (l parameters) take(name string) (rest parameters, values []string) {
	rest = slices.DeleteFunc(l, func(p parameter) bool {
		if p.name == name {
			values = append(values, p.value)
		}
		return p.name == name
	})
	return rest, values
}

// has reports whether there is a parameter with a value.
func (l parameters) has(name string) bool {
	return slices.ContainsFunc(l, func(p parameter) bool { return p.name == name && p.value != "" })
}

func (l parameters) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(l)))
	for _, p := range l {
		dst = appendPart(appendPart(dst, p.name), p.value)
	}
	return dst
}

// appendPart appends a part of a key after its length, so that one part cannot pass for two.
func appendPart(dst []byte, part string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(part))), part...)
}
