package codesystem

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

type languageRange struct {
	tag    string // in lower case; * matches any language
	weight float64
}

// Languages contains the parsed displayLanguage or Accept-Language (RFC 9110 §12.5.4): language ranges, with the most preferred
// first. Other languages are acceptable as a fallback unless ExcludesOthers is set.
type Languages struct {
	ranges []languageRange

	// ExcludesOthers makes other languages unacceptable, because the list contains *;q=0.
	ExcludesOthers bool
}

// Limits on the number of languages and on the length of the list in bytes. A header can be a megabyte long.
const (
	maxLanguageRanges = 20
	maxLanguageList   = 8 << 10
)

// languageAliases maps tags in lower case to the tags that texts have.
var languageAliases = make(map[string]string)

// RegisterLanguageAlias makes alias, in a list of languages, equivalent to tag. Packages of code systems call it in init.
func RegisterLanguageAlias(alias, tag string) {
	languageAliases[strings.ToLower(alias)] = strings.ToLower(tag)
}

// ParseLanguages parses a weighted list of languages. It ignores invalid items.
func ParseLanguages(list string) Languages {
	var l Languages
	if len(list) > maxLanguageList {
		list = list[:1+strings.LastIndexByte(list[:maxLanguageList], ',')]
	}
	for item := range strings.SplitSeq(list, ",") {
		tag, parameters, _ := strings.Cut(item, ";")
		r := languageRange{tag: strings.ToLower(strings.TrimSpace(tag)), weight: 1}
		r.tag = cmp.Or(languageAliases[r.tag], r.tag)
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
			l.ExcludesOthers = true
		}
	}
	slices.SortStableFunc(l.ranges, func(a, b languageRange) int { return cmp.Compare(b.weight, a.weight) })
	return l
}

// IsEmpty reports whether no language is requested and ExcludesOthers is not set.
func (l *Languages) IsEmpty() bool { return len(l.ranges) == 0 && !l.ExcludesOthers }

// First returns the most preferred language. It returns "" if there is none or if it is the wildcard.
func (l *Languages) First() string {
	if len(l.ranges) == 0 || l.ranges[0].tag == "*" {
		return ""
	}
	return l.ranges[0].tag
}

// Degrees of similarity between a language and a requested language.
const (
	languageDiffers  = iota
	languageBroader  // de if de-CH is requested (RFC 4647 §3.4)
	languageNarrower // de-CH if de is requested
	languageSame
)

// similarity returns how similar the language tag is to requested, which must not be the wildcard.
func similarity(tag, requested string) int {
	tag = strings.ToLower(tag)
	switch {
	case tag == "":
		return languageDiffers
	case tag == requested:
		return languageSame
	case strings.HasPrefix(tag, requested+"-"):
		return languageNarrower
	case strings.HasPrefix(requested, tag+"-"):
		return languageBroader
	}
	return languageDiffers
}

// List returns the languages in the format of [ParseLanguages], with the most preferred first, or "" if there are none.
func (l *Languages) List() string {
	var list []string
	for _, r := range l.ranges {
		list = append(list, r.tag)
	}
	if l.ExcludesOthers {
		list = append(list, "*;q=0")
	}
	return strings.Join(list, ",")
}

// DisplayOf returns the preferred display among the texts of a concept, or nil if no display is acceptable.
func (l *Languages) DisplayOf(texts []Text) []byte {
	if i := l.PreferredDisplay(texts); i >= 0 {
		return texts[i].Value
	}
	return nil
}

// PreferredDisplay returns the index of the preferred display, or -1 if no display is acceptable.
func (l *Languages) PreferredDisplay(texts []Text) int {
	for _, r := range l.ranges {
		if r.tag == "*" {
			return FirstDisplay(texts)
		}
		best, found := languageDiffers, -1
		for i := range texts {
			degree := similarity(texts[i].Language, r.tag)
			better := degree > best || degree == best && degree > languageDiffers && texts[i].IsFromValueSet && !texts[found].IsFromValueSet
			if better && texts[i].CanBeDisplay() {
				best, found = degree, i
			}
		}
		if found >= 0 {
			return found
		}
	}
	if l.ExcludesOthers {
		return -1
	}
	return FirstDisplay(texts)
}

// PreferredOrFirstDisplay is like [Languages.PreferredDisplay], but returns the first display if no display is acceptable.
func (l *Languages) PreferredOrFirstDisplay(texts []Text) int {
	if i := l.PreferredDisplay(texts); i >= 0 {
		return i
	}
	return FirstDisplay(texts)
}

