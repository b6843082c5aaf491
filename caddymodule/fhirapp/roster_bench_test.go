package fhirapp

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

// rosterOf returns a server with users in a store, in force or not.
func rosterOf(tb testing.TB, s store.Store, users int, more string) *roster.Server {
	tb.Helper()
	r := roster.New(s, new(roster.Known))
	for i := range users {
		name := fmt.Sprint("person-", i)
		if err := r.Change(tb.Context(), roster.Users, name, roster.Add(storedPerson(name, more)), nil); err != nil {
			tb.Fatal(err)
		}
	}
	server, err := roster.NewServer(authorize.Config{
		Issuer: "https://example.org", FHIRBasePath: "/fhir", Store: s, Durable: s, Logger: slog.New(slog.DiscardHandler),
	}, r, resolveEntry)
	if err != nil {
		tb.Fatal(err)
	}
	return server
}

func storedPerson(name, more string) roster.Entry {
	const person = `{"name":"%s","password_hash":"$2a$04$zKlnfhDe3s1GmgVr0rjHPuS3gHgOGO2MGzkG3u0SGSUxxxn3zgLdm"%s}`
	return roster.Entry{Config: fmt.Appendf(nil, person, name, more), Since: time.Now()}
}

// BenchmarkRosterAdd is the addition of a user where the store has many, in force or not.
func BenchmarkRosterAdd(b *testing.B) {
	for _, bm := range []struct {
		name  string
		users int
		more  string
	}{
		{"10", 10, ""}, {"2000", 2000, ""}, {"20000", 20_000, ""},
		{"1000-not-in-force", 1000, `,"phone_number":7`}, {"1000-with-bad-claims", 1000, `,"fhir_user":"Nobody/1"`},
	} {
		b.Run(bm.name, func(b *testing.B) {
			server := rosterOf(b, store.NewMemory(100_000, 0), bm.users, bm.more)
			for b.Loop() {
				change(b.Context(), b, server, roster.Add(storedPerson("wendy", "")))
				b.StopTimer()
				change(b.Context(), b, server, roster.Remove())
				b.StartTimer()
			}
		})
	}
}

func change(ctx context.Context, tb testing.TB, server *roster.Server, alter roster.Alteration) {
	if err := server.Change(ctx, roster.Users, "wendy", alter); err != nil {
		tb.Fatal(err)
	}
}
