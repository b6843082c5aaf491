package bcp47

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Maximum lengths of a tag and a subtag in bytes. RFC 5646 §4.4.1 requires support for tags of 35 characters.
const (
	maxTag    = 128
	maxSubtag = 8
)

// part is a kind of subtag (RFC 5646 §2.1). The constants are in the order in which subtags occur in a tag.
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

// String returns the name of the part in FHIR filters.
func (p part) String() string { return properties[p].Code }

// subtag is a subtag in the case that RFC 5646 §2.1.1 recommends, or a singleton followed by its subtags, such as x-foo.
type subtag struct {
	part   part
	text   string
	column int
}

// tag is a parsed language tag. A grandfathered tag has no parts.
type tag struct {
	text  string
	parts []subtag
}

// language returns the extended language subtag or, if there is none, the language subtag.
func (t tag) language() (s subtag) {
	for _, other := range t.parts {
		if other.part <= partExtLang {
			s = other
		}
	}
	return s
}

// parse parses a tag. It returns an error if the tag is invalid or not in the recommended case.
func parse(code string) (t tag, err error) {
	r := sharedRegistry()
	if t.text = code; r.grandfathered[code] != "" {
		return t, nil
	}
	if t.parts, err = split(code); err != nil {
		return t, err
	}
	for i := range t.parts {
		if err := r.check(t.parts, i); err != nil {
			return t, r.wholeTagCaseError(code, err)
		}
	}
	if written := join(t.parts); written != code {
		return t, newCaseError(code, written)
	}
	return t, nil
}

// split splits a tag into its parts. It checks only the characters and the lengths of subtags.
func split(code string) ([]subtag, error) {
	if len(code) > maxTag {
		return nil, newColumnError(maxTag+1, "the tag is longer than %d characters", maxTag)
	}
	list := make([]subtag, 0, 4)
	column := 1
	for text := range strings.SplitSeq(code, "-") {
		if i := strings.IndexFunc(text, isInvalidCharacter); i >= 0 {
			return nil, newColumnError(column+i, "unexpected %q", []rune(text[i:])[0])
		}
		last := len(list) - 1
		switch {
		case text == "":
			return nil, newColumnError(column, "a subtag is missing")
		case len(text) > maxSubtag:
			return nil, newColumnError(column, "the subtag %q is longer than %d characters", text, maxSubtag)
		case last >= 0 && list[last].continuesWith(text):
			list[last].text += "-" + text // any case: these subtags are not registered
		default:
			p := partOf(len(list), text)
			list = append(list, subtag{part: p, text: recommendedCase(p, text), column: column})
		}
		column += len(text) + 1
	}
	return list, nil
}

// continuesWith reports whether text belongs to s, an extension or private-use subtag.
func (s subtag) continuesWith(text string) bool {
	return s.part == partPrivateUse || s.part == partExtension && len(text) > 1
}

// isInvalidCharacter reports whether a character is invalid in a subtag.
func isInvalidCharacter(c rune) bool {
	return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}

// partOf returns the kind of the i-th subtag, based on its position and length. The default is a variant.
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

// recommendedCase returns a subtag in the case recommended by RFC 5646 §2.1.1.
func recommendedCase(p part, text string) string {
	switch p {
	case partRegion:
		return strings.ToUpper(text)
	case partScript:
		return strings.ToUpper(text[:1]) + strings.ToLower(text[1:])
	}
	return strings.ToLower(text)
}

// join returns the tag with the given parts.
func join(parts []subtag) string {
	texts := make([]string, len(parts))
	for i, s := range parts {
		texts[i] = s.text
	}
	return strings.Join(texts, "-")
}

// newColumnError returns an error at a column of a tag. Columns start at 1.
func newColumnError(column int, format string, args ...any) error {
	return fmt.Errorf("at column %d: %s", column, fmt.Sprintf(format, args...))
}

// newCaseError returns the error for a tag in the wrong case.
func newCaseError(code, written string) error {
	i := 0
	for code[i] == written[i] {
		i++
	}
	start := strings.LastIndexByte(code[:i], '-') + 1
	length := strings.IndexByte(code[start:]+"-", '-')
	return newColumnError(start+1, "%q should be written %q; the correct tag is %q", code[start:][:length], written[start:][:length], written)
}

// wholeTagCaseError returns an error if code is a grandfathered tag in the wrong case. Otherwise, it returns other.
func (r *registry) wholeTagCaseError(code string, other error) error {
	for written := range r.grandfathered {
		if strings.EqualFold(code, written) {
			return newCaseError(code, written)
		}
	}
	return other
}

