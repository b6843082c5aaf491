package store

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patrickmn/go-cache"
)

// defaultMaxEntries is the default limit of a [Memory]. An entry takes some 500 bytes.
const defaultMaxEntries = 100_000

// Memory is a [Store] in the memory of one process.
type Memory struct {
	Singly
	mu    sync.Mutex // go-cache has no atomic Swap, Take or limit
	items *cache.Cache
	max   int

	endings []string
}

// NewMemory returns an empty store of at most maxEntries entries (0:
// 100,000), and of more of the kinds that end something; see [Room]. It removes
// expired entries every sweep (0: only when full).
func NewMemory(maxEntries int, sweep time.Duration, endings ...string) *Memory {
	m := &Memory{items: cache.New(cache.NoExpiration, sweep), endings: endings}
	m.Singly = m.Do
	m.SetMaxEntries(maxEntries)
	return m
}

// SetMaxEntries changes the limit (0: 100,000) for new entries.
func (m *Memory) SetMaxEntries(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.max = n; n <= 0 {
		m.max = defaultMaxEntries
	}
}

// Size returns the number of entries, with expired ones not yet swept, and the limit.
func (m *Memory) Size() (entries, bound int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.items.ItemCount(), m.max
}

// Get implements [Store].
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	held, found := memoryTable{m.items}.Held(key)
	if !found {
		return nil, ErrNotFound
	}
	return bytes.Clone(held), nil
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

// Entries implements [Exporter].
func (m *Memory) Entries(ctx context.Context, tell func(key string, value []byte, ttl time.Duration) error) error {
	for key, item := range m.items.Items() { // those that have not expired
		if err := ctx.Err(); err != nil {
			return err
		}
		ttl := time.Until(time.Unix(0, item.Expiration))
		if ttl <= 0 {
			continue
		}
		if err := tell(key, bytes.Clone(item.Object.([]byte)), ttl); err != nil {
			return err
		}
	}
	return nil
}

// Do implements [Store].
func (m *Memory) Do(_ context.Context, calls ...*Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Room{m.max, m.endings}.Do(memoryTable{m.items}, calls)
}

// memoryTable is the [Table] of a [Memory].
type memoryTable struct{ items *cache.Cache }

// Held implements [Table].
func (t memoryTable) Held(key string) (value []byte, found bool) {
	v, found := t.items.Get(key)
	if !found {
		return nil, false
	}
	return v.([]byte), true
}

// Left implements [Table].
func (t memoryTable) Left(key string) time.Duration {
	_, end, _ := t.items.GetWithExpiration(key)
	return time.Until(end)
}

// Set implements [Table].
func (t memoryTable) Set(key string, value []byte, ttl time.Duration) error {
	t.items.Set(key, append([]byte{}, value...), ttl) // never nil, which is "nothing"
	return nil
}

// Remove implements [Table].
func (t memoryTable) Remove(key string) error {
	t.items.Delete(key)
	return nil
}

// Size implements [Table].
func (t memoryTable) Size() int { return t.items.ItemCount() }

// Sweep implements [Table].
func (t memoryTable) Sweep() error {
	t.items.DeleteExpired()
	return nil
}

// A Table holds the entries of a store of a single process, which makes steps in it by [Room.Do].
type Table interface {
	Held(key string) (value []byte, found bool)            // what has not expired; it is not changed
	Left(key string) time.Duration                         // lifetime of a value that was found
	Set(key string, value []byte, ttl time.Duration) error // copies the value
	Remove(key string) error                               // of a key that need not exist
	Size() int                                             // entries, with expired ones
	Sweep() error                                          // removes what has expired
}

// Room says whether a step fits into a store of a single process. What one person can store
// is bounded; but if a store is full all the same, people must be able to sign out, and clients
// to revoke what they have. So entries of the kinds that end something have an eighth more.
type Room struct {
	Max     int      // entries
	Endings []string // kinds that end something; see [KindOf]
}

// Do makes all calls or none: all is checked before anything changes. The caller holds a lock.
func (r Room) Do(t Table, calls []*Call) error {
	added, ordinary := 0, false // whether something is added that ends nothing
	for _, c := range calls {
		if c.Op == Get { // it always succeeds, and is looked up once
			c.Err = nil
			continue
		}
		held, found := t.Held(c.Key)
		if err := c.Check(held, found); err != nil {
			return err
		}
		switch {
		case c.Removes() && found:
			added--
		case c.Stores() && !found: // an expired entry counts until it is swept
			added++
			ordinary = ordinary || !slices.Contains(r.Endings, KindOf(c.Key))
		}
	}
	if err := r.check(t, calls, added, ordinary); err != nil {
		return err
	}
	for _, c := range calls {
		if err := c.make(t); err != nil {
			return err
		}
	}
	return nil
}

// check fails with [ErrFull] if there is no room for a step, after a sweep if need be.
func (r Room) check(t Table, calls []*Call, added int, ordinary bool) error {
	most := r.Max
	if !ordinary {
		most += r.Max/8 + 8
	}
	fits := func() bool { return added <= 0 || t.Size()+added <= most }
	if fits() {
		return nil
	}
	if err := t.Sweep(); err != nil || fits() {
		return err
	}
	for _, c := range calls {
		if _, found := t.Held(c.Key); c.Stores() && !found {
			c.Err = ErrFull
		}
	}
	return ErrFull
}

// make makes a call that succeeds, unless the table fails.
func (c *Call) make(t Table) error {
	held, found := t.Held(c.Key)
	switch c.Op {
	case Put, Add, Swap:
		return t.Set(c.Key, c.Value, c.TTL)
	case Append:
		ttl := c.TTL
		if found {
			ttl = max(ttl, t.Left(c.Key))
		}
		return t.Set(c.Key, slices.Concat(held, c.Value), ttl)
	case Delete:
		return t.Remove(c.Key)
	}
	if c.Value = bytes.Clone(held); c.Op == Take { // the table's own memory may change
		return t.Remove(c.Key)
	}
	return nil
}
