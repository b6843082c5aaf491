package replica_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
)

const lifetime = time.Hour

// A site is a store with two gateways, of which the first has a replica.
type site struct {
	t            *testing.T
	shared       *storetest.Shared
	here         *storetest.Gateway
	elsewhere    *storetest.Gateway
	replica      *replica.Replica
	log          strings.Builder
	stop, follow func()
}

// newSite returns a site whose replica follows the store.
func newSite(t *testing.T, c replica.Config) *site {
	t.Helper()
	s := &site{t: t, shared: storetest.NewShared("revoked", "account")}
	s.here, s.elsewhere = s.shared.Gateway(), s.shared.Gateway()
	c.Mirrored, c.Cached = []string{"revoked"}, []string{"account"}
	c.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	s.replica = replica.New(s.here, c)
	s.follow = func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.replica.Run(ctx) }()
		s.stop = func() { cancel(); <-done }
		synctest.Wait()
	}
	s.follow()
	return s
}

// wants checks what the replica says of a key, "" for nothing, and how many round trips it
// takes.
func (s *site) wants(key, want string, trips int) {
	s.t.Helper()
	before := s.here.RoundTrips()
	value, err := s.replica.Get(s.t.Context(), key)
	if string(value) != want || errors.Is(err, store.ErrNotFound) != (want == "") {
		s.t.Errorf("%s is %q, %v; want %q", key, value, err, want)
	}
	if took := s.here.RoundTrips() - before; took != trips {
		s.t.Errorf("%s took %d round trips, want %d", key, took, trips)
	}
}

func (s *site) unavailable(key string) {
	s.t.Helper()
	if value, err := s.replica.Get(s.t.Context(), key); !errors.Is(err, store.ErrUnavailable) {
		s.t.Errorf("%s is %q, %v, want that the store is unavailable", key, value, err)
	}
}

func (s *site) put(in store.Store, key, value string) {
	s.t.Helper()
	if err := in.Put(s.t.Context(), key, []byte(value), lifetime); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) delete(in store.Store, key string) {
	s.t.Helper()
	if err := in.Delete(s.t.Context(), key); err != nil {
		s.t.Fatal(err)
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		config replica.Config
		test   func(*site)
	}{
		{"what is not mirrored is asked for", replica.Config{}, func(s *site) {
			s.put(s.elsewhere, "code:1", "v")
			s.wants("code:1", "v", 1)
			s.wants("revokedx:1", "", 1)
		}},
		{"a mirrored kind needs no round trip", replica.Config{}, func(s *site) {
			s.wants("revoked:1", "", 0)
			s.put(s.elsewhere, "revoked:1", "v")
			synctest.Wait()
			s.wants("revoked:1", "v", 0)
			s.delete(s.elsewhere, "revoked:1")
			synctest.Wait()
			s.wants("revoked:1", "", 0)
		}},
		{"a mirrored entry expires", replica.Config{}, func(s *site) {
			s.put(s.elsewhere, "revoked:1", "v")
			time.Sleep(lifetime - time.Second)
			s.wants("revoked:1", "v", 0)
			time.Sleep(time.Second)
			s.wants("revoked:1", "", 0)
		}},
		{"what was stored before", replica.Config{}, func(s *site) {
			s.stop()
			s.put(s.elsewhere, "revoked:1", "v")
			s.follow()
			s.wants("revoked:1", "v", 0)
		}},
		{"a cached kind is asked for once", replica.Config{}, func(s *site) {
			s.put(s.elsewhere, "account:1", "v")
			synctest.Wait()
			s.wants("account:1", "v", 1)
			s.wants("account:1", "v", 0)
			s.wants("account:2", "", 1)
			s.wants("account:2", "", 0)
			s.put(s.elsewhere, "account:1", "w")
			s.put(s.elsewhere, "account:2", "w")
			synctest.Wait()
			s.wants("account:1", "w", 1)
			s.wants("account:2", "w", 1)
			s.wants("account:1", "w", 0)
		}},
		{"a cached entry is asked for again, since its expiry is not announced", replica.Config{}, func(s *site) {
			s.put(s.elsewhere, "account:1", "v")
			synctest.Wait()
			s.wants("account:1", "v", 1)
			time.Sleep(time.Minute)
			s.wants("account:1", "v", 1)
			time.Sleep(lifetime)
			s.wants("account:1", "", 1)
		}},
		{"few cached entries fit", replica.Config{MaxCached: 500}, func(s *site) {
			for _, id := range []string{"1", "2", "3"} {
				s.wants("account:"+id, "", 1)
			}
			s.wants("account:3", "", 0)
			s.wants("account:1", "", 1)
		}},
		{"what does not fit in the mirror is asked for, until it has expired", replica.Config{MaxMirrored: 2}, func(s *site) {
			for _, id := range []string{"1", "2", "3"} {
				s.put(s.elsewhere, "revoked:"+id, "v")
			}
			synctest.Wait()
			s.wants("revoked:1", "v", 0)
			s.wants("revoked:3", "v", 1)
			s.wants("revoked:4", "", 1)
			s.put(s.elsewhere, "revoked:1", "w")
			synctest.Wait()
			s.wants("revoked:1", "w", 0)
			time.Sleep(lifetime)
			s.wants("revoked:4", "", 0)
			s.put(s.elsewhere, "revoked:4", "v")
			synctest.Wait()
			s.wants("revoked:4", "v", 0)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { tt.test(newSite(t, tt.config)) })
		})
	}
}
