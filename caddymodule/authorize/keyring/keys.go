package keyring

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// The algorithms of our keys. Access tokens are verified on each FHIR request,
// so they get the signature that is cheap to make and short; RS256 is what
// every OpenID Connect client can verify (OpenID Connect Core §15.1).
const (
	AccessTokenAlgorithm = jose.ES256
	IDTokenAlgorithm     = jose.RS256
	sealAlgorithm        = jose.SignatureAlgorithm(jose.A256GCM)
)

// IDTokenAlgorithms are those that clients may choose from.
var IDTokenAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256}

// storedKey is one key as it lies in storage.
type storedKey struct {
	Created time.Time       `json:"created"`
	JWK     jose.JSONWebKey `json:"jwk"`
}

// keySet is what the storage held when it was read. It is never changed.
type keySet struct {
	read    time.Time
	keys    []storedKey
	signers map[signerID]jose.Signer
	jwks    []byte
}

// signerID is a key and what it signs.
type signerID struct{ kid, typ string }

// The typ of our tokens, so that none passes for another: RFC 9068 §2.1 has it
// for access tokens, Back-Channel Logout §2.4 for logout tokens.
const (
	AccessTokenType = "at+jwt"
	IDTokenType     = "JWT"
	LogoutTokenType = "logout+jwt"
)

// publishLead is how long a new key is published before it signs, so that
// whoever caches our JWKS for less than this never meets an unknown key.
const publishLead = time.Hour

// active returns the newest key of an algorithm that has been published long
// enough or, right after the first start, the newest at all.
func (s *keySet) active(alg jose.SignatureAlgorithm, now time.Time) (storedKey, bool) {
	var newest, ready storedKey
	for _, k := range s.keys {
		if k.JWK.Algorithm != string(alg) {
			continue
		}
		if k.Created.After(newest.Created) {
			newest = k
		}
		if k.Created.After(ready.Created) && now.Sub(k.Created) >= publishLead {
			ready = k
		}
	}
	if ready.JWK.Key != nil {
		return ready, true
	}
	return newest, newest.JWK.Key != nil
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

// byID finds a key, secret part included.
func (s *keySet) byID(kid string) (storedKey, bool) {
	for _, k := range s.keys {
		if k.JWK.KeyID == kid {
			return k, true
		}
	}
	return storedKey{}, false
}

func parseKeySet(document []byte, now time.Time) (*keySet, error) {
	s := &keySet{read: now, signers: map[signerID]jose.Signer{}}
	if err := json.Unmarshal(document, &s.keys); err != nil {
		return nil, fmt.Errorf("reading the signing keys: %w", err)
	}
	public := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range s.keys {
		if k.JWK.Algorithm == string(sealAlgorithm) {
			continue
		}
		precompute(k.JWK.Key)
		for _, typ := range []string{AccessTokenType, IDTokenType, LogoutTokenType} {
			signer, err := newSigner(k.JWK, typ)
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

// precompute spares each signature a sixth of its time: go-jose takes over what the
// document says of an RSA key's exponents, and leaves out what crypto/rsa would
// have made of them.
func precompute(key any) {
	if key, ok := key.(*rsa.PrivateKey); ok {
		key.Precomputed = rsa.PrecomputedValues{}
		key.Precompute()
	}
}

// newSigner says in the header what the token is.
func newSigner(key jose.JSONWebKey, typ string) (jose.Signer, error) {
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(typ))
	return jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, options)
}

// generateKey makes a key for an algorithm, with a random id.
func generateKey(alg jose.SignatureAlgorithm, now time.Time) (storedKey, error) {
	var key any
	var err error
	switch alg {
	case AccessTokenAlgorithm:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case IDTokenAlgorithm:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case sealAlgorithm:
		key = oauth2.RandomBytes(32)
	default:
		err = errors.New("no such algorithm")
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

// Storage is where a [Keyring] keeps its keys; Caddy's storage
// (certmagic.Storage) is one. A key that was never stored is fs.ErrNotExist.
type Storage interface {
	// Lock waits until nobody else holds the name, whichever process they are in.
	Lock(ctx context.Context, name string) error

	// Unlock lets the name go.
	Unlock(ctx context.Context, name string) error

	// Load returns what was stored last.
	Load(ctx context.Context, key string) ([]byte, error)

	// Store keeps a value, in place of one that was there.
	Store(ctx context.Context, key string, value []byte) error
}
