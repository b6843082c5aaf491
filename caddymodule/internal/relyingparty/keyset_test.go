package relyingparty_test

import (
	"context"
	"crypto"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// A thousand tokens with different kids cause no request within the interval and one request after it.
func TestUnknownKeyFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s, keys := newServedKeySet(t, nil)
		flood := func() {
			var all sync.WaitGroup
			for i := range 1000 {
				token := keyPair{good.private, fmt.Sprint("kid-", i)}.sign(t, jose.ES256)
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
		_, s, keys := newServedKeySet(t, nil)
		forged := ecPair("good").sign(t, jose.ES256)
		for range 100 {
			wantVerified(t, keys, forged, relyingparty.ErrSignature)
			time.Sleep(30 * time.Second) // different times within the hour in which the keys are fresh
		}
		s.want(t, 1)
	})
}

// A key that was just added by rotation is never reported as unknown while it is too early to fetch the keys again.
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

// A new key is found when the first token uses it. A withdrawn key is rejected after the keys have been fetched again.
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

// A client's keys are cached exactly as long as Cache-Control permits (SMART App Launch 2.2, Asymmetric Authentication). Other
// keys are cached for at least a minute.
func TestKeysFreshness(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cacheControl, age string
		want, exact       time.Duration // lifetime of an issuer's keys and of a client's keys
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
	check := func(name string, header http.Header, want time.Duration, serve func(testing.TB, http.Header) (keyPair, *keyServer, *relyingparty.KeySet)) {
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
		check(tt.cacheControl+" "+tt.age, header, tt.want, newServedKeySet)
		check("of a client: "+tt.cacheControl+" "+tt.age, header, tt.exact, newExactKeySet)
	}
}

// Keys that are used frequently are available without waiting for a refresh, even if the provider is slow or forbids caching.
// Only the first use after a long time waits.
func TestSlowKeysDelayNoUse(t *testing.T) {
	t.Parallel()
	for _, directives := range []string{"no-cache", "max-age=600"} {
		t.Run(directives, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good, s, keys := newServedKeySet(t, cacheControl(directives))
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

// A single goroutine refreshes the keys for all callers, and callers that do not have to wait start no goroutine. This test
// cannot run in parallel, because it counts goroutines.
func TestRenewingTakesOneGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s, keys := newServedKeySet(t, nil)
		wantKey(t, keys, "good", nil)
		s.serve(providertest.NeverRespond)
		time.Sleep(time.Hour)
		before := runtime.NumGoroutine()
		for range 1000 {
			wantKey(t, keys, "good", nil)
		}
		if n := runtime.NumGoroutine() - before; n > 100 {
			t.Errorf("%d goroutines wait", n)
		}
		time.Sleep(relyingparty.DefaultTimeout) // until the request times out
	})
}

// Concurrent callers share one request. If a caller cancels, the request continues.
func TestOneKeysRequestInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s, keys := newServedKeySet(t, nil)
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
	keys, err := relyingparty.NewKeySet(relyingparty.KeySetConfig{Issuer: issuer, Transport: handlerTransport{routed}})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(idp, providertest.Discovery); n != 0 {
		t.Error("requested before it was needed")
	}
	key, err := keys.Key(t.Context(), "key-1")
	if err != nil || key.KeyID != "key-1" || key.Algorithm != "RS256" || !key.IsPublic() {
		t.Error(key, err)
	}
	// Issuers that do not support sign-in have keys too.
	idp.Change(func(s *providertest.Settings) { s.Metadata["authorization_endpoint"] = nil })
	keys, _ = relyingparty.NewKeySet(relyingparty.KeySetConfig{Issuer: issuer, Transport: handlerTransport{routed}})
	wantKey(t, keys, "key-1", nil)
	idp.SetFault(providertest.Discovery, providertest.Status(404))
	keys, _ = relyingparty.NewKeySet(relyingparty.KeySetConfig{Issuer: issuer, Transport: handlerTransport{routed}})
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
	good, s := keyPair{josetest.NewEd25519(), "ed"}, new(keyServer)
	s.serveKeys(good.public())
	keys := newKeySet(t, s)
	wantVerified(t, keys, good.sign(t, jose.EdDSA), nil)
}

