package codesystem

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

type languageRange struct {
	tag    string // lower case; * matches any language
	weight float64
}

// Languages contains the parsed displayLanguage or Accept-Language (RFC 9110 §12.5.4): language ranges, the most
// preferred first. Other languages are acceptable as a fallback unless Only is set.
type Languages struct {
	ranges []languageRange

	// Only excludes other languages: the wildcard has weight 0.
	Only bool
}

// Limits on the number of languages and the length of the list, because a header may be a megabyte long.
const (
	maxLanguageRanges = 20
	maxLanguageList   = 8 << 10
)

// ParseLanguages parses a weighted list of languages. It ignores invalid items.
func ParseLanguages(list string) Languages {
	var l Languages
	if len(list) > maxLanguageList {
		list = list[:1+strings.LastIndexByte(list[:maxLanguageList], ',')]
	}
	for item := range strings.SplitSeq(list, ",") {
		tag, parameters, _ := strings.Cut(item, ";")
		r := languageRange{tag: strings.ToLower(strings.TrimSpace(tag)), weight: 1}
		for parameter := range strings.SplitSeq(parameters, ";") {
			if name, value, ok := strings.Cut(parameter, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
				var err error
				if r.weight, err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
					r.weight = 1
				}
			}
		}
		switch {
		case r.tag == "" || len(l.ranges) == maxLanguageRanges:
		case r.weight > 0:
			l.ranges = append(l.ranges, r)
		case r.tag == "*":
			l.Only = true
		}
	}
	slices.SortStableFunc(l.ranges, func(a, b languageRange) int { return cmp.Compare(b.weight, a.weight) })
	return l
}

// None reports whether no language is requested.
func (l *Languages) None() bool { return len(l.ranges) == 0 && !l.Only }

// First returns the most preferred language, or "".
func (l *Languages) First() string {
	if len(l.ranges) == 0 || l.ranges[0].tag == "*" {
		return ""
	}
	return l.ranges[0].tag
}

// Degrees of similarity between a language and a requested one.
const (
	languageDiffers  = iota
	languageBroader  // de for the requested de-CH (RFC 4647 §3.4)
	languageNarrower // de-CH for the requested de
	languageSame
)

// likeness returns the similarity between a language and a range other than the wildcard.
func likeness(tag, wanted string) int {
	tag = strings.ToLower(tag)
	switch {
	case tag == "":
		return languageDiffers
	case tag == wanted:
		return languageSame
	case strings.HasPrefix(tag, wanted+"-"):
		return languageNarrower
	case strings.HasPrefix(wanted, tag+"-"):
		return languageBroader
	}
	return languageDiffers
}

// List returns the languages in the format of [ParseLanguages], the most preferred first; "" if none.
func (l *Languages) List() string {
	var list []string
	for _, r := range l.ranges {
		list = append(list, r.tag)
	}
	if l.Only {
		list = append(list, "*;q=0")
	}
	return strings.Join(list, ",")
}

// DisplayOf returns the preferred display among the texts of a concept, or nil.
func (l *Languages) DisplayOf(texts []Text) []byte {
	if i := l.Preferred(texts); i >= 0 {
		return texts[i].Value
	}
	return nil
}

// Preferred returns the index of the preferred display, or -1.
func (l *Languages) Preferred(texts []Text) int {
	for _, r := range l.ranges {
		if r.tag == "*" {
			return FirstDisplay(texts)
		}
		best, found := languageDiffers, -1
		for i := range texts {
			like := likeness(texts[i].Language, r.tag)
			better := like > best || like == best && like > languageDiffers && texts[i].IsFromValueSet && !texts[found].IsFromValueSet
			if better && texts[i].IsDisplay() {
				best, found = like, i
			}
		}
		if found >= 0 {
			return found
		}
	}
	if l.Only {
		return -1
	}
	return FirstDisplay(texts)
}

// PreferredOrFirst is like Preferred, but with the first display as the default.
func (l *Languages) PreferredOrFirst(texts []Text) int {
	if i := l.Preferred(texts); i >= 0 {
		return i
	}
	return FirstDisplay(texts)
}

