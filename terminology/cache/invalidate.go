package cache

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"
)

// index finds entries.
type index[K comparable] map[K]map[*entry]struct{}

// put adds an entry.
func (x index[K]) put(key K, e *entry) {
	if x[key] == nil {
		x[key] = make(map[*entry]struct{}, 1)
	}
	x[key][e] = struct{}{}
}

// drop takes an entry out.
func (x index[K]) drop(key K, e *entry) {
	if delete(x[key], e); len(x[key]) == 0 {
		delete(x, key)
	}
}

// unknown is under which an entry stands whose tags are not known.
const unknown = ""

// index puts an entry into the indexes.
func (s *store) index(e *entry) {
	s.urls.put(e.url, e)
	if e.tags == nil {
		s.tags.put(unknown, e)
	}
	for _, tag := range e.tags {
		canonical, _, _ := strings.Cut(tag, "|")
		s.tags.put(canonical, e)
	}
}

// unindex takes an entry out of the indexes.
func (s *store) unindex(e *entry) {
	s.urls.drop(e.url, e)
	if e.tags == nil {
		s.tags.drop(unknown, e)
	}
	for _, tag := range e.tags {
		canonical, _, _ := strings.Cut(tag, "|")
		s.tags.drop(canonical, e)
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

// InvalidateURL removes the answers to one question, in whatever representation, for whomever, to whichever
// method, and returns how many there were. host and the URL's path and query are those of the request; the
// order of parameters does not count.
func (c *Cache) InvalidateURL(host string, u *url.URL) (int, error) {
	list, err := parseParameters(u.RawQuery)
	if err != nil {
		return 0, fmt.Errorf("invalidating %s: %w", u, err)
	}
	list, _ = list.take("_format")
	list, _ = list.take("_pretty")
	id := sha256.Sum256(appendURL(nil, host, u, list))
	return c.store.invalidate(func(s *store) (found []*entry) {
		for e := range s.urls[id] {
			found = append(found, e)
		}
		return found
	}), nil
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
	s.era = new(era)
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
