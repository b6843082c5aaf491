package entry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A Resolver adds an entry of a kind to a server's configuration, or says why it cannot.
type Resolver func(to *authorize.Config, kind Kind, e Entry) error

// An Updater adds the entries of a roster to an authorization server. When the roster changes, the Updater replaces the server.
type Updater struct {
	Roster  *Roster      // entries to add
	Resolve Resolver     // reads an entry
	Logger  *slog.Logger // reports entries that are not in force

	mu         sync.Mutex              // held while the server is replaced
	configured *authorize.Server       // without the roster
	inForce    *authorize.Server       // with the roster
	replace    func(*authorize.Server) // puts a server in force
	record     *Record                 // that is in force
	placed     map[named]resolved      // entries in force
	problems   map[named]problem       // of entries that are not in force
}

// problem is the reason why an entry is not in force.
type problem struct {
	err      error
	conflict bool // with another entry, whose removal puts this one in force
}

// Attach sets the server of the configuration, whose [authorize.Config.Known] must be [Updater.EnsureRead], and the function that
// replaces it. It puts the roster in force as far as it was read, and reads nothing.
func (u *Updater) Attach(configured *authorize.Server, replace func(*authorize.Server)) {
	u.mu.Lock()
	u.configured, u.inForce, u.replace = configured, configured, replace
	u.mu.Unlock()
	u.apply()
}

// Len is the number of entries of a kind, as last read.
func (u *Updater) Len(kind Kind) int { return u.Roster.Record().Len(kind) }

// Problem says why an entry is not in force; nil if it is.
func (u *Updater) Problem(kind Kind, name string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.problems[named{kind, name}].err
}

// Record reads the roster, which is then in force, and returns it.
func (u *Updater) Record(ctx context.Context) (*Record, error) {
	if _, err := u.Roster.Read(ctx); err != nil {
		return nil, err
	}
	u.apply()
	return u.Roster.Record(), nil
}

// Change changes an entry, here at once and at other gateways shortly after. If the entry cannot be in force then, the
// change is refused, and nothing has changed.
func (u *Updater) Change(ctx context.Context, kind Kind, name string, alter Alteration) error {
	n := named{kind, name}
	err := u.Roster.Change(ctx, kind, name, alter, func(_, after *Entry) error {
		if after == nil {
			return nil
		}
		if err := u.check(member{n, *after}); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return nil
	})
	if err == nil {
		u.apply()
	}
	return err
}

// check returns an error if an entry cannot be in force together with the others.
func (u *Updater) check(m member) error {
	u.apply()
	u.mu.Lock()
	defer u.mu.Unlock()
	draft := u.inForce.Draft()
	u.placed[m.named].remove(draft)
	_, err := u.place(draft, m)
	return err
}

// Reset is [Roster.Reset].
func (u *Updater) Reset(ctx context.Context) (*Record, error) {
	if err := u.Roster.Reset(ctx); err != nil {
		return nil, err
	}
	return u.Record(ctx)
}

// Run reads the roster and follows it until ctx ends.
func (u *Updater) Run(ctx context.Context) {
	if _, err := u.Roster.Read(ctx); err == nil {
		u.apply()
	}
	u.Roster.Watch(ctx, u.apply, u.Logger)
}

// EnsureRead reads the roster if that was not done before: until then, an unknown client or user may be in it.
func (u *Updater) EnsureRead(ctx context.Context) error {
	if u.Roster.Record() != nil {
		return nil
	}
	if _, err := u.Roster.Read(ctx); err != nil {
		return err
	}
	if u.apply(); u.Len(Clients)+u.Len(Users) > 0 {
		return fmt.Errorf("%w: clients and people in it have just become known", store.ErrUnavailable)
	}
	return nil
}

// apply puts a server with the roster as last read in force. Entries that cannot be in force are left out.
func (u *Updater) apply() {
	u.mu.Lock()
	defer u.mu.Unlock()
	record := u.Roster.Record()
	if record == nil || record == u.record {
		return
	}
	draft, problems := u.draft(record)
	server, err := draft.Server()
	if err != nil { // cannot be: the configuration was accepted, and so were the entries
		u.Logger.Error("clients and people in the store are not in force", "error", err)
		return
	}
	for n, p := range problems {
		if u.problems[n].err == nil {
			u.Logger.Error("an entry of the store is not in force", "kind", string(n.kind), "name", n.name, "error", p.err)
		}
	}
	u.record, u.problems = record, problems
	u.inForce = server
	u.replace(server)
}
