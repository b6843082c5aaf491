package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
)

// crowd is the number of people in the store of [BenchmarkOnePerson]. Each has a session and a refresh token.
const crowd = 200_000

// leavers is the number of people who lose their access to a hospital in one night.
const leavers = 100

// BenchmarkOnePerson measures the operations reported in docs/evidence/replicas.md: revoking everything issued to one person,
// revoking everything issued to each of 100 people, and listing one person's sessions. The store also contains the sessions of
// many other people.
func BenchmarkOnePerson(b *testing.B) {
	for _, bm := range []struct {
		name string
		open func(b *testing.B) store.Store
	}{
		{"file", func(b *testing.B) store.Store {
			s := boltstore.New(filepath.Join(b.TempDir(), "store.db"), 10*crowd)
			b.Cleanup(func() { _ = s.Close() })
			return s
		}},
		{"redis", func(b *testing.B) store.Store {
			s := redisstore.New(redisstore.Options{Address: startRedis(b).address(), Timeout: time.Minute})
			b.Cleanup(func() { _ = s.Close() })
			return s
		}},
		{"postgres", func(b *testing.B) store.Store {
			return openPostgres(b, postgresstore.Config{DSN: startPostgres(b).socketDSN(""), Timeout: time.Minute, MaxEntries: 100 * crowd})
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			s := bm.open(b)
			server := onePersonServer(b, s)
			signInWithRefresh(b, server, "alice")
			fillWithCrowd(b, s)
			benchmarkOnePerson(b, server)
			b.Run("revoke100", func(b *testing.B) { benchmarkLeavers(b, server) })
		})
	}
}

func onePersonServer(b *testing.B, s store.Store) *authorize.Server {
	return authorizetest.New(b, func(c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		c.Store, c.DurableStore = s, s
		for i := range leavers {
			leaver := c.Users[0]
			leaver.ID = leaverID(i)
			c.Users = append(c.Users, leaver)
		}
	})
}

func leaverID(i int) string { return fmt.Sprintf("leaver-%d", i) }

func signInWithRefresh(b *testing.B, server *authorize.Server, user string) {
	browser := authorizetest.NewBrowser(b, server)
	answer := browser.SignIn(authorizetest.Request(authorizetest.WithOfflineAccess(nil)), user, "right")
	if browser.Redeem(authorizetest.Location(b, answer)).RefreshToken == "" {
		b.Fatal("no refresh token")
	}
}

// benchmarkLeavers performs the operations of the request DELETE /fhir/grants?users=.
func benchmarkLeavers(b *testing.B, server *authorize.Server) {
	for b.Loop() {
		b.StopTimer()
		for i := range leavers {
			signInWithRefresh(b, server, leaverID(i))
		}
		b.StartTimer()
		for i := range leavers {
			_, err := server.DescribePerson(b.Context(), leaverID(i))
			must(b, err)
			ended, err := server.RevokeGrants(b.Context(), leaverID(i), "")
			if err != nil || ended.Sessions == 0 || ended.RefreshTokens == 0 {
				b.Fatalf("%+v, %v", ended, err)
			}
		}
	}
}

func benchmarkOnePerson(b *testing.B, server *authorize.Server) {
	b.Run("revoke", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			signInWithRefresh(b, server, "alice")
			b.StartTimer()
			ended, err := server.RevokeGrants(b.Context(), "alice", "")
			if err != nil || ended.Sessions == 0 || ended.RefreshTokens == 0 {
				b.Fatalf("%+v, %v", ended, err)
			}
		}
	})
	b.Run("sessions", func(b *testing.B) {
		for b.Loop() {
			if _, err := server.Sessions(b.Context(), "alice"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// fillWithCrowd copies alice's entries in the store once for each person of the crowd.
func fillWithCrowd(b *testing.B, s store.Store) {
	b.Helper()
	templates := map[string][]byte{}
	for _, kind := range []string{"session", "refresh"} {
		keys, err := s.List(b.Context(), kind+":")
		if err != nil || len(keys) == 0 {
			b.Fatal(kind, err)
		}
		if templates[kind], err = s.Get(b.Context(), keys[0]); err != nil {
			b.Fatal(err)
		}
		if !json.Valid(templates[kind]) || !bytes.Contains(templates[kind], []byte(`"alice"`)) {
			b.Fatalf("%s: %s", kind, templates[kind])
		}
	}
	people := make([]int, crowd)
	for i := range people {
		people[i] = i
	}
	for some := range slices.Chunk(people, 500) {
		var calls []*store.Call
		for _, i := range some {
			for kind, template := range templates {
				value := strings.ReplaceAll(string(template), `"alice"`, fmt.Sprintf(`"person-%d"`, i))
				calls = append(calls, &store.Call{Op: store.Put, Key: kind + ":" + randomID(), Value: []byte(value), TTL: 24 * time.Hour})
			}
		}
		if err := s.Do(b.Context(), calls...); err != nil {
			b.Fatal(err)
		}
	}
}
