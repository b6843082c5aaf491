package roster

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster/entry"
)

// updaterOf returns the updater of a server with users in a store. more is additional JSON that may make them inactive.
func updaterOf(tb testing.TB, s store.Store, users int, more string) *entry.Updater {
	tb.Helper()
	u := &entry.Updater{Roster: entry.New(s, new(entry.LoadedEntries)), Resolve: addToConfig, Logger: slog.New(slog.DiscardHandler)}
	for i := range users {
		name := fmt.Sprint("person-", i)
		if err := u.Roster.Change(tb.Context(), entry.Users, name, entry.Add(storedPerson(name, more)), nil); err != nil {
			tb.Fatal(err)
		}
	}
	server, err := authorize.New(authorize.Config{Issuer: "https://example.org", FHIRBasePath: "/fhir", Store: s, DurableStore: s, Logger: u.Logger})
	if err != nil {
		tb.Fatal(err)
	}
	u.Attach(server, func(*authorize.Server) {})
	return u
}

func storedPerson(name, more string) entry.Entry {
	const person = `{"name":"%s","password_hash":"$2a$04$zKlnfhDe3s1GmgVr0rjHPuS3gHgOGO2MGzkG3u0SGSUxxxn3zgLdm"%s}`
	return entry.Entry{Config: fmt.Appendf(nil, person, name, more), Since: time.Now()}
}

// BenchmarkRosterAdd measures adding a user to a store that contains many active or inactive users.
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
			updater := updaterOf(b, store.NewMemory(100_000, 0), bm.users, bm.more)
			for b.Loop() {
				mustChange(b.Context(), b, updater, entry.Add(storedPerson("wendy", "")))
				b.StopTimer()
				mustChange(b.Context(), b, updater, entry.Remove())
				b.StartTimer()
			}
		})
	}
}

func mustChange(ctx context.Context, tb testing.TB, updater *entry.Updater, alter entry.Alteration) {
	if err := updater.Change(ctx, entry.Users, "wendy", alter); err != nil {
		tb.Fatal(err)
	}
}
