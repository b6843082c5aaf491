package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// A RecentList is a bounded list of items of equal length, oldest first. An item that is added again moves to the end.
type RecentList struct {
	Store Store         // store that contains the list
	Key   string        // key of the list in Store
	Max   int           // maximum number of items in the list
	TTL   time.Duration // lifetime of the list after an item was last added

	// FindEnded reports for each item whether it can be removed first. Default: none can.
	FindEnded func(items []string) ([]bool, error)
}

// Add appends an item and executes other calls in the same step. If the list is full, it removes items and returns them.
func (l RecentList) Add(ctx context.Context, item string, calls ...*Call) (dropped []string, err error) {
	calls = append(slices.Clip(calls), l.AddCall(item))
	for ctx.Err() == nil {
		err := l.Store.Do(ctx, calls...)
		if !errors.Is(err, ErrTooLong) {
			return dropped, err
		}
		more, err := l.MakeSpace(ctx, len(item))
		if dropped = append(dropped, more...); err != nil {
			return dropped, err
		}
	}
	return dropped, ctx.Err()
}

// AddCall returns the call that appends an item. It fails with [ErrTooLong] if the list is full; see [RecentList.MakeSpace].
func (l RecentList) AddCall(item string) *Call {
	return &Call{Op: Append, Key: l.Key, Value: []byte(item), Max: l.Max * len(item), TTL: l.TTL}
}

// MakeSpace frees space for an item of size bytes. It removes ended items first, then the oldest, which it returns.
func (l RecentList) MakeSpace(ctx context.Context, size int) (dropped []string, err error) {
	stored, err := l.Store.Get(ctx, l.Key)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	var items []byte
	if err == nil {
		items, dropped, err = l.trim(stored, size)
	}
	if err == nil {
		err = l.Store.Swap(ctx, l.Key, stored, items, l.TTL)
	}
	if errors.Is(err, ErrChanged) { // another process is making space, too
		return nil, nil
	}
	return dropped, err
}

// Items returns the items of the list, latest first. size is the length of an item in bytes.
func (l RecentList) Items(ctx context.Context, size int) (items []string, err error) {
	stored, err := l.Store.Get(ctx, l.Key)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	for chunk := range slices.Chunk(stored, size) {
		items = append(items, string(chunk))
	}
	slices.Reverse(items)
	return items, err
}

// trim removes items from a full list to free space for another. dropped contains those that had not ended.
func (l RecentList) trim(list []byte, size int) (items []byte, dropped []string, err error) {
	maxBytes := (l.Max - 1) * size
	if len(list) <= maxBytes {
		return list, nil, nil
	}
	chunks := deduplicate(slices.Collect(slices.Chunk(list, size)))
	var ended []bool
	if l.FindEnded != nil {
		if ended, err = l.FindEnded(toStrings(chunks)); err != nil {
			return nil, nil, err
		}
	}
	for i, chunk := range chunks {
		if ended == nil || !ended[i] {
			items = append(items, chunk...)
		}
	}
	excess := max(0, len(items)-maxBytes)
	for old := range slices.Chunk(items[:excess], size) { // the oldest items
		dropped = append(dropped, string(old))
	}
	return items[excess:], dropped, nil
}

// deduplicate removes all but the last occurrence of each item.
func deduplicate(chunks [][]byte) (items [][]byte) {
	seen := make(map[string]bool, len(chunks))
	for _, chunk := range slices.Backward(chunks) {
		if !seen[string(chunk)] {
			items = append(items, chunk)
		}
		seen[string(chunk)] = true
	}
	slices.Reverse(items)
	return items
}

func toStrings(chunks [][]byte) (items []string) {
	for _, chunk := range chunks {
		items = append(items, string(chunk))
	}
	return items
}

// PerUserLimit limits the number of entries per person, so that nobody can fill a store alone. It is kept in memory, because
// updating a [RecentList] for each code doubled the cost of code flows with ES256. Each gateway counts separately and starts
// again after a reload.
type PerUserLimit struct {
	maxPerUser     int           // maximum number of entries per person
	ttl            time.Duration // lifetime of an entry
	mu             sync.Mutex
	byUser         map[string][]userEntry // entries by person, oldest first
	sweepThreshold int                    // number of people above which expired entries are removed
}

type userEntry struct {
	keys    []string
	addedAt time.Time
}

// NewPerUserLimit returns a limit for entries with the lifetime ttl: at most limit per person.
func NewPerUserLimit(limit int, ttl time.Duration) *PerUserLimit {
	return &PerUserLimit{maxPerUser: limit, ttl: ttl, byUser: make(map[string][]userEntry), sweepThreshold: 1024}
}

// Record records a person's new entry, which may have several keys. Beyond the limit, it returns the calls that delete the
// person's oldest entry.
func (l *PerUserLimit) Record(person string, keys ...string) (deleteCalls []*Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := l.dropExpired(l.byUser[person])
	if len(entries) == 0 {
		l.sweep()
	}
	if len(entries) >= l.maxPerUser {
		for _, key := range entries[0].keys {
			if !slices.Contains(keys, key) { // a call that adds an existing key will be rejected anyway
				deleteCalls = append(deleteCalls, &Call{Op: Delete, Key: key})
			}
		}
		entries = slices.Delete(entries, 0, 1)
	}
	l.byUser[person] = append(entries, userEntry{keys, time.Now()})
	return deleteCalls
}

func (l *PerUserLimit) dropExpired(entries []userEntry) []userEntry {
	isUnexpired := func(e userEntry) bool { return time.Since(e.addedAt) < l.ttl }
	i := slices.IndexFunc(entries, isUnexpired)
	if i < 0 {
		return nil
	}
	return slices.Delete(entries, 0, i)
}

// sweep removes people with only expired entries if sweepThreshold is reached. The store's limit bounds the other people.
func (l *PerUserLimit) sweep() {
	if len(l.byUser) < l.sweepThreshold {
		return
	}
	maps.DeleteFunc(l.byUser, func(_ string, entries []userEntry) bool { return l.dropExpired(entries) == nil })
	l.sweepThreshold = max(1024, 2*len(l.byUser))
}
