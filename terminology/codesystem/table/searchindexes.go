package table

import (
	"maps"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// searchIndexes are the indexes of a code system by [codesystem.Languages.Key], and the ranks of its concepts.
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
	wanted := codesystem.ParseLanguages(list)
	return t.indexes.get(wanted.Key(t.languages()), func() *textindex.Index {
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

// languages returns the languages of the texts; the first is that of the displays.
func (t *Table) languages() []string {
	return append([]string{t.language}, t.designations.languages...)
}
