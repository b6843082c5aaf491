package keyring

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Access tokens are sent with each FHIR request, so their algorithm has short signatures that can be verified fast. Every
// OpenID Connect client can verify RS256 (OpenID Connect Core §15.1).
const (
	AccessTokenAlgorithm = jose.ES256
	IDTokenAlgorithm     = jose.RS256
	sealAlgorithm        = jose.SignatureAlgorithm(jose.A256GCM)
)

// IDTokenAlgorithms lists the ID token algorithms from which clients may choose.
var IDTokenAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256}

type storedKey struct {
	Created time.Time       `json:"created"`
	JWK     jose.JSONWebKey `json:"jwk"`

	// RetiredAt is the time when an operator retired the key. It is stored so that gateways that have the key in memory do not
	// restore it as lost.
	RetiredAt time.Time `json:"ended,omitzero"`
}

// keySet contains the keys in the storage at a point in time. Immutable.
type keySet struct {
	loadedAt time.Time
	document []byte // stored JSON
	keys     []storedKey
	retired  []storedKey // keys retired by an operator
	missing  []storedKey // keys in use that are missing from the storage
	signers  map[signerID]jose.Signer
	jwks     []byte
}

type signerID struct{ kid, typ string }

// Values of the typ header, which prevents confusion of token types (RFC 9068 §2.1, Back-Channel Logout §2.4).
const (
	AccessTokenType = "at+jwt"
	IDTokenType     = "JWT"
	LogoutTokenType = "logout+jwt"
)

// publishLead is the time between the publication of a new key and its first use. Copies of the JWKS that are cached for less
// than that always contain the key.
const publishLead = time.Hour

// activeKey returns the newest key of an algorithm that has been published for at least publishLead. If there is none, e.g.
// after the first start, it returns the oldest key.
func (s *keySet) activeKey(alg jose.SignatureAlgorithm, now time.Time) (storedKey, bool) {
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

// newestCreation returns the creation time of the newest key of an algorithm.
func (s *keySet) newestCreation(alg jose.SignatureAlgorithm) (created time.Time) {
	for _, k := range s.keys {
		if k.JWK.Algorithm == string(alg) && k.Created.After(created) {
			created = k.Created
		}
	}
	return created
}

// keyByID returns the key with the given kid, including its private part.
func (s *keySet) keyByID(kid string) (storedKey, bool) {
	for _, k := range s.keys {
		if k.JWK.KeyID == kid {
			return k, true
		}
	}
	return storedKey{}, false
}

func parseKeySet(document []byte, now time.Time) (*keySet, error) {
	s := &keySet{loadedAt: now, document: document, signers: map[signerID]jose.Signer{}}
	if err := json.Unmarshal(document, &s.keys); err != nil {
		return nil, fmt.Errorf("reading the signing keys: %w", err)
	}
	s.retired = slices.DeleteFunc(slices.Clone(s.keys), func(k storedKey) bool { return k.RetiredAt.IsZero() })
	s.keys = slices.DeleteFunc(s.keys, func(k storedKey) bool { return !k.RetiredAt.IsZero() })
	public := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range s.keys {
		if k.JWK.Algorithm == string(sealAlgorithm) {
			continue
		}
		precomputeRSA(k.JWK.Key)
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

// precomputeRSA precomputes the CRT values of RSA keys, which go-jose does not do. This makes signing a sixth faster.
func precomputeRSA(key any) {
	if key, ok := key.(*rsa.PrivateKey); ok {
		key.Precomputed = rsa.PrecomputedValues{}
		key.Precompute()
	}
}

// generateRSA can be replaced by tests, because it is slow.
var generateRSA = rsa.GenerateKey

// generateKey returns a new key for one of keyAlgorithms, with a random id.
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
		return storedKey{}, fmt.Errorf("generating a key for %s: %w", alg, err)
	}
	jwk := jose.JSONWebKey{Key: key, KeyID: oauth2.RandomToken(), Algorithm: string(alg), Use: "sig"}
	if alg == sealAlgorithm {
		jwk.Use = "enc"
	}
	return storedKey{Created: now, JWK: jwk}, nil
}

// Keys provides the keys of a [Keyring] to an authorization server.
type Keys interface {
	SignerSource
	BrowserSealer
	StorageSealer

	// Key returns the public key with the given kid, or [ErrUnknownKey].
	Key(ctx context.Context, kid string) (jose.JSONWebKey, error)

	// JWKS returns the published keys as a JWK Set (RFC 7517 §5).
	JWKS(ctx context.Context) ([]byte, error)

	// HasKey reports whether the keyring contains a key with the given kid.
	HasKey(ctx context.Context, kid string) (bool, error)
}

// SignerSource provides signers for tokens.
type SignerSource interface {
	// Signer returns the signer for new tokens with an algorithm and a typ header.
	Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error)
}

// BrowserSealer seals data stored by browsers.
type BrowserSealer interface {
	// Seal encrypts and authenticates a text and the current time. The same binding is required to unseal the text.
	Seal(ctx context.Context, text, binding string) (string, error)

	// Unseal returns a text that was sealed with the same binding at most maxAge ago, or [ErrUnsealFailed].
	Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error)

	// MAC returns a digest that cannot be computed without the keys.
	MAC(ctx context.Context, text string) ([]byte, error)
}

