package store

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
)

// DefaultMaxEntries is the default limit of a [Memory]. An entry takes some 500 bytes.
const DefaultMaxEntries = 100_000

// Memory is a [Store] in the memory of one process.
type Memory struct {
	mu    sync.Mutex // go-cache has no atomic Swap, Take or limit
	items *cache.Cache
	max   int
}

// NewMemory returns an empty store of at most maxEntries entries (0:
// [DefaultMaxEntries]). It removes expired entries every sweep (0: only when full).
func NewMemory(maxEntries int, sweep time.Duration) *Memory {
	m := &Memory{items: cache.New(cache.NoExpiration, sweep)}
	m.SetMaxEntries(maxEntries)
	return m
}

// SetMaxEntries changes the limit (0: [DefaultMaxEntries]) for new entries.
func (m *Memory) SetMaxEntries(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.max = n; n <= 0 {
		m.max = DefaultMaxEntries
	}
}

// Size returns the number of entries, with expired ones not yet swept, and the limit.
func (m *Memory) Size() (entries, bound int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.items.ItemCount(), m.max
}

// Put implements [Store].
func (m *Memory) Put(_ context.Context, key string, value []byte, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.items.Get(key); !ok && !m.room() {
		return ErrFull
	}
	m.items.Set(key, bytes.Clone(value), ttl)
	return nil
}

// Add implements [Store].
func (m *Memory) Add(_ context.Context, key string, value []byte, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.items.Get(key); ok {
		return ErrExists
	}
	if !m.room() {
		return ErrFull
	}
	m.items.Set(key, bytes.Clone(value), ttl)
	return nil
}

// Swap implements [Store].
func (m *Memory) Swap(_ context.Context, key string, old, value []byte, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.items.Get(key)
	if !ok || !bytes.Equal(v.([]byte), old) {
		return ErrChanged
	}
	m.items.Set(key, bytes.Clone(value), ttl)
	return nil
}

// Get implements [Store].
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	v, ok := m.items.Get(key)
	if !ok {
		return nil, ErrNotFound
	}
	return bytes.Clone(v.([]byte)), nil
}

// Take implements [Store].
func (m *Memory) Take(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.items.Get(key)
	if !ok {
		return nil, ErrNotFound
	}
	m.items.Delete(key)
	return v.([]byte), nil
}

// Delete implements [Store].
func (m *Memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items.Delete(key)
	return nil
}

// List implements [Store].
func (m *Memory) List(_ context.Context, prefix string) ([]string, error) {
	var keys []string
	for key := range m.items.Items() { // those that have not expired
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// room reports whether there is room, after a sweep if need be. It requires the lock.
func (m *Memory) room() bool {
	if m.items.ItemCount() < m.max {
		return true
	}
	m.items.DeleteExpired()
	return m.items.ItemCount() < m.max
}
