package guard

import (
	"bytes"
	"fmt"
	"strings"
)

// headerNames is a set of header names and of parts of such.
type headerNames struct {
	exact                       map[string]struct{}
	prefixes, suffixes, anyPart []string
}

// newHeaderNames makes a set of names. A * at the beginning or end of one stands for
// any rest.
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

// CheckHeaderPattern says why a text is no header name (RFC 9110 §5.1), with a * at its
// beginning or end for any rest, if it is none: as a pattern it would fit no header.
func CheckHeaderPattern(text string) error {
	name := strings.TrimSuffix(strings.TrimPrefix(text, "*"), "*")
	if text == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}*`, r) }) {
		return fmt.Errorf("%q is no header name; a * may stand at its beginning or end", text)
	}
	return nil
}

// has says whether name is in the set, however it is spelt.
func (n headerNames) has(name string) bool {
	var buffer [64]byte
	return n.hasFolded(appendFolded(buffer[:0], name))
}

// hasExactly says whether a name that appendFolded made is in the set in full.
func (n headerNames) hasExactly(folded []byte) bool {
	_, ok := n.exact[string(folded)]
	return ok
}

// hasFolded says whether a name that appendFolded made is in the set.
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

// appendFolded appends name in lower case, with _ and . as -.
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
