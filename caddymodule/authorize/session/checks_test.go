package session

import (
	"log/slog"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// stored returns sessions with one that is stored.
func stored(t *testing.T, session Session) *Sessions {
	t.Helper()
	kept := store.NewMemory(0, 0)
	value, err := store.ToJSON(session)
	if err == nil {
		err = kept.Put(t.Context(), Key("sid"), value, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Sessions{Durable: kept, Store: kept, Lifetime: time.Hour, Logger: slog.New(slog.DiscardHandler)}
}

// A session is found by its sid together with its user only.
func TestSessionIsNamedWithUser(t *testing.T) {
	t.Parallel()
	s := stored(t, Session{User: "alice"})
	for user, want := range map[string]bool{"alice": true, "bob": false, "": false} {
		if found, err := s.FindNamed(t.Context(), "sid", user); err != nil || (found != nil) != want {
			t.Errorf("%q: %+v, %v", user, found, err)
		}
	}
}

// A provider that names neither a subject nor a session ends nothing.
func TestProviderThatNamesNobody(t *testing.T) {
	t.Parallel()
	s := stored(t, Session{User: "alice", Provider: "hospital", UpstreamSubject: "1"})
	if err := s.EndUpstream(t.Context(), &people.Provider{IdentityProvider: people.IdentityProvider{Key: "hospital"}}, "", ""); err != nil {
		t.Error(err)
	}
	if found, err := s.Find(t.Context(), "sid"); err != nil || found == nil {
		t.Errorf("%+v, %v", found, err)
	}
}

// A provider's note that a subject or session has ended is about the sign-ins at that provider only.
func TestEndingIsOfOneProvider(t *testing.T) {
	t.Parallel()
	s := stored(t, Session{})
	if err := s.NoteEnded(t.Context(), &people.Provider{IdentityProvider: people.IdentityProvider{Key: "hospital"}}, "1", "one"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		session Session
		want    bool
	}{
		{Session{Provider: "hospital", UpstreamSubject: "1", UpstreamSession: "one"}, true},
		{Session{Provider: "hospital", UpstreamSubject: "1"}, true},
		{Session{Provider: "hospital", UpstreamSubject: "1", UpstreamSession: "two"}, false},
		{Session{Provider: "hospital", UpstreamSubject: "2", UpstreamSession: "one"}, false},
		{Session{Provider: "clinic", UpstreamSubject: "1", UpstreamSession: "one"}, false},
		{Session{}, false},
	} {
		calls := tt.session.endings()
		if err := store.Do(t.Context(), store.In(s.Durable, calls...)); err != nil {
			t.Fatal(err)
		}
		if got := tt.session.endedBy(calls); got != tt.want {
			t.Errorf("%+v: %v", tt.session, got)
		}
	}
}
