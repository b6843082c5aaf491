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

	// maxStoredChanges is the number of changes that the store retains for other gateways. A gateway that has missed more
	// changes reads all entries.
	maxStoredChanges = 1024

	// pollInterval is the interval at which a gateway polls the store for changes by other gateways.
	pollInterval = 2 * time.Second
)

// A head identifies the latest change. Each change replaces it, so changes by several gateways are serialized.
type head struct {
	Number           uint64            `json:"number"`           // sequence number of the change
	ID               string            `json:"id"`               // random, because after a restore another change may have the same number
	LatestGeneration oauth2.Generation `json:"latest,omitempty"` // highest generation of all entries, including removed ones
}

// A change describes one of the latest changes. Its key is its number modulo [maxStoredChanges].
type change struct {
	Head       head   `json:"head"`   // head after the change
	PreviousID string `json:"before"` // ID of the previous head
	Kind       Kind   `json:"kind"`
	Name       string `json:"name"`
}

func changeKey(number uint64) string {
	return changePrefix + strconv.FormatUint(number%maxStoredChanges, 10)
}

// A storedEntry is the value of an entry in the store. The key of the entry is a digest, because a store may not accept every
// name as a key.
type storedEntry struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	Entry
}

func (n entryID) storeKey() string { return store.Key(entryKind, n.key()) }

// A Roster reads and changes the entries in a durable store. It is safe for concurrent use.
type Roster struct {
	store  store.Store
	loaded *LoadedEntries

	readErr atomic.Pointer[error] // error of the latest read; see ReadError
}

// LoadedEntries contains the entries that were last read. After a reload, the new roster may reuse it.
type LoadedEntries struct {
	mu     sync.Mutex // held while entries are read or changed, so that an older result never replaces a newer one
	latest atomic.Pointer[loadedState]
}

type loadedState struct {
	snapshot  *Snapshot
	head      *head  // nil if the store contains no head
	headValue []byte // stored value of head
}

// Snapshot returns the entries; nil until they have been read.
func (k *LoadedEntries) Snapshot() *Snapshot {
	if state := k.latest.Load(); state != nil {
		return state.snapshot
	}
	return nil
}

// New returns the roster in a store. It reuses the loaded entries.
func New(s store.Store, loaded *LoadedEntries) *Roster { return &Roster{store: s, loaded: loaded} }

// Snapshot returns the result of [LoadedEntries.Snapshot].
func (r *Roster) Snapshot() *Snapshot { return r.loaded.Snapshot() }

// Read reads changes and reports whether the entries have changed.
func (r *Roster) Read(ctx context.Context) (changed bool, err error) {
	r.loaded.mu.Lock()
	defer r.loaded.mu.Unlock()
	before := r.Snapshot()
	err = store.Retry(ctx, func() error { return r.refresh(ctx) })
	r.readErr.Store(&err)
	return r.Snapshot() != before, err
}

// ReadError returns the error of the latest read; nil if it succeeded. It does not block.
func (r *Roster) ReadError() error {
	if err := r.readErr.Load(); err != nil {
		return *err
	}
	return nil
}

// refresh reads changes. The caller must hold r.loaded.mu.
func (r *Roster) refresh(ctx context.Context) error {
	values, err := store.ReadValues(ctx, r.store, headKey)
	if err != nil {
		return fmt.Errorf("reading stored clients and users: %w", err)
	}
	before := r.loaded.latest.Load()
	if before != nil && bytes.Equal(before.headValue, values[0]) {
		return nil
	}
	state, err := r.load(ctx, before, values[0])
	if err != nil {
		return fmt.Errorf("loading stored clients and users: %w", err)
	}
	r.loaded.latest.Store(state)
	return nil
}

