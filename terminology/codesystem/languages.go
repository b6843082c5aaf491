package codesystem

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

type languageRange struct {
	tag    string // in lower case; * means any language
	weight float64
}

// Languages is what displayLanguage or Accept-Language asks for (RFC 9110 §12.5.4): ranges, the most preferred first.
// Unless the wildcard is refused, any language is better than none.
type Languages struct {
	ranges []languageRange

	// Only says that no other languages will do: the wildcard has weight 0.
	Only bool
}

// Bounds on the languages considered and on the list: a header may be a megabyte long.
const (
	maxLanguageRanges = 20
	maxLanguageList   = 8 << 10
)

// ParseLanguages reads a list of languages with weights. It ignores what it does not understand.
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

// None reports whether no language is preferred.
func (l *Languages) None() bool { return len(l.ranges) == 0 && !l.Only }

// First returns the most preferred language; "" if there is none.
func (l *Languages) First() string {
	if len(l.ranges) == 0 || l.ranges[0].tag == "*" {
		return ""
	}
	return l.ranges[0].tag
}

// How like a language is to the one asked for.
const (
	languageDiffers  = iota
	languageBroader  // de for de-CH (RFC 4647 §3.4)
	languageNarrower // de-CH for de
	languageSame
)

// likeness says how well a language fits a range other than the wildcard.
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

// List returns the languages as [ParseLanguages] reads them, the most preferred first; "" for none.
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

// DisplayOf returns the display to show among the texts of a concept, or nil.
func (l *Languages) DisplayOf(texts []Text) []byte {
	if i := l.Preferred(texts); i >= 0 {
		return texts[i].Value
	}
	return nil
}

// Preferred returns the index of the text to use as the display, or -1.
func (l *Languages) Preferred(texts []Text) int {
	for _, r := range l.ranges {
		if r.tag == "*" {
			return FirstDisplay(texts)
		}
		best, found := languageDiffers, -1
		for i := range texts {
			like := likeness(texts[i].Language, r.tag)
			better := like > best || like == best && like > languageDiffers && texts[i].Own && !texts[found].Own
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

// PreferredOrFirst is Preferred, but returns the default display rather than none.
func (l *Languages) PreferredOrFirst(texts []Text) int {
	if i := l.Preferred(texts); i >= 0 {
		return i
	}
	return FirstDisplay(texts)
}

// AppendSearched appends the texts by which a concept is found: its displays, and its designations in one of the
// languages, in none, or, if no language is asked for, in any. Those that are foreign to a language, and to that of the
// display which is shown, come last; it returns how many these are.
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

// appendForeign appends texts that are foreign to a language, those in that of the display which is shown before others.
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

// isSearched reports whether a concept is found by a text.
func (l *Languages) isSearched(t *Text) bool {
	return t.Display || t.Language == "" || l.mean(t.Language)
}

// Foreign reports whether a text is known to be in another language than one that [Languages.Best] returned. What a value
// set itself has in any language that is asked for is not.
func (l *Languages) Foreign(t *Text, language string) bool {
	return language != "" && t.Language != "" && likeness(t.Language, language) == languageDiffers && !(t.Own && l.mean(t.Language))
}

// MayBeForeign reports whether what is shown of a code system may be foreign to a language that [Languages.Best] returned:
// not if its displays are in that language.
func MayBeForeign(s System, language string) bool {
	return language != "" && likeness(s.Language(), language) == languageDiffers
}

// Best returns the most preferred language that one of some code systems has; "" if none has one, or before it any
// language will do.
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

// Key identifies what a list of languages means where there are texts in some languages: which of these each is like, and
// which the most. If there is only de, then de, de-CH, de-AT, and fr before de all mean the same.
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

// HasLanguage reports whether one of some languages is like another.
func HasLanguage(has []string, language string) bool {
	return slices.ContainsFunc(has, func(tag string) bool { return likeness(tag, language) > languageDiffers })
}

// rangeKey is Key for one language.
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

// Cover reports whether a language is acceptable: if it is among those asked for, or none is.
func (l *Languages) Cover(tag string) bool { return len(l.ranges) == 0 || l.mean(tag) }

// mean reports whether a language is like one of those asked for.
func (l *Languages) mean(tag string) bool {
	return l.None() || slices.ContainsFunc(l.ranges, func(r languageRange) bool {
		return r.tag == "*" || likeness(tag, r.tag) > languageDiffers
	})
}
