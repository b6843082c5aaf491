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

// defaultMaxEntries is the default maximum number of entries of a [Memory]. An entry takes about 500 bytes.
const defaultMaxEntries = 100_000

// Memory is a [Store] in memory, for one process.
type Memory struct {
	CallRunner
	mu         sync.Mutex // required because go-cache has no atomic Swap or Take, and no limit
	items      *cache.Cache
	maxEntries int

	reservedKinds []string
}

// NewMemory returns an empty store. It stores at most maxEntries entries (0: 100,000), with a reserve for reservedKinds; see
// [Capacity]. sweep is the interval at which expired entries are removed (0: only when the store is full).
func NewMemory(maxEntries int, sweep time.Duration, reservedKinds ...string) *Memory {
	m := &Memory{items: cache.New(cache.NoExpiration, sweep), reservedKinds: reservedKinds}
	m.CallRunner = m.Do
	m.SetMaxEntries(maxEntries)
	return m
}

// SetMaxEntries changes the maximum number of entries (0: 100,000). Existing entries are not removed.
func (m *Memory) SetMaxEntries(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.maxEntries = n; n <= 0 {
		m.maxEntries = defaultMaxEntries
	}
}

// Size returns the number of entries, including expired ones that have not been removed yet, and the maximum.
func (m *Memory) Size() (entries, limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.items.ItemCount(), m.maxEntries
}

// Get implements [Store].
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	value, found := memoryTable{m.items}.Lookup(key)
	if !found {
		return nil, ErrNotFound
	}
	return bytes.Clone(value), nil
}

// List implements [Store].
func (m *Memory) List(_ context.Context, prefix string) ([]string, error) {
	var keys []string
	for key := range m.items.Items() { // Items returns only unexpired entries
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// Entries implements [Exporter].
func (m *Memory) Entries(ctx context.Context, yield func(key string, value []byte, ttl time.Duration) error) error {
	for key, item := range m.items.Items() { // Items returns only unexpired entries
		if err := ctx.Err(); err != nil {
			return err
		}
		ttl := time.Until(time.Unix(0, item.Expiration))
		if ttl <= 0 {
			continue
		}
		if err := yield(key, bytes.Clone(item.Object.([]byte)), ttl); err != nil {
			return err
		}
	}
	return nil
}

// Do implements [Store].
func (m *Memory) Do(_ context.Context, calls ...*Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Capacity{m.maxEntries, m.reservedKinds}.Do(memoryTable{m.items}, calls)
}

// memoryTable is the [Table] of a [Memory].
type memoryTable struct{ items *cache.Cache }

// Lookup implements [Table].
func (t memoryTable) Lookup(key string) (value []byte, found bool) {
	v, found := t.items.Get(key)
	if !found {
		return nil, false
	}
	return v.([]byte), true
}

// TTL implements [Table].
func (t memoryTable) TTL(key string) time.Duration {
	_, end, _ := t.items.GetWithExpiration(key)
	return time.Until(end)
}

// Set implements [Table].
func (t memoryTable) Set(key string, value []byte, ttl time.Duration) error {
	t.items.Set(key, append([]byte{}, value...), ttl) // not nil, because nil means that there is no value
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

// A Table contains the entries of a single-process store. [Capacity.Do] executes steps on it.
type Table interface {
	Lookup(key string) (value []byte, found bool)          // returns an unexpired value, which may not be modified
	TTL(key string) time.Duration                          // returns the remaining lifetime of an existing value
	Set(key string, value []byte, ttl time.Duration) error // stores a copy of the value
	Remove(key string) error                               // does nothing if the key does not exist
	Size() int                                             // returns the number of entries, including expired ones
	Sweep() error                                          // removes expired entries
}

// Capacity limits the size of a single-process store. Entries are also limited per person. If a store is full nevertheless,
// logout and revocation must still work. Therefore, entries of ReservedKinds may exceed Max by an eighth.
type Capacity struct {
	Max           int      // maximum number of entries
	ReservedKinds []string // kinds with a reserve; see [KindOf]
}

// Do executes all calls or none: it checks all calls before it changes anything. The caller must hold the lock of the table.
func (r Capacity) Do(t Table, calls []*Call) error {
	added, needsUnreserved := 0, false // needsUnreserved: whether an entry of a kind without a reserve is added
	for _, c := range calls {
		if c.Op == Get { // cannot fail, and looks up its value only on execution
			c.Err = nil
			continue
		}
		stored, found := t.Lookup(c.Key)
		if err := c.Check(stored, found); err != nil {
			return err
		}
		switch {
		case c.RemovesKey() && found:
			added--
		case c.StoresValue() && !found: // expired entries are counted until they are removed
			added++
			needsUnreserved = needsUnreserved || !slices.Contains(r.ReservedKinds, KindOf(c.Key))
		}
	}
	if err := r.checkFits(t, calls, added, needsUnreserved); err != nil {
		return err
	}
	for _, c := range calls {
		if err := c.execute(t); err != nil {
			return err
		}
	}
	return nil
}

// checkFits returns [ErrFull] if a step would exceed the limit, even after removing expired entries.
func (r Capacity) checkFits(t Table, calls []*Call, added int, needsUnreserved bool) error {
	limit := r.Max
	if !needsUnreserved {
		limit += r.Max/8 + 8
	}
	fits := func() bool { return added <= 0 || t.Size()+added <= limit }
	if fits() {
		return nil
	}
	if err := t.Sweep(); err != nil || fits() {
		return err
	}
	for _, c := range calls {
		if _, found := t.Lookup(c.Key); c.StoresValue() && !found {
			c.Err = ErrFull
		}
	}
	return ErrFull
}

// execute executes a call that has been checked. An error can only come from the table.
func (c *Call) execute(t Table) error {
	stored, found := t.Lookup(c.Key)
	switch c.Op {
	case Put, Add, Swap:
		return t.Set(c.Key, c.Value, c.TTL)
	case Append:
		ttl := c.TTL
		if found {
			ttl = max(ttl, t.TTL(c.Key))
		}
		return t.Set(c.Key, slices.Concat(stored, c.Value), ttl)
	case Delete:
		return t.Remove(c.Key)
	}
	if c.Value = bytes.Clone(stored); c.Op == Take { // copied, because the table may reuse the memory
		return t.Remove(c.Key)
	}
	return nil
}