// load returns the state for the stored value of a head. If it cannot apply the changes since before, it reads all entries.
func (r *Roster) load(ctx context.Context, before *loadedState, value []byte) (*loadedState, error) {
	h, err := store.FromJSON[head](value)
	if err != nil {
		return nil, err
	}
	snapshot, err := r.applyChanges(ctx, before, h)
	if snapshot == nil && err == nil {
		snapshot, err = r.loadAll(ctx)
	}
	return &loadedState{snapshot: snapshot, head: h, headValue: value}, err
}

// applyChanges returns the snapshot of before with all changes up to the head to; nil if the store no longer contains some of
// these changes.
func (r *Roster) applyChanges(ctx context.Context, before *loadedState, to *head) (*Snapshot, error) {
	if before == nil || before.head == nil || to == nil || to.Number <= before.head.Number || to.Number-before.head.Number > maxStoredChanges {
		return nil, nil
	}
	var keys []string
	for number := before.head.Number + 1; number <= to.Number; number++ {
		keys = append(keys, changeKey(number))
	}
	names, last := map[entryID]bool{}, *before.head
	err := store.EachBatch(ctx, r.store, keys, func(chunk []*change) error {
		for _, c := range chunk {
			if c.Head.Number == last.Number+1 && c.PreviousID == last.ID {
				last, names[entryID{c.Kind, c.Name}] = c.Head, true
			}
		}
		return nil
	})
	if err != nil || last != *to { // if the store has failed, reading all entries fails too
		return nil, nil
	}
	entries := make(map[entryID]*Entry, len(names))
	keys = keys[:0]
	for n := range names {
		keys, entries[n] = append(keys, n.storeKey()), nil
	}
	err = r.loadEntries(ctx, keys, entries)
	return before.snapshot.withEntries(entries), err
}

// loadAll reads all entries. Entries that are changed in the meantime are read again, because the head changes after them.
func (r *Roster) loadAll(ctx context.Context) (*Snapshot, error) {
	keys, err := r.store.List(ctx, entryKind+":")
	if err != nil {
		return nil, err
	}
	entries := make(map[entryID]*Entry, len(keys))
	err = r.loadEntries(ctx, keys, entries)
	return newSnapshot(entries), err
}

// loadEntries reads the entries with the given keys into a map.
func (r *Roster) loadEntries(ctx context.Context, keys []string, to map[entryID]*Entry) error {
	return store.EachBatch(ctx, r.store, keys, func(chunk []*storedEntry) error {
		for _, e := range chunk {
			to[entryID{e.Kind, e.Name}] = &e.Entry
		}
		return nil
	})
}

// Watch polls for changes until ctx is canceled. It calls changed after each change, even if [Roster.Change] has already read
// the change. During an outage of the store, the loaded entries stay active.
func (r *Roster) Watch(ctx context.Context, changed func(), logger *slog.Logger) {
	var notified *Snapshot
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_, err := r.Read(ctx)
		if now := r.Snapshot(); now != notified {
			notified = now
			changed()
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) { // the store logs this error itself
			logger.Error("reloading stored clients and users failed", "error", err)
		}
	}
}

// unreadableKey is the key under which [Roster.Reset] stores an unreadable head, unreadablePrefix the prefix of the keys for
// unreadable entries.
const (
	unreadableKey    = "roster:unreadable"
	unreadablePrefix = "roster-unreadable:"
)

// Change changes an entry. It is based on the previous change by any gateway. check may reject the change; in it,
// [Roster.Snapshot] returns the entries before the change. If alter, check or the store fails, nothing is changed.
func (r *Roster) Change(ctx context.Context, kind Kind, name string, alter Alteration, check func(before, after *Entry) error) error {
	r.loaded.mu.Lock()
	defer r.loaded.mu.Unlock()
	return store.Retry(ctx, func() error {
		if err := r.prepare(ctx); err != nil {
			return err
		}
		before := r.Snapshot().Get(kind, name)
		after, err := r.newVersion(kind, name, before, alter)
		if err == nil && check != nil {
			err = check(before, after)
		}
		if err != nil {
			return err
		}
		return r.storeEntry(ctx, entryID{kind, name}, after)
	})
}

