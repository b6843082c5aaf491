package upstream_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// What cannot be fetched again is not used on: the client may have withdrawn it.
func TestExactKeysEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s, keys := exactly(t, cacheControl("max-age=60"))
		wantVerified(t, keys, good.sign(t, jose.ES256), nil)
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
		wantVerified(t, keys, good.sign(t, jose.ES256), nil)
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
