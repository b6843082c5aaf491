package guard

import (
	"bytes"
	"fmt"
	"strings"
)

// headerNames is a set of header names and patterns.
type headerNames struct {
	exact                       map[string]struct{}
	prefixes, suffixes, anyPart []string
}

// newHeaderNames makes a set of names. A * at the beginning or end of a name matches any rest.
func newHeaderNames(names []string) headerNames {
	set := headerNames{exact: make(map[string]struct{}, len(names))}
	for _, name := range names {
		folded, isSuffix := strings.CutPrefix(string(appendFolded(nil, name)), "*")
		part, isPrefix := strings.CutSuffix(folded, "*")
		switch {
		case isSuffix && isPrefix:
			set.anyPart = append(set.anyPart, part)
		case isSuffix:
			set.suffixes = append(set.suffixes, folded)
		case isPrefix:
			set.prefixes = append(set.prefixes, part)
		default:
			set.exact[folded] = struct{}{}
		}
	}
	return set
}

// CheckHeaderPattern checks that a text is a header name (RFC 9110 §5.1), possibly with a * at its beginning or end.
// Any other pattern would match no header.
func CheckHeaderPattern(text string) error {
	name := strings.TrimSuffix(strings.TrimPrefix(text, "*"), "*")
	if text == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}*`, r) }) {
		return fmt.Errorf("%q is no header name; a * may stand at its beginning or end", text)
	}
	return nil
}

// has reports whether the set has a name in any spelling.
func (n headerNames) has(name string) bool {
	var buffer [64]byte
	return n.hasFolded(appendFolded(buffer[:0], name))
}

// hasExactly reports whether the set has a folded name in full.
func (n headerNames) hasExactly(folded []byte) bool {
	_, ok := n.exact[string(folded)]
	return ok
}

// hasFolded reports whether the set has a folded name.
func (n headerNames) hasFolded(folded []byte) bool {
	if n.hasExactly(folded) {
		return true
	}
	for _, prefix := range n.prefixes {
		if len(folded) >= len(prefix) && string(folded[:len(prefix)]) == prefix {
			return true
		}
	}
	for _, suffix := range n.suffixes {
		if len(folded) >= len(suffix) && string(folded[len(folded)-len(suffix):]) == suffix {
			return true
		}
	}
	for _, part := range n.anyPart {
		if bytes.Contains(folded, []byte(part)) {
			return true
		}
	}
	return false
}

// appendFolded appends a name in lower case, with _ and . as -.
func appendFolded(dst []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '_' || c == '.':
			c = '-'
		}
		dst = append(dst, c)
	}
	return dst
}
