package keyring

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// The signature of access tokens, which go with each FHIR request, is short and quickly
// made. Every OpenID Connect client can verify RS256 (OpenID Connect Core §15.1).
const (
	AccessTokenAlgorithm = jose.ES256
	IDTokenAlgorithm     = jose.RS256
	sealAlgorithm        = jose.SignatureAlgorithm(jose.A256GCM)
)

// IDTokenAlgorithms are those that clients may choose from.
var IDTokenAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256}

type storedKey struct {
	Created time.Time       `json:"created"`
	JWK     jose.JSONWebKey `json:"jwk"`

	// Ended is when an operator retired the key. It is remembered, lest a gateway that has the key
	// in memory take it for lost and put it back.
	Ended time.Time `json:"ended,omitzero"`
}

// keySet is what the storage held when it was read. It is immutable.
type keySet struct {
	read    time.Time
	stored  []byte // the document that was read
	keys    []storedKey
	ended   []storedKey // retired by an operator
	lost    []storedKey // in use, but not stored
	signers map[signerID]jose.Signer
	jwks    []byte
}

type signerID struct{ kid, typ string }

// The typ of our tokens keeps one from passing for another (RFC 9068 §2.1, Back-Channel
// Logout §2.4).
const (
	AccessTokenType = "at+jwt"
	IDTokenType     = "JWT"
	LogoutTokenType = "logout+jwt"
)

// publishLead is how long a new key is published before it signs, so that those who cache
// the JWKS for a shorter time never see an unknown key.
const publishLead = time.Hour

// active returns the newest key of an algorithm that has been published for publishLead;
// if none has, as after the first start, the oldest.
func (s *keySet) active(alg jose.SignatureAlgorithm, now time.Time) (storedKey, bool) {
	var oldest, ready storedKey
	for _, k := range s.keys {
		if k.JWK.Algorithm != string(alg) {
			continue
		}
		if oldest.JWK.Key == nil || k.Created.Before(oldest.Created) {
			oldest = k
		}
		if k.Created.After(ready.Created) && now.Sub(k.Created) >= publishLead {
			ready = k
		}
	}
	if ready.JWK.Key != nil {
		return ready, true
	}
	return oldest, oldest.JWK.Key != nil
}

// newest returns when the newest key of an algorithm was made.
func (s *keySet) newest(alg jose.SignatureAlgorithm) (created time.Time) {
	for _, k := range s.keys {
		if k.JWK.Algorithm == string(alg) && k.Created.After(created) {
			created = k.Created
		}
	}
	return created
}

// byID returns a key, with its secret part.
func (s *keySet) byID(kid string) (storedKey, bool) {
	for _, k := range s.keys {
		if k.JWK.KeyID == kid {
			return k, true
		}
	}
	return storedKey{}, false
}

func parseKeySet(document []byte, now time.Time) (*keySet, error) {
	s := &keySet{read: now, stored: document, signers: map[signerID]jose.Signer{}}
	if err := json.Unmarshal(document, &s.keys); err != nil {
		return nil, fmt.Errorf("reading the signing keys: %w", err)
	}
	s.ended = slices.DeleteFunc(slices.Clone(s.keys), func(k storedKey) bool { return k.Ended.IsZero() })
	s.keys = slices.DeleteFunc(s.keys, func(k storedKey) bool { return !k.Ended.IsZero() })
	public := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range s.keys {
		if k.JWK.Algorithm == string(sealAlgorithm) {
			continue
		}
		precompute(k.JWK.Key)
		for _, typ := range []string{AccessTokenType, IDTokenType, LogoutTokenType} {
			key := jose.SigningKey{Algorithm: jose.SignatureAlgorithm(k.JWK.Algorithm), Key: k.JWK}
			signer, err := jose.NewSigner(key, new(jose.SignerOptions).WithType(jose.ContentType(typ)))
			if err != nil {
				return nil, fmt.Errorf("signing key %q: %w", k.JWK.KeyID, err)
			}
			s.signers[signerID{k.JWK.KeyID, typ}] = signer
		}
		public.Keys = append(public.Keys, k.JWK.Public())
	}
	var err error
	s.jwks, err = json.Marshal(public)
	return s, err
}

// precompute saves a sixth of the time of each signature: go-jose decodes RSA keys without
// precomputed values.
func precompute(key any) {
	if key, ok := key.(*rsa.PrivateKey); ok {
		key.Precomputed = rsa.PrecomputedValues{}
		key.Precompute()
	}
}

// generateRSA takes long, so that the tests of this package put keys that they have made in its place.
var generateRSA = rsa.GenerateKey

// generateKey makes a key for one of keyAlgorithms, with a random id.
func generateKey(alg jose.SignatureAlgorithm, now time.Time) (storedKey, error) {
	var key any
	var err error
	switch alg {
	case AccessTokenAlgorithm:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case IDTokenAlgorithm:
		key, err = generateRSA(rand.Reader, 2048)
	default:
		key = oauth2.RandomBytes(32)
	}
	if err != nil {
		return storedKey{}, fmt.Errorf("making a key for %s: %w", alg, err)
	}
	jwk := jose.JSONWebKey{Key: key, KeyID: oauth2.RandomToken(), Algorithm: string(alg), Use: "sig"}
	if alg == sealAlgorithm {
		jwk.Use = "enc"
	}
	return storedKey{Created: now, JWK: jwk}, nil
}
