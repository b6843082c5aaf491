package table

import (
	"maps"
	"sync"

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
