package entry

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A ConfigAdder adds an entry of a kind to the configuration of a server. It returns an error if the entry is invalid.
type ConfigAdder func(to *authorize.Config, kind Kind, e Entry) error

// An Updater adds the entries of a roster to an authorization server. When the roster changes, it replaces the server.
type Updater struct {
	Roster  *Roster      // roster with the entries to add
	Resolve ConfigAdder  // adds an entry to a configuration
	Logger  *slog.Logger // logger for inactive entries

	mu               sync.Mutex              // held while the server is replaced
	configuredServer *authorize.Server       // server without the entries of the roster
	activeServer     *authorize.Server       // server with the entries of the roster
	replace          func(*authorize.Server) // activates a server
	snapshot         *Snapshot               // snapshot with the entries that were applied to activeServer
	activeIDs        map[entryID]serverIDs   // active entries
	problems         map[entryID]problem     // why entries are inactive
}

// problem is the reason why an entry is inactive.
type problem struct {
	err      error
	conflict bool // whether the entry conflicts with another entry; removing that entry activates this one
}

// Attach sets the server of the configuration and the function that replaces it. The server's [authorize.Config.CheckComplete]
// must be [Updater.EnsureLoaded]. Attach activates the entries that are already loaded but does not read the store.
func (u *Updater) Attach(configured *authorize.Server, replace func(*authorize.Server)) {
	u.mu.Lock()
	u.configuredServer, u.activeServer, u.replace = configured, configured, replace
	u.mu.Unlock()
	u.apply()
}

// Len returns the number of entries of the given kind when the roster was last read.
func (u *Updater) Len(kind Kind) int { return u.Roster.Snapshot().Len(kind) }

// Problem returns why an entry is inactive; nil if it is active.
func (u *Updater) Problem(kind Kind, name string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.problems[entryID{kind, name}].err
}

// Snapshot reads the roster, activates its entries and returns them.
func (u *Updater) Snapshot(ctx context.Context) (*Snapshot, error) {
	if _, err := u.Roster.Read(ctx); err != nil {
		return nil, err
	}
	u.apply()
	return u.Roster.Snapshot(), nil
}

// Change changes an entry. The change takes effect immediately at this gateway and shortly after at other gateways. If the
// resulting entry could not be active, Change returns [ErrInvalid] and changes nothing.
func (u *Updater) Change(ctx context.Context, kind Kind, name string, alter Alteration) error {
	n := entryID{kind, name}
	err := u.Roster.Change(ctx, kind, name, alter, func(_, after *Entry) error {
		if after == nil {
			return nil
		}
		if err := u.checkEntry(namedEntry{n, *after}); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return nil
	})
	if err == nil {
		u.apply()
	}
	return err
}

// checkEntry returns an error if an entry cannot be active together with the other entries.
func (u *Updater) checkEntry(m namedEntry) error {
	u.apply()
	u.mu.Lock()
	defer u.mu.Unlock()
	draft := u.activeServer.Draft()
	u.activeIDs[m.entryID].removeFrom(draft)
	_, err := u.addToDraft(draft, m)
	return err
}

// Reset calls [Roster.Reset] and returns the new snapshot.
func (u *Updater) Reset(ctx context.Context) (*Snapshot, error) {
	if err := u.Roster.Reset(ctx); err != nil {
		return nil, err
	}
	return u.Snapshot(ctx)
}

// Run reads the roster and follows its changes until ctx is canceled.
func (u *Updater) Run(ctx context.Context) {
	if _, err := u.Roster.Read(ctx); err == nil {
		u.apply()
	}
	u.Roster.Watch(ctx, u.apply, u.Logger)
}

// EnsureLoaded reads the roster if it has not been read yet. Until then, an unknown client or user may be in the roster, so the
// first read that finds entries returns an error to make the caller retry.
func (u *Updater) EnsureLoaded(ctx context.Context) error {
	if u.Roster.Snapshot() != nil {
		return nil
	}
	if _, err := u.Roster.Read(ctx); err != nil {
		return err
	}
	if u.apply(); u.Len(Clients)+u.Len(Users) > 0 {
		return fmt.Errorf("%w: stored clients and users were just loaded: retry", store.ErrUnavailable)
	}
	return nil
}

