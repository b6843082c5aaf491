package store

import (
	"maps"
	"slices"
	"sync"
	"time"
)

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
