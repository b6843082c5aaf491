package entry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	headKey      = "roster:head"
	entryKind    = "roster-entry"
	changePrefix = "roster-change:"

	// changesKept is the number of changes that the store keeps for other gateways. A gateway that missed more reads all
	// entries.
	changesKept = 1024

	// interval is how often a gateway polls the store for changes of other gateways.
	interval = 2 * time.Second
)

// A head is the latest change. Each change replaces it, so that changes at several gateways come one after another.
type head struct {
	Number uint64            `json:"number"`           // of the change
	ID     string            `json:"id"`               // random: after a restore, another change can have the number
	Latest oauth2.Generation `json:"latest,omitempty"` // the greatest that any entry had, removed ones too
}

// A change is one of the latest. It is stored by its number modulo [changesKept].
type change struct {
	Head   head   `json:"head"`   // after it
	Before string `json:"before"` // ID of the head before
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
}

func changeKey(number uint64) string {
	return changePrefix + strconv.FormatUint(number%changesKept, 10)
}

// A storedEntry is the value of an entry. Its key is a digest, as a store may not take every name as one.
type storedEntry struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	Entry
}

func (n named) storeKey() string { return store.Key(entryKind, n.key()) }

// A Roster is the entries of a durable store. It is safe for concurrent use.
type Roster struct {
	store store.Store
	known *Known

	trouble atomic.Pointer[error] // of the last reading
}

// Known is what was last read. It may be handed on to the roster of a later configuration.
type Known struct {
	mu   sync.Mutex // held while entries are read or changed, so that an earlier reading never replaces a later one
	read atomic.Pointer[reading]
}

type reading struct {
	record *Record
	head   *head  // nil if there was none
	value  []byte // of the head
}

// Record returns the entries; nil before they were first read.
func (k *Known) Record() *Record {
	if read := k.read.Load(); read != nil {
		return read.record
	}
	return nil
}

// New returns the roster of a store.
func New(s store.Store, known *Known) *Roster { return &Roster{store: s, known: known} }

// Record is [Known.Record].
func (r *Roster) Record() *Record { return r.known.Record() }

// Read reads what has changed, and reports whether something has.
func (r *Roster) Read(ctx context.Context) (changed bool, err error) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	before := r.Record()
	err = store.Retry(ctx, func() error { return r.refresh(ctx) })
	r.trouble.Store(&err)
	return r.Record() != before, err
}

// Trouble is the error of the latest reading; nil if it succeeded. It does not wait.
func (r *Roster) Trouble() error {
	if err := r.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// refresh reads what has changed. It requires the lock.
func (r *Roster) refresh(ctx context.Context) error {
	values, err := store.Values(ctx, r.store, headKey)
	if err != nil {
		return fmt.Errorf("reading clients and people in the store: %w", err)
	}
	before := r.known.read.Load()
	if before != nil && bytes.Equal(before.value, values[0]) {
		return nil
	}
	read, err := r.load(ctx, before, values[0])
	if err != nil {
		return fmt.Errorf("clients and people in the store: %w", err)
	}
	r.known.read.Store(read)
	return nil
}

// load returns the reading of a head's value. A lost head does not lose the entries.
func (r *Roster) load(ctx context.Context, before *reading, value []byte) (*reading, error) {
	h, err := store.FromJSON[head](value)
	if err != nil {
		return nil, err
	}
	record, err := r.catchUp(ctx, before, h)
	if record == nil && err == nil {
		record, err = r.all(ctx)
	}
	return &reading{record: record, head: h, value: value}, err
}

// catchUp returns the record before with the changes up to a head; nil if these are not all known.
func (r *Roster) catchUp(ctx context.Context, before *reading, to *head) (*Record, error) {
	if before == nil || before.head == nil || to == nil || to.Number <= before.head.Number || to.Number-before.head.Number > changesKept {
		return nil, nil
	}
	var keys []string
	for number := before.head.Number + 1; number <= to.Number; number++ {
		keys = append(keys, changeKey(number))
	}
	names, last := map[named]bool{}, *before.head
	err := store.Each(ctx, r.store, keys, func(some []*change) error {
		for _, c := range some {
			if c.Head.Number == last.Number+1 && c.Before == last.ID {
				last, names[named{c.Kind, c.Name}] = c.Head, true
			}
		}
		return nil
	})
	if err != nil || last != *to { // if the store has failed, so does what follows
		return nil, nil
	}
	entries := make(map[named]*Entry, len(names))
	keys = keys[:0]
	for n := range names {
		keys, entries[n] = append(keys, n.storeKey()), nil
	}
	err = r.entries(ctx, keys, entries)
	return before.record.with(entries), err
}

// all reads all entries. Those that change meanwhile come with a later change of the head.
func (r *Roster) all(ctx context.Context) (*Record, error) {
	keys, err := r.store.List(ctx, entryKind+":")
	if err != nil {
		return nil, err
	}
	entries := make(map[named]*Entry, len(keys))
	err = r.entries(ctx, keys, entries)
	return newRecord(entries), err
}

// entries reads the entries of some keys.
func (r *Roster) entries(ctx context.Context, keys []string, to map[named]*Entry) error {
	return store.Each(ctx, r.store, keys, func(some []*storedEntry) error {
		for _, e := range some {
			to[named{e.Kind, e.Name}] = &e.Entry
		}
		return nil
	})
}

// Watch polls for changes until ctx ends, and calls changed after each, also if [Roster.Change] has read it first. During an
// outage of the store the known entries stay in force.
func (r *Roster) Watch(ctx context.Context, changed func(), logger *slog.Logger) {
	var told *Record
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_, err := r.Read(ctx)
		if now := r.Record(); now != told {
			told = now
			changed()
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) { // the store logs this error itself
			logger.Error("clients and people in the store cannot be read; those known stay", "error", err)
		}
	}
}