// apply activates a server with the entries that were last read. Entries that cannot be active are omitted.
func (u *Updater) apply() {
	u.mu.Lock()
	defer u.mu.Unlock()
	snapshot := u.Roster.Snapshot()
	if snapshot == nil || snapshot == u.snapshot {
		return
	}
	draft, problems := u.newDraft(snapshot)
	server, err := draft.Server()
	if err != nil { // should not happen: the configuration and the entries have been accepted
		u.Logger.Error("stored clients and users not activated", "error", err)
		return
	}
	for n, p := range problems {
		if u.problems[n].err == nil {
			u.Logger.Error("stored entry not activated", "kind", string(n.kind), "name", n.name, "error", p.err)
		}
	}
	u.snapshot, u.problems = snapshot, problems
	u.activeServer = server
	u.replace(server)
}

// serverIDs contains the client_id or user name of a resolved entry. It may differ from the name of the entry if another
// version of the software wrote the entry.
type serverIDs struct{ client, user string }

func (r serverIDs) removeFrom(from *authorize.Draft) {
	if r.client != "" {
		from.RemoveClient(r.client)
	}
	if r.user != "" {
		from.RemoveUser(r.user)
	}
}

// addToDraft adds an entry to a draft. If the entry is invalid or conflicts with another entry, it returns an error and does
// not change the draft.
func (u *Updater) addToDraft(draft *authorize.Draft, m namedEntry) (r serverIDs, err error) {
	var c authorize.Config
	if err := u.Resolve(&c, m.kind, m.entry); err != nil {
		return r, err
	}
	for _, client := range c.Clients {
		if err := draft.AddClient(client); err != nil {
			return r, err
		}
		r.client = client.ID
	}
	for _, user := range c.Users {
		if err := draft.AddUser(user); err != nil {
			return r, err
		}
		r.user = user.ID
	}
	return r, nil
}

// newDraft returns a draft with the entries of a snapshot, and the problems of inactive entries. If a snapshot is already
// active, it applies only the differences if possible.
func (u *Updater) newDraft(snapshot *Snapshot) (*authorize.Draft, map[entryID]problem) {
	changed, removed := snapshot.diff(u.snapshot)
	if u.snapshot != nil {
		if draft, problems := u.updateDraft(changed, removed); draft != nil {
			return draft, problems
		}
	}
	return u.rebuildDraft(snapshot.sorted())
}

// updateDraft returns the draft of the active snapshot with the given differences. It returns nil if a difference may activate
// or deactivate other entries, because the older of two conflicting entries wins.
func (u *Updater) updateDraft(changed []namedEntry, removed []entryID) (*authorize.Draft, map[entryID]problem) {
	draft, problems, added := u.activeServer.Draft(), maps.Clone(u.problems), map[entryID]serverIDs{}
	for _, m := range changed {
		removed = append(removed, m.entryID)
	}
	for _, n := range removed {
		u.activeIDs[n].removeFrom(draft)
		delete(problems, n)
		added[n] = serverIDs{}
	}
	for _, m := range changed {
		var p problem
		if added[m.entryID], p = u.tryAdd(draft, m); p.conflict {
			return nil, nil
		} else if p.err != nil {
			problems[m.entryID] = p
		}
	}
	for _, n := range removed {
		if u.activeIDs[n] != (serverIDs{}) && hasConflict(problems) {
			return nil, nil
		}
	}
	for n, r := range added {
		if u.activeIDs[n] = r; r == (serverIDs{}) {
			delete(u.activeIDs, n)
		}
	}
	return draft, problems
}

func hasConflict(problems map[entryID]problem) bool {
	for _, p := range problems {
		if p.conflict {
			return true
		}
	}
	return false
}

// tryAdd adds an entry to a draft. If that fails, the problem distinguishes conflicting from invalid entries.
func (u *Updater) tryAdd(draft *authorize.Draft, m namedEntry) (serverIDs, problem) {
	r, err := u.addToDraft(draft, m)
	if err == nil {
		return r, problem{}
	}
	_, aloneErr := u.addToDraft(u.configuredServer.Draft(), m)
	return r, problem{err, aloneErr == nil}
}

// rebuildDraft returns a draft with all entries of a snapshot, added from oldest to newest.
func (u *Updater) rebuildDraft(members []namedEntry) (*authorize.Draft, map[entryID]problem) {
	draft, problems := u.configuredServer.Draft(), map[entryID]problem{}
	u.activeIDs = make(map[entryID]serverIDs, len(members))
	for _, m := range members {
		r, p := u.tryAdd(draft, m)
		if p.err != nil {
			problems[m.entryID] = p
			continue
		}
		u.activeIDs[m.entryID] = r
	}
	return draft, problems
}
