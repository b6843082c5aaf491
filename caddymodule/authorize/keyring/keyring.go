package keyring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// ErrUnknownKey says that no key of ours has the id that a token names.
var ErrUnknownKey = errors.New("no such key")

const (
	// lifetime is the age at which a key is followed by a new one.
	lifetime = 90 * 24 * time.Hour

	// Retention is how long a key that signs no more stays published. It is
	// longer than any token signed with it may live.
	Retention = 24 * time.Hour

	// refresh is how old our copy of the stored keys may get, so that the
	// gateways that share a storage learn of each other's keys well within
	// publishLead.
	refresh = 5 * time.Minute

	// timeout bounds the work on the storage, which goes on when the
	// request that happened to need it is gone.
	timeout = 30 * time.Second
)

// Keyring holds the keys of one issuer. They are read from storage on first
// need, made when there are none or when the newest is 90 days old, and shared
// by all gateways that use the same storage.
type Keyring struct {
	storage Storage
	name    string
	logger  *slog.Logger
	*KeysInUse
}

// KeysInUse are the keys of a [Keyring] as they are in memory.
type KeysInUse struct {
	mu  sync.Mutex // held by whoever reads the storage
	set atomic.Pointer[keySet]
}

// New returns the keyring stored under name. It does not touch storage.
func New(storage Storage, name string, logger *slog.Logger) *Keyring {
	return &Keyring{storage: storage, name: name, logger: logger, KeysInUse: new(KeysInUse)}
}

// TakeOver makes the keyring go on with the keys of the one before. It is to be
// called before the keyring is used.
func (k *Keyring) TakeOver(keys *KeysInUse) { k.KeysInUse = keys }

// Key returns the public key with the given id, for verifying a signature. Its
// error is [ErrUnknownKey] where there is no such key.
func (k *Keyring) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	set, err := k.current(ctx)
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	key, ok := set.byID(kid)
	if !ok || key.JWK.Algorithm == string(sealAlgorithm) {
		return jose.JSONWebKey{}, ErrUnknownKey
	}
	return key.JWK.Public(), nil
}

// JWKS returns the published keys as a JWK Set (RFC 7517 §5).
func (k *Keyring) JWKS(ctx context.Context) ([]byte, error) {
	set, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	return set.jwks, nil
}

// Has reports whether a key is still among ours.
func (k *Keyring) Has(ctx context.Context, kid string) (bool, error) {
	set, err := k.current(ctx)
	if err != nil {
		return false, err
	}
	_, ok := set.byID(kid)
	return ok, nil
}

// Signer returns the signer of new tokens of a type for an algorithm.
func (k *Keyring) Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error) {
	set, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	key, ok := set.active(alg, time.Now())
	if !ok {
		return nil, fmt.Errorf("%w for %s", ErrUnknownKey, alg)
	}
	return set.signers[signerID{key.JWK.KeyID, typ}], nil
}

// current returns the keys, from memory where that copy is fresh enough.
func (k *Keyring) current(ctx context.Context) (*keySet, error) {
	if set := k.set.Load(); set.fresh() {
		return set, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if set := k.set.Load(); set.fresh() { // read by another while we waited
		return set, nil
	}
	return k.refresh(ctx)
}

// Refresh reads the keys again, however fresh those in memory are. Its error is that
// there are none.
func (k *Keyring) Refresh(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.refresh(ctx)
	return err
}

// refresh reads the keys, with mu held. When the storage fails, a stale copy is better
// than no sign-in, and than new keys, which would end all tokens.
func (k *Keyring) refresh(ctx context.Context) (*keySet, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	set, err := k.read(ctx)
	if old := k.set.Load(); err != nil && old != nil {
		k.logger.Error("the signing keys could not be read again: going on with those in memory; put the stored ones back before a restart, which would end all tokens", "error", err)
		set, err = old.again(), nil
	}
	if err != nil {
		return nil, err
	}
	k.set.Store(set)
	return set, nil
}

func (s *keySet) fresh() bool { return s != nil && time.Since(s.read) < refresh }

// again is the same set, taken as read now.
func (s *keySet) again() *keySet {
	c := *s
	c.read = time.Now()
	return &c
}

// read loads the keys, and renews them where one is due.
func (k *Keyring) read(ctx context.Context) (*keySet, error) {
	set, err := k.load(ctx)
	if err != nil || !set.due() {
		return set, err
	}
	return k.renew(ctx)
}

var (
	// errKeysGone says that keys which are in use are not in storage any more.
	errKeysGone = errors.New("keys in use are gone from there")

	// errNoKeys says so of all, where nothing is in memory to know them by.
	errNoKeys = errors.New("there are no keys in it; if it was never to hold any, remove it")
)

// load reads the keys. That there are none yet is no error, unless some are in use.
func (k *Keyring) load(ctx context.Context) (*keySet, error) {
	document, err := k.storage.Load(ctx, k.name)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew {
		document, err = []byte("[]"), nil
	}
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", k.location(), err)
	}
	set, err := parseKeySet(document, time.Now())
	switch {
	case err != nil:
	case set.lacks(k.set.Load()):
		err = errKeysGone
	case len(set.keys) == 0 && !isNew:
		err = errNoKeys
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.location(), err)
	}
	return set, nil
}

