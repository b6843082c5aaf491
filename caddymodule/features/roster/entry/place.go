package entry

import (
	"maps"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

// resolved is the client_id or user name that an entry resolved to. It may differ from the name of the entry if another
// version wrote it.
type resolved struct{ client, user string }

func (r resolved) remove(from *authorize.Draft) {
	if r.client != "" {
		from.RemoveClient(r.client)
	}
	if r.user != "" {
		from.RemoveUser(r.user)
	}
}

// place adds an entry to a draft. It returns an error, and changes nothing, if the entry is invalid or conflicts with another.
func (u *Updater) place(draft *authorize.Draft, m member) (r resolved, err error) {
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

// draft returns a draft with the entries of a record, and the problems of those that are not in force. It only places the
// differences from the record in force, if there is one.
func (u *Updater) draft(record *Record) (*authorize.Draft, map[named]problem) {
	changed, removed := record.differences(u.record)
	if u.record != nil {
		if draft, problems := u.advance(changed, removed); draft != nil {
			return draft, problems
		}
	}
	return u.rebuild(record.members())
}

// advance returns the draft of the record in force with differences; nil if these may put other entries in force, or out of
// force: of two that conflict, the older one wins.
func (u *Updater) advance(changed []member, removed []named) (*authorize.Draft, map[named]problem) {
	draft, problems, placed := u.inForce.Draft(), maps.Clone(u.problems), map[named]resolved{}
	for _, m := range changed {
		removed = append(removed, m.named)
	}
	for _, n := range removed {
		u.placed[n].remove(draft)
		delete(problems, n)
		placed[n] = resolved{}
	}
	for _, m := range changed {
		var p problem
		if placed[m.named], p = u.attempt(draft, m); p.conflict {
			return nil, nil
		} else if p.err != nil {
			problems[m.named] = p
		}
	}
	for _, n := range removed {
		if u.placed[n] != (resolved{}) && hasConflict(problems) {
			return nil, nil
		}
	}
	for n, r := range placed {
		if u.placed[n] = r; r == (resolved{}) {
			delete(u.placed, n)
		}
	}
	return draft, problems
}

func hasConflict(problems map[named]problem) bool {
	for _, p := range problems {
		if p.conflict {
			return true
		}
	}
	return false
}

// attempt places an entry. If that fails, the problem tells a conflict with another entry from an invalid entry.
func (u *Updater) attempt(draft *authorize.Draft, m member) (resolved, problem) {
	r, err := u.place(draft, m)
	if err == nil {
		return r, problem{}
	}
	_, alone := u.place(u.configured.Draft(), m)
	return r, problem{err, alone == nil}
}

// rebuild returns a draft with all members of a record, oldest first.
func (u *Updater) rebuild(members []member) (*authorize.Draft, map[named]problem) {
	draft, problems := u.configured.Draft(), map[named]problem{}
	u.placed = make(map[named]resolved, len(members))
	for _, m := range members {
		r, p := u.attempt(draft, m)
		if p.err != nil {
			problems[m.named] = p
			continue
		}
		u.placed[m.named] = r
	}
	return draft, problems
}
