package cache

import (
	"iter"
	"strings"
)

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
