package roster

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// clientEntry resolves an entry whose configuration is a client_id.
func clientEntry(to *authorize.Config, _ Kind, e Entry) error {
	var id string
	err := json.Unmarshal(e.Config, &id)
	to.Clients = append(to.Clients, authorize.Client{ID: id, RedirectURIs: []string{"https://app.example/"}})
	return err
}

func newServer(t *testing.T, s store.Store) *Server {
	t.Helper()
	server, err := NewServer(authorize.Config{
		Issuer: "https://example.org", FHIRBasePath: "/fhir", Store: s, Durable: s, Logger: slog.New(slog.DiscardHandler),
		Clients: []authorize.Client{{ID: "configured", RedirectURIs: []string{"https://app.example/"}}},
	}, New(s, new(Known)), clientEntry)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// ask sends an authorization request of a client that leaves out everything else. A known client's is sent back to it.
func ask(s *Server, id string) int {
	w := httptest.NewRecorder()
	s.InForce().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://example.org/oauth2/authorize?redirect_uri=https://app.example/&client_id="+id, nil))
	return w.Code
}

func put(t *testing.T, r *Roster, entries map[string]string) {
	t.Helper()
	since := time.Now()
	err := r.Change(t.Context(), func(record *Record) error {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if config, there := entries[name]; there {
				since = since.Add(time.Second)
				record.set(Clients, name, Entry{Config: []byte(config), Since: since})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What cannot be in force leaves the rest in force, and is told.
func TestEntriesInForce(t *testing.T) {
	shared := store.NewMemory(100, 0)
	server := newServer(t, shared)
	put(t, server.roster, map[string]string{"a": `"a"`, "b": `"configured"`, "c": `"c"`, "d": `"a"`, "e": `7`})
	err := server.roster.Change(t.Context(), func(record *Record) error { return record.Add("later", "x", Entry{Config: []byte(`7`)}) })
	if err != nil {
		t.Fatal(err)
	}
	server.rebuild()
	for name, want := range map[string]bool{"a": true, "b": false, "c": true, "d": false, "e": false} {
		if problem := server.Problem(Clients, name); (problem == nil) != want {
			t.Errorf("%s: %v", name, problem)
		}
	}
	for id, want := range map[string]int{"configured": http.StatusFound, "a": http.StatusFound, "c": http.StatusFound, "x": http.StatusBadRequest} {
		if got := ask(server, id); got != want {
			t.Errorf("%s: %d, want %d", id, got, want)
		}
	}
	add := func(record *Record) error { return record.Add(Clients, "f", Entry{Config: []byte(`"configured"`)}) }
	if err := server.Change(t.Context(), Clients, "f", add); !errors.Is(err, ErrInvalid) {
		t.Errorf("a client of the configuration's name: %v", err)
	}
}

// An entry is read once, not at each change, and one that clashed with another is in force once that is gone.
func TestEntriesAreJudgedOnce(t *testing.T) {
	server := newServer(t, store.NewMemory(100, 0))
	put(t, server.roster, map[string]string{"a": `"a"`, "b": `"configured"`, "c": `"a"`, "d": `7`})
	server.rebuild()
	read := 0
	server.resolve = func(to *authorize.Config, kind Kind, e Entry) error { read++; return clientEntry(to, kind, e) }
	for _, alter := range []func(*Record) error{
		func(record *Record) error { return record.Add(Clients, "e", Entry{Config: []byte(`"e"`)}) },
		func(record *Record) error { return record.Remove(Clients, "e") },
	} {
		if err := server.Change(t.Context(), Clients, "e", alter); err != nil || server.Problem(Clients, "c") == nil {
			t.Errorf("%v, %v", err, server.Problem(Clients, "c"))
		}
	}
	if err := server.Change(t.Context(), Clients, "a", func(record *Record) error { return record.Remove(Clients, "a") }); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"b": false, "c": true, "d": false} {
		if problem := server.Problem(Clients, name); (problem == nil) != want {
			t.Errorf("%s: %v", name, problem)
		}
	}
	if read != 1 {
		t.Errorf("read %d entries, want the new one", read)
	}
}

// What is only tried is not logged.
func TestQuietTrials(t *testing.T) {
	var log strings.Builder
	server := newServer(t, store.NewMemory(100, 0))
	put(t, server.roster, map[string]string{"a": `"a"`, "b": `"configured"`, "c": `"c"`, "d": `"d"`})
	server.logger = slog.New(slog.NewTextHandler(&log, nil))
	server.config.Registration = &authorize.Registration{InitialAccessToken: "guessable", Storage: &certmagic.FileStorage{Path: t.TempDir()}}
	server.config.Logger = server.logger
	server.rebuild()
	if n := strings.Count(log.String(), "level="); n != 2 { // of the initial access token, and of the entry with a configured name
		t.Errorf("logged %d times:\n%s", n, &log)
	}
}

// Until the roster was read, whoever is not known may be in it.
func TestUnreadRoster(t *testing.T) {
	shared := &brittleStore{Store: store.NewMemory(100, 0)}
	put(t, New(shared, new(Known)), map[string]string{"a": `"a"`})
	server := newServer(t, shared)
	shared.down = true
	for id, want := range map[string]int{"configured": http.StatusFound, "a": http.StatusServiceUnavailable, "x": http.StatusServiceUnavailable} {
		if got := ask(server, id); got != want {
			t.Errorf("during an outage: %s: %d, want %d", id, got, want)
		}
	}
	shared.down = false
	ask(server, "x") // has it read
	for id, want := range map[string]int{"configured": http.StatusFound, "a": http.StatusFound, "x": http.StatusBadRequest} {
		if got := ask(server, id); got != want {
			t.Errorf("later: %s: %d, want %d", id, got, want)
		}
	}
}

func TestRunEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	server := newServer(t, store.NewMemory(100, 0))
	ended := make(chan struct{})
	go func() { server.Run(ctx); close(ended) }()
	stop()
	<-ended
}

// Whoever lists the roster first does not keep a change from being in force.
func TestListedChangeIsInForce(t *testing.T) {
	shared := store.NewMemory(100, 0)
	here, there := newServer(t, shared), newServer(t, shared)
	if _, err := there.Record(t.Context()); err != nil {
		t.Fatal(err)
	}
	add := func(record *Record) error { return record.Add(Clients, "a", Entry{Config: []byte(`"a"`)}) }
	if err := here.Change(t.Context(), Clients, "a", add); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Record(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ask(there, "a"); got != http.StatusFound {
		t.Errorf("%d, want %d", got, http.StatusFound)
	}
}