// AppendSearchable appends the searchable texts of a concept. These are its displays, and its designations in a requested
// language or without a language; if no language is requested, all designations. The last foreign texts are neither in language
// nor in the language of the preferred display.
func (l *Languages) AppendSearchable(dst [][]byte, texts []Text, language string) (searched [][]byte, foreign int) {
	rest := make([]*Text, 0, 8)
	for i := range texts {
		switch t := &texts[i]; {
		case !l.isSearchable(t):
		case l.IsForeign(t, language):
			rest = append(rest, t)
		default:
			dst = append(dst, t.Value)
		}
	}
	if len(rest) == 0 {
		return dst, 0
	}
	displayLanguage := ""
	if display := l.PreferredDisplay(texts); display >= 0 {
		displayLanguage = strings.ToLower(texts[display].Language)
	}
	return appendForeign(dst, rest, displayLanguage)
}

// appendForeign appends foreign texts. Those in the language of the display come first and are not part of the count.
func appendForeign(dst [][]byte, rest []*Text, displayLanguage string) (searched [][]byte, foreign int) {
	for _, t := range rest {
		if similarity(t.Language, displayLanguage) != languageDiffers {
			dst = append(dst, t.Value)
		}
	}
	from := len(dst)
	for _, t := range rest {
		if similarity(t.Language, displayLanguage) == languageDiffers {
			dst = append(dst, t.Value)
		}
	}
	return dst, len(dst) - from
}

// isSearchable reports whether a text is searchable; see [Languages.AppendSearchable].
func (l *Languages) isSearchable(t *Text) bool {
	return t.IsDisplay || t.Language == "" || l.matchesAny(t.Language)
}

// IsForeign reports whether a text has a language that differs from language, which [Languages.BestAvailable] returned. Texts
// from the value set are not foreign if their language is requested.
func (l *Languages) IsForeign(t *Text, language string) bool {
	return language != "" && t.Language != "" && similarity(t.Language, language) == languageDiffers && !(t.IsFromValueSet && l.matchesAny(t.Language))
}

// MayBeForeign reports whether displays of a code system may be foreign (see [Languages.IsForeign]), because its language
// differs from language, which [Languages.BestAvailable] returned.
func MayBeForeign(s System, language string) bool {
	return language != "" && similarity(s.Language(), language) == languageDiffers
}

// BestAvailable returns the most preferred language in which any of the code systems has texts. It returns "" if there is none
// or if a wildcard precedes it.
func (l *Languages) BestAvailable(systems ...Multilingual) string {
	for _, r := range l.ranges {
		if r.tag == "*" {
			return ""
		}
		if slices.ContainsFunc(systems, func(s Multilingual) bool { return s.HasLanguage(r.tag) }) {
			return r.tag
		}
	}
	return ""
}

// Key returns a key that is the same for lists with the same effect on texts in the given languages. It consists of the
// similarity to each of them, in order of preference. If the only language is de, then de, de-CH, de-AT, and "fr, de" have the
// same key.
func (l *Languages) Key(has []string) string {
	if l.IsEmpty() {
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
	if l.ExcludesOthers {
		return string(append(key, '!'))
	}
	return string(append(key, '-'))
}

// HasLanguage reports whether language is similar to any of the languages in has.
func HasLanguage(has []string, language string) bool {
	return slices.ContainsFunc(has, func(tag string) bool { return similarity(tag, language) > languageDiffers })
}

// rangeKey is like [Languages.Key], but for a single requested language.
func rangeKey(has []string, language string) []byte {
	key := make([]byte, len(has))
	var found [languageSame + 1]bool
	for i, tag := range has {
		key[i] = byte(similarity(tag, language))
		found[key[i]] = true
	}
	for i, degree := range key {
		key[i] = 0
		for lower := languageBroader; lower <= int(degree); lower++ {
			if found[lower] {
				key[i]++
			}
		}
	}
	return key
}

// Accepts reports whether a language is acceptable because it is requested or because no language is requested.
func (l *Languages) Accepts(tag string) bool { return len(l.ranges) == 0 || l.matchesAny(tag) }

// matchesAny reports whether a language is similar to any requested language.
func (l *Languages) matchesAny(tag string) bool {
	return l.IsEmpty() || slices.ContainsFunc(l.ranges, func(r languageRange) bool {
		return r.tag == "*" || similarity(tag, r.tag) > languageDiffers
	})
}
