package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
)

// maxInFullStore is the capacity of the store in entries. It exceeds the number of entries of the test's users.
const maxInFullStore = 150

// fullStores are the stores that can become full.
var fullStores = []struct {
	name  string
	start func(t *testing.T) (s store.Store, fill func())
}{
	{"redis at maxmemory", func(t *testing.T) (store.Store, func()) {
		server := startRedis(t)
		r := openRedis(t, redisstore.Options{Address: server.address(), SubscribedKinds: store.MirroredKinds, UnboundedKinds: store.UnboundedKinds})
		return r, func() { server.do(t, "CONFIG", "SET", "maxmemory", "1") }
	}},
	{"redis at max_entries", func(t *testing.T) (store.Store, func()) {
		r := openRedis(t, redisstore.Options{
			Address: startRedis(t).address(), MaxEntries: maxInFullStore, SubscribedKinds: store.MirroredKinds, UnboundedKinds: store.UnboundedKinds,
		})
		return r, func() { fillStore(t, r) }
	}},
	{"postgres at max_entries", func(t *testing.T) (store.Store, func()) {
		p := openPostgres(t, postgresstore.Config{
			DSN: startPostgres(t).dsn(""), Table: postgresTable(), MaxEntries: maxInFullStore, Timeout: 10 * time.Second,
			SubscribedKinds: store.MirroredKinds, UnboundedKinds: store.UnboundedKinds,
		})
		return p, func() { fillStore(t, p) }
	}},
}

func fillStore(t *testing.T, s store.Store) {
	var err error
	for i := 0; i < 3*maxInFullStore && err == nil; i++ {
		err = s.Add(t.Context(), fmt.Sprint("filler:", i), nil, time.Hour)
		if errors.Is(err, store.ErrFull) {
			return
		}
		if i == maxInFullStore {
			time.Sleep(1100 * time.Millisecond) // the number of entries in Redis is updated once a second
		}
	}
	t.Fatalf("the store does not become full: %v", err)
}

// TestFullStore checks that signing out, revoking and refreshing work in a full store that rejects new entries.
func TestFullStore(t *testing.T) {
	for _, tt := range fullStores {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, fill := tt.start(t)
			server := authorizetest.New(t, func(c *authorize.Config) {
				c.Store, c.DurableStore = s, s
				c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access")
			})
			b := authorizetest.NewBrowser(t, server)
			other := authorizetest.NewBrowser(t, server)
			first, second := b.Tokens(authorizetest.WithOfflineAccess(nil)), other.Tokens(authorizetest.WithOfflineAccess(nil))
			third := authorizetest.NewBrowser(t, server).Tokens(authorizetest.WithOfflineAccess(nil))
			fill()
			if err := s.Add(t.Context(), "session:new", nil, time.Minute); !errors.Is(err, store.ErrFull) {
				t.Fatalf("a new entry: %v", err)
			}
			refreshed := b.Refresh(first.RefreshToken, nil)
			for name, token := range map[string]string{"a refresh token": second.RefreshToken, "an access token": refreshed.AccessToken} {
				if r := authorizetest.SendTokenForm(b, "/oauth2/revoke", token, "app", ""); r.StatusCode != http.StatusOK {
					t.Errorf("revoking %s: %d %s", name, r.StatusCode, authorizetest.Body(t, r))
				}
			}
			r := b.Get("/oauth2/logout?" + url.Values{"id_token_hint": {refreshed.IDToken}}.Encode())
			if r.StatusCode != http.StatusOK || b.HasSession() {
				t.Errorf("logout: %d, signed in: %t", r.StatusCode, b.HasSession())
			}
			if _, err := server.RevokeGrants(t.Context(), "alice", ""); err != nil {
				t.Errorf("ending all grants: %v", err)
			}
			for name, token := range map[string]string{"one that was ended": third.AccessToken, "one that was revoked": refreshed.AccessToken} {
				if b.IsTokenValid(token) {
					t.Errorf("%s works", name)
				}
			}
		})
	}
}

// TestRedisFullIsFollowed checks that Subscribe works if the Redis server is full and its stream contains entries of another
// program. It must receive an update at least every second.
func TestRedisFullIsFollowed(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	r := openRedis(t, redisstore.Options{Address: server.address(), SubscribedKinds: []string{"revoked"}, UnboundedKinds: []string{"revoked"}})
	server.do(t, "XADD", "fhir:!changes", "*", "foo", "bar")
	server.do(t, "XADD", "fhir:!changes", "*", "k", "v", "v", "no expiry")
	server.do(t, "CONFIG", "SET", "maxmemory", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	updates, keys, heard := 0, "", time.Time{}
	err := r.Subscribe(ctx, func(u store.Update) {
		if lag := time.Since(heard); updates > 0 && lag > 1500*time.Millisecond {
			t.Errorf("not heard for %v", lag)
		}
		heard = u.QueriedAt
		for _, c := range u.Changes {
			keys += c.Key
		}
		switch updates++; {
		case updates == 2:
			if err := r.Put(ctx, "revoked:1", nil, time.Minute); err != nil {
				t.Error(err)
			}
		case updates > 8:
			cancel()
		}
	})
	if keys != "revoked:1" || updates <= 8 {
		t.Errorf("changed keys %q in %d updates, %v", keys, updates, err)
	}
}
