package entry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
)

// A Kind is the kind of an entry.
type Kind string

// The kinds of entries, as the admin API names them.
const (
	Clients Kind = "clients"
	Users   Kind = "users"
)

// MaxEntries is the maximum number of entries of a kind. Each gateway has all of them in memory, at some 2 KB each.
const MaxEntries = 25_000

// An Entry is a client or a user.
type Entry struct {
	Config       json.RawMessage `json:"config"`                  // as in Caddy's configuration, without secrets
	SecretSHA256 []byte          `json:"secret_sha256,omitempty"` // of a client's random secret
	Since        time.Time       `json:"since"`                   // when it was added

	// Generation is set when the entry is added, and greater than that of every earlier entry. Grants are bound to it, so that
	// a later entry with the same name never inherits them.
	Generation oauth2.Generation `json:"generation,omitempty"`
}

func (e Entry) equal(other Entry) bool {
	return e.Generation == other.Generation && bytes.Equal(e.Config, other.Config) && bytes.Equal(e.SecretSHA256, other.SecretSHA256)
}

var (
	// ErrUnknown is returned if there is no entry of a name.
	ErrUnknown = errors.New("is not in the store")

	// ErrExists is returned if an entry is added a second time.
	ErrExists = errors.New("is in the store already")

	// ErrInvalid is returned if an entry cannot be in force.
	ErrInvalid = errors.New("cannot be in force")

	// ErrFull is returned for an entry beyond [MaxEntries].
	ErrFull = fmt.Errorf("the store has %d entries of this kind, which is the maximum: remove some, or let people sign in by an identity provider", MaxEntries)
)

// An Alteration returns the entry to store in place of the current one. Nil stands for no entry.
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

// A Record is a snapshot of all entries. A nil Record has none.
type Record struct {
	entries *snapshotmap.Map[Entry] // by [named.key]
	sizes   map[Kind]int
}

// named identifies an entry, of kinds that only later versions know as well.
type named struct {
	kind Kind
	name string
}

// key is that in a record.
func (n named) key() string { return string(n.kind) + ":" + n.name }

func parseKey(key string) named {
	kind, name, _ := strings.Cut(key, ":")
	return named{Kind(kind), name}
}

// Get returns the entry with a kind and name; nil if there is none.
func (r *Record) Get(kind Kind, name string) *Entry {
	if r == nil {
		return nil
	}
	if e, found := r.entries.Lookup(named{kind, name}.key()); found {
		return &e
	}
	return nil
}

// Len is the number of entries of a kind.
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

// with returns a record with some entries replaced. A nil entry is removed.
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
