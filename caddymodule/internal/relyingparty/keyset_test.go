package relyingparty_test

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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// A thousand tokens, each with a kid of its own, cause no request within the
// interval, and one after it.
func TestUnknownKeyFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s, keys := serving(t, nil)
		flood := func() {
			var all sync.WaitGroup
			for i := range 1000 {
				token := pair{good.private, fmt.Sprint("kid-", i)}.sign(t, jose.ES256)
				all.Go(func() { wantVerified(t, keys, token, relyingparty.ErrUnknownKey) })
			}
			all.Wait()
		}
		flood()
		s.want(t, 1)
		time.Sleep(4 * time.Second)
		flood()
		s.want(t, 1)
		time.Sleep(2 * time.Second)
		flood()
		s.want(t, 2)
		wantVerified(t, keys, good.sign(t, jose.ES256), nil)
	})
}

func TestWrongSignatureFetchesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s, keys := serving(t, nil)
		forged := ecPair("good").sign(t, jose.ES256)
		for range 100 {
			wantVerified(t, keys, forged, relyingparty.ErrSignature)
			time.Sleep(30 * time.Second) // of all times within the hour of freshness
		}
		s.want(t, 1)
	})
}

// A key that is rotated in is never called unknown: until the keys may be fetched again, nobody can tell.
func TestKeyOfRotations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(keyServer)
		s.serveKeys(ecPair("0").public())
		keys := newKeySet(t, s)
		wantKey(t, keys, "0", nil)
		for i := range 3 {
			kid := fmt.Sprint(i + 1)
			s.serveKeys(ecPair(kid).public())
			_, err := keys.Key(t.Context(), kid)
			if pending, ok := errors.AsType[*relyingparty.PendingError](err); ok {
				time.Sleep(pending.Wait)
				_, err = keys.Key(t.Context(), kid)
			}
			if err != nil {
				t.Errorf("rotation %d: %v", i, err)
			}
			time.Sleep(time.Duration(i) * 3 * time.Second)
		}
		time.Sleep(5 * time.Second)
		wantKey(t, keys, "none", relyingparty.ErrUnknownKey)
		s.want(t, 5)
		if _, err := keys.Key(t.Context(), "none"); errors.Is(err, relyingparty.ErrUnknownKey) {
			t.Errorf("within the pause: %v", err)
		}
		s.want(t, 5)
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
		wantVerified(t, keys, old.sign(t, jose.ES256), nil)
		s.serveKeys(young.public())
		time.Sleep(time.Minute)
		wantVerified(t, keys, old.sign(t, jose.ES256), nil)
		wantVerified(t, keys, young.sign(t, jose.ES256), nil)
		wantVerified(t, keys, old.sign(t, jose.ES256), relyingparty.ErrUnknownKey)
		s.want(t, 2)
	})
}

// A client's keys are kept as long as its Cache-Control says, and not a moment longer
// (SMART App Launch 2.2, Asymmetric Authentication); those of others for a minute at least.
func TestKeysFreshness(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cacheControl, age string
		want, exact       time.Duration // for others' keys, and for a client's
	}{
		{"", "", time.Hour, time.Hour},
		{"max-age=600", "", 10 * time.Minute, 10 * time.Minute},
		{"max-age=600", "540", 10 * time.Minute, time.Minute},
		{"public, Max-Age=600, must-revalidate", "", 10 * time.Minute, 10 * time.Minute},
		{`max-age="600"`, "", 10 * time.Minute, 10 * time.Minute},
		{"max-age=2", "", time.Minute, 2 * time.Second},
		{"max-age=0", "", time.Minute, 0},
		{"max-age=-5", "", time.Minute, 0},
		{"no-store", "", time.Minute, 0},
		{"no-cache", "", time.Minute, 0},
		{"no-cache, max-age=600", "", time.Minute, 0},
		{"max-age=31536000", "", 24 * time.Hour, 24 * time.Hour},
		{"max-age=99999999999999999", "", 24 * time.Hour, 24 * time.Hour},
		{"max-age=99999999999999999999", "", 24 * time.Hour, 24 * time.Hour},
		{"max-age=x", "", time.Hour, time.Hour},
	}
	check := func(name string, header http.Header, want time.Duration, serve func(testing.TB, http.Header) (pair, *keyServer, *relyingparty.KeySet)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				good, s, keys := serve(t, header)
				token := good.sign(t, jose.ES256)
				ask := func(requests int) {
					t.Helper()
					wantVerified(t, keys, token, nil)
					synctest.Wait()
					s.want(t, requests)
				}
				ask(1)
				if want == 0 {
					ask(2)
					ask(3)
					return
				}
				time.Sleep(want - time.Millisecond)
				ask(1)
				time.Sleep(time.Millisecond)
				ask(2)
			})
		})
	}
	for _, tt := range tests {
		header := http.Header{"Cache-Control": {tt.cacheControl}, "Age": {tt.age}}
		check(tt.cacheControl+" "+tt.age, header, tt.want, serving)
		check("of a client: "+tt.cacheControl+" "+tt.age, header, tt.exact, exactly)
	}
}

