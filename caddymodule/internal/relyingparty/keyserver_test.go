package relyingparty_test

import (
	"crypto"
	"crypto/elliptic"
	"errors"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const keysURI = "https://login.example/keys"

// keyServer serves a key set, and counts.
type keyServer struct {
	mu       sync.Mutex
	requests int
	answer   providertest.Fault
	header   http.Header
	exact    bool // the key set is a client's
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

// serveKeys serves these, and nothing else.
func (s *keyServer) serveKeys(keys ...jose.JSONWebKey) {
	s.serve(providertest.JSON(http.StatusOK, jose.JSONWebKeySet{Keys: keys}))
}

// serveSlowly serves a key after five seconds.
func (s *keyServer) serveSlowly(key pair) {
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
	keys, err := relyingparty.NewKeySet(relyingparty.KeySetConfig{URI: keysURI, Transport: inMemory{s}, Exact: s.exact})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// pair is a private key and its kid.
type pair struct {
	private crypto.Signer
	kid     string
}

func ecPair(kid string) pair { return pair{josetest.NewEC(elliptic.P256()), kid} }

func (p pair) public() jose.JSONWebKey { return jose.JSONWebKey{Key: p.private.Public(), KeyID: p.kid} }

func (p pair) sign(t testing.TB, alg jose.SignatureAlgorithm) string {
	t.Helper()
	header := josetest.Header{}
	if p.kid != "" {
		header["kid"] = p.kid
	}
	return josetest.Sign(t, jose.SigningKey{Algorithm: alg, Key: p.private}, header, []byte(`{"sub":"alice"}`))
}

// serving is a key set of a server that serves one key, good, with a header.
func serving(t testing.TB, header http.Header) (good pair, s *keyServer, keys *relyingparty.KeySet) {
	t.Helper()
	good, s = ecPair("good"), &keyServer{header: header}
	s.serveKeys(good.public())
	return good, s, newKeySet(t, s)
}

// exactly is serving for a client's keys.
func exactly(t testing.TB, header http.Header) (good pair, s *keyServer, keys *relyingparty.KeySet) {
	t.Helper()
	good, s, _ = serving(t, header)
	s.exact = true
	return good, s, newKeySet(t, s)
}

func cacheControl(directives string) http.Header { return http.Header{"Cache-Control": {directives}} }

// wantKey asks for a key, and checks for the cause why there is none; nil: there is.
func wantKey(t testing.TB, keys *relyingparty.KeySet, kid string, cause error) {
	t.Helper()
	if _, err := keys.Key(t.Context(), kid); !errors.Is(err, cause) {
		t.Errorf("kid %q: %v", kid, err)
	}
}

// wantVerified verifies a token, and checks for the cause why it is wrong; nil: it is right.
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

// What a key costs that is there already, by what the provider says of caching:
// Keycloak says no-cache.
func BenchmarkKey(b *testing.B) {
	for _, directives := range []string{"max-age=600", "no-cache"} {
		b.Run(directives, func(b *testing.B) {
			_, _, keys := serving(b, cacheControl(directives))
			for b.Loop() {
				if _, err := keys.Key(b.Context(), "good"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
