// Package snapshotmap implements a persistent map that shares unchanged parts with its clones. Requests use a snapshot, and the
// cost of changing a key does not depend on the number of keys.
package snapshotmap

import (
	"iter"
	"maps"
)

// shardCount is the number of shards in a [Map]. A change copies one shard. A clone copies the pointers to all shards.
const shardCount = 512

// A Map is a map with string keys. The zero Map is empty. A nil Map is empty and read-only. After [Map.Clone], the original
// must not be changed; any number of goroutines can then read it.
type Map[V any] struct {
	owner  *owner
	shards [shardCount]*shard[V]
	length int
}

// owner identifies the map that may change a shard. It has a nonzero size, so that each owner has a unique address.
type owner struct{ _ byte }

type shard[V any] struct {
	owner   *owner
	entries map[string]V
}

// Clone returns a copy of the map that can be changed.
func (m *Map[V]) Clone() *Map[V] {
	clone := *m
	clone.owner = new(owner)
	return &clone
}

// Len returns the number of keys.
func (m *Map[V]) Len() int {
	if m == nil {
		return 0
	}
	return m.length
}

// Get returns the value for a key, or the zero value if the key does not exist.
func (m *Map[V]) Get(key string) V {
	v, _ := m.Lookup(key)
	return v
}

// Lookup returns the value for a key and whether the key exists.
func (m *Map[V]) Lookup(key string) (v V, found bool) {
	if m == nil {
		return v, false
	}
	if s := m.shards[shardIndex(key)]; s != nil {
		v, found = s.entries[key]
	}
	return v, found
}

// Set sets the value for a key.
func (m *Map[V]) Set(key string, v V) {
	s := m.writableShard(key)
	if _, found := s.entries[key]; !found {
		m.length++
	}
	s.entries[key] = v
}

// Delete deletes a key if it exists.
func (m *Map[V]) Delete(key string) {
	if _, found := m.Lookup(key); found {
		delete(m.writableShard(key).entries, key)
		m.length--
	}
}

// writableShard returns the shard of a key. If other maps share the shard, it is copied first.
func (m *Map[V]) writableShard(key string) *shard[V] {
	s := &m.shards[shardIndex(key)]
	switch {
	case *s == nil:
		*s = &shard[V]{m.owner, map[string]V{}}
	case (*s).owner != m.owner:
		*s = &shard[V]{m.owner, maps.Clone((*s).entries)}
	}
	return *s
}

// All returns an iterator over all keys and values in unspecified order.
func (m *Map[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, s := range m.shards {
			if s == nil {
				continue
			}
			for key, v := range s.entries {
				if !yield(key, v) {
					return
				}
			}
		}
	}
}

// ChangedKeys returns an iterator over the keys with values that may differ between two maps. If one map was cloned from the
// other, there are few. A key may occur twice.
func (m *Map[V]) ChangedKeys(other *Map[V]) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range m.shards {
			if m.shards[i] == other.shards[i] {
				continue
			}
			for _, s := range []*shard[V]{m.shards[i], other.shards[i]} {
				if s == nil {
					continue
				}
				for key := range s.entries {
					if !yield(key) {
						return
					}
				}
			}
		}
	}
}

// PickByKey returns the value of an arbitrary key that is determined by the given key. Repeated calls return the same value as
// long as nearby keys are unchanged. If the map is empty, PickByKey returns the zero value.
func (m *Map[V]) PickByKey(key string) (v V) {
	first := shardIndex(key)
	for i := range m.shards {
		s := m.shards[(first+uint32(i))%shardCount]
		if s == nil || len(s.entries) == 0 {
			continue
		}
		least := ""
		for k := range s.entries {
			if least == "" || k < least {
				least = k
			}
		}
		return s.entries[least]
	}
	return v
}

// shardIndex returns the index of the shard for a key. It uses FNV-1a, so that the index is the same in each process.
func shardIndex(key string) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h % shardCount
}
