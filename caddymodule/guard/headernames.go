package guard

import "strings"

// headerNames is a set of header names and of beginnings of such.
type headerNames struct {
	exact    map[string]struct{}
	prefixes []string
}

// newHeaderNames makes a set of names, of which those that end with * are
// beginnings.
func newHeaderNames(names []string) headerNames {
	set := headerNames{exact: make(map[string]struct{}, len(names))}
	for _, name := range names {
		folded := string(appendFolded(nil, name))
		if prefix, ok := strings.CutSuffix(folded, "*"); ok {
			set.prefixes = append(set.prefixes, prefix)
		} else {
			set.exact[folded] = struct{}{}
		}
	}
	return set
}

// has says whether name is in the set, however it is spelt.
func (n headerNames) has(name string) bool {
	var buffer [64]byte
	return n.hasFolded(appendFolded(buffer[:0], name))
}

// hasFolded says whether a name that appendFolded made is in the set.
func (n headerNames) hasFolded(folded []byte) bool {
	if _, ok := n.exact[string(folded)]; ok {
		return true
	}
	for _, prefix := range n.prefixes {
		if len(folded) >= len(prefix) && string(folded[:len(prefix)]) == prefix {
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
