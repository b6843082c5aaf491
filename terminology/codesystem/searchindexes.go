package codesystem

import (
	"maps"
	"slices"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// searchIndexes are the indexes of a code system by languageKey, and the ranks of its concepts.
type searchIndexes struct {
	once  sync.Once
	ranks []uint32

	mu         sync.Mutex
	byLanguage map[string]func() *textindex.Index
}

// maxIndexes bounds the indexes of a code system, beside the one for no language.
const maxIndexes = 8

// SearchIndex returns the index for a list of languages, built on first use.
func (t *Table) SearchIndex(list string) *textindex.Index {
	wanted := ParseLanguages(list)
	return t.indexes.get(t.languageKey(&wanted), func() *textindex.Index {
		return textindex.New(newConceptCorpus(t, wanted))
	})()
}

// get returns a function that returns the index for a key, and builds it the first time. Requests for other keys do not
// wait for it.
func (s *searchIndexes) get(key string, build func() *textindex.Index) func() *textindex.Index {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.byLanguage[key]
	if !ok {
		if s.byLanguage == nil {
			s.byLanguage = make(map[string]func() *textindex.Index)
		}
		if len(s.byLanguage) > maxIndexes {
			maps.DeleteFunc(s.byLanguage, func(key string, _ func() *textindex.Index) bool { return key != "" })
		}
		x = sync.OnceValue(build)
		s.byLanguage[key] = x
	}
	return x
}

// languageKey identifies what a list of languages means in a code system: which of its own each is like, and which of
// these the most. If it has only de, then de, de-CH, de-AT, and fr before de all mean the same.
func (t *Table) languageKey(wanted *Languages) string {
	if wanted.None() {
		return ""
	}
	var key []byte
	for _, r := range wanted.ranges {
		if r.tag == "*" {
			return string(append(key, '*'))
		}
		if part, ok := t.rangeKey(r.tag); ok {
			key = append(key, part...)
		}
	}
	if wanted.Only {
		return string(append(key, '!'))
	}
	return string(append(key, '-'))
}

// rangeKey is languageKey for one language. It is false if the code system has nothing like it.
func (t *Table) rangeKey(language string) (key []byte, ok bool) {
	var found [languageSame + 1]bool
	for _, tag := range append(slices.Clip(t.designations.languages), t.language) {
		like := likeness(tag, language)
		key = append(key, byte(like))
		found[like] = true
		ok = ok || like > languageDiffers
	}
	for i, like := range key {
		key[i] = 0
		for lower := languageBroader; lower <= int(like); lower++ {
			if found[lower] {
				key[i]++
			}
		}
	}
	return key, ok
}
