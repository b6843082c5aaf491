package upstream_test

import (
	"crypto"
	"crypto/elliptic"
	"maps"
	"net/http"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

const keysURI = "https://login.example/keys"

// keyServer serves a key set, and counts.
type keyServer struct {
	mu       sync.Mutex
	requests int
	answer   authorizetest.Fault
	header   http.Header
}

func (s *keyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	answer := s.answer
	maps.Copy(w.Header(), s.header)
	s.mu.Unlock()
	answer(w, r)
}

func (s *keyServer) serve(f authorizetest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// serveKeys serves these, and nothing else.
func (s *keyServer) serveKeys(keys ...jose.JSONWebKey) {
	s.serve(authorizetest.JSON(http.StatusOK, jose.JSONWebKeySet{Keys: keys}))
}

func (s *keyServer) want(t *testing.T, requests int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests != requests {
		t.Errorf("%d requests, want %d", s.requests, requests)
	}
}

func newKeySet(t testing.TB, s *keyServer) *upstream.KeySet {
	t.Helper()
	keys, err := upstream.NewKeySet(upstream.KeySetConfig{URI: keysURI, Transport: inMemory{s}})
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

func verify(t testing.TB, keys *upstream.KeySet, token string) error {
	payload, err := keys.VerifySignature(t.Context(), token)
	if err == nil && string(payload) != `{"sub":"alice"}` {
		t.Errorf("payload %s", payload)
	}
	return err
}
