package relyingparty

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// minRSA is the minimum size in bits (RFC 7518 §3.3). go-jose sets the maximum, 4096.
const minRSA = 2048

// jwks are the usable keys of a JWK Set: public, of a known kind, for signatures.
type jwks []jose.JSONWebKey

// publicJWK leaves out certificates, which are not checked.
type publicJWK struct {
	KeyType   string   `json:"kty"`
	Use       string   `json:"use,omitempty"`
	KeyOps    []string `json:"key_ops,omitempty"`
	Algorithm string   `json:"alg,omitempty"`
	KeyID     string   `json:"kid,omitempty"`
	Curve     string   `json:"crv,omitempty"`
	X         string   `json:"x,omitempty"`
	Y         string   `json:"y,omitempty"`
	N         string   `json:"n,omitempty"`
	E         string   `json:"e,omitempty"`

	Private any `json:"d,omitempty"` // there in a key that everybody can sign with
}

// parseJWKS skips unusable keys (RFC 7517 §5).
func parseJWKS(body []byte) (jwks, error) {
	var document struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := strictjson.Unmarshal(body, &document); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	if document.Keys == nil {
		return nil, fmt.Errorf("%w: no keys member", ErrKeys)
	}
	var set jwks
	for _, raw := range *document.Keys {
		if key, ok := parseKey(raw); ok {
			set = append(set, key)
		}
	}
	return set, nil
}

func parseKey(raw []byte) (key jose.JSONWebKey, ok bool) {
	var public publicJWK
	if err := strictjson.Unmarshal(raw, &public); err != nil {
		return key, false
	}
	if public.Private != nil || public.Use != "" && public.Use != "sig" || public.KeyOps != nil && !slices.Contains(public.KeyOps, "verify") {
		return key, false
	}
	public.KeyOps = nil
	again, err := json.Marshal(public)
	if err != nil || key.UnmarshalJSON(again) != nil {
		return key, false
	}
	fit := keyAlgorithms(key.Key)
	return key, len(fit) > 0 && (key.Algorithm == "" || slices.Contains(fit, jose.SignatureAlgorithm(key.Algorithm)))
}

// keyAlgorithms returns the algorithms that a key can be used with.
func keyAlgorithms(key any) []jose.SignatureAlgorithm {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() >= minRSA {
			return algorithms[:6]
		}
	case *ecdsa.PublicKey:
		return map[string][]jose.SignatureAlgorithm{
			"P-256": {jose.ES256}, "P-384": {jose.ES384}, "P-521": {jose.ES512},
		}[key.Params().Name]
	case ed25519.PublicKey:
		if len(key) == ed25519.PublicKeySize {
			return []jose.SignatureAlgorithm{jose.EdDSA}
		}
	}
	return nil
}

// candidates returns the keys that a kid may mean: all without a kid, and the only key if
// that has no kid.
func (s jwks) candidates(kid string) jwks {
	if kid == "" || len(s) == 1 && s[0].KeyID == "" {
		return s
	}
	named := func(key jose.JSONWebKey) bool { return key.KeyID == kid }
	if i := slices.IndexFunc(s, named); i >= 0 && !slices.ContainsFunc(s[i+1:], named) {
		return s[i : i+1 : i+1] // as almost always, and for each request
	}
	return s.filter(named)
}

// named returns the keys with a kid.
func (s jwks) named(kid string) jwks {
	return s.filter(func(key jose.JSONWebKey) bool { return key.KeyID == kid })
}

// fit returns the keys for an algorithm: those that name it, or that name none and are of
// its kind.
func (s jwks) fit(alg string) jwks {
	return s.filter(func(key jose.JSONWebKey) bool {
		return key.Algorithm == alg || key.Algorithm == "" && slices.Contains(keyAlgorithms(key.Key), jose.SignatureAlgorithm(alg))
	})
}

func (s jwks) filter(keep func(jose.JSONWebKey) bool) (kept jwks) {
	for _, key := range s {
		if keep(key) {
			kept = append(kept, key)
		}
	}
	return kept
}

// String lists the keys, for the log.
func (s jwks) String() string {
	kids := make([]string, len(s))
	for i, key := range s {
		kids[i] = fmt.Sprintf("%q", key.KeyID)
	}
	return strings.Join(kids, " ")
}
