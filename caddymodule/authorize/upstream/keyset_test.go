package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// A thousand tokens, each with a kid of its own, cause no request within the
// interval, and one after it.
func TestUnknownKeyFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s := ecPair("good"), new(keyServer)
		s.serveKeys(good.public())
		keys := newKeySet(t, s)
		flood := func() {
			var all sync.WaitGroup
			for i := range 1000 {
				token := pair{good.private, fmt.Sprint("kid-", i)}.sign(t, jose.ES256)
				all.Go(func() {
					if err := verify(t, keys, token); !errors.Is(err, upstream.ErrUnknownKey) {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		flood()
		s.want(t, 1)
		time.Sleep(time.Minute - time.Second)
		flood()
		s.want(t, 1)
		time.Sleep(2 * time.Second)
		flood()
		s.want(t, 2)
		if err := verify(t, keys, good.sign(t, jose.ES256)); err != nil {
			t.Error(err)
		}
	})
}

func TestWrongSignatureFetchesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s := ecPair("good"), new(keyServer)
		s.serveKeys(good.public())
		keys := newKeySet(t, s)
		forged := ecPair("good").sign(t, jose.ES256)
		for range 100 {
			if err := verify(t, keys, forged); !errors.Is(err, upstream.ErrSignature) {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second) // of all times within the hour of freshness
		}
		s.want(t, 1)
	})
}

// A new key is found as soon as a token needs it; a withdrawn one is gone when
// the keys are fetched again.
func TestRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, young, s := ecPair("old"), ecPair("young"), new(keyServer)
		s.serveKeys(old.public())
		keys := newKeySet(t, s)
		if err := verify(t, keys, old.sign(t, jose.ES256)); err != nil {
			t.Fatal(err)
		}
		s.serveKeys(young.public())
		time.Sleep(time.Minute)
		if err := verify(t, keys, old.sign(t, jose.ES256)); err != nil {
			t.Error("within its freshness:", err)
		}
		if err := verify(t, keys, young.sign(t, jose.ES256)); err != nil {
			t.Error(err)
		}
		if err := verify(t, keys, old.sign(t, jose.ES256)); !errors.Is(err, upstream.ErrUnknownKey) {
			t.Error("withdrawn:", err)
		}
		s.want(t, 2)
	})
}

func TestKeysFreshness(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cacheControl string
		want         time.Duration
	}{
		{"", time.Hour},
		{"max-age=600", 10 * time.Minute},
		{"public, Max-Age=600, must-revalidate", 10 * time.Minute},
		{`max-age="600"`, 10 * time.Minute},
		{"max-age=1", time.Minute},
		{"max-age=-5", time.Minute},
		{"no-store", time.Minute},
		{"no-cache, max-age=600", time.Minute},
		{"max-age=31536000", 24 * time.Hour},
		{"max-age=99999999999999999", 24 * time.Hour},
		{"max-age=x", time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.cacheControl, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good, s := ecPair("good"), &keyServer{header: http.Header{"Cache-Control": {tt.cacheControl}}}
				s.serveKeys(good.public())
				keys := newKeySet(t, s)
				for _, step := range []struct {
					wait     time.Duration
					requests int
				}{{0, 1}, {tt.want - time.Second, 1}, {time.Second, 2}} {
					time.Sleep(step.wait)
					if _, err := keys.Key(t.Context(), "good"); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					s.want(t, step.requests)
				}
			})
		})
	}
}

// Who uses keys all the time never waits for newer ones, however slow the provider
// is, and whether or not it lets them be kept; who has not for long does.
func TestSlowKeysDelayNobody(t *testing.T) {
	t.Parallel()
	for _, cacheControl := range []string{"no-cache", "max-age=600"} {
		t.Run(cacheControl, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good, s := ecPair("good"), &keyServer{header: http.Header{"Cache-Control": {cacheControl}}}
				s.serve(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(5 * time.Second)
					authorizetest.JSON(200, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{good.public()}})(w, r)
				})
				keys := newKeySet(t, s)
				ask := func(want time.Duration) {
					t.Helper()
					start := time.Now()
					if _, err := keys.Key(t.Context(), "good"); err != nil || time.Since(start) != want {
						t.Errorf("waited %v, want %v; %v", time.Since(start), want, err)
					}
				}
				ask(5 * time.Second)
				for range 30 * 60 {
					time.Sleep(time.Second)
					ask(0)
				}
				if s.mu.Lock(); s.requests < 3 {
					t.Errorf("%d requests in half an hour", s.requests)
				}
				s.mu.Unlock()
				time.Sleep(time.Hour)
				ask(5 * time.Second)
			})
		})
	}
}

