package entry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
)

const (
	headKey      = "roster:head"
	entryKind    = "roster-entry"
	changePrefix = "roster-change:"

	// changesKept is the number of changes that the store keeps for other gateways. A gateway that missed more reads all
	// entries.
	changesKept = 1024

	// interval is the interval at which a gateway polls the store for changes by other gateways.
	interval = 2 * time.Second
)

// A head is the latest change. Each change replaces it, so changes by several gateways are serialized.
type head struct {
	Number uint64            `json:"number"`           // sequence number of the change
	ID     string            `json:"id"`               // random, because after a restore another change can have the same number
	Latest oauth2.Generation `json:"latest,omitempty"` // the greatest generation of all entries, including removed ones
}

// A change is one of the latest changes. It is stored under its number modulo [changesKept].
type change struct {
	Head   head   `json:"head"`   // after the change
	Before string `json:"before"` // ID of the previous head
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
}

func changeKey(number uint64) string {
	return changePrefix + strconv.FormatUint(number%changesKept, 10)
}

// A storedEntry is the value of an entry. The key of an entry is a digest, because a store may not accept every name as a key.
type storedEntry struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	Entry
}

func (n named) storeKey() string { return store.Key(entryKind, n.key()) }

// A Roster reads and changes the entries of a durable store. It is safe for concurrent use.
type Roster struct {
	store store.Store
	known *LoadedEntries

	trouble atomic.Pointer[error] // error of the latest reading
}

// LoadedEntries contains the entries that were last read. The roster of a later configuration may take it over.
type LoadedEntries struct {
	mu   sync.Mutex // locked while entries are read or changed, so that an earlier reading never replaces a later one
	read atomic.Pointer[reading]
}

type reading struct {
	record *Record
	head   *head  // nil without a head
	value  []byte // stored value of the head
}

// Record returns the entries; nil before they are first read.
func (k *LoadedEntries) Record() *Record {
	if read := k.read.Load(); read != nil {
		return read.record
	}
	return nil
}

// New returns the roster of a store.
func New(s store.Store, known *LoadedEntries) *Roster { return &Roster{store: s, known: known} }

// Record is [LoadedEntries.Record].
func (r *Roster) Record() *Record { return r.known.Record() }

// Read reads changes, and reports whether the entries have changed.
func (r *Roster) Read(ctx context.Context) (changed bool, err error) {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	before := r.Record()
	err = store.Retry(ctx, func() error { return r.refresh(ctx) })
	r.trouble.Store(&err)
	return r.Record() != before, err
}

// ReadError returns the error of the latest reading; nil if it succeeded. It does not block.
func (r *Roster) ReadError() error {
	if err := r.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// refresh reads the changes. It requires the lock.
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

// load returns the reading for a head's value. Without a head, it reads all entries.
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

// catchUp returns the record before with the changes up to a head; nil if some of these are no longer stored.
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
	if err != nil || last != *to { // if the store has failed, the following call fails too
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

// all reads all entries. Entries that are changed in the meantime are read after a later change to the head.
func (r *Roster) all(ctx context.Context) (*Record, error) {
	keys, err := r.store.List(ctx, entryKind+":")
	if err != nil {
		return nil, err
	}
	entries := make(map[named]*Entry, len(keys))
	err = r.entries(ctx, keys, entries)
	return newRecord(entries), err
}

// entries reads the entries with the given keys.
func (r *Roster) entries(ctx context.Context, keys []string, to map[named]*Entry) error {
	return store.Each(ctx, r.store, keys, func(some []*storedEntry) error {
		for _, e := range some {
			to[named{e.Kind, e.Name}] = &e.Entry
		}
		return nil
	})
}

// Watch polls for changes until ctx is canceled, and calls changed after each change, even if [Roster.Change] has already
// read it. During an outage of the store, the known entries stay active.
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
			logger.Error("reading stored clients and users failed; the last known ones stay active", "error", err)
		}
	}
}

