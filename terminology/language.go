package terminology

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// languageRange is one of an ordered list of preferred languages.
type languageRange struct {
	tag    string // in lower case; * means any language
	weight float64
}

// languages is what displayLanguage or Accept-Language asks for (RFC 9110 §12.5.4): the ranges, the most
// preferred first. Where the wildcard is not refused, any language is better than none.
type languages struct {
	ranges []languageRange
	only   bool // nothing but these: the wildcard has weight 0
}

// How many languages are looked at, and in how long a list: a header may be of a megabyte.
const (
	maxLanguageRanges = 20
	maxLanguageList   = 8 << 10
)

// parseLanguages reads a list of languages with weights. What cannot be understood is passed over.
func parseLanguages(list string) languages {
	var l languages
	if len(list) > maxLanguageList {
		list = list[:1+strings.LastIndexByte(list[:maxLanguageList], ',')]
	}
	for item := range strings.SplitSeq(list, ",") {
		tag, parameters, _ := strings.Cut(item, ";")
		r := languageRange{tag: strings.ToLower(strings.TrimSpace(tag)), weight: 1}
		for parameter := range strings.SplitSeq(parameters, ";") {
			if name, value, ok := strings.Cut(parameter, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
				weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				if err != nil {
					weight = 1
				}
				r.weight = weight
			}
		}
		switch {
		case r.tag == "" || len(l.ranges) == maxLanguageRanges:
		case r.weight > 0:
			l.ranges = append(l.ranges, r)
		case r.tag == "*":
			l.only = true
		}
	}
	slices.SortStableFunc(l.ranges, func(a, b languageRange) int { return cmp.Compare(b.weight, a.weight) })
	return l
}

// none reports whether no language is preferred.
func (l *languages) none() bool { return len(l.ranges) == 0 && !l.only }

// Degrees of likeness of a language to the one that is asked for.
const (
	languageDiffers  = iota
	languageBroader  // de for de-CH (RFC 4647 §3.4)
	languageNarrower // de-CH for de
	languageSame
)

// likeness says how well a language fits a range that is not the wildcard.
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

// list returns the languages as [parseLanguages] reads them, the most preferred first; "" for none.
func (l *languages) list() string {
	var list []byte
	for _, r := range l.ranges {
		if len(list) > 0 {
			list = append(list, ',')
		}
		list = append(list, r.tag...)
	}
	if l.only {
		list = append(list, ",*;q=0"...)
	}
	return string(list)
}

// displayOf returns the display among the texts of a concept, as an answer shows it, or nil.
func (l *languages) displayOf(texts []shownText) []byte {
	if i := l.preferred(texts); i >= 0 {
		return texts[i].value
	}
	return nil
}

// appendSearched appends those texts of a concept by which it is found: its displays, and its designations
// in one of the languages, in none, or, where no language is asked for, in any.
func (l *languages) appendSearched(dst [][]byte, texts []shownText) [][]byte {
	for i := range texts {
		t := &texts[i]
		if t.display || t.language == "" || l.mean(t.language) {
			dst = append(dst, t.value)
		}
	}
	return dst
}

// mean reports whether a language is like one of those that are asked for.
func (l *languages) mean(tag string) bool {
	return l.none() || slices.ContainsFunc(l.ranges, func(r languageRange) bool {
		return r.tag == "*" || likeness(tag, r.tag) > languageDiffers
	})
}
