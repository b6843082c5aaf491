package cache

import "strings"

// InvalidateTag removes the answers that depend on a definition, and those without known tags, and returns their number.
// With a version (url|version), it removes those that name this one or none. An answer being made at the time still goes
// to those who wait for it, but is not stored, and later requests get a new one.
func (c *Cache) InvalidateTag(canonical string) int {
	base, version, _ := strings.Cut(canonical, "|")
	return c.store.invalidate(func(s *store) []*entry {
		return append(s.matching(base, version), s.matching(unknown, "")...)
	})
}

// InvalidateSystem removes the answers that depend on a code system, as [Cache.InvalidateTag] does, and on its implicit
// value sets: url?fhir_vs, url?fhir_vs=isa/code.
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

// matching returns the entries that depend on a version of a canonical.
func (s *store) matching(canonical, version string) (found []*entry) {
	for e := range s.tags[canonical] {
		if e.depends(canonical, version) {
			found = append(found, e)
		}
	}
	return found
}

// Purge removes all answers, and returns their number.
func (c *Cache) Purge() int {
	return c.store.invalidate(func(s *store) (found []*entry) {
		for _, e := range s.entries {
			found = append(found, e)
		}
		return found
	})
}

// invalidate begins a new generation and removes entries, each once.
func (s *store) invalidate(find func(*store) []*entry) (removed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation = newGeneration()
	for _, e := range find(s) {
		if s.entries[e.key.sum] == e {
			s.remove(e)
			removed++
		}
	}
	return removed
}

func (s *store) currentGeneration() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}