// check validates the i-th part of a tag, including its position (RFC 5646 §2.2).
func (r *registry) check(parts []subtag, i int) error {
	s, before := parts[i], parts[:i]
	for _, b := range before {
		switch {
		case b.part > s.part, b.part == s.part && s.part < partVariant:
			return newColumnError(s.column, "the %s %q must not follow the %s %q", s.part, s.text, b.part, b.text)
		case s.part == partVariant && b.text == s.text, s.part == partExtension && b.part == s.part && b.text[0] == s.text[0]:
			name, _, _ := strings.Cut(s.text, "-")
			return newColumnError(s.column, "the %s %q is repeated", s.part, name)
		}
	}
	if s.part > partVariant {
		if len(s.text) == 1 {
			return newColumnError(s.column, "the %s %q is empty", s.part, s.text)
		}
		return nil
	}
	rec, ok := r.subtags[s.part][s.text]
	if !ok {
		return newColumnError(s.column, "the %s %q is not registered", s.part, s.text)
	}
	if prefix := rec.firstValue("Prefix"); s.part == partExtLang && prefix != before[0].text {
		return newColumnError(s.column, "the %s %q is valid only after the language %q", s.part, s.text, prefix)
	}
	return nil
}

// preferredValueField is the registry field that contains the replacement for a subtag or tag.
const preferredValueField = "Preferred-Value"

// canonicalForm returns the canonical form of a tag (RFC 5646 §4.5). An extended language subtag replaces the language subtag.
func (r *registry) canonicalForm(t tag) string {
	if value := r.wholeTagRecord(t.text).firstValue(preferredValueField); value != "" {
		return value
	}
	if t.parts == nil {
		return t.text
	}
	parts := slices.Clone(t.parts)
	if t.language().part == partExtLang {
		parts = parts[1:]
		parts[0].part = partLanguage
	}
	for i, s := range parts {
		parts[i].text = cmp.Or(r.record(s).firstValue(preferredValueField), recommendedCase(s.part, s.text))
	}
	slices.SortStableFunc(parts, func(a, b subtag) int {
		if a.part == partExtension && b.part == partExtension {
			return strings.Compare(a.text[:1], b.text[:1])
		}
		return 0
	})
	remaining := parts[:0]
	for _, s := range parts { // the replacement for a variant may already be present
		if s.part != partVariant || !slices.ContainsFunc(remaining, func(other subtag) bool { return other.part == s.part && other.text == s.text }) {
			remaining = append(remaining, s)
		}
	}
	return join(remaining)
}

// record returns the registry record of a subtag, or "".
func (r *registry) record(s subtag) record {
	if s.part > partVariant {
		return ""
	}
	return r.subtags[s.part][s.text]
}

// isDeprecated reports whether a tag or any of its subtags is deprecated.
func (r *registry) isDeprecated(t tag) bool {
	return r.wholeTagRecord(t.text).firstValue("Deprecated") != "" ||
		slices.ContainsFunc(t.parts, func(s subtag) bool { return r.record(s).firstValue("Deprecated") != "" })
}

// warnings returns warnings about a tag: variants that are not registered for the preceding subtags, and redundant scripts.
func (r *registry) warnings(t tag) (list []string) {
	for i, s := range t.parts {
		rec := r.record(s)
		prefixes := slices.Collect(rec.values("Prefix"))
		fits := func(prefix string) bool { return isPrefix(prefix, t.parts[:i]) }
		switch {
		case s.part == partVariant && len(prefixes) > 0 && !slices.ContainsFunc(prefixes, fits):
			list = append(list, fmt.Sprintf("the variant %q is registered for %s", s.text, strings.Join(prefixes, ", ")))
		case s.part == partScript && r.record(t.parts[0]).firstValue("Suppress-Script") == s.text:
			list = append(list, fmt.Sprintf("the script %q is redundant for the language %q", s.text, t.parts[0].text))
		}
	}
	return list
}

// isPrefix reports whether parts contain all subtags of a prefix in the same order, possibly with others in between.
func isPrefix(prefix string, parts []subtag) bool {
	for prefixSubtags := range strings.SplitSeq(prefix, "-") {
		i := slices.IndexFunc(parts, func(s subtag) bool { return s.text == prefixSubtags })
		if i < 0 {
			return false
		}
		parts = parts[i+1:]
	}
	return true
}