// unreadableKey is the key of the head that [Roster.Reset] replaced. Replaced entries have keys with unreadablePrefix.
const (
	unreadableKey    = "roster:unreadable"
	unreadablePrefix = "roster-unreadable:"
)

// Change changes an entry. Each change sees the previous change by any gateway. check may reject the change, and can read
// the entries before it in [Roster.Record]. If alter, check or the store fails, nothing is changed.
func (r *Roster) Change(ctx context.Context, kind Kind, name string, alter Alteration, check func(before, after *Entry) error) error {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	return store.Retry(ctx, func() error {
		if err := r.prepare(ctx); err != nil {
			return err
		}
		before := r.Record().Get(kind, name)
		after, err := r.alter(kind, name, before, alter)
		if err == nil && check != nil {
			err = check(before, after)
		}
		if err != nil {
			return err
		}
		return r.write(ctx, named{kind, name}, after)
	})
}

// prepare reads changes by other gateways, and stores the first head if the store contains none.
func (r *Roster) prepare(ctx context.Context) error {
	err := r.refresh(ctx)
	if err == nil && r.known.read.Load().head == nil {
		err = r.create(ctx)
	}
	return err
}

// create stores the first head.
func (r *Roster) create(ctx context.Context) error {
	first := head{Number: 1, ID: oauth2.RandomToken()}
	value, err := store.ToJSON(first)
	if err == nil {
		err = r.store.Do(ctx, store.Replacing(headKey, nil, value, store.Forever))
	}
	if err == nil {
		r.known.read.Store(&reading{record: r.Record(), head: &first, value: value})
	}
	return err
}

// alter returns the entry to store; nil removes it. The generation of a new entry is the time, so it is greater than
// earlier generations even if the entries were lost or restored from a backup.
func (r *Roster) alter(kind Kind, name string, before *Entry, alter Alteration) (*Entry, error) {
	after, err := alter(before)
	switch {
	case errors.Is(err, ErrExists), errors.Is(err, ErrUnknown):
		return nil, fmt.Errorf("%q %w", name, err)
	case err != nil || after == nil || before != nil:
		return after, err
	case r.Record().Len(kind) >= MaxEntries:
		return nil, ErrFull
	}
	added := *after
	added.Generation = max(r.known.read.Load().head.Latest+1, oauth2.Generation(time.Now().UnixNano()))
	return &added, nil
}

// write stores an entry, or removes it if e is nil, unless another change was made in the meantime.
func (r *Roster) write(ctx context.Context, n named, e *Entry) error {
	read := r.known.read.Load()
	next := head{Number: read.head.Number + 1, ID: oauth2.RandomToken(), Latest: read.head.Latest}
	if e != nil {
		next.Latest = max(next.Latest, e.Generation)
	}
	call, err := n.storing(e)
	if err != nil {
		return err
	}
	value, err1 := store.ToJSON(next)
	note, err2 := putting(changeKey(next.Number), change{Head: next, Before: read.head.ID, Kind: n.kind, Name: n.name})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := r.store.Do(ctx, store.Replacing(headKey, read.value, value, store.Forever), note, call); err != nil {
		return err
	}
	r.known.read.Store(&reading{record: read.record.with(map[named]*Entry{n: e}), head: &next, value: value})
	return nil
}

// storing returns the call that stores an entry, or removes it if e is nil.
func (n named) storing(e *Entry) (*store.Call, error) {
	if e == nil {
		return &store.Call{Op: store.Delete, Key: n.storeKey()}, nil
	}
	return putting(n.storeKey(), storedEntry{n.kind, n.name, *e})
}

func putting(key string, v any) (*store.Call, error) {
	value, err := store.ToJSON(v)
	return &store.Call{Op: store.Put, Key: key, Value: value, TTL: store.Forever}, err
}

// ErrReadable is returned by [Roster.Reset] if the entries can be read.
var ErrReadable = errors.New("the clients and people in the store can be read: change them one by one")

