package entry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// clientEntry is a resolver for entries with a client_id as their configuration.
func clientEntry(to *authorize.Config, _ Kind, e Entry) error {
	var id string
	err := json.Unmarshal(e.Config, &id)
	to.Clients = append(to.Clients, client.Client{ID: id, RedirectURIs: []string{"https://app.example/"}})
	return err
}

// newAttachedUpdater returns the updater of a server that has one client in its configuration.
func newAttachedUpdater(t *testing.T, s store.Store, logger *slog.Logger) *Updater {
	t.Helper()
	u := &Updater{Roster: New(s, new(LoadedEntries)), Resolve: clientEntry, Logger: logger}
	configured, err := authorize.New(authorize.Config{
		Issuer: "https://example.org", FHIRBasePath: "/fhir", Store: s, DurableStore: s, Logger: logger, CheckComplete: u.EnsureLoaded,
		Clients: []client.Client{{ID: "configured", RedirectURIs: []string{"https://app.example/"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	u.Attach(configured, func(*authorize.Server) {})
	return u
}

func newUpdater(t *testing.T, s store.Store) *Updater {
	t.Helper()
	return newAttachedUpdater(t, s, slog.New(slog.DiscardHandler))
}

// sendAuthorizationRequest sends only a client_id and returns the status, which is a redirect if the client is known.
func sendAuthorizationRequest(u *Updater, id string) int {
	u.mu.Lock()
	server := u.activeServer
	u.mu.Unlock()
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://example.org/oauth2/authorize?redirect_uri=https://app.example/&client_id="+id, nil))
	return w.Code
}

func put(t *testing.T, r *Roster, entries map[string]string) {
	t.Helper()
	since := time.Now()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if config, there := entries[name]; there {
			since = since.Add(time.Second)
			mustChange(t, r, Clients, name, Add(Entry{Config: []byte(config), Since: since}))
		}
	}
}

// An entry that cannot be active is reported and does not affect other entries.
func TestEntriesInForce(t *testing.T) {
	shared := store.NewMemory(100, 0)
	updater := newUpdater(t, shared)
	put(t, updater.Roster, map[string]string{"a": `"a"`, "b": `"configured"`, "c": `"c"`, "d": `"a"`, "e": `7`})
	mustChange(t, updater.Roster, "later", "x", Add(Entry{Config: []byte(`7`)}))
	updater.apply()
	for name, want := range map[string]bool{"a": true, "b": false, "c": true, "d": false, "e": false} {
		if problem := updater.Problem(Clients, name); (problem == nil) != want {
			t.Errorf("%s: %v", name, problem)
		}
	}
	for id, want := range map[string]int{"configured": http.StatusFound, "a": http.StatusFound, "c": http.StatusFound, "x": http.StatusBadRequest} {
		if got := sendAuthorizationRequest(updater, id); got != want {
			t.Errorf("%s: %d, want %d", id, got, want)
		}
	}
	if err := updater.Change(t.Context(), Clients, "f", Add(Entry{Config: []byte(`"configured"`)})); !errors.Is(err, ErrInvalid) {
		t.Errorf("a client of the configuration's name: %v", err)
	}
}

// A change reads only the changed entry, even if other entries are invalid.
func TestChangeReadsOneEntry(t *testing.T) {
	updater := newUpdater(t, store.NewMemory(100, 0))
	put(t, updater.Roster, map[string]string{"a": `"a"`, "b": `"configured"`, "d": `7`})
	updater.apply()
	var read []string
	updater.Resolve = func(to *authorize.Config, kind Kind, e Entry) error {
		read = append(read, string(e.Config))
		return clientEntry(to, kind, e)
	}
	for _, alter := range []Alteration{Add(Entry{Config: []byte(`"e"`)}), Remove()} {
		if err := updater.Change(t.Context(), Clients, "e", alter); err != nil {
			t.Fatal(err)
		}
	}
	if len(read) == 0 || slices.ContainsFunc(read, func(config string) bool { return config != `"e"` }) {
		t.Errorf("read %v, want the new one", read)
	}
}

// If two entries conflict, the older entry is active, regardless of the order in which a gateway reads them. When the older
// entry is removed, the newer entry becomes active.
func TestConflicts(t *testing.T) {
	shared := store.NewMemory(100, 0)
	here, there := newUpdater(t, shared), newUpdater(t, shared)
	since := time.Unix(1000, 0)
	check := func(step string, want map[string]bool) {
		t.Helper()
		for _, s := range []*Updater{here, there, newUpdater(t, shared)} {
			if _, err := s.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			for name, want := range want {
				if problem := s.Problem(Clients, name); (problem == nil) != want {
					t.Errorf("%s: %s: %v", step, name, problem)
				}
			}
		}
	}
	mustChange(t, here.Roster, Clients, "younger", Add(Entry{Config: []byte(`"x"`), Since: since}))
	check("alone", map[string]bool{"younger": true})
	mustChange(t, here.Roster, Clients, "older", Add(Entry{Config: []byte(`"x"`), Since: since.Add(-time.Hour)}))
	check("both", map[string]bool{"older": true, "younger": false})
	mustChange(t, here.Roster, Clients, "other", Add(Entry{Config: []byte(`"y"`), Since: since}))
	check("and another", map[string]bool{"older": true, "younger": false, "other": true})
	mustChange(t, here.Roster, Clients, "older", Remove())
	check("the older is gone", map[string]bool{"younger": true, "other": true})
	for id, want := range map[string]int{"x": http.StatusFound, "y": http.StatusFound, "z": http.StatusBadRequest} {
		if got := sendAuthorizationRequest(there, id); got != want {
			t.Errorf("%s: %d, want %d", id, got, want)
		}
	}
}

// Each inactive entry is logged once.
func TestLog(t *testing.T) {
	var log strings.Builder
	shared := store.NewMemory(100, 0)
	put(t, New(shared, new(LoadedEntries)), map[string]string{"a": `"a"`, "b": `"configured"`, "c": `"c"`, "d": `"d"`})
	updater := newAttachedUpdater(t, shared, slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		if _, err := updater.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "level="); n != 1 { // only the entry with a configured name is logged
		t.Errorf("logged %d times:\n%s", n, &log)
	}
}

// Until the roster has been read, requests from unknown clients fail with a store error instead of a client error.
func TestUnreadRoster(t *testing.T) {
	shared := &countingStore{Store: store.NewMemory(100, 0)}
	put(t, New(shared, new(LoadedEntries)), map[string]string{"a": `"a"`})
	updater := newUpdater(t, shared)
	shared.unavailable.Store(true)
	for id, want := range map[string]int{"configured": http.StatusFound, "a": http.StatusServiceUnavailable, "x": http.StatusServiceUnavailable} {
		if got := sendAuthorizationRequest(updater, id); got != want {
			t.Errorf("during an outage: %s: %d, want %d", id, got, want)
		}
	}
	shared.unavailable.Store(false)
	sendAuthorizationRequest(updater, "x") // this request reads the roster
	for id, want := range map[string]int{"configured": http.StatusFound, "a": http.StatusFound, "x": http.StatusBadRequest} {
		if got := sendAuthorizationRequest(updater, id); got != want {
			t.Errorf("later: %s: %d, want %d", id, got, want)
		}
	}
}

func TestRunEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	updater := newUpdater(t, store.NewMemory(100, 0))
	ended := make(chan struct{})
	go func() { updater.Run(ctx); close(ended) }()
	stop()
	<-ended
}

// If the roster is listed after a change, the change still becomes active.
func TestListedChangeIsInForce(t *testing.T) {
	shared := store.NewMemory(100, 0)
	here, there := newUpdater(t, shared), newUpdater(t, shared)
	if _, err := there.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := here.Change(t.Context(), Clients, "a", Add(Entry{Config: []byte(`"a"`)})); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sendAuthorizationRequest(there, "a"); got != http.StatusFound {
		t.Errorf("%d, want %d", got, http.StatusFound)
	}
}

// The cost of adding an entry does not depend on the number of entries: with 5,000 clients, the number of allocations is that
// with 10 clients, within 50 %.
func TestConstantCost(t *testing.T) {
	allocations := func(clients int) float64 {
		shared := store.NewMemory(100_000, 0)
		updater := newUpdater(t, shared)
		for i := range clients {
			name := fmt.Sprintf(`"client-%d"`, i)
			mustChange(t, updater.Roster, Clients, name, Add(Entry{Config: []byte(name)}))
		}
		updater.apply()
		return testing.AllocsPerRun(20, func() {
			for _, alter := range []Alteration{Add(Entry{Config: []byte(`"new"`)}), Remove()} {
				if err := updater.Change(t.Context(), Clients, "new", alter); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if few, many := allocations(10), allocations(5000); many > 1.5*few {
		t.Errorf("%.0f allocations among 10 clients, %.0f among 5,000", few, many)
	} else {
		t.Logf("%.0f allocations among 10 clients, %.0f among 5,000", few, many)
	}
}

// If a gateway reads changes during a rejected change, or through the server of an earlier configuration, the changes become
// active within the interval like all others.
func TestFollowingAfterOtherReads(t *testing.T) {
	for name, read := range map[string]func(context.Context, *Updater) error{
		"a refused change": func(ctx context.Context, s *Updater) error {
			if err := s.Change(ctx, Clients, "b", Add(empty)); !errors.Is(err, ErrExists) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		},
		"a refused reset": func(ctx context.Context, s *Updater) error {
			if _, err := s.Reset(ctx); !errors.Is(err, ErrReadable) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		},
		"another server": func(ctx context.Context, s *Updater) error {
			_, err := New(s.Roster.store, s.Roster.loaded).Read(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := store.NewMemory(100, 0)
				here, there := newUpdater(t, shared), newUpdater(t, shared)
				put(t, here.Roster, map[string]string{"a": `"a"`, "b": `"b"`})
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				defer func() { stop(); running.Wait() }()
				running.Go(func() { there.Run(ctx) })
				time.Sleep(pollInterval + time.Millisecond)
				if got := sendAuthorizationRequest(there, "a"); got != http.StatusFound {
					t.Fatalf("before: %d", got)
				}
				mustChange(t, here.Roster, Clients, "a", Remove())
				if err := read(ctx, there); err != nil {
					t.Error(err)
				}
				time.Sleep(pollInterval + time.Millisecond)
				if got := sendAuthorizationRequest(there, "a"); got != http.StatusBadRequest {
					t.Errorf("a removed client still works: %d", got)
				}
			})
		})
	}
}