// One renews for all, and those who need not wait leave nothing behind. It counts
// goroutines, and so does not run in parallel.
func TestRenewingTakesOneGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s := ecPair("good"), new(keyServer)
		s.serveKeys(good.public())
		keys := newKeySet(t, s)
		if _, err := keys.Key(t.Context(), "good"); err != nil {
			t.Fatal(err)
		}
		s.serve(authorizetest.Silent)
		time.Sleep(time.Hour)
		before := runtime.NumGoroutine()
		for range 1000 {
			if _, err := keys.Key(t.Context(), "good"); err != nil {
				t.Fatal(err)
			}
		}
		if n := runtime.NumGoroutine() - before; n > 100 {
			t.Errorf("%d goroutines wait", n)
		}
		time.Sleep(upstream.DefaultTimeout) // until the request ends
	})
}

// Many who wait make one request, and who leaves does not take it along.
func TestOneKeysRequestInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s := ecPair("good"), new(keyServer)
		s.serve(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Second)
			authorizetest.JSON(200, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{good.public()}})(w, r)
		})
		keys := newKeySet(t, s)
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := keys.Key(impatient, "good"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		for range 100 {
			all.Go(func() {
				if _, err := keys.Key(t.Context(), "good"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		s.want(t, 1)
	})
}

func TestKeysOfIssuer(t *testing.T) {
	t.Parallel()
	const issuer = "https://login.example/realms/a"
	idp := authorizetest.New(issuer)
	routed := http.StripPrefix("/realms/a", idp)
	keys, err := upstream.NewKeySet(upstream.KeySetConfig{Issuer: issuer, Transport: inMemory{routed}})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(idp, authorizetest.Discovery); n != 0 {
		t.Error("asked before it was needed")
	}
	key, err := keys.Key(t.Context(), "key-1")
	if err != nil || key.KeyID != "key-1" || key.Algorithm != "RS256" || !key.IsPublic() {
		t.Error(key, err)
	}
	// An issuer that signs nobody in has keys all the same.
	idp.Change(func(s *authorizetest.Settings) { s.Metadata["authorization_endpoint"] = nil })
	keys, _ = upstream.NewKeySet(upstream.KeySetConfig{Issuer: issuer, Transport: inMemory{routed}})
	if _, err := keys.Key(t.Context(), "key-1"); err != nil {
		t.Error(err)
	}
	idp.Fail(authorizetest.Discovery, authorizetest.Status(404))
	keys, _ = upstream.NewKeySet(upstream.KeySetConfig{Issuer: issuer, Transport: inMemory{routed}})
	if _, err := keys.Key(t.Context(), "key-1"); !errors.Is(err, upstream.ErrStatus) {
		t.Error(err)
	}
}

func TestNewKeySetRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []upstream.KeySetConfig{
		{}, {Issuer: "http://login.example"}, {URI: "http://login.example/keys"}, {URI: "/keys"},
	} {
		if _, err := upstream.NewKeySet(c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	if _, err := upstream.NewKeySet(upstream.KeySetConfig{URI: "http://127.0.0.1/keys"}); err != nil {
		t.Error(err)
	}
}

func TestEdDSA(t *testing.T) {
	t.Parallel()
	good, s := pair{josetest.NewEd25519(), "ed"}, new(keyServer)
	s.serveKeys(good.public())
	keys := newKeySet(t, s)
	if err := verify(t, keys, good.sign(t, jose.EdDSA)); err != nil {
		t.Error(err)
	}
}
