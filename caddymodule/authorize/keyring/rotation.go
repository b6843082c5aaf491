package keyring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxKeys is how many keys of one algorithm there may be for a key to be added by Rotate.
const maxKeys = 8

// ErrManyKeys says that the keys were rotated too often: those who fetch them would be sent ever
// more.
var ErrManyKeys = fmt.Errorf("there are %d keys of one kind, which stay published for a day after they are replaced; try again tomorrow", maxKeys)

// Rotate adds a key for each algorithm of tokens. They are published at once, and sign an hour later; those
// that they replace stay published until nothing that they signed is valid. No token ends.
func (k *Keyring) Rotate(ctx context.Context) error {
	k.inUse.mu.Lock()
	defer k.inUse.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	set, err := k.replace(ctx, "rotating", func(set *keySet) ([]storedKey, error) { return set.rotated(time.Now()) })
	if errors.Is(err, ErrManyKeys) {
		return ErrManyKeys
	}
	if err == nil {
		k.inUse.set.Store(set)
		k.logger.Info("made signing keys, as the operator asked: they sign in an hour", "stored", k.location(), "keys", len(IDTokenAlgorithms))
	}
	return err
}

// rotated returns the keys without the retired, with the lost, and with a new one for each
// algorithm of tokens.
func (s *keySet) rotated(now time.Time) ([]storedKey, error) {
	keys, err := s.renewed(now)
	if err != nil {
		return nil, err
	}
	for _, alg := range IDTokenAlgorithms {
		same := func(k storedKey) bool { return k.JWK.Algorithm == string(alg) && k.Ended.IsZero() }
		if len(slices.DeleteFunc(slices.Clone(keys), func(k storedKey) bool { return !same(k) })) >= maxKeys {
			return nil, ErrManyKeys
		}
		key, err := generateKey(alg, now)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Retire ends a key at once, and every token that it signed, or returns [ErrUnknownKey]. If there is no other for
// its algorithm, a new one takes its place.
func (k *Keyring) Retire(ctx context.Context, kid string) error {
	k.inUse.mu.Lock()
	defer k.inUse.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	set, err := k.replace(ctx, "retiring", func(set *keySet) ([]storedKey, error) { return set.without(kid, time.Now()) })
	if err == nil {
		k.inUse.set.Store(set)
		k.logger.Warn("retired a key, as the operator asked: what it signed is void", "stored", k.location(), "kid", kid)
	}
	return err
}

// without returns the keys with one of them ended.
func (s *keySet) without(kid string, now time.Time) ([]storedKey, error) {
	key, there := s.byID(kid)
	if !there {
		return nil, ErrUnknownKey
	}
	key.Ended = now
	if public := key.JWK.Public(); public.Valid() {
		key.JWK = public
	}
	left := &keySet{lost: s.lost, ended: append(slices.Clone(s.ended), key)}
	left.keys = slices.DeleteFunc(slices.Clone(s.keys), func(k storedKey) bool { return k.JWK.KeyID == kid })
	return left.renewed(now)
}
