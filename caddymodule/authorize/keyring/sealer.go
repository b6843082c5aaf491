package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"time"
)

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
