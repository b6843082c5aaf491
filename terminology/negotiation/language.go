package negotiation

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Bounds on the languages that count, and on the length of one. RFC 5646 §4.4.1 asks for 35 characters at least.
const (
	maxLanguages      = 20
	maxLanguageLength = 64
)

type language struct {
	tag    string
	weight int // in thousandths
}

// Languages returns Accept-Language in one spelling, which is that of browsers: en-US,en;q=0.9. The most wanted come
// first; what is no language range (RFC 4647 §2.2) is left out. It is empty if any language will do, as without the header.
func Languages(values []string) string {
	if len(values) == 0 {
		return ""
	}
	var buffer [maxLanguages]language
	list := buffer[:0]
	for item := range Items(values) {
		tag, parameters, _ := strings.Cut(item, ";")
		if tag = strings.TrimRight(tag, " \t"); !isRange(tag) {
			continue
		}
		if list = append(list, language{tag, Weight(parameters)}); len(list) == maxLanguages {
			break
		}
	}
	slices.SortStableFunc(list, func(a, b language) int { return cmp.Compare(b.weight, a.weight) })
	if len(list) == 1 && list[0] == (language{"*", FullWeight}) {
		return ""
	}
	dst := make([]byte, 0, 64)
	for i, l := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = l.append(dst)
	}
	return string(dst)
}

func (l language) append(dst []byte) []byte {
	dst = appendTag(dst, l.tag)
	switch l.weight {
	case FullWeight:
		return dst
	case 0:
		return append(dst, ";q=0"...)
	}
	thousandths := strconv.Itoa(FullWeight + l.weight)[1:]
	return append(append(dst, ";q=0."...), strings.TrimRight(thousandths, "0")...)
}

// isRange reports whether a text is a language range: subtags of one to eight letters and digits, or wildcards.
func isRange(tag string) bool {
	if len(tag) > maxLanguageLength {
		return false
	}
	for subtag := range strings.SplitSeq(tag, "-") {
		other := func(r rune) bool { return !('a' <= r|0x20 && r|0x20 <= 'z') && !('0' <= r && r <= '9') }
		if subtag != "*" && (subtag == "" || len(subtag) > 8 || strings.ContainsFunc(subtag, other)) {
			return false
		}
	}
	return tag[0] > '9' || tag[0] == '*'
}

// appendTag appends a range in the case that RFC 5646 §2.1.1 recommends: a region in capitals, a script with one, all else
// in lower case, as is what follows a subtag of a single letter.
func appendTag(dst []byte, tag string) []byte {
	single := false
	for first := true; tag != ""; first = false {
		var subtag string
		subtag, tag, _ = strings.Cut(tag, "-")
		if !first {
			dst = append(dst, '-')
		}
		switch {
		case !first && !single && len(subtag) == 2:
			dst = append(dst, strings.ToUpper(subtag)...)
		case !first && !single && len(subtag) == 4:
			dst = append(append(dst, strings.ToUpper(subtag[:1])...), strings.ToLower(subtag[1:])...)
		default:
			dst = append(dst, strings.ToLower(subtag)...)
		}
		single = single || len(subtag) == 1 && subtag != "*"
	}
	return dst
}
