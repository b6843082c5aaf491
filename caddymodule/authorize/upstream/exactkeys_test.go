package upstream_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

func newExactKeySet(t testing.TB, s *keyServer) *upstream.KeySet {
	t.Helper()
	keys, err := upstream.NewKeySet(upstream.KeySetConfig{URI: keysURI, Transport: inMemory{s}, Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// A client's keys are kept as long as its Cache-Control says, and not a moment longer
// (SMART App Launch 2.2, Asymmetric Authentication).
func TestExactFreshness(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		header http.Header
		want   time.Duration
	}{
		{"none", http.Header{}, time.Hour},
		{"ten minutes", http.Header{"Cache-Control": {"max-age=600"}}, 10 * time.Minute},
		{"ten minutes, of which nine are over", http.Header{"Cache-Control": {"max-age=600"}, "Age": {"540"}}, time.Minute},
		{"two seconds", http.Header{"Cache-Control": {"max-age=2"}}, 2 * time.Second},
		{"a year", http.Header{"Cache-Control": {"max-age=31536000"}}, 24 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				good, s := ecPair("good"), &keyServer{header: tt.header}
				s.serveKeys(good.public())
				keys := newExactKeySet(t, s)
				token := good.sign(t, jose.ES256)
				for _, step := range []struct {
					wait     time.Duration
					requests int
				}{{0, 1}, {tt.want - time.Millisecond, 1}, {time.Millisecond, 2}} {
					time.Sleep(step.wait)
					if err := verify(t, keys, token); err != nil {
						t.Fatal(err)
					}
					s.want(t, step.requests)
				}
			})
		})
	}
}

func TestExactKeysAreNotStored(t *testing.T) {
	t.Parallel()
	for _, cacheControl := range []string{"no-store", "no-cache", "max-age=0"} {
		synctest.Test(t, func(t *testing.T) {
			good, s := ecPair("good"), &keyServer{header: http.Header{"Cache-Control": {cacheControl}}}
			s.serveKeys(good.public())
			keys := newExactKeySet(t, s)
			for range 3 {
				if err := verify(t, keys, good.sign(t, jose.ES256)); err != nil {
					t.Error(err)
				}
			}
			s.want(t, 3)
		})
	}
}

// What cannot be fetched again is not used on: the client may have withdrawn it.
func TestExactKeysEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s := ecPair("good"), &keyServer{header: http.Header{"Cache-Control": {"max-age=60"}}}
		s.serveKeys(good.public())
		keys := newExactKeySet(t, s)
		if err := verify(t, keys, good.sign(t, jose.ES256)); err != nil {
			t.Fatal(err)
		}
		s.serve(authorizetest.Status(503))
		time.Sleep(time.Minute)
		for range 100 {
			if err := verify(t, keys, good.sign(t, jose.ES256)); err == nil || errors.Is(err, upstream.ErrSignature) {
				t.Fatal(err)
			}
		}
		s.want(t, 2) // the client is not asked all the time
		s.serveKeys(good.public())
		time.Sleep(time.Minute)
		if err := verify(t, keys, good.sign(t, jose.ES256)); err != nil {
			t.Error(err)
		}
	})
}

// The kid must be that of one key, and of one alone.
func TestExactKeyID(t *testing.T) {
	t.Parallel()
	a, b, bare := ecPair("a"), ecPair("b"), ecPair("")
	twin := pair{b.private, "a"}
	for _, tt := range []struct {
		name   string
		keys   []pair
		signer pair
		ok     bool
	}{
		{"one of two", []pair{a, b}, a, true},
		{"a kid twice", []pair{a, twin}, a, false},
		{"no kid, and a key that has one", []pair{a}, pair{a.private, ""}, false},
		{"no kid, and a key that has none", []pair{bare, a}, bare, true},
		{"a kid, and a key that has none", []pair{bare}, pair{bare.private, "a"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var set jose.JSONWebKeySet
			for _, p := range tt.keys {
				set.Keys = append(set.Keys, p.public())
			}
			text, err := json.Marshal(set)
			if err != nil {
				t.Fatal(err)
			}
			keys, err := upstream.NewInlineKeySet(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(t, keys, tt.signer.sign(t, jose.ES256)); (err == nil) != tt.ok {
				t.Error(err)
			}
		})
	}
}
