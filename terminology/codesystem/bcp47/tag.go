package bcp47

import "strings"

// maxTag bounds a tag, in bytes, and maxSubtag a subtag. RFC 5646 §4.4.1 has 35 for the tags that are in use.
const (
	maxTag    = 128
	maxSubtag = 8
)

// part is a kind of subtag (RFC 5646 §2.1), in the order in which they may follow each other.
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

// String returns the name that FHIR has for the part in filters.
func (p part) String() string { return properties[p].Code }

// subtag is a subtag in the recommended case (RFC 5646 §2.1.1), or a singleton with those that belong to it, as they were given: x-foo.
type subtag struct {
	part   part
	text   string
	column int
}

// tag is a language tag by its parts. One that is grandfathered has none.
type tag struct {
	text  string
	parts []subtag
}

// language returns the subtag that names the language: the extended one, if there is one.
func (t tag) language() (s subtag) {
	for _, other := range t.parts {
		if other.part <= partExtLang {
			s = other
		}
	}
	return s
}

// parse reads a tag. It fails if the tag is not valid, or not in the recommended case.
func parse(code string) (t tag, err error) {
	r := registered()
	if t.text = code; r.grandfathered[code] != "" {
		return t, nil
	}
	if t.parts, err = split(code); err != nil {
		return t, err
	}
	for i := range t.parts {
		if err := r.check(t.parts, i); err != nil {
			return t, r.orCaseOfWhole(code, err)
		}
	}
	if written := join(t.parts); written != code {
		return t, caseFault(code, written)
	}
	return t, nil
}

// split returns the parts of a tag, of which nothing is known yet but that they have some letters and digits each.
func split(code string) ([]subtag, error) {
	if len(code) > maxTag {
		return nil, fault(maxTag+1, "the tag is longer than %d characters", maxTag)
	}
	list := make([]subtag, 0, 4)
	column := 1
	for text := range strings.SplitSeq(code, "-") {
		if i := strings.IndexFunc(text, isForeign); i >= 0 {
			return nil, fault(column+i, "unexpected %q", []rune(text[i:])[0])
		}
		last := len(list) - 1
		switch {
		case text == "":
			return nil, fault(column, "a subtag is missing")
		case len(text) > maxSubtag:
			return nil, fault(column, "the subtag %q is longer than %d characters", text, maxSubtag)
		case last >= 0 && list[last].takes(text):
			list[last].text += "-" + text // in any case: nothing is registered
		default:
			p := partOf(len(list), text)
			list = append(list, subtag{part: p, text: cased(p, text), column: column})
		}
		column += len(text) + 1
	}
	return list, nil
}

// takes reports whether another subtag belongs to an extension or to private use.
func (s subtag) takes(text string) bool {
	return s.part == partPrivateUse || s.part == partExtension && len(text) > 1
}

// isForeign reports whether a character is none of a subtag.
func isForeign(c rune) bool {
	return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}

// partOf tells what a subtag is by its position and length, if it is anything.
func partOf(i int, text string) part {
	digit := text[0] <= '9'
	switch n := len(text); {
	case n == 1 && strings.EqualFold(text, "x"):
		return partPrivateUse
	case i == 0:
		return partLanguage
	case n == 1:
		return partExtension
	case n == 2, n == 3 && digit:
		return partRegion
	case n == 3:
		return partExtLang
	case n == 4 && !digit:
		return partScript
	}
	return partVariant
}

// cased returns a subtag as RFC 5646 §2.1.1 recommends to write it.
func cased(p part, text string) string {
	switch p {
	case partRegion:
		return strings.ToUpper(text)
	case partScript:
		return strings.ToUpper(text[:1]) + strings.ToLower(text[1:])
	}
	return strings.ToLower(text)
}

// join returns the tag of some parts.
func join(parts []subtag) string {
	texts := make([]string, len(parts))
	for i, s := range parts {
		texts[i] = s.text
	}
	return strings.Join(texts, "-")
}
