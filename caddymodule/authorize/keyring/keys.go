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

// Keys is what an authorization server needs of a [Keyring].
type Keys interface {
	Signing
	Sealing
	Storing

	// Key returns the public key with an id, or [ErrUnknownKey].
	Key(ctx context.Context, kid string) (jose.JSONWebKey, error)

	// JWKS returns the published keys as a JWK Set (RFC 7517 §5).
	JWKS(ctx context.Context) ([]byte, error)

	// Has reports whether the keyring still has a key.
	Has(ctx context.Context, kid string) (bool, error)
}

// Signing signs tokens.
type Signing interface {
	// Signer returns the signer of new tokens of a typ with an algorithm.
	Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error)
}

// Sealing seals data that browsers keep for us.
type Sealing interface {
	// Seal encrypts and authenticates a text and the present time. It opens only with
	// the same binding.
	Seal(ctx context.Context, text, binding string) (string, error)

	// Unseal returns a text that was sealed no longer than maxAge ago, or [ErrUnsealed].
	Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error)

	// MAC returns a digest that cannot be computed without the keys.
	MAC(ctx context.Context, text string) ([]byte, error)
}

// Storing seals what is stored for longer than browsers keep anything.
type Storing interface {
	// SealStored encrypts and authenticates a text. It opens only with the same binding.
	SealStored(ctx context.Context, text, binding string) (string, error)

	// UnsealStored returns a text that SealStored sealed, or [ErrUnsealed].
	UnsealStored(ctx context.Context, sealed, binding string) (string, error)
}

// Sign makes a JWT of a typ, without go-jose's builder, which marshals the claims twice.
func Sign(ctx context.Context, keys Signing, alg jose.SignatureAlgorithm, typ string, claims any) (string, error) {
	signer, err := keys.Signer(ctx, alg, typ)
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("writing a token: %w", err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return jws.CompactSerialize()
}

var _ Keys = (*Keyring)(nil)

// ErrUnsealed says that a text was not sealed by this keyring, with this binding, or
// recently enough.
var ErrUnsealed = errors.New("not sealed by us, for this browser, or not lately")

// Seal implements [Sealing] with AES-256-GCM. The form is <key id>.<base64url>.
func (k *Keyring) Seal(ctx context.Context, text, binding string) (string, error) {
	key, err := k.sealKey(ctx)
	if err != nil {
		return "", err
	}
	return key.seal(text, binding)
}

// seal seals a text, and names the key before it.
func (k storedKey) seal(text, binding string) (string, error) {
	sealer, err := k.sealer()
	if err != nil {
		return "", err
	}
	return k.JWK.KeyID + "." + sealer.Seal(text, binding), nil
}

// Unseal implements [Sealing].
func (k *Keyring) Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	set, err := k.current(ctx)
	if err != nil {
		return "", err
	}
	kid, box, _ := strings.Cut(sealed, ".")
	key, ok := set.byID(kid)
	if !ok || key.JWK.Algorithm != string(sealAlgorithm) {
		return "", ErrUnsealed
	}
	sealer, err := key.sealer()
	if err != nil {
		return "", err
	}
	return sealer.Unseal(box, binding, maxAge)
}

const macSize = 16 // bytes of an HMAC-SHA256

// MAC implements [Sealing]. It changes when the key is replaced.
func (k *Keyring) MAC(ctx context.Context, text string) ([]byte, error) {
	key, err := k.sealKey(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := key.secret()
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("mac\x00" + text))
	return h.Sum(nil)[:macSize], nil
}

func (k *Keyring) sealKey(ctx context.Context) (storedKey, error) {
	set, err := k.current(ctx)
	if err != nil {
		return storedKey{}, err
	}
	key, ok := set.active(sealAlgorithm, time.Now())
	if !ok {
		return key, fmt.Errorf("%w for sealing", ErrUnknownKey)
	}
	return key, nil
}

func (k storedKey) secret() ([]byte, error) {
	secret, ok := k.JWK.Key.([]byte)
	if !ok {
		return nil, fmt.Errorf("key %q is no secret key", k.JWK.KeyID)
	}
	return secret, nil
}

func (k storedKey) sealer() (*Sealer, error) {
	secret, err := k.secret()
	if err != nil {
		return nil, err
	}
	s, err := NewSealer(secret)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", k.JWK.KeyID, err)
	}
	return s, nil
}

// Sealer seals texts with one key, by AES-GCM, together with the time. Make one with [NewSealer].
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

// Seal returns the text sealed, in base64url; it opens with the same binding only.
func (s *Sealer) Seal(text, binding string) string {
	dated := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()))
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, append(dated, text...), []byte(binding)))
}

// sealSkew is how far ahead the clock of the gateway that sealed a text may be.
const sealSkew = time.Minute

// Open opens what [Sealer.Seal] has sealed with the binding, whenever that was, or fails with [ErrUnsealed].
func (s *Sealer) Open(sealed, binding string) (string, error) {
	text, _, err := s.open(sealed, binding)
	return text, err
}

// Unseal opens what [Sealer.Seal] has sealed with the binding, maxAge ago at most, or fails with [ErrUnsealed].
func (s *Sealer) Unseal(sealed, binding string, maxAge time.Duration) (string, error) {
	text, at, err := s.open(sealed, binding)
	if age := time.Since(at); err == nil && (age > maxAge || age < -sealSkew) {
		return "", ErrUnsealed
	}
	return text, err
}

// open also returns when the text was sealed.
func (s *Sealer) open(sealed, binding string) (text string, at time.Time, err error) {
	box, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", at, ErrUnsealed
	}
	dated, err := s.aead.Open(nil, nil, box, []byte(binding))
	if err != nil {
		return "", at, ErrUnsealed
	}
	return string(dated[8:]), time.Unix(int64(binary.BigEndian.Uint64(dated)), 0), nil
}
