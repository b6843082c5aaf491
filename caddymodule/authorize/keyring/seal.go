package keyring

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
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