// Reset replaces unreadable values with the entries that were last read, or removes them if none were read. The unreadable
// values are kept under other keys.
func (r *Roster) Reset(ctx context.Context) error {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	known := r.known.read.Load()
	err := r.refresh(ctx)
	switch {
	case err == nil:
		return ErrReadable
	case errors.Is(err, store.ErrUnavailable):
		return err
	}
	values, err := store.Values(ctx, r.store, headKey)
	if err != nil {
		return err
	}
	calls, err := r.mend(ctx)
	if err != nil {
		return err
	}
	value, err := store.ToJSON(known.nextHead())
	if err != nil {
		return err
	}
	calls = append(calls, store.Replacing(headKey, values[0], value, store.Forever))
	if values[0] != nil {
		calls = append(calls, &store.Call{Op: store.Put, Key: unreadableKey, Value: values[0], TTL: store.Forever})
	}
	if err := r.store.Do(ctx, calls...); err != nil {
		return err
	}
	return r.refresh(ctx)
}

// nextHead returns the head after that of a reading. Other gateways do not mistake it for a change that they know.
func (read *reading) nextHead() head {
	next := head{ID: oauth2.RandomToken(), Latest: oauth2.Generation(time.Now().UnixNano())}
	if read != nil && read.head != nil {
		next.Number, next.Latest = read.head.Number+1, max(next.Latest, read.head.Latest)
	}
	return next
}

// mend returns the calls that replace the unreadable entries.
func (r *Roster) mend(ctx context.Context) (calls []*store.Call, err error) {
	keys, err := r.store.List(ctx, entryKind+":")
	if err != nil {
		return nil, err
	}
	known := map[string]member{}
	for _, m := range r.Record().members() {
		known[m.storeKey()] = m
	}
	for some := range slices.Chunk(keys, 100) {
		values, err := store.Values(ctx, r.store, some...)
		if err != nil {
			return nil, err
		}
		for i, value := range values {
			if _, err := store.FromJSON[storedEntry](value); err == nil {
				continue
			}
			call := &store.Call{Op: store.Delete, Key: some[i]}
			if m, was := known[some[i]]; was {
				if call, err = m.storing(&m.entry); err != nil {
					return nil, err
				}
			}
			aside := unreadablePrefix + strings.TrimPrefix(some[i], entryKind+":")
			calls = append(calls, call, &store.Call{Op: store.Put, Key: aside, Value: value, TTL: store.Forever})
		}
	}
	return calls, nil
}

// A Kind is the kind of an entry.
type Kind string

// The kinds of entries, as in the admin API.
const (
	Clients Kind = "clients"
	Users   Kind = "users"
)

// MaxEntries is the maximum number of entries of a kind. Each gateway keeps all entries in memory, at about 2 KB each.
const MaxEntries = 25_000

// An Entry is a client or a user.
type Entry struct {
	Config       json.RawMessage `json:"config"`                  // as in Caddy's configuration, without secrets
	SecretSHA256 []byte          `json:"secret_sha256,omitempty"` // digest of a client's generated secret
	Since        time.Time       `json:"since"`                   // time when the entry was added

	// Generation is set when the entry is added, and is greater than that of every earlier entry. Grants are bound to it,
	// so that a later entry with the same name never inherits them.
	Generation oauth2.Generation `json:"generation,omitempty"`
}

func (e Entry) equal(other Entry) bool {
	return e.Generation == other.Generation && bytes.Equal(e.Config, other.Config) && bytes.Equal(e.SecretSHA256, other.SecretSHA256)
}

var (
	// ErrUnknown is returned for a name without an entry.
	ErrUnknown = errors.New("is not in the store")

	// ErrExists is returned if an entry is added a second time.
	ErrExists = errors.New("is in the store already")

	// ErrInvalid is returned for an entry that cannot be active.
	ErrInvalid = errors.New("cannot be in force")

	// ErrFull is returned for an entry beyond [MaxEntries].
	ErrFull = fmt.Errorf("the store has %d entries of this kind, which is the maximum: remove some, or let people sign in by an identity provider", MaxEntries)
)

// An Alteration returns the entry to store in place of the current one. Nil means no entry.
type Alteration func(*Entry) (*Entry, error)

