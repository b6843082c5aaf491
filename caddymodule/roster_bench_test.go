package caddymodule

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

// BenchmarkRosterChange is a change where the store has many people, in force or not.
func BenchmarkRosterChange(b *testing.B) {
	const person = `{"name":"%s","password_hash":"$2a$04$zKlnfhDe3s1GmgVr0rjHPuS3gHgOGO2MGzkG3u0SGSUxxxn3zgLdm"%s}`
	for _, bm := range []struct {
		name   string
		people int
		more   string
	}{{"2000", 2000, ""}, {"1000-not-in-force", 1000, `,"phone_number":7`}, {"1000-with-bad-claims", 1000, `,"fhir_user":"Nobody/1"`}} {
		b.Run(bm.name, func(b *testing.B) {
			s := store.NewMemory(10, 0)
			r := roster.New(s, new(roster.Known))
			add := func(name, more string) func(*roster.Record) error {
				return func(record *roster.Record) error {
					return record.Add(roster.Users, name, roster.Entry{Config: fmt.Appendf(nil, person, name, more)})
				}
			}
			err := r.Change(b.Context(), func(record *roster.Record) error {
				for i := range bm.people {
					if err := add(fmt.Sprint("person-", i), bm.more)(record); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			server, err := roster.NewServer(authorize.Config{
				Issuer: "https://example.org", FHIRBasePath: "/fhir", Store: s, Durable: s, Logger: slog.New(slog.DiscardHandler),
			}, r, resolveEntry)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				change(b.Context(), b, server, add("wendy", ""))
				change(b.Context(), b, server, func(record *roster.Record) error { return record.Remove(roster.Users, "wendy") })
			}
		})
	}
}

func change(ctx context.Context, b *testing.B, server *roster.Server, alter func(*roster.Record) error) {
	if err := server.Change(ctx, roster.Users, "wendy", alter); err != nil {
		b.Fatal(err)
	}
}
