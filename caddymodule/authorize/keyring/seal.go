package keyring

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrUnsealed says that a text was not sealed by this keyring, with this binding, or
// recently enough.
var ErrUnsealed = errors.New("not sealed by us, for this browser, or not lately")

// Seal implements [Sealing] with AES-256-GCM. The form is <key id>.<base64url>.
func (k *Keyring) Seal(ctx context.Context, text, binding string) (string, error) {
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

// sealSkew is how far ahead the clock of the gateway that sealed a text may be.
const sealSkew = time.Minute

// Unseal implements [Sealing].
func (k *Keyring) Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	set, err := k.current(ctx)
	if err != nil {
		return "", err
	}
	kid, encoded, _ := strings.Cut(sealed, ".")
	key, ok := set.byID(kid)
	if !ok || key.JWK.Algorithm != string(sealAlgorithm) {
		return "", ErrUnsealed
	}
	box, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", ErrUnsealed
	}
	aead, err := newAEAD(key)
	if err != nil {
		return "", err
	}
	dated, err := aead.Open(nil, nil, box, []byte(binding))
	if err != nil {
		return "", ErrUnsealed
	}
	at := time.Unix(int64(binary.BigEndian.Uint64(dated)), 0)
	if age := time.Since(at); age > maxAge || age < -sealSkew {
		return "", ErrUnsealed
	}
	return string(dated[8:]), nil
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