// keyObject returns a key as a JSON object, modified by change.
func keyObject(t *testing.T, key jose.JSONWebKey, change map[string]any) map[string]any {
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

// Only the suitable keys in a set are used.
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
		{"RSA for PS384", keyObject(t, rsa2048, map[string]any{"alg": "PS384"}), true},
		{"RSA 1024", weakRSA(t), false},
		{"RSA 12288", keyObject(t, rsa2048, map[string]any{"n": strings.Repeat("_", 2048)}), false},
		{"for encryption", keyObject(t, ec, map[string]any{"use": "enc"}), false},
		{"for signatures", keyObject(t, ec, map[string]any{"use": "sig"}), true},
		{"key_ops verify", keyObject(t, ec, map[string]any{"key_ops": []string{"verify"}}), true},
		{"key_ops encrypt", keyObject(t, ec, map[string]any{"key_ops": []string{"encrypt"}}), false},
		{"alg of another kind", keyObject(t, ec, map[string]any{"alg": "RS256"}), false},
		{"alg of another curve", keyObject(t, ec, map[string]any{"alg": "ES384"}), false},
		{"alg for encryption", keyObject(t, rsa2048, map[string]any{"alg": "RSA-OAEP"}), false},
		{"alg HS256", keyObject(t, rsa2048, map[string]any{"alg": "HS256"}), false},
		{"secret", map[string]any{"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"}, false},
		{"unknown kind", map[string]any{"kty": "XYZ", "kid": "k"}, false},
		{"point off the curve", keyObject(t, ec, map[string]any{"x": strings.Repeat("A", 43)}), false},
		{"with its private part", jose.JSONWebKey{Key: josetest.NewEC(elliptic.P256()), KeyID: "k"}, false},
		{"with a broken private part", keyObject(t, ec, map[string]any{"d": "x"}), false},
		{"with broken certificates", keyObject(t, ec, map[string]any{"x5c": []string{"x"}, "x5t": 1}), true},
		{"no object", "key", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			other := keyObject(t, ec, map[string]any{"kid": "other"}) // an unusable key must not affect the key that follows it
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

// weakRSA returns an RSA key with a 1024-bit modulus.
func weakRSA(t *testing.T) map[string]any {
	t.Helper()
	return keyObject(t, rsaKey(), map[string]any{"n": strings.Repeat("_", 171)})
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
		{"one key without kid, token with", []jose.JSONWebKey{first.public()}, keyPair{first.private, "x"}.sign(t, jose.ES256), nil},
		{"one key with kid, token without", []jose.JSONWebKey{keyPair{first.private, "x"}.public()}, first.sign(t, jose.ES256), nil},
		{"one key for the algorithm", []jose.JSONWebKey{ecKey(elliptic.P384()), first.public()}, first.sign(t, jose.ES256), nil},
		{"two keys for it", []jose.JSONWebKey{first.public(), second.public()}, first.sign(t, jose.ES256), relyingparty.ErrSignature},
		{"two keys, token with kid", []jose.JSONWebKey{first.public(), second.public()}, keyPair{first.private, "x"}.sign(t, jose.ES256), relyingparty.ErrUnknownKey},
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

// A JWK Set must have the member keys (RFC 7517 §5). Otherwise, it is invalid.
func TestNoKeySet(t *testing.T) {
	t.Parallel()
	for _, document := range []string{`{}`, `{"keys":null}`, `{"keys":{}}`, `[]`, `null`} {
		s := new(keyServer)
		s.serve(providertest.JSON(200, json.RawMessage(document)))
		wantKey(t, newKeySet(t, s), "k", relyingparty.ErrKeys)
	}
}

// A token that is not a compact JWS does not cause a request.
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

// A client's keys are not used if fetching them again fails, because the client may have withdrawn them.
func TestExactKeysEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s, keys := newExactKeySet(t, cacheControl("max-age=60"))
		wantVerified(t, keys, good.sign(t, jose.ES256), nil)
		s.serve(providertest.Status(503))
		time.Sleep(time.Minute)
		for range 100 {
			if err := verify(t, keys, good.sign(t, jose.ES256)); err == nil || errors.Is(err, relyingparty.ErrSignature) {
				t.Fatal(err)
			}
		}
		s.want(t, 2) // the client does not receive a request for each token
		s.serveKeys(good.public())
		time.Sleep(time.Minute)
		wantVerified(t, keys, good.sign(t, jose.ES256), nil)
	})
}

