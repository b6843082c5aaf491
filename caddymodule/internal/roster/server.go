package roster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A Resolver adds an entry of a kind to a server's configuration, or says why it cannot.
type Resolver func(to *authorize.Config, kind Kind, e Entry) error

// A Server is the authorization server of a configuration and a roster. When the roster changes, another one takes its
// place, as on a reload: requests go on with the one that they began with.
type Server struct {
	roster     *Roster
	configured *authorize.Server // without the roster
	resolve    Resolver
	logger     *slog.Logger

	mu       sync.Mutex // held while the server is replaced
	inForce  atomic.Pointer[authorize.Server]
	record   *Record            // that is in force
	placed   map[named]resolved // entries in force
	problems map[named]problem  // of entries that are not in force
	ctx      context.Context    // of what runs in the background; nil before that
	end      context.CancelFunc // ends what the server in force does in the background
	running  sync.WaitGroup
}

// problem is the reason why an entry is not in force.
type problem struct {
	err      error
	conflict bool // with another entry, whose removal puts this one in force
}

// NewServer makes the server, with the roster as far as it was read. It reads nothing.
func NewServer(c authorize.Config, r *Roster, resolve Resolver) (*Server, error) {
	s := &Server{roster: r, resolve: resolve, logger: c.Logger}
	c.Known = s.read
	var err error
	if s.configured, err = authorize.New(c); err != nil {
		return nil, err
	}
	s.inForce.Store(s.configured)
	s.apply()
	return s, nil
}

// InForce returns the server that answers now.
func (s *Server) InForce() *authorize.Server { return s.inForce.Load() }

// Trouble is [Roster.Trouble].
func (s *Server) Trouble() error { return s.roster.Trouble() }

// Len is the number of entries of a kind, as last read.
func (s *Server) Len(kind Kind) int { return s.roster.Record().Len(kind) }

// Problem says why an entry is not in force; nil if it is.
func (s *Server) Problem(kind Kind, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems[named{kind, name}].err
}

// Record reads the roster, which is then in force, and returns it.
func (s *Server) Record(ctx context.Context) (*Record, error) {
	if _, err := s.roster.Read(ctx); err != nil {
		return nil, err
	}
	s.apply()
	return s.roster.Record(), nil
}

// Change changes an entry, here at once and at other gateways shortly after. If the entry cannot be in force then, the
// change is refused, and nothing has changed.
func (s *Server) Change(ctx context.Context, kind Kind, name string, alter Alteration) error {
	n := named{kind, name}
	err := s.roster.Change(ctx, kind, name, alter, func(_, after *Entry) error {
		if after == nil {
			return nil
		}
		if err := s.check(member{n, *after}); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return nil
	})
	if err == nil {
		s.apply()
	}
	return err
}

// check returns an error if an entry cannot be in force together with the others.
func (s *Server) check(m member) error {
	s.apply()
	s.mu.Lock()
	defer s.mu.Unlock()
	draft := s.inForce.Load().Draft()
	s.placed[m.named].remove(draft)
	_, err := s.place(draft, m)
	return err
}

// Reset is [Roster.Reset].
func (s *Server) Reset(ctx context.Context) (*Record, error) {
	if err := s.roster.Reset(ctx); err != nil {
		return nil, err
	}
	return s.Record(ctx)
}

// Run reads the roster, follows it, and does in the background what its server does there, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	s.mu.Lock()
	s.ctx = ctx
	s.begin()
	s.mu.Unlock()
	if _, err := s.roster.Read(ctx); err == nil {
		s.apply()
	}
	s.roster.Watch(ctx, s.apply, s.logger)
	s.running.Wait()
}

// read reads the roster if that was not done before: until then, a client or user that is not known may be in it.
func (s *Server) read(ctx context.Context) error {
	if s.roster.Record() != nil {
		return nil
	}
	if _, err := s.roster.Read(ctx); err != nil {
		return err
	}
	if s.apply(); s.Len(Clients)+s.Len(Users) > 0 {
		return fmt.Errorf("%w: clients and people in it have just become known", store.ErrUnavailable)
	}
	return nil
}

// apply puts a server with the roster as last read in force. Entries that cannot be in force are left out.
func (s *Server) apply() {
	s.mu.Lock()
	defer s.mu.Unlock()
	record := s.roster.Record()
	if record == nil || record == s.record {
		return
	}
	draft, problems := s.draft(record)
	server, err := draft.Server()
	if err != nil { // cannot be: the configuration was accepted, and so were the entries
		s.logger.Error("clients and people in the store are not in force", "error", err)
		return
	}
	for n, p := range problems {
		if s.problems[n].err == nil {
			s.logger.Error("an entry of the store is not in force", "kind", string(n.kind), "name", n.name, "error", p.err)
		}
	}
	s.record, s.problems = record, problems
	s.inForce.Store(server)
	s.begin()
}

// begin ends what an earlier server does in the background, and lets the one in force do it.
func (s *Server) begin() {
	if s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	if s.end != nil {
		s.end()
	}
	ctx, end := context.WithCancel(s.ctx)
	s.end = end
	server := s.inForce.Load()
	s.running.Go(func() { server.Run(ctx) })
}
