package cache

import (
	"iter"
	"strings"
)

// index finds entries by the URLs of the canonicals that they depend on.
type index map[string]map[*entry]struct{}

// put adds an entry.
func (x index) put(key string, e *entry) {
	if x[key] == nil {
		x[key] = make(map[*entry]struct{}, 1)
	}
	x[key][e] = struct{}{}
}

// drop takes an entry out.
func (x index) drop(key string, e *entry) {
	if delete(x[key], e); len(x[key]) == 0 {
		delete(x, key)
	}
}

// unknown is under which an entry stands whose tags are not known.
const unknown = ""

// index puts an entry into the index of tags.
func (s *store) index(e *entry) {
	for key := range e.indexKeys() {
		s.tags.put(key, e)
	}
}

// unindex takes an entry out of the index of tags.
func (s *store) unindex(e *entry) {
	for key := range e.indexKeys() {
		s.tags.drop(key, e)
	}
}

// indexKeys are what an entry stands under in the index of tags.
func (e *entry) indexKeys() iter.Seq[string] {
	return func(yield func(string) bool) {
		if e.tags == nil {
			yield(unknown)
			return
		}
		for _, tag := range e.tags {
			if canonical, _, _ := strings.Cut(tag, "|"); !yield(canonical) {
				return
			}
		}
	}
}

// depends reports whether an entry depends on a version of a definition: on it, or on the one that is current.
// Without a version, it is any.
func (e *entry) depends(canonical, version string) bool {
	if version == "" || e.tags == nil {
		return true
	}
	for _, tag := range e.tags {
		if tag == canonical || tag == canonical+"|"+version {
			return true
		}
	}
	return false
}

// InvalidateTag removes the answers that depend on a definition, and those of which that is not known, and
// returns how many there were. Without a version (url|version), those that depend on any version are removed;
// with one, those that name it or none.
//
// As with all invalidations, answers that are being made at the time are still given to those who wait for
// them, but are not kept; whoever asks from then on causes a new one.
func (c *Cache) InvalidateTag(canonical string) int {
	base, version, _ := strings.Cut(canonical, "|")
	return c.store.invalidate(func(s *store) []*entry {
		return append(s.matching(base, version), s.matching(unknown, "")...)
	})
}

// InvalidateSystem removes the answers that depend on a code system, as [Cache.InvalidateTag] does, and those
// that depend on a value set which the code system implies by its URL: url?fhir_vs, url?fhir_vs=isa/code.
func (c *Cache) InvalidateSystem(canonical string) int {
	base, version, _ := strings.Cut(canonical, "|")
	return c.store.invalidate(func(s *store) []*entry {
		found := append(s.matching(base, version), s.matching(unknown, "")...)
		for tag := range s.tags {
			if strings.HasPrefix(tag, base+"?") {
				found = append(found, s.matching(tag, version)...)
			}
		}
		return found
	})
}

// matching returns the entries under a canonical that depend on a version of it.
func (s *store) matching(canonical, version string) (found []*entry) {
	for e := range s.tags[canonical] {
		if e.depends(canonical, version) {
			found = append(found, e)
		}
	}
	return found
}

// Purge removes all answers, and returns how many there were.
func (c *Cache) Purge() int {
	return c.store.invalidate(func(s *store) (found []*entry) {
		for _, e := range s.entries {
			found = append(found, e)
		}
		return found
	})
}

// invalidate begins a new era and removes entries, each once.
func (s *store) invalidate(find func(*store) []*entry) (removed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.era = newEra()
	for _, e := range find(s) {
		if s.entries[e.key.sum] == e {
			s.remove(e)
			removed++
		}
	}
	s.removed += uint64(removed)
	return removed
}

// currentEra returns the era.
func (s *store) currentEra() *era {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era
}