// StorageSealer seals data that is stored for longer than browser data.
type StorageSealer interface {
	// SealStored encrypts and authenticates a text. The same binding is required to unseal the text.
	SealStored(ctx context.Context, text, binding string) (string, error)

	// UnsealStored returns a text sealed by SealStored, or [ErrUnsealFailed].
	UnsealStored(ctx context.Context, sealed, binding string) (string, error)
}

// Sign returns a signed JWT with a typ header. It does not use go-jose's builder, which marshals the claims twice.
func Sign(ctx context.Context, keys SignerSource, alg jose.SignatureAlgorithm, typ string, claims any) (string, error) {
	signer, err := keys.Signer(ctx, alg, typ)
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encoding token claims: %w", err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return jws.CompactSerialize()
}

var _ Keys = (*Keyring)(nil)

// ErrUnsealFailed means that a text was not sealed with a key of this keyring and the binding, or was sealed too long ago.
var ErrUnsealFailed = errors.New("invalid sealed value: wrong key, wrong browser, or expired")

// Seal implements [BrowserSealer] with AES-256-GCM. The format is <key id>.<base64url>.
func (k *Keyring) Seal(ctx context.Context, text, binding string) (string, error) {
	key, err := k.sealingKey(ctx)
	if err != nil {
		return "", err
	}
	return key.seal(text, binding)
}

// seal returns the sealed text, preceded by the key id.
func (k storedKey) seal(text, binding string) (string, error) {
	sealer, err := k.newSealer()
	if err != nil {
		return "", err
	}
	return k.JWK.KeyID + "." + sealer.Seal(text, binding), nil
}

// Unseal implements [BrowserSealer].
func (k *Keyring) Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	set, err := k.currentKeys(ctx)
	if err != nil {
		return "", err
	}
	kid, box, _ := strings.Cut(sealed, ".")
	key, ok := set.keyByID(kid)
	if !ok || key.JWK.Algorithm != string(sealAlgorithm) {
		return "", ErrUnsealFailed
	}
	sealer, err := key.newSealer()
	if err != nil {
		return "", err
	}
	return sealer.Unseal(box, binding, maxAge)
}

const macSize = 16 // length of a MAC in bytes; HMAC-SHA256 is truncated to it

// MAC implements [BrowserSealer]. The digest of a text changes when the key is rotated.
func (k *Keyring) MAC(ctx context.Context, text string) ([]byte, error) {
	key, err := k.sealingKey(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := key.secretBytes()
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("mac\x00" + text))
	return h.Sum(nil)[:macSize], nil
}

func (k *Keyring) sealingKey(ctx context.Context) (storedKey, error) {
	set, err := k.currentKeys(ctx)
	if err != nil {
		return storedKey{}, err
	}
	key, ok := set.activeKey(sealAlgorithm, time.Now())
	if !ok {
		return key, fmt.Errorf("%w for sealing", ErrUnknownKey)
	}
	return key, nil
}

func (k storedKey) secretBytes() ([]byte, error) {
	secret, ok := k.JWK.Key.([]byte)
	if !ok {
		return nil, fmt.Errorf("key %q is not a symmetric key", k.JWK.KeyID)
	}
	return secret, nil
}

func (k storedKey) newSealer() (*Sealer, error) {
	secret, err := k.secretBytes()
	if err != nil {
		return nil, err
	}
	s, err := NewSealer(secret)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", k.JWK.KeyID, err)
	}
	return s, nil
}

// Sealer encrypts and authenticates texts with the current time, using AES-GCM with a single key. Create one with [NewSealer].
type Sealer struct{ aead cipher.AEAD }

// NewSealer returns a sealer with a secret key of 16, 24 or 32 bytes.
func NewSealer(secret []byte) (*Sealer, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &Sealer{aead}, err
}

// Seal returns the sealed text in base64url. The same binding is required to unseal the text.
func (s *Sealer) Seal(text, binding string) string {
	timestamped := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()))
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, append(timestamped, text...), []byte(binding)))
}

// maxClockSkew is how far the clock of the gateway that sealed a text may be ahead.
const maxClockSkew = time.Minute

// UnsealAnyAge returns a text sealed by [Sealer.Seal] with the same binding, regardless of its age, or [ErrUnsealFailed].
func (s *Sealer) UnsealAnyAge(sealed, binding string) (string, error) {
	text, _, err := s.unsealTimed(sealed, binding)
	return text, err
}

// Unseal returns a text sealed by [Sealer.Seal] with the same binding at most maxAge ago, or [ErrUnsealFailed].
func (s *Sealer) Unseal(sealed, binding string, maxAge time.Duration) (string, error) {
	text, at, err := s.unsealTimed(sealed, binding)
	if age := time.Since(at); err == nil && (age > maxAge || age < -maxClockSkew) {
		return "", ErrUnsealFailed
	}
	return text, err
}

// unsealTimed unseals a text and returns it with the time of sealing.
func (s *Sealer) unsealTimed(sealed, binding string) (text string, at time.Time, err error) {
	box, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", at, ErrUnsealFailed
	}
	timestamped, err := s.aead.Open(nil, nil, box, []byte(binding))
	if err != nil {
		return "", at, ErrUnsealFailed
	}
	return string(timestamped[8:]), time.Unix(int64(binary.BigEndian.Uint64(timestamped)), 0), nil
}
