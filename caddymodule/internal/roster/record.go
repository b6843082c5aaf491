package roster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// A Kind says which of a record's entries are meant.
type Kind string

// The kinds of entries, as the admin API names them.
const (
	Clients Kind = "clients"
	Users   Kind = "users"
)

// An Entry is a client or a person.
type Entry struct {
	Config       json.RawMessage `json:"config"`                  // as in Caddy's configuration, without secrets
	SecretSHA256 []byte          `json:"secret_sha256,omitempty"` // of a client's random secret
	Since        time.Time       `json:"since"`                   // when it was added

	// Generation is set by [Record.Add]. What was given to it is no later one's of its name, whenever other gateways hear
	// of its removal.
	Generation oauth2.Generation `json:"generation,omitempty"`
}

// A Record has all entries by kind and name: the client_id, or the name to sign in with.
type Record struct {
	// Entries are by kind and name. A missing kind has none.
	Entries map[Kind]map[string]Entry `json:"entries,omitempty"`

	// Latest is the greatest that any entry had, removed ones too.
	Latest oauth2.Generation `json:"latest,omitempty"`
}

var (
	// ErrUnknown says that there is no entry of a name.
	ErrUnknown = errors.New("is not in the store")

	// ErrExists says that there is one already.
	ErrExists = errors.New("is in the store already")

	// ErrInvalid says that an entry cannot be in force.
	ErrInvalid = errors.New("cannot be in force")
)

// Add adds an entry. Its generation is the time, so that it is a later one even if the record was lost, or came from a backup.
func (r *Record) Add(kind Kind, name string, e Entry) error {
	if _, there := r.Entries[kind][name]; there {
		return fmt.Errorf("%q %w", name, ErrExists)
	}
	r.Latest = max(r.Latest+1, oauth2.Generation(time.Now().UnixNano()))
	e.Generation = r.Latest
	r.set(kind, name, e)
	return nil
}

// Replace replaces an entry by what alter makes of it, or returns [ErrUnknown].
func (r *Record) Replace(kind Kind, name string, alter func(Entry) (Entry, error)) error {
	e, there := r.Entries[kind][name]
	if !there {
		return fmt.Errorf("%q %w", name, ErrUnknown)
	}
	e, err := alter(e)
	if err == nil {
		r.set(kind, name, e)
	}
	return err
}

// Remove removes an entry, or returns [ErrUnknown].
func (r *Record) Remove(kind Kind, name string) error {
	if _, there := r.Entries[kind][name]; !there {
		return fmt.Errorf("%q %w", name, ErrUnknown)
	}
	delete(r.Entries[kind], name)
	return nil
}

// Clone returns a record that can be changed alone.
func (r *Record) Clone() *Record {
	entries := make(map[Kind]map[string]Entry, len(r.Entries))
	for kind, named := range r.Entries {
		entries[kind] = maps.Clone(named)
	}
	return &Record{Entries: entries, Latest: r.Latest}
}

func (r *Record) set(kind Kind, name string, e Entry) {
	if r.Entries == nil {
		r.Entries = map[Kind]map[string]Entry{}
	}
	if r.Entries[kind] == nil {
		r.Entries[kind] = map[string]Entry{}
	}
	r.Entries[kind][name] = e
}
