package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// A RecentList is a bounded list of items of equal length, oldest first. An item that is added again counts once.
type RecentList struct {
	Store Store         // holds the list
	Key   string        // of the list in Store
	Max   int           // items
	TTL   time.Duration // of the list, from its latest item

	// Ended reports which items no longer count. Nil: all count.
	Ended func(items []string) ([]bool, error)
}

// Add appends an item, makes other calls in the same step, and returns those it dropped to make room.
func (l RecentList) Add(ctx context.Context, item string, calls ...*Call) (dropped []string, err error) {
	calls = append(slices.Clip(calls), l.Adding(item))
	for ctx.Err() == nil {
		err := l.Store.Do(ctx, calls...)
		if !errors.Is(err, ErrTooLong) {
			return dropped, err
		}
		more, err := l.Fold(ctx, len(item))
		if dropped = append(dropped, more...); err != nil {
			return dropped, err
		}
	}
	return dropped, ctx.Err()
}

// Adding returns the call that appends an item. If the list is too long, it fails with
// [ErrTooLong]; see [RecentList.Fold].
func (l RecentList) Adding(item string) *Call {
	return &Call{Op: Append, Key: l.Key, Value: []byte(item), Max: l.Max * len(item), TTL: l.TTL}
}

// Fold makes room for one more item, each of a size in bytes, and returns those it dropped:
// the oldest, after those that have ended.
func (l RecentList) Fold(ctx context.Context, size int) (dropped []string, err error) {
	stored, err := l.Store.Get(ctx, l.Key)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	var items []byte
	if err == nil {
		items, dropped, err = l.fit(stored, size)
	}
	if err == nil {
		err = l.Store.Swap(ctx, l.Key, stored, items, l.TTL)
	}
	if errors.Is(err, ErrChanged) { // another makes room
		return nil, nil
	}
	return dropped, err
}

// Items returns the items, each of a size in bytes, the latest first.
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

// fit leaves room for one more item.
func (l RecentList) fit(list []byte, size int) (items []byte, dropped []string, err error) {
	most := (l.Max - 1) * size
	if len(list) <= most {
		return list, nil, nil
	}
	chunks := latest(slices.Collect(slices.Chunk(list, size)))
	var ended []bool
	if l.Ended != nil {
		if ended, err = l.Ended(texts(chunks)); err != nil {
			return nil, nil, err
		}
	}
	for i, chunk := range chunks {
		if ended == nil || !ended[i] {
			items = append(items, chunk...)
		}
	}
	over := max(0, len(items)-most)
	for old := range slices.Chunk(items[:over], size) { // the oldest
		dropped = append(dropped, string(old))
	}
	return items[over:], dropped, nil
}

// latest leaves the last of items that were added several times.
func latest(chunks [][]byte) (items [][]byte) {
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

func texts(chunks [][]byte) (items []string) {
	for _, chunk := range chunks {
		items = append(items, string(chunk))
	}
	return items
}

// Latest bounds how many entries of a kind each person has, so that nobody fills a store. It is
// in memory, because rewriting a [RecentList] with each code doubled the cost of ES256 code
// flows. A reload starts counting anew, and gateways count apart.
type Latest struct {
	max    int           // of one person
	ttl    time.Duration // of an entry
	mu     sync.Mutex
	people map[string][]latestEntry // oldest first
	most   int                      // people before a sweep
}

type latestEntry struct {
	keys []string
	at   time.Time
}

// NewLatest returns the latest entries of a kind, at most so many of one person, which last
// for ttl.
func NewLatest(most int, ttl time.Duration) *Latest {
	return &Latest{max: most, ttl: ttl, people: make(map[string][]latestEntry), most: 1024}
}

// Adding notes a person's new entry, of one or more keys. If there are too many with it, it
// returns the calls that delete the oldest.
func (l *Latest) Adding(person string, keys ...string) (deleting []*Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := l.unexpired(l.people[person])
	if len(entries) == 0 {
		l.sweep()
	}
	if len(entries) >= l.max {
		for _, key := range entries[0].keys {
			if !slices.Contains(keys, key) { // used once more: that will be refused
				deleting = append(deleting, &Call{Op: Delete, Key: key})
			}
		}
		entries = slices.Delete(entries, 0, 1)
	}
	l.people[person] = append(entries, latestEntry{keys, time.Now()})
	return deleting
}

func (l *Latest) unexpired(entries []latestEntry) []latestEntry {
	lasts := func(e latestEntry) bool { return time.Since(e.at) < l.ttl }
	i := slices.IndexFunc(entries, lasts)
	if i < 0 {
		return nil
	}
	return slices.Delete(entries, 0, i)
}

// sweep drops people without unexpired entries, if there are many people. The store's limit
// bounds the rest.
func (l *Latest) sweep() {
	if len(l.people) < l.most {
		return
	}
	maps.DeleteFunc(l.people, func(_ string, entries []latestEntry) bool { return l.unexpired(entries) == nil })
	l.most = max(1024, 2*len(l.people))
}
