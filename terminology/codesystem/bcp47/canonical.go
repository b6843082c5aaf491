package bcp47

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// preferred is the field with the subtag or tag to be used instead of another.
const preferred = "Preferred-Value"

// canonical returns the canonical form of a tag (RFC 5646 §4.5), in which an extended language is the language.
func (r *registry) canonical(t tag) string {
	if value := r.whole(t.text).first(preferred); value != "" {
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
		parts[i].text = cmp.Or(r.record(s).first(preferred), cased(s.part, s.text))
	}
	slices.SortStableFunc(parts, func(a, b subtag) int {
		if a.part == partExtension && b.part == partExtension {
			return strings.Compare(a.text[:1], b.text[:1])
		}
		return 0
	})
	kept := parts[:0]
	for _, s := range parts { // a variant may stand for one that is there too
		if s.part != partVariant || !slices.ContainsFunc(kept, func(other subtag) bool { return other.part == s.part && other.text == s.text }) {
			kept = append(kept, s)
		}
	}
	return join(kept)
}

// record returns the record of a subtag, or "".
func (r *registry) record(s subtag) record {
	if s.part > partVariant {
		return ""
	}
	return r.subtags[s.part][s.text]
}

// isDeprecated reports whether a tag or one of its subtags should no longer be used.
func (r *registry) isDeprecated(t tag) bool {
	return r.whole(t.text).first("Deprecated") != "" ||
		slices.ContainsFunc(t.parts, func(s subtag) bool { return r.record(s).first("Deprecated") != "" })
}

// comments returns what the registry advises against: a variant where it is not meant to be, and a script that goes without saying.
func (r *registry) comments(t tag) (list []string) {
	for i, s := range t.parts {
		rec := r.record(s)
		prefixes := slices.Collect(rec.all("Prefix"))
		fits := func(prefix string) bool { return isPrefix(prefix, t.parts[:i]) }
		switch {
		case s.part == partVariant && len(prefixes) > 0 && !slices.ContainsFunc(prefixes, fits):
			list = append(list, fmt.Sprintf("the variant %q is meant for %s", s.text, strings.Join(prefixes, ", ")))
		case s.part == partScript && r.record(t.parts[0]).first("Suppress-Script") == s.text:
			list = append(list, fmt.Sprintf("the script %q goes without saying for the language %q", s.text, t.parts[0].text))
		}
	}
	return list
}

// isPrefix reports whether parts have all subtags of a prefix, in its order and perhaps with others between.
func isPrefix(prefix string, parts []subtag) bool {
	for wanted := range strings.SplitSeq(prefix, "-") {
		i := slices.IndexFunc(parts, func(s subtag) bool { return s.text == wanted })
		if i < 0 {
			return false
		}
		parts = parts[i+1:]
	}
	return true
}
