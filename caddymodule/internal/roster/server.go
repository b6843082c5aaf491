package roster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	roster  *Roster
	config  authorize.Config // without the roster
	resolve Resolver
	logger  *slog.Logger

	mu       sync.Mutex // held while the server is replaced
	inForce  atomic.Pointer[authorize.Server]
	known    map[named]*judgement // of the entries that were last read, or were to be changed
	problems map[named]error      // of entries that are not in force
	ctx      context.Context      // of what runs in the background; nil before that
	end      context.CancelFunc   // ends what the server in force does in the background
	running  sync.WaitGroup
}

// NewServer makes the server, with the roster as far as it was read. It reads nothing.
func NewServer(c authorize.Config, r *Roster, resolve Resolver) (*Server, error) {
	s := &Server{roster: r, config: c, resolve: resolve, logger: c.Logger}
	s.config.Known = s.read
	if len(r.Record().members()) > 0 {
		if err := s.try(nil); err != nil {
			return nil, err
		}
		s.rebuild()
		return s, nil
	}
	server, err := s.with(nil, s.logger)
	if err != nil {
		return nil, err
	}
	s.inForce.Store(server)
	return s, nil
}

// InForce returns the server that answers now.
func (s *Server) InForce() *authorize.Server { return s.inForce.Load() }

// Trouble is [Roster.Trouble].
func (s *Server) Trouble() error { return s.roster.Trouble() }

// Problem says why an entry is not in force; nil if it is.
func (s *Server) Problem(kind Kind, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems[named{kind, name}]
}

// Record reads the roster, which is then in force, and returns it. It must not be changed.
func (s *Server) Record(ctx context.Context) (*Record, error) {
	changed, err := s.roster.Read(ctx)
	if err != nil {
		return nil, err
	}
	if changed {
		s.rebuild()
	}
	return s.roster.Record(), nil
}

// Change makes a change to an entry, here at once and at other gateways shortly after. If the entry cannot be in force
// then, the change is refused, and nothing has changed.
func (s *Server) Change(ctx context.Context, kind Kind, name string, alter func(*Record) error) error {
	err := s.roster.Change(ctx, func(record *Record) error {
		if err := alter(record); err != nil {
			return err
		}
		if err := s.check(record, named{kind, name}); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return nil
	})
	if err == nil {
		s.rebuild()
	}
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
	if changed, err := s.roster.Read(ctx); changed && err == nil {
		s.rebuild()
	}
	s.roster.Watch(ctx, s.rebuild, s.logger)
	s.running.Wait()
}

// read reads the roster if that was not done before: until then, somebody who is not known may be in it.
func (s *Server) read(ctx context.Context) error {
	if s.roster.Record() != nil {
		return nil
	}
	if _, err := s.roster.Read(ctx); err != nil {
		return err
	}
	if s.rebuild(); len(s.roster.Record().Entries) > 0 {
		return fmt.Errorf("%w: clients and people in it have just become known", store.ErrUnavailable)
	}
	return nil
}

// rebuild puts a server with the roster as last read in force. Entries that cannot be in force are left out.
func (s *Server) rebuild() {
	s.mu.Lock()
	defer s.mu.Unlock()
	accepted, problems := s.accept(s.roster.Record().members())
	for entry, err := range problems {
		if s.problems[entry] == nil {
			s.logger.Error("an entry of the store is not in force", "kind", string(entry.kind), "name", entry.name, "error", err)
		}
	}
	server, err := s.with(accepted, s.logger)
	if err != nil { // cannot be: it was made already
		s.logger.Error("clients and people in the store are not in force", "error", err)
		return
	}
	s.problems = problems
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

// named tells entries apart, of kinds that only later versions know as well.
type named struct {
	kind Kind
	name string
}

// member is an entry with its kind and name.
type member struct {
	named
	entry Entry
}

// members are all entries, those that came first first: what a later one clashes with stays in force.
func (r *Record) members() (all []member) {
	if r == nil {
		return nil
	}
	for kind, entries := range r.Entries {
		for name, entry := range entries {
			all = append(all, member{named{kind, name}, entry})
		}
	}
	slices.SortFunc(all, func(a, b member) int {
		return cmp.Or(a.entry.Since.Compare(b.entry.Since), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return all
}
