package bcp47

import (
	"slices"
	"strings"
)

// part is a kind of subtag (RFC 5646 §2.1).
type part int

const (
	partLanguage part = iota
	partExtLang
	partScript
	partRegion
	partVariant
	partExtension
	partPrivateUse
)

// subtag is a subtag, or a singleton with those that belong to it, such as x-foo.
type subtag struct {
	part part
	text string
}

// subtags returns the parts of a well-formed tag, in their order.
func subtags(tag string) []subtag {
	var list []subtag
	for i, text := range strings.Split(tag, "-") {
		last := len(list) - 1
		switch {
		case last >= 0 && list[last].part == partPrivateUse,
			last >= 0 && list[last].part == partExtension && len(text) > 1:
			list[last].text += "-" + text
		default:
			list = append(list, subtag{part: partOf(i, text), text: text})
		}
	}
	return list
}

// partOf tells what a subtag is by its position and length.
func partOf(i int, text string) part {
	digit := text != "" && text[0] >= '0' && text[0] <= '9'
	switch n := len(text); {
	case n == 1 && strings.EqualFold(text, "x"):
		return partPrivateUse
	case n == 1 && i > 0:
		return partExtension
	case i == 0:
		return partLanguage
	case n == 2, n == 3 && digit:
		return partRegion
	case n == 3:
		return partExtLang
	case n == 4 && !digit:
		return partScript
	}
	return partVariant
}

// isRepeated reports whether a tag has a variant or an extension's singleton twice, which must not be (RFC 5646 §2.2.9).
func isRepeated(list []subtag) bool {
	for i, s := range list {
		same := func(other subtag) bool {
			return other.part == s.part && (s.part == partVariant && strings.EqualFold(other.text, s.text) ||
				s.part == partExtension && strings.EqualFold(other.text[:1], s.text[:1]))
		}
		if slices.ContainsFunc(list[:i], same) {
			return true
		}
	}
	return false
}

// cased returns a tag as it is usually written (RFC 5646 §2.1.1): de-Latn-CH.
func cased(list []subtag) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = strings.ToLower(s.text)
		switch s.part {
		case partRegion:
			texts[i] = strings.ToUpper(s.text)
		case partScript:
			texts[i] = strings.ToUpper(s.text[:1]) + texts[i][1:]
		}
	}
	return strings.Join(texts, "-")
}
