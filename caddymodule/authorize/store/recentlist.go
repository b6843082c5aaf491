package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// A RecentList is a bounded list of items of equal length, oldest first. Repeated items count once.
type RecentList struct {
	Store Store         // store of the list
	Key   string        // key of the list in Store
	Max   int           // maximum number of items
	TTL   time.Duration // lifetime of the list after its latest item

	// FindEnded reports which items no longer count. Nil: all count.
	FindEnded func(items []string) ([]bool, error)
}

// Add appends an item, executes other calls in the same step, and returns the items dropped to make room.
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

// MakeSpace makes room for one more item of size bytes and returns the dropped items: ended items first, then the oldest.
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
	if errors.Is(err, ErrChanged) { // another process makes room
		return nil, nil
	}
	return dropped, err
}

// Items returns the items of size bytes each, latest first.
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

// trim leaves room for one more item.
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
	for old := range slices.Chunk(items[:excess], size) { // oldest items
		dropped = append(dropped, string(old))
	}
	return items[excess:], dropped, nil
}

// deduplicate keeps the last occurrence of repeated items.
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

// PerUserLimit limits the entries of a kind per person, so that no person can fill a store. It is in memory,
// because rewriting a [RecentList] with each code doubled the cost of ES256 code flows. Counts
// restart after a reload and are per gateway.
type PerUserLimit struct {
	maxPerUser     int           // maximum per person
	ttl            time.Duration // lifetime of an entry
	mu             sync.Mutex
	byUser         map[string][]userEntry // oldest first
	sweepThreshold int                    // number of people that triggers a sweep
}

type userEntry struct {
	keys    []string
	addedAt time.Time
}

// NewPerUserLimit returns a limit of limit entries per person with the lifetime ttl.
func NewPerUserLimit(limit int, ttl time.Duration) *PerUserLimit {
	return &PerUserLimit{maxPerUser: limit, ttl: ttl, byUser: make(map[string][]userEntry), sweepThreshold: 1024}
}

// Record records a person's new entry with one or more keys. Beyond the limit it returns the calls
// that delete the oldest entries.
func (l *PerUserLimit) Record(person string, keys ...string) (deleteCalls []*Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := l.dropExpired(l.byUser[person])
	if len(entries) == 0 {
		l.sweep()
	}
	if len(entries) >= l.maxPerUser {
		for _, key := range entries[0].keys {
			if !slices.Contains(keys, key) { // a repeated key will be rejected
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

// sweep drops people without unexpired entries if many people are recorded. The store's limit bounds the rest.
func (l *PerUserLimit) sweep() {
	if len(l.byUser) < l.sweepThreshold {
		return
	}
	maps.DeleteFunc(l.byUser, func(_ string, entries []userEntry) bool { return l.dropExpired(entries) == nil })
	l.sweepThreshold = max(1024, 2*len(l.byUser))
}