// AppendSearched appends the searchable texts of a concept: displays, and designations in any of the languages, without
// a language, or, if no language is requested, in all languages. The last foreign texts are in another language than
// both language and the chosen display.
func (l *Languages) AppendSearched(dst [][]byte, texts []Text, language string) (searched [][]byte, foreign int) {
	rest := make([]*Text, 0, 8)
	for i := range texts {
		switch t := &texts[i]; {
		case !l.isSearched(t):
		case l.Foreign(t, language):
			rest = append(rest, t)
		default:
			dst = append(dst, t.Value)
		}
	}
	if len(rest) == 0 {
		return dst, 0
	}
	shown := ""
	if display := l.Preferred(texts); display >= 0 {
		shown = strings.ToLower(texts[display].Language)
	}
	return appendForeign(dst, rest, shown)
}

// appendForeign appends foreign texts. Texts in the language of the display come first and are not counted.
func appendForeign(dst [][]byte, rest []*Text, shown string) (searched [][]byte, foreign int) {
	for _, t := range rest {
		if likeness(t.Language, shown) != languageDiffers {
			dst = append(dst, t.Value)
		}
	}
	from := len(dst)
	for _, t := range rest {
		if likeness(t.Language, shown) == languageDiffers {
			dst = append(dst, t.Value)
		}
	}
	return dst, len(dst) - from
}

// isSearched reports whether a text is searchable.
func (l *Languages) isSearched(t *Text) bool {
	return t.Display || t.Language == "" || l.mean(t.Language)
}

// Foreign reports whether a text is in another known language than one returned by [Languages.Best]. Texts of the value
// set itself are not foreign in any requested language.
func (l *Languages) Foreign(t *Text, language string) bool {
	return language != "" && t.Language != "" && likeness(t.Language, language) == languageDiffers && !(t.IsFromValueSet && l.mean(t.Language))
}

// MayBeForeign reports whether displays of a code system may be foreign to a language returned by [Languages.Best].
// Displays in that language are not.
func MayBeForeign(s System, language string) bool {
	return language != "" && likeness(s.Language(), language) == languageDiffers
}

// Best returns the most preferred language that any of the code systems has. It returns "" if there is none, or if a
// wildcard is preferred.
func (l *Languages) Best(systems ...Dialects) string {
	for _, r := range l.ranges {
		if r.tag == "*" {
			return ""
		}
		if slices.ContainsFunc(systems, func(s Dialects) bool { return s.HasLanguage(r.tag) }) {
			return r.tag
		}
	}
	return ""
}

// Key returns a key for the effect of the list on texts in the languages has: the similarity to each of them, in order
// of preference. If only de exists, then de, de-CH, de-AT, and fr before de have the same key.
func (l *Languages) Key(has []string) string {
	if l.None() {
		return ""
	}
	var key []byte
	for _, r := range l.ranges {
		if r.tag == "*" {
			return string(append(key, '*'))
		}
		if HasLanguage(has, r.tag) {
			key = append(key, rangeKey(has, r.tag)...)
		}
	}
	if l.Only {
		return string(append(key, '!'))
	}
	return string(append(key, '-'))
}

// HasLanguage reports whether any of the languages is similar to language.
func HasLanguage(has []string, language string) bool {
	return slices.ContainsFunc(has, func(tag string) bool { return likeness(tag, language) > languageDiffers })
}

// rangeKey is like [Languages.Key], but for one language.
func rangeKey(has []string, language string) []byte {
	key := make([]byte, len(has))
	var found [languageSame + 1]bool
	for i, tag := range has {
		key[i] = byte(likeness(tag, language))
		found[key[i]] = true
	}
	for i, like := range key {
		key[i] = 0
		for lower := languageBroader; lower <= int(like); lower++ {
			if found[lower] {
				key[i]++
			}
		}
	}
	return key
}

// Cover reports whether a language is acceptable: it is requested, or no language is.
func (l *Languages) Cover(tag string) bool { return len(l.ranges) == 0 || l.mean(tag) }

// mean reports whether a language is similar to any requested one.
func (l *Languages) mean(tag string) bool {
	return l.None() || slices.ContainsFunc(l.ranges, func(r languageRange) bool {
		return r.tag == "*" || likeness(tag, r.tag) > languageDiffers
	})
}