// Add adds an entry, or fails with [ErrExists].
func Add(e Entry) Alteration {
	return func(old *Entry) (*Entry, error) {
		if old != nil {
			return nil, ErrExists
		}
		return &e, nil
	}
}

// Replace replaces an entry, or fails with [ErrUnknown].
func Replace(replace func(Entry) (Entry, error)) Alteration {
	return func(old *Entry) (*Entry, error) {
		if old == nil {
			return nil, ErrUnknown
		}
		e, err := replace(*old)
		return &e, err
	}
}

// Remove removes an entry, or fails with [ErrUnknown].
func Remove() Alteration {
	return func(old *Entry) (*Entry, error) {
		if old == nil {
			return nil, ErrUnknown
		}
		return nil, nil
	}
}

// A Record is a snapshot of all entries. A nil Record is empty.
type Record struct {
	entries *snapshotmap.Map[Entry] // by [named.key]
	sizes   map[Kind]int
}

// named identifies an entry, which may be of a kind that only later versions support.
type named struct {
	kind Kind
	name string
}

// key returns the key of the entry in a record.
func (n named) key() string { return string(n.kind) + ":" + n.name }

func parseKey(key string) named {
	kind, name, _ := strings.Cut(key, ":")
	return named{Kind(kind), name}
}

// Get returns the entry with a kind and name; nil if it does not exist.
func (r *Record) Get(kind Kind, name string) *Entry {
	if r == nil {
		return nil
	}
	if e, found := r.entries.Lookup(named{kind, name}.key()); found {
		return &e
	}
	return nil
}

// Len returns the number of entries of a kind.
func (r *Record) Len(kind Kind) int {
	if r == nil {
		return 0
	}
	return r.sizes[kind]
}

// Of iterates over the names and entries of a kind, oldest first.
func (r *Record) Of(kind Kind) iter.Seq2[string, Entry] {
	return func(yield func(string, Entry) bool) {
		for _, m := range r.members() {
			if m.kind == kind && !yield(m.name, m.entry) {
				return
			}
		}
	}
}

func newRecord(entries map[named]*Entry) *Record { return (*Record)(nil).with(entries) }

// with returns a record with some entries replaced. A nil value removes an entry.
func (r *Record) with(entries map[named]*Entry) *Record {
	changed := &Record{new(snapshotmap.Map[Entry]), map[Kind]int{}}
	if r != nil {
		changed.entries = r.entries.Clone()
		maps.Copy(changed.sizes, r.sizes)
	}
	for n, e := range entries {
		if changed.Get(n.kind, n.name) != nil {
			changed.sizes[n.kind]--
		}
		if e == nil {
			changed.entries.Delete(n.key())
			continue
		}
		changed.sizes[n.kind]++
		changed.entries.Set(n.key(), *e)
	}
	return changed
}

// member is an entry with its kind and name.
type member struct {
	named
	entry Entry
}

// members returns all entries, oldest first: on conflict the older entry wins.
func (r *Record) members() (all []member) {
	if r == nil {
		return nil
	}
	for key, e := range r.entries.All() {
		all = append(all, member{parseKey(key), e})
	}
	sortMembers(all)
	return all
}

func sortMembers(all []member) {
	slices.SortFunc(all, func(a, b member) int {
		return cmp.Or(a.entry.Since.Compare(b.entry.Since), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
}

// differences returns the entries that are new or changed compared with another record, oldest first, and the names of the
// entries that only the other record has.
func (r *Record) differences(other *Record) (changed []member, removed []named) {
	if other == nil {
		return r.members(), nil
	}
	seen := map[string]bool{}
	for key := range r.entries.Candidates(other.entries) {
		if seen[key] {
			continue
		}
		seen[key] = true
		e, found := r.entries.Lookup(key)
		before, was := other.entries.Lookup(key)
		switch {
		case !found:
			removed = append(removed, parseKey(key))
		case !was || !e.equal(before):
			changed = append(changed, member{parseKey(key), e})
		}
	}
	sortMembers(changed)
	return changed, removed
}
