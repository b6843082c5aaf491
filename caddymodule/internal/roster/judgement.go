package roster

import (
	"bytes"
	"log/slog"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

// judgement is what is known of an entry, of which many are there at each change: it is found out once.
type judgement struct {
	entry    Entry
	resolved authorize.Config // has the entry alone; else empty
	alone    bool             // whether it was tried alone
	problem  error            // why it cannot be in force, even alone
}

// judge returns the members that could be in force as far as is known, and forgets entries that are gone.
func (s *Server) judge(members []member) (candidates []member) {
	known := make(map[named]*judgement, len(members))
	for _, m := range members {
		j := s.known[m.named]
		if j == nil || !j.entry.equal(m.entry) {
			j = &judgement{entry: m.entry}
			j.problem = s.resolve(&j.resolved, m.kind, m.entry)
		}
		if known[m.named] = j; j.problem == nil {
			candidates = append(candidates, m)
		}
	}
	s.known = known
	return candidates
}

func (e Entry) equal(other Entry) bool {
	return e.Generation == other.Generation && bytes.Equal(e.Config, other.Config) && bytes.Equal(e.SecretSHA256, other.SecretSHA256)
}

// accept returns the members that can be in force together, and why the others cannot.
func (s *Server) accept(members []member) (accepted []member, problems map[named]error) {
	problems = map[named]error{}
	accepted = s.judge(members)
	if s.try(accepted) != nil {
		accepted = s.choose(nil, slices.DeleteFunc(accepted, s.failsAlone), problems)
	}
	for name, j := range s.known {
		if j.problem != nil {
			problems[name] = j.problem
		}
	}
	return accepted, problems
}

// failsAlone reports whether a member cannot be in force whoever else is. That costs little, unlike trying it with all.
func (s *Server) failsAlone(m member) bool {
	j := s.known[m.named]
	if !j.alone {
		j.alone, j.problem = true, s.try([]member{m})
	}
	return j.problem != nil
}

// choose returns members, after others, as far as they can be in force together.
func (s *Server) choose(others, members []member, problems map[named]error) []member {
	all := slices.Concat(others, members)
	err := s.try(all)
	switch {
	case err == nil:
		return all
	case len(members) == 1:
		problems[members[0].named] = err
		return others
	}
	half := len(members) / 2
	return s.choose(s.choose(others, members[:half], problems), members[half:], problems)
}

// try says why members cannot be in force together. It logs nothing: what is tried is made many times.
func (s *Server) try(members []member) error {
	_, err := s.with(members, slog.New(slog.DiscardHandler))
	return err
}

// with makes a server of the configuration and members, which were judged.
func (s *Server) with(members []member, logger *slog.Logger) (*authorize.Server, error) {
	c := s.config
	c.Logger = logger
	c.Clients, c.Users = slices.Clone(c.Clients), slices.Clone(c.Users)
	for _, m := range members {
		j := s.known[m.named]
		c.Clients, c.Users = append(c.Clients, j.resolved.Clients...), append(c.Users, j.resolved.Users...)
	}
	return authorize.New(c)
}

// check says why the entry of a name cannot be in force with the others of a record.
func (s *Server) check(record *Record, name named) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	members := record.members()
	at := slices.IndexFunc(members, func(m member) bool { return m.named == name })
	if at < 0 {
		return nil
	}
	candidates := s.judge(members)
	judged := s.known[name]
	if judged.problem != nil || s.try(candidates) == nil {
		return judged.problem
	}
	others, _ := s.accept(slices.Concat(members[:at], members[at+1:]))
	s.known[name] = judged
	return s.try(append(others, members[at]))
}
