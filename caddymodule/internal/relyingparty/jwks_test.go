package relyingparty_test

import (
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// object is a key as JSON, changed.
func object(t *testing.T, key jose.JSONWebKey, change map[string]any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, change)
	return all
}

func rsaKey() jose.JSONWebKey {
	return jose.JSONWebKey{Key: josetest.NewRSA().Public(), KeyID: "k"}
}

func ecKey(curve elliptic.Curve) jose.JSONWebKey {
	return jose.JSONWebKey{Key: josetest.NewEC(curve).Public(), KeyID: "k"}
}

// Which keys of a set are used.
func TestUsableKeys(t *testing.T) {
	t.Parallel()
	ec, rsa2048 := ecKey(elliptic.P256()), rsaKey()
	tests := []struct {
		name   string
		key    any
		usable bool
	}{
		{"P-256", ec, true},
		{"P-384", ecKey(elliptic.P384()), true},
		{"P-521", ecKey(elliptic.P521()), true},
		{"RSA", rsa2048, true},
		{"RSA for PS384", object(t, rsa2048, map[string]any{"alg": "PS384"}), true},
		{"RSA 1024", weakRSA(t), false},
		{"RSA 12288", object(t, rsa2048, map[string]any{"n": strings.Repeat("_", 2048)}), false},
		{"for encryption", object(t, ec, map[string]any{"use": "enc"}), false},
		{"for signatures", object(t, ec, map[string]any{"use": "sig"}), true},
		{"key_ops verify", object(t, ec, map[string]any{"key_ops": []string{"verify"}}), true},
		{"key_ops encrypt", object(t, ec, map[string]any{"key_ops": []string{"encrypt"}}), false},
		{"alg of another kind", object(t, ec, map[string]any{"alg": "RS256"}), false},
		{"alg of another curve", object(t, ec, map[string]any{"alg": "ES384"}), false},
		{"alg for encryption", object(t, rsa2048, map[string]any{"alg": "RSA-OAEP"}), false},
		{"alg HS256", object(t, rsa2048, map[string]any{"alg": "HS256"}), false},
		{"secret", map[string]any{"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"}, false},
		{"unknown kind", map[string]any{"kty": "XYZ", "kid": "k"}, false},
		{"point off the curve", object(t, ec, map[string]any{"x": strings.Repeat("A", 43)}), false},
		{"with its private part", jose.JSONWebKey{Key: josetest.NewEC(elliptic.P256()), KeyID: "k"}, false},
		{"with a broken private part", object(t, ec, map[string]any{"d": "x"}), false},
		{"with broken certificates", object(t, ec, map[string]any{"x5c": []string{"x"}, "x5t": 1}), true},
		{"no object", "key", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			other := object(t, ec, map[string]any{"kid": "other"}) // what is wrong with one must not harm the next
			s := new(keyServer)
			s.serve(providertest.JSON(200, map[string]any{"keys": []any{tt.key, other}}))
			keys := newKeySet(t, s)
			wantKey(t, keys, "other", nil)
			key, err := keys.Key(t.Context(), "k")
			if !tt.usable {
				if _, pending := errors.AsType[*relyingparty.PendingError](err); !pending {
					t.Error(err)
				}
				return
			}
			if err != nil || !key.IsPublic() {
				t.Errorf("public %t, %v", key.IsPublic(), err)
			}
		})
	}
}

// weakRSA is a modulus of 1024 bits.
func weakRSA(t *testing.T) map[string]any {
	t.Helper()
	return object(t, rsaKey(), map[string]any{"n": strings.Repeat("_", 171)})
}

func TestKidlessKeys(t *testing.T) {
	t.Parallel()
	first, second := ecPair(""), ecPair("")
	tests := []struct {
		name  string
		keys  []jose.JSONWebKey
		token string
		cause error
	}{
		{"one key without kid, token without", []jose.JSONWebKey{first.public()}, first.sign(t, jose.ES256), nil},
		{"one key without kid, token with", []jose.JSONWebKey{first.public()}, pair{first.private, "x"}.sign(t, jose.ES256), nil},
		{"one key with kid, token without", []jose.JSONWebKey{pair{first.private, "x"}.public()}, first.sign(t, jose.ES256), nil},
		{"one key for the algorithm", []jose.JSONWebKey{ecKey(elliptic.P384()), first.public()}, first.sign(t, jose.ES256), nil},
		{"two keys for it", []jose.JSONWebKey{first.public(), second.public()}, first.sign(t, jose.ES256), relyingparty.ErrSignature},
		{"two keys, token with kid", []jose.JSONWebKey{first.public(), second.public()}, pair{first.private, "x"}.sign(t, jose.ES256), relyingparty.ErrUnknownKey},
		{"key of another curve", []jose.JSONWebKey{ecKey(elliptic.P384())}, first.sign(t, jose.ES256), relyingparty.ErrSignature},
		{"another key", []jose.JSONWebKey{second.public()}, first.sign(t, jose.ES256), relyingparty.ErrSignature},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := new(keyServer)
			s.serveKeys(tt.keys...)
			wantVerified(t, newKeySet(t, s), tt.token, tt.cause)
		})
	}
	s := new(keyServer)
	s.serveKeys(first.public(), second.public())
	wantKey(t, newKeySet(t, s), "", relyingparty.ErrUnknownKey)
	s.serveKeys(first.public())
	if key, err := newKeySet(t, s).Key(t.Context(), ""); err != nil || !reflect.DeepEqual(key.Key, first.private.Public()) {
		t.Error("no kid, one key:", err)
	}
}

// A document without keys, which a JWK Set MUST have (RFC 7517 §5), is none.
func TestNoKeySet(t *testing.T) {
	t.Parallel()
	for _, document := range []string{`{}`, `{"keys":null}`, `{"keys":{}}`, `[]`, `null`} {
		s := new(keyServer)
		s.serve(providertest.JSON(200, json.RawMessage(document)))
		wantKey(t, newKeySet(t, s), "k", relyingparty.ErrKeys)
	}
}

// A token that is no JWS in compact form makes no request at all.
func TestNoJWS(t *testing.T) {
	t.Parallel()
	s := new(keyServer)
	s.serve(providertest.Status(500))
	keys := newKeySet(t, s)
	for _, token := range []string{"", "a.b.c", `{"payload":"e30","signatures":[]}`, "eyJhbGciOiJub25lIn0.e30."} {
		wantVerified(t, keys, token, relyingparty.ErrSignature)
	}
	s.want(t, 0)
}

// What cannot be fetched again is not used on: the client may have withdrawn it.
func TestExactKeysEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s, keys := exactly(t, cacheControl("max-age=60"))
		wantVerified(t, keys, good.sign(t, jose.ES256), nil)
		s.serve(providertest.Status(503))
		time.Sleep(time.Minute)
		for range 100 {
			if err := verify(t, keys, good.sign(t, jose.ES256)); err == nil || errors.Is(err, relyingparty.ErrSignature) {
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
			keys, err := relyingparty.NewInlineKeySet(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(t, keys, tt.signer.sign(t, jose.ES256)); (err == nil) != tt.ok {
				t.Error(err)
			}
		})
	}
}