// prepare reads changes by other gateways. If the store contains no head, it stores the first one.
func (r *Roster) prepare(ctx context.Context) error {
	err := r.refresh(ctx)
	if err == nil && r.loaded.latest.Load().head == nil {
		err = r.createHead(ctx)
	}
	return err
}

// createHead stores the first head.
func (r *Roster) createHead(ctx context.Context) error {
	first := head{Number: 1, ID: oauth2.RandomToken()}
	value, err := store.ToJSON(first)
	if err == nil {
		err = r.store.Do(ctx, store.ReplaceCall(headKey, nil, value, store.Forever))
	}
	if err == nil {
		r.loaded.latest.Store(&loadedState{snapshot: r.Snapshot(), head: &first, headValue: value})
	}
	return err
}

// newVersion returns the entry to store, or nil to remove it. The generation of a new entry is based on the time, so it is
// higher than earlier generations even if the entries were lost or restored from a backup.
func (r *Roster) newVersion(kind Kind, name string, before *Entry, alter Alteration) (*Entry, error) {
	after, err := alter(before)
	switch {
	case errors.Is(err, ErrExists), errors.Is(err, ErrNotFound):
		return nil, fmt.Errorf("%q %w", name, err)
	case err != nil || after == nil || before != nil:
		return after, err
	case r.Snapshot().Len(kind) >= MaxEntries:
		return nil, ErrFull
	}
	added := *after
	added.Generation = max(r.loaded.latest.Load().head.LatestGeneration+1, oauth2.Generation(time.Now().UnixNano()))
	return &added, nil
}

// storeEntry stores an entry, or removes it if e is nil. If another change was made in the meantime, it returns an error.
func (r *Roster) storeEntry(ctx context.Context, n entryID, e *Entry) error {
	current := r.loaded.latest.Load()
	next := head{Number: current.head.Number + 1, ID: oauth2.RandomToken(), LatestGeneration: current.head.LatestGeneration}
	if e != nil {
		next.LatestGeneration = max(next.LatestGeneration, e.Generation)
	}
	call, err := n.storeCall(e)
	if err != nil {
		return err
	}
	value, err1 := store.ToJSON(next)
	changeCall, err2 := putCall(changeKey(next.Number), change{Head: next, PreviousID: current.head.ID, Kind: n.kind, Name: n.name})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := r.store.Do(ctx, store.ReplaceCall(headKey, current.headValue, value, store.Forever), changeCall, call); err != nil {
		return err
	}
	r.loaded.latest.Store(&loadedState{snapshot: current.snapshot.withEntries(map[entryID]*Entry{n: e}), head: &next, headValue: value})
	return nil
}

// storeCall returns the call that stores an entry, or that removes it if e is nil.
func (n entryID) storeCall(e *Entry) (*store.Call, error) {
	if e == nil {
		return &store.Call{Op: store.Delete, Key: n.storeKey()}, nil
	}
	return putCall(n.storeKey(), storedEntry{n.kind, n.name, *e})
}

func putCall(key string, v any) (*store.Call, error) {
	value, err := store.ToJSON(v)
	return &store.Call{Op: store.Put, Key: key, Value: value, TTL: store.Forever}, err
}

// ErrReadable is returned by [Roster.Reset] if the entries can be read.
var ErrReadable = errors.New("nothing to reset: all stored clients and users can be read")

// Reset replaces unreadable values by the entries that were last read, or removes them if there are none. The unreadable values
// are stored under other keys.
func (r *Roster) Reset(ctx context.Context) error {
	r.loaded.mu.Lock()
	defer r.loaded.mu.Unlock()
	before := r.loaded.latest.Load()
	err := r.refresh(ctx)
	switch {
	case err == nil:
		return ErrReadable
	case errors.Is(err, store.ErrUnavailable):
		return err
	}
	values, err := store.ReadValues(ctx, r.store, headKey)
	if err != nil {
		return err
	}
	calls, err := r.repairCalls(ctx)
	if err != nil {
		return err
	}
	value, err := store.ToJSON(before.nextHead())
	if err != nil {
		return err
	}
	calls = append(calls, store.ReplaceCall(headKey, values[0], value, store.Forever))
	if values[0] != nil {
		calls = append(calls, &store.Call{Op: store.Put, Key: unreadableKey, Value: values[0], TTL: store.Forever})
	}
	if err := r.store.Do(ctx, calls...); err != nil {
		return err
	}
	return r.refresh(ctx)
}

