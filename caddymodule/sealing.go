package caddymodule

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

// processSealing seals with a key of this process, for a guard without the fhir app, whose keys outlive it: links to
// pages end with a restart.
type processSealing struct{}

var processAEAD = sync.OnceValues(func() (cipher.AEAD, error) {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
})

var errUnsealed = errors.New("not sealed by this process, for this, or lately")

// Seal implements enforce.Sealing.
func (processSealing) Seal(_ context.Context, text, binding string) (string, error) {
	aead, err := processAEAD()
	if err != nil {
		return "", err
	}
	dated := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()))
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, append(dated, text...), []byte(binding))), nil
}

// Unseal implements enforce.Sealing.
func (processSealing) Unseal(_ context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	aead, err := processAEAD()
	if err != nil {
		return "", err
	}
	box, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", errUnsealed
	}
	dated, err := aead.Open(nil, nil, box, []byte(binding))
	if err != nil || time.Since(time.Unix(int64(binary.BigEndian.Uint64(dated)), 0)) > maxAge {
		return "", errUnsealed
	}
	return string(dated[8:]), nil
}