// lacks reports whether a key of those in use is missing, which was not left out because
// it is spent: the stored keys were replaced by others.
func (s *keySet) lacks(inUse *keySet) bool {
	return inUse != nil && slices.ContainsFunc(inUse.keys, func(key storedKey) bool {
		_, there := s.byID(key.JWK.KeyID)
		return !there && !s.retired(key, time.Now())
	})
}

// location names where the keys are, for who has to look: the file, where it is one.
func (k *Keyring) location() string {
	if files, ok := k.storage.(interface{ Filename(key string) string }); ok {
		return files.Filename(k.name)
	}
	return k.name + " in storage"
}

// renew adds the keys that are due, under the storage's lock, after looking
// again whether another gateway has just done so.
func (k *Keyring) renew(ctx context.Context) (set *keySet, err error) {
	if err := k.storage.Lock(ctx, k.name); err != nil {
		return nil, fmt.Errorf("locking %s: %w", k.location(), err)
	}
	defer func() { err = errors.Join(err, k.storage.Unlock(context.WithoutCancel(ctx), k.name)) }()
	if set, err = k.load(ctx); err != nil || !set.due() {
		return set, err
	}
	keys, err := set.renewed(time.Now())
	if err != nil {
		return nil, err
	}
	document, err := json.Marshal(keys)
	if err != nil {
		return nil, fmt.Errorf("writing the signing keys: %w", err)
	}
	if err := k.storage.Store(ctx, k.name, document); err != nil {
		return nil, fmt.Errorf("storing %s: %w", k.location(), err)
	}
	k.logger.Info("made signing keys", "stored", k.location(), "keys", len(keys))
	return parseKeySet(document, time.Now())
}

var keyAlgorithms = []jose.SignatureAlgorithm{AccessTokenAlgorithm, IDTokenAlgorithm, sealAlgorithm}

// due says whether an algorithm has no key, or only one past its lifetime.
func (s *keySet) due() bool {
	return slices.ContainsFunc(keyAlgorithms, func(alg jose.SignatureAlgorithm) bool {
		return time.Since(s.newest(alg)) >= lifetime
	})
}

// retired says whether a key was followed by another so long ago that nothing it
// signed can still be valid.
func (s *keySet) retired(k storedKey, now time.Time) bool {
	return slices.ContainsFunc(s.keys, func(next storedKey) bool {
		return next.JWK.Algorithm == k.JWK.Algorithm && next.Created.After(k.Created) &&
			now.Sub(next.Created) >= publishLead+Retention
	})
}

// renewed returns the keys without the spent ones and with those that are due.
func (s *keySet) renewed(now time.Time) ([]storedKey, error) {
	keys := slices.DeleteFunc(slices.Clone(s.keys), func(k storedKey) bool { return s.retired(k, now) })
	for _, alg := range keyAlgorithms {
		if now.Sub(s.newest(alg)) < lifetime {
			continue
		}
		key, err := generateKey(alg, now)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}
