package session

import (
	"log/slog"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// newSessionsWith returns Sessions with a stored session that has the sid "sid".
func newSessionsWith(t *testing.T, session Session) *Sessions {
	t.Helper()
	memory := store.NewMemory(0, 0)
	value, err := store.ToJSON(session)
	if err == nil {
		err = memory.Put(t.Context(), Key("sid"), value, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Sessions{Durable: memory, Store: memory, Lifetime: time.Hour, Logger: slog.New(slog.DiscardHandler)}
}

// FindByIDToken finds a session only if both its sid and its user are given.
func TestSessionIsNamedWithUser(t *testing.T) {
	t.Parallel()
	s := newSessionsWith(t, Session{User: "alice"})
	for user, want := range map[string]bool{"alice": true, "bob": false, "": false} {
		if found, err := s.FindByIDToken(t.Context(), "sid", user); err != nil || (found != nil) != want {
			t.Errorf("%q: %+v, %v", user, found, err)
		}
	}
}

// EndUpstreamSessions without a subject and a session ends nothing.
func TestLogoutWithoutSubject(t *testing.T) {
	t.Parallel()
	s := newSessionsWith(t, Session{User: "alice", Provider: "hospital", UpstreamSubject: "1"})
	if err := s.EndUpstreamSessions(t.Context(), &people.Provider{IdentityProvider: people.IdentityProvider{Key: "hospital"}}, "", ""); err != nil {
		t.Error(err)
	}
	if found, err := s.Find(t.Context(), "sid"); err != nil || found == nil {
		t.Errorf("%+v, %v", found, err)
	}
}

// A logout recorded for a subject and session applies only to sign-ins at that provider.
func TestEndingIsOfOneProvider(t *testing.T) {
	t.Parallel()
	s := newSessionsWith(t, Session{})
	if err := s.RecordUpstreamLogout(t.Context(), &people.Provider{IdentityProvider: people.IdentityProvider{Key: "hospital"}}, "1", "one"); err != nil {
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
		calls := tt.session.upstreamLogoutCalls()
		if err := store.Do(t.Context(), store.NewStep(s.Durable, calls...)); err != nil {
			t.Fatal(err)
		}
		if got := tt.session.wasEndedUpstream(calls); got != tt.want {
			t.Errorf("%+v: %v", tt.session, got)
		}
	}
}

// No sid starts with a dash, because fhir-sessions end <sid> must accept every sid.
func TestSIDIsNoFlag(t *testing.T) {
	t.Parallel()
	for range 2000 {
		if sid := deriveSID(newRoot()); sid[0] == '-' {
			t.Fatal(sid)
		}
	}
}

// TestBeganWith checks which sessions match a subject, a session, or both at a provider.
func TestBeganWith(t *testing.T) {
	t.Parallel()
	hospital, clinic := new(people.Provider), new(people.Provider)
	hospital.Key, clinic.Key = "hospital", "clinic"
	stored := &Session{Provider: "hospital", UpstreamSubject: "alice", UpstreamSession: "1"}
	for name, tt := range map[string]struct {
		by               *people.Provider
		subject, session string
		want             bool
	}{
		"its subject":                     {hospital, "alice", "", true},
		"its session":                     {hospital, "", "1", true},
		"both":                            {hospital, "alice", "1", true},
		"another subject":                 {hospital, "bob", "", false},
		"another session":                 {hospital, "", "2", false},
		"its subject, another session":    {hospital, "alice", "2", false},
		"another subject, its session":    {hospital, "bob", "1", false},
		"the subject of another provider": {clinic, "alice", "", false},
		"the session of another provider": {clinic, "", "1", false},
	} {
		if got := stored.matchesUpstream(tt.by, tt.subject, tt.session); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
