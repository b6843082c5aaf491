package cache

import (
	"iter"
	"strings"
)

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

// index finds entries by the canonical URLs that they depend on.
type index map[string]map[*entry]struct{}

func (x index) put(e *entry) {
	for key := range e.indexKeys() {
		if x[key] == nil {
			x[key] = make(map[*entry]struct{}, 1)
		}
		x[key][e] = struct{}{}
	}
}

func (x index) drop(e *entry) {
	for key := range e.indexKeys() {
		if delete(x[key], e); len(x[key]) == 0 {
			delete(x, key)
		}
	}
}

// unknown is the key of entries whose tags are not known.
const unknown = ""

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

// depends reports whether an entry depends on a version of a definition, or on whichever is current. An empty version
// means any.
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