// The token's kid must be that of exactly one key.
func TestExactKeyID(t *testing.T) {
	t.Parallel()
	a, b, bare := ecPair("a"), ecPair("b"), ecPair("")
	twin := keyPair{b.private, "a"}
	for _, tt := range []struct {
		name   string
		keys   []keyPair
		signer keyPair
		ok     bool
	}{
		{"one of two", []keyPair{a, b}, a, true},
		{"a kid twice", []keyPair{a, twin}, a, false},
		{"no kid, and a key that has one", []keyPair{a}, keyPair{a.private, ""}, false},
		{"no kid, and a key that has none", []keyPair{bare, a}, bare, true},
		{"a kid, and a key that has none", []keyPair{bare}, keyPair{bare.private, "a"}, false},
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

const keysURI = "https://login.example/keys"

// keyServer serves a key set and counts requests.
type keyServer struct {
	mu       sync.Mutex
	requests int
	answer   providertest.Fault
	header   http.Header
	exact    bool // whether the key set is that of a client
}

func (s *keyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	answer := s.answer
	maps.Copy(w.Header(), s.header)
	s.mu.Unlock()
	answer(w, r)
}

func (s *keyServer) serve(f providertest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// serveKeys replaces the served keys.
func (s *keyServer) serveKeys(keys ...jose.JSONWebKey) {
	s.serve(providertest.JSON(http.StatusOK, jose.JSONWebKeySet{Keys: keys}))
}

// serveSlowly serves a key after five seconds.
func (s *keyServer) serveSlowly(key keyPair) {
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Second)
		providertest.JSON(http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.public()}})(w, r)
	})
}

func (s *keyServer) want(t *testing.T, requests int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests != requests {
		t.Errorf("%d requests, want %d", s.requests, requests)
	}
}

func newKeySet(t testing.TB, s *keyServer) *relyingparty.KeySet {
	t.Helper()
	keys, err := relyingparty.NewKeySet(relyingparty.KeySetConfig{URI: keysURI, Transport: handlerTransport{s}, Strict: s.exact})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// keyPair is a private key with its kid.
type keyPair struct {
	private crypto.Signer
	kid     string
}

func ecPair(kid string) keyPair { return keyPair{josetest.NewEC(elliptic.P256()), kid} }

func (p keyPair) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: p.private.Public(), KeyID: p.kid}
}

func (p keyPair) sign(t testing.TB, alg jose.SignatureAlgorithm) string {
	t.Helper()
	header := josetest.Header{}
	if p.kid != "" {
		header["kid"] = p.kid
	}
	return josetest.Sign(t, jose.SigningKey{Algorithm: alg, Key: p.private}, header, []byte(`{"sub":"alice"}`))
}

// newServedKeySet returns a key set, its server, and the only key that the server serves. header is sent in each response.
func newServedKeySet(t testing.TB, header http.Header) (good keyPair, s *keyServer, keys *relyingparty.KeySet) {
	t.Helper()
	good, s = ecPair("good"), &keyServer{header: header}
	s.serveKeys(good.public())
	return good, s, newKeySet(t, s)
}

// newExactKeySet is like newServedKeySet but for a client's keys.
func newExactKeySet(t testing.TB, header http.Header) (good keyPair, s *keyServer, keys *relyingparty.KeySet) {
	t.Helper()
	good, s, _ = newServedKeySet(t, header)
	s.exact = true
	return good, s, newKeySet(t, s)
}

func cacheControl(directives string) http.Header { return http.Header{"Cache-Control": {directives}} }

// wantKey requests a key and checks the error. If cause is nil, the request must succeed.
func wantKey(t testing.TB, keys *relyingparty.KeySet, kid string, cause error) {
	t.Helper()
	if _, err := keys.Key(t.Context(), kid); !errors.Is(err, cause) {
		t.Errorf("kid %q: %v", kid, err)
	}
}

// wantVerified verifies a token and checks the error. If cause is nil, the verification must succeed.
func wantVerified(t testing.TB, keys *relyingparty.KeySet, token string, cause error) {
	t.Helper()
	if err := verify(t, keys, token); !errors.Is(err, cause) {
		t.Error(err)
	}
}

func verify(t testing.TB, keys *relyingparty.KeySet, token string) error {
	payload, err := keys.VerifySignature(t.Context(), token)
	if err == nil && string(payload) != `{"sub":"alice"}` {
		t.Errorf("payload %s", payload)
	}
	return err
}

// BenchmarkKey measures the use of a cached key with different Cache-Control directives, such as Keycloak's no-cache.
func BenchmarkKey(b *testing.B) {
	for _, directives := range []string{"max-age=600", "no-cache"} {
		b.Run(directives, func(b *testing.B) {
			_, _, keys := newServedKeySet(b, cacheControl(directives))
			for b.Loop() {
				if _, err := keys.Key(b.Context(), "good"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
