package authorize

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

var errUnsealed = errors.New("not sealed by us, for this browser, or not lately")

// seal encrypts and authenticates text and the present time (AES-256-GCM, random
// nonce), so that a browser can keep it for us without reading or changing it.
// It opens only with the same binding. The form is <key id>.<base64url>.
func (k *Keyring) seal(ctx context.Context, text, binding string) (string, error) {
	key, err := k.sealKey(ctx)
	if err != nil {
		return "", err
	}
	aead, err := newAEAD(key)
	if err != nil {
		return "", err
	}
	dated := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()))
	box := aead.Seal(nil, nil, append(dated, text...), []byte(binding))
	return key.JWK.KeyID + "." + base64.RawURLEncoding.EncodeToString(box), nil
}

// sealSkew is how far in the future a seal's date may be: replicas' clocks differ.
// One that is further ahead would be good for longer than maxAge.
const sealSkew = time.Minute

// unseal opens what was sealed no longer than maxAge ago. Whatever is wrong with
// a box, it is errUnsealed.
func (k *Keyring) unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	set, err := k.current(ctx)
	if err != nil {
		return "", err
	}
	kid, encoded, _ := strings.Cut(sealed, ".")
	key, ok := set.byID(kid)
	if !ok || key.JWK.Algorithm != string(sealAlgorithm) {
		return "", errUnsealed
	}
	box, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", errUnsealed
	}
	aead, err := newAEAD(key)
	if err != nil {
		return "", err
	}
	dated, err := aead.Open(nil, nil, box, []byte(binding))
	if err != nil {
		return "", errUnsealed
	}
	at := time.Unix(int64(binary.BigEndian.Uint64(dated)), 0)
	if age := time.Since(at); age > maxAge || age < -sealSkew {
		return "", errUnsealed
	}
	return string(dated[8:]), nil
}

// mac is a hash that only who has our keys can work out. It changes when the key
// is followed by another.
func (k *Keyring) mac(ctx context.Context, text string) ([]byte, error) {
	key, err := k.sealKey(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := key.secret()
	if err != nil {
		return nil, err
	}
	return mac(secret, []byte("mac\x00"+text)), nil
}

// sealKey is the secret key that is in use.
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

func newAEAD(key storedKey) (cipher.AEAD, error) {
	secret, err := key.secret()
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", key.JWK.KeyID, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// randomToken returns 256 random bits in the alphabet that every client
// transports unharmed, even those that do not percent-encode (RFC 6749 §10.10
// asks for 128 bits or more).
func randomToken() string { return base64.RawURLEncoding.EncodeToString(randomBytes(32)) }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: see crypto/rand
	return b
}