// Who uses keys all the time never waits for newer ones, however slow the provider
// is, and whether or not it lets them be kept; who has not for long does.
func TestSlowKeysDelayNobody(t *testing.T) {
	t.Parallel()
	for _, directives := range []string{"no-cache", "max-age=600"} {
		t.Run(directives, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good, s, keys := serving(t, cacheControl(directives))
				s.serveSlowly(good)
				wantWait(t, keys, "good", 5*time.Second, nil)
				for range 30 * 60 {
					time.Sleep(time.Second)
					wantWait(t, keys, "good", 0, nil)
				}
				if s.mu.Lock(); s.requests < 3 {
					t.Errorf("%d requests in half an hour", s.requests)
				}
				s.mu.Unlock()
				time.Sleep(time.Hour)
				wantWait(t, keys, "good", 5*time.Second, nil)
			})
		})
	}
}

// One renews for all, and those who need not wait leave nothing behind. It counts
// goroutines, and so does not run in parallel.
func TestRenewingTakesOneGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s, keys := serving(t, nil)
		wantKey(t, keys, "good", nil)
		s.serve(providertest.Silent)
		time.Sleep(time.Hour)
		before := runtime.NumGoroutine()
		for range 1000 {
			wantKey(t, keys, "good", nil)
		}
		if n := runtime.NumGoroutine() - before; n > 100 {
			t.Errorf("%d goroutines wait", n)
		}
		time.Sleep(relyingparty.DefaultTimeout) // until the request ends
	})
}

// Many who wait make one request, and who leaves does not take it along.
func TestOneKeysRequestInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s, keys := serving(t, nil)
		s.serveSlowly(good)
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
			all.Go(func() { wantKey(t, keys, "good", nil) })
		}
		all.Wait()
		s.want(t, 1)
	})
}

func TestKeysOfIssuer(t *testing.T) {
	t.Parallel()
	const issuer = "https://login.example/realms/a"
	idp := providertest.New(issuer)
	routed := http.StripPrefix("/realms/a", idp)
	keys, err := relyingparty.NewKeySet(relyingparty.KeySetConfig{Issuer: issuer, Transport: inMemory{routed}})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(idp, providertest.Discovery); n != 0 {
		t.Error("asked before it was needed")
	}
	key, err := keys.Key(t.Context(), "key-1")
	if err != nil || key.KeyID != "key-1" || key.Algorithm != "RS256" || !key.IsPublic() {
		t.Error(key, err)
	}
	// An issuer that signs nobody in has keys all the same.
	idp.Change(func(s *providertest.Settings) { s.Metadata["authorization_endpoint"] = nil })
	keys, _ = relyingparty.NewKeySet(relyingparty.KeySetConfig{Issuer: issuer, Transport: inMemory{routed}})
	wantKey(t, keys, "key-1", nil)
	idp.Fail(providertest.Discovery, providertest.Status(404))
	keys, _ = relyingparty.NewKeySet(relyingparty.KeySetConfig{Issuer: issuer, Transport: inMemory{routed}})
	wantKey(t, keys, "key-1", relyingparty.ErrStatus)
}

func TestNewKeySetRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []relyingparty.KeySetConfig{
		{}, {Issuer: "http://login.example"}, {URI: "http://login.example/keys"}, {URI: "/keys"},
	} {
		if _, err := relyingparty.NewKeySet(c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	if _, err := relyingparty.NewKeySet(relyingparty.KeySetConfig{URI: "http://127.0.0.1/keys"}); err != nil {
		t.Error(err)
	}
}

func TestEdDSA(t *testing.T) {
	t.Parallel()
	good, s := pair{josetest.NewEd25519(), "ed"}, new(keyServer)
	s.serveKeys(good.public())
	keys := newKeySet(t, s)
	wantVerified(t, keys, good.sign(t, jose.EdDSA), nil)
}