// nextHead returns the head that follows a state. Its random ID distinguishes it from changes that other gateways have read.
func (state *loadedState) nextHead() head {
	next := head{ID: oauth2.RandomToken(), LatestGeneration: oauth2.Generation(time.Now().UnixNano())}
	if state != nil && state.head != nil {
		next.Number, next.LatestGeneration = state.head.Number+1, max(next.LatestGeneration, state.head.LatestGeneration)
	}
	return next
}

// repairCalls returns the calls that replace or remove the unreadable entries.
func (r *Roster) repairCalls(ctx context.Context) (calls []*store.Call, err error) {
	keys, err := r.store.List(ctx, entryKind+":")
	if err != nil {
		return nil, err
	}
	loaded := map[string]namedEntry{}
	for _, m := range r.Snapshot().sorted() {
		loaded[m.storeKey()] = m
	}
	for chunk := range slices.Chunk(keys, 100) {
		values, err := store.ReadValues(ctx, r.store, chunk...)
		if err != nil {
			return nil, err
		}
		for i, value := range values {
			if _, err := store.FromJSON[storedEntry](value); err == nil {
				continue
			}
			call := &store.Call{Op: store.Delete, Key: chunk[i]}
			if m, was := loaded[chunk[i]]; was {
				if call, err = m.storeCall(&m.entry); err != nil {
					return nil, err
				}
			}
			backupKey := unreadablePrefix + strings.TrimPrefix(chunk[i], entryKind+":")
			calls = append(calls, call, &store.Call{Op: store.Put, Key: backupKey, Value: value, TTL: store.Forever})
		}
	}
	return calls, nil
}

// A Kind is the kind of an entry.
type Kind string

// Kinds of entries, as in the admin API.
const (
	Clients Kind = "clients"
	Users   Kind = "users"
)

// MaxEntries is the maximum number of entries of a kind. Each gateway keeps all entries in memory, at about 2 KB each.
const MaxEntries = 25_000

// An Entry is a client or a user.
type Entry struct {
	Config       json.RawMessage `json:"config"`                  // as in Caddy's configuration, without secrets
	SecretSHA256 []byte          `json:"secret_sha256,omitempty"` // SHA-256 digest of a client's generated secret
	Since        time.Time       `json:"since"`                   // time when the entry was added

	// Generation is set when the entry is added, and is higher than that of every earlier entry. Grants are bound to it, so
	// that a later entry with the same name does not inherit them.
	Generation oauth2.Generation `json:"generation,omitempty"`
}

func (e Entry) equal(other Entry) bool {
	return e.Generation == other.Generation && bytes.Equal(e.Config, other.Config) && bytes.Equal(e.SecretSHA256, other.SecretSHA256)
}

var (
	// ErrNotFound is returned if there is no entry with the name.
	ErrNotFound = errors.New("is not in the store")

	// ErrExists is returned if an entry with the name already exists.
	ErrExists = errors.New("already exists")

	// ErrInvalid is returned for an entry that cannot be active.
	ErrInvalid = errors.New("the entry cannot be activated")

	// ErrFull is returned for an entry beyond [MaxEntries].
	ErrFull = fmt.Errorf("the limit of %d stored clients or users is reached: remove some, or let users sign in at an identity provider", MaxEntries)
)

// An Alteration returns the entry to store in place of the current entry. A nil entry means that there is none.
type Alteration func(*Entry) (*Entry, error)

