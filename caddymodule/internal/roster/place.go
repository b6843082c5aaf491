package roster

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
func (s *Server) place(draft *authorize.Draft, m member) (r resolved, err error) {
	var c authorize.Config
	if err := s.resolve(&c, m.kind, m.entry); err != nil {
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
func (s *Server) draft(record *Record) (*authorize.Draft, map[named]problem) {
	changed, removed := record.differences(s.record)
	if s.record != nil {
		if draft, problems := s.advance(changed, removed); draft != nil {
			return draft, problems
		}
	}
	return s.rebuild(record.members())
}

// advance returns the draft of the record in force with differences; nil if these may put other entries in force, or out of
// force: of two that conflict, the older one wins.
func (s *Server) advance(changed []member, removed []named) (*authorize.Draft, map[named]problem) {
	draft, problems, placed := s.inForce.Load().Draft(), maps.Clone(s.problems), map[named]resolved{}
	for _, m := range changed {
		removed = append(removed, m.named)
	}
	for _, n := range removed {
		s.placed[n].remove(draft)
		delete(problems, n)
		placed[n] = resolved{}
	}
	for _, m := range changed {
		var p problem
		if placed[m.named], p = s.attempt(draft, m); p.conflict {
			return nil, nil
		} else if p.err != nil {
			problems[m.named] = p
		}
	}
	for _, n := range removed {
		if s.placed[n] != (resolved{}) && hasConflict(problems) {
			return nil, nil
		}
	}
	for n, r := range placed {
		if s.placed[n] = r; r == (resolved{}) {
			delete(s.placed, n)
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
func (s *Server) attempt(draft *authorize.Draft, m member) (resolved, problem) {
	r, err := s.place(draft, m)
	if err == nil {
		return r, problem{}
	}
	_, alone := s.place(s.configured.Draft(), m)
	return r, problem{err, alone == nil}
}

// rebuild returns a draft with all members of a record, oldest first.
func (s *Server) rebuild(members []member) (*authorize.Draft, map[named]problem) {
	draft, problems := s.configured.Draft(), map[named]problem{}
	s.placed = make(map[named]resolved, len(members))
	for _, m := range members {
		r, p := s.attempt(draft, m)
		if p.err != nil {
			problems[m.named] = p
			continue
		}
		s.placed[m.named] = r
	}
	return draft, problems
}