// Add returns an alteration that adds an entry. It returns [ErrExists] if the entry exists.
func Add(e Entry) Alteration {
	return func(old *Entry) (*Entry, error) {
		if old != nil {
			return nil, ErrExists
		}
		return &e, nil
	}
}

// Replace returns an alteration that replaces an entry. It returns [ErrNotFound] if the entry does not exist.
func Replace(replace func(Entry) (Entry, error)) Alteration {
	return func(old *Entry) (*Entry, error) {
		if old == nil {
			return nil, ErrNotFound
		}
		e, err := replace(*old)
		return &e, err
	}
}

// Remove returns an alteration that removes an entry. It returns [ErrNotFound] if the entry does not exist.
func Remove() Alteration {
	return func(old *Entry) (*Entry, error) {
		if old == nil {
			return nil, ErrNotFound
		}
		return nil, nil
	}
}

// A Snapshot contains all entries at a point in time. A nil Snapshot is empty.
type Snapshot struct {
	entries *snapshotmap.Map[Entry] // entries by [entryID.key]
	sizes   map[Kind]int
}

// entryID identifies an entry. Its kind may be one that only later versions of the software support.
type entryID struct {
	kind Kind
	name string
}

// key returns the key of the entry in a snapshot.
func (n entryID) key() string { return string(n.kind) + ":" + n.name }

func parseEntryID(key string) entryID {
	kind, name, _ := strings.Cut(key, ":")
	return entryID{Kind(kind), name}
}

// Get returns the entry with the given kind and name, or nil if there is none.
func (r *Snapshot) Get(kind Kind, name string) *Entry {
	if r == nil {
		return nil
	}
	if e, found := r.entries.Lookup(entryID{kind, name}.key()); found {
		return &e
	}
	return nil
}

// Len returns the number of entries of the given kind.
func (r *Snapshot) Len(kind Kind) int {
	if r == nil {
		return 0
	}
	return r.sizes[kind]
}

// All iterates over the names and entries of the given kind, oldest first.
func (r *Snapshot) All(kind Kind) iter.Seq2[string, Entry] {
	return func(yield func(string, Entry) bool) {
		for _, m := range r.sorted() {
			if m.kind == kind && !yield(m.name, m.entry) {
				return
			}
		}
	}
}

func newSnapshot(entries map[entryID]*Entry) *Snapshot { return (*Snapshot)(nil).withEntries(entries) }

// withEntries returns a snapshot with some entries replaced. A nil value removes an entry.
func (r *Snapshot) withEntries(entries map[entryID]*Entry) *Snapshot {
	changed := &Snapshot{new(snapshotmap.Map[Entry]), map[Kind]int{}}
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

// namedEntry is an entry with its kind and name.
type namedEntry struct {
	entryID
	entry Entry
}

// sorted returns all entries, oldest first. If entries conflict, the oldest entry wins.
func (r *Snapshot) sorted() (all []namedEntry) {
	if r == nil {
		return nil
	}
	for key, e := range r.entries.All() {
		all = append(all, namedEntry{parseEntryID(key), e})
	}
	sortByAge(all)
	return all
}

func sortByAge(all []namedEntry) {
	slices.SortFunc(all, func(a, b namedEntry) int {
		return cmp.Or(a.entry.Since.Compare(b.entry.Since), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
}

// diff returns the entries that are new or changed compared with other, oldest first, and the IDs of the entries that only
// other has.
func (r *Snapshot) diff(other *Snapshot) (changed []namedEntry, removed []entryID) {
	if other == nil {
		return r.sorted(), nil
	}
	seen := map[string]bool{}
	for key := range r.entries.ChangedKeys(other.entries) {
		if seen[key] {
			continue
		}
		seen[key] = true
		e, found := r.entries.Lookup(key)
		before, was := other.entries.Lookup(key)
		switch {
		case !found:
			removed = append(removed, parseEntryID(key))
		case !was || !e.equal(before):
			changed = append(changed, namedEntry{parseEntryID(key), e})
		}
	}
	sortByAge(changed)
	return changed, removed
}
