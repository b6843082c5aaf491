package keyring

import (
	"bytes"
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

// ErrUnknownKey means that the keyring has no key with a token's kid.
var ErrUnknownKey = errors.New("no such key")

const (
	// lifetime is the age at which a key is rotated.
	lifetime = 90 * 24 * time.Hour

	// Retention is how long a rotated key stays published, longer than the lifetime of
	// any token that it signed.
	Retention = 24 * time.Hour

	// refresh is the maximum age of the copy in memory, so that gateways with shared storage read
	// new keys well within publishLead.
	refresh = 5 * time.Minute

	// timeout limits storage operations, which continue without their request.
	timeout = 30 * time.Second
)

// Keyring contains the keys of one issuer. It loads them from storage on first use, rotates them
// every 90 days, and shares them with all gateways on the same storage.
type Keyring struct {
	storage     Storage
	name        string
	logger      *slog.Logger
	inUse       *KeysInUse
	Storing     // storage keys
	storageKeys *storageKeyring
}

// KeysInUse are the keys of a [Keyring] in memory.
type KeysInUse struct {
	mu  sync.Mutex // held while reading the storage
	set atomic.Pointer[keySet]

	forStorage storageKeysInUse
	problem    atomic.Pointer[problem] // nil: the stored keys are in use
}

// New returns the keyring stored under name. It does not access the storage.
func New(storage Storage, name string, logger *slog.Logger) *Keyring {
	k := &Keyring{storage: storage, name: name, logger: logger}
	k.InheritKeys(new(KeysInUse))
	return k
}

// InUse returns the keys in memory, for a successor keyring.
func (k *Keyring) InUse() *KeysInUse { return k.inUse }

// InheritKeys continues with the keys of another keyring. It must be called before any other method.
func (k *Keyring) InheritKeys(keys *KeysInUse) {
	k.inUse = keys
	k.storageKeys = &storageKeyring{storage: k.storage, name: storageKeyName(k.name), inUse: &keys.forStorage}
	k.Storing = k.storageKeys
}

// Key implements [Keys].
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

// JWKS implements [Keys].
func (k *Keyring) JWKS(ctx context.Context) ([]byte, error) {
	set, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	return set.jwks, nil
}

// Has implements [Keys].
func (k *Keyring) Has(ctx context.Context, kid string) (bool, error) {
	set, err := k.current(ctx)
	if err != nil {
		return false, err
	}
	_, ok := set.byID(kid)
	return ok, nil
}

// Signer implements [Signing].
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

// current returns the keys, from memory if recent enough.
func (k *Keyring) current(ctx context.Context) (*keySet, error) {
	if set := k.inUse.set.Load(); set.fresh() {
		return set, nil
	}
	if !k.inUse.mu.TryLock() {
		if set := k.inUse.set.Load(); set != nil && time.Since(set.read) < 2*refresh {
			return set, nil // another goroutine is reading the storage, which may take long
		}
		k.inUse.mu.Lock()
	}
	defer k.inUse.mu.Unlock()
	if set := k.inUse.set.Load(); set.fresh() { // read concurrently by another goroutine
		return set, nil
	}
	return k.refresh(ctx)
}

// Refresh reloads the keys. It fails only if no keys are in memory either.
func (k *Keyring) Refresh(ctx context.Context) error {
	k.inUse.mu.Lock()
	defer k.inUse.mu.Unlock()
	_, err := k.refresh(ctx)
	return err
}

// refresh requires mu. If the storage fails, the keys in memory stay in use, because new keys would
// invalidate all tokens.
func (k *Keyring) refresh(ctx context.Context) (*keySet, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	set, err := k.read(ctx)
	k.noteProblem(err)
	if old := k.inUse.set.Load(); err != nil && old != nil {
		stale := *old
		stale.read = time.Now() // retry later
		set, err = &stale, nil
	}
	if err != nil {
		return nil, err
	}
	k.inUse.set.Store(set)
	return set, nil
}

// problem is the reason why the stored keys are not in use.
type problem struct {
	err    error
	logged time.Time
}

// Problem returns the error that prevents use of the stored keys, or nil. It does not access the storage.
func (k *Keyring) Problem() error {
	if p := k.inUse.problem.Load(); p != nil {
		return p.err
	}
	return nil
}

// noteProblem records the result of reading the keys and logs errors: at first, and then at the
// interval of unwatched reads. It requires mu.
func (k *Keyring) noteProblem(err error) {
	if err == nil {
		k.inUse.problem.Store(nil)
		return
	}
	p := &problem{err, time.Now()}
	last := k.inUse.problem.Load()
	repeated := last != nil && time.Since(last.logged) < refresh
	if repeated {
		p.logged = last.logged
	}
	k.inUse.problem.Store(p)
	if !repeated && k.inUse.set.Load() != nil {
		k.logger.Error("reloading the signing keys failed; using those in memory: restore the stored keys before a restart, which would invalidate all tokens", "error", err)
	}
}

func (s *keySet) fresh() bool { return s != nil && time.Since(s.read) < refresh }

var (
	errKeysGone = errors.New("signing keys in use are missing from the storage")
	errNoKeys   = errors.New("the key file contains no keys; remove it if it never contained any")
)

// read loads the keys and rotates keys that are due.
func (k *Keyring) read(ctx context.Context) (*keySet, error) {
	document, err := k.storage.Load(ctx, k.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("loading %s: %w", k.location(), err)
	}
	set, err := k.parse(document)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", k.location(), err)
	case set.due():
		return k.renew(ctx)
	}
	return set, nil
}

// parse decodes a document of keys; nil means a new one. Keys in use that are missing from an
// authentic storage were lost and are added; other gateways may have added keys since.
func (k *Keyring) parse(document []byte) (*keySet, error) {
	isNew := document == nil
	if isNew {
		document = []byte("[]")
	}
	set, err := parseKeySet(document, time.Now())
	if err != nil {
		return nil, err
	}
	lost := set.lacking(k.inUse.set.Load())
	switch {
	case len(lost) > 0 && !k.storage.IsAuthentic():
		return nil, errKeysGone
	case len(set.keys) == 0 && !isNew:
		return nil, errNoKeys
	}
	set.lost = lost
	return set, nil
}

func (k *Keyring) location() string { return k.storage.Location(k.name) }

// renew adds keys that are due, unless another gateway has just done so.
func (k *Keyring) renew(ctx context.Context) (*keySet, error) {
	made, back := 0, 0
	set, err := k.replace(ctx, "renewing", func(set *keySet) ([]storedKey, error) {
		if made, back = 0, 0; !set.due() {
			return nil, nil
		}
		keys, err := set.renewed(time.Now())
		made, back = len(keys), len(set.lost)
		return keys, err
	})
	switch {
	case err != nil:
	case back > 0:
		k.logger.Warn("missing signing keys restored to the store", "stored", k.location(), "keys", back)
	case made > 0:
		k.logger.Info("signing keys generated", "stored", k.location(), "keys", made)
	}
	return set, err
}

// replace stores the keys returned by altered, unless nil.
func (k *Keyring) replace(ctx context.Context, doing string, altered func(*keySet) ([]storedKey, error)) (*keySet, error) {
	document, err := k.storage.Update(ctx, k.name, func(document []byte) ([]byte, error) {
		set, err := k.parse(document)
		if err != nil {
			return nil, err
		}
		keys, err := altered(set)
		if keys == nil || err != nil {
			return document, err
		}
		return json.Marshal(keys)
	})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", doing, k.location(), err)
	}
	return k.parse(document)
}

// Info is the public information about a key.
type Info struct {
	KeyID     string    `json:"kid"`         // kid in the JWKS and in tokens (RFC 7517 §4.5)
	Algorithm string    `json:"alg"`         // ES256, RS256 or A256GCM (RFC 7518)
	Created   time.Time `json:"created"`     // creation time
	Seconds   int64     `json:"age_seconds"` // age since Created
}

// Info returns the keys in memory: none before the first use. It does not access the storage.
func (k *Keyring) Info() []Info {
	set := k.inUse.set.Load()
	if set == nil {
		return nil
	}
	info := make([]Info, len(set.keys))
	for i, key := range set.keys {
		info[i] = Info{key.JWK.KeyID, key.JWK.Algorithm, key.Created, int64(time.Since(key.Created).Seconds())}
	}
	return info
}

var keyAlgorithms = []jose.SignatureAlgorithm{AccessTokenAlgorithm, IDTokenAlgorithm, sealAlgorithm}

// due reports whether an algorithm has no key within its lifetime, or the storage has lost keys.
func (s *keySet) due() bool {
	return len(s.lost) > 0 || slices.ContainsFunc(keyAlgorithms, func(alg jose.SignatureAlgorithm) bool {
		return time.Since(s.newest(alg)) >= lifetime
	})
}

// retired reports whether a key was rotated so long ago that its signatures have expired.
func (s *keySet) retired(k storedKey, now time.Time) bool {
	return slices.ContainsFunc(s.keys, func(next storedKey) bool {
		return next.JWK.Algorithm == k.JWK.Algorithm && next.Created.After(k.Created) &&
			now.Sub(next.Created) >= publishLead+Retention
	})
}

// lacking returns keys in use that are missing from the storage but not retired: the stored keys were replaced or lost.
func (s *keySet) lacking(inUse *keySet) (missing []storedKey) {
	if inUse == nil {
		return nil
	}
	for _, key := range inUse.keys {
		if _, there := s.byID(key.JWK.KeyID); !there && !s.retired(key, time.Now()) && !s.hasEnded(key) {
			missing = append(missing, key)
		}
	}
	return missing
}

func (s *keySet) hasEnded(key storedKey) bool {
	return slices.ContainsFunc(s.ended, func(k storedKey) bool { return k.JWK.KeyID == key.JWK.KeyID })
}

// renewed returns the keys without retired ones, with lost ones, and with new ones where due. It
// keeps keys retired by an operator while gateways may have them in memory.
func (s *keySet) renewed(now time.Time) ([]storedKey, error) {
	ended := slices.DeleteFunc(slices.Clone(s.ended), func(k storedKey) bool { return now.Sub(k.Ended) > Retention })
	s = &keySet{keys: slices.Concat(s.keys, s.lost)}
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
	return append(keys, ended...), nil
}

// maxKeys is the maximum number of keys per algorithm for Rotate.
const maxKeys = 8

// ErrManyKeys means that keys were rotated too often, which would make the JWKS grow without limit.
var ErrManyKeys = fmt.Errorf("%d keys of one algorithm exist, and replaced keys stay published for a day; try again tomorrow", maxKeys)

// Rotate adds a key for each token algorithm. New keys are published immediately and sign an hour
// later. Previous keys stay published until their signatures have expired. No token is invalidated.
func (k *Keyring) Rotate(ctx context.Context) error {
	err := k.alter(ctx, "rotating", func(set *keySet) ([]storedKey, error) { return set.rotated(time.Now()) })
	if errors.Is(err, ErrManyKeys) {
		return ErrManyKeys
	}
	if err == nil {
		k.logger.Info("signing keys generated, as the operator asked: they sign in an hour", "stored", k.location(), "keys", len(IDTokenAlgorithms))
	}
	return err
}

// alter replaces the stored keys like [Keyring.replace] and uses the new ones.
func (k *Keyring) alter(ctx context.Context, doing string, altered func(*keySet) ([]storedKey, error)) error {
	k.inUse.mu.Lock()
	defer k.inUse.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	set, err := k.replace(ctx, doing, altered)
	if err == nil {
		k.inUse.set.Store(set)
	}
	return err
}

// rotated returns the keys without retired ones, with lost ones, and with a new one for each token algorithm.
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

// Retire removes a key immediately and thereby invalidates every token that it signed. The error is
// [ErrUnknownKey] for an unknown key. The last key of an algorithm is replaced.
func (k *Keyring) Retire(ctx context.Context, kid string) error {
	err := k.alter(ctx, "retiring", func(set *keySet) ([]storedKey, error) { return set.without(kid, time.Now()) })
	if err == nil {
		k.logger.Warn("signing key retired by the operator; its tokens are invalid", "stored", k.location(), "kid", kid)
	}
	return err
}

// without returns the keys with one of them retired.
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

// watchInterval is the time between checks of shared keys.
const watchInterval = time.Second

// Watch checks the keys of an authentic storage until ctx ends: new keys of other gateways are used as soon
// as they are stored, and lost keys are restored before they are needed. Other storage is not watched.
func (k *Keyring) Watch(ctx context.Context) {
	if !k.storage.IsAuthentic() {
		return
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.look(ctx)
		}
	}
}

// look reloads the keys if the stored document has changed. Errors are recorded and retried with the next check.
func (k *Keyring) look(ctx context.Context) {
	k.inUse.mu.Lock()
	defer k.inUse.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := k.lookAtSet(ctx)
	if err == nil {
		err = k.storageKeys.look(ctx)
	}
	k.noteProblem(err)
}

// lookAtSet requires mu.
func (k *Keyring) lookAtSet(ctx context.Context) error {
	document, err := k.storage.Load(ctx, k.name)
	if old := k.inUse.set.Load(); err == nil && old != nil && bytes.Equal(document, old.stored) {
		return nil
	}
	set, err := k.read(ctx)
	if err == nil {
		k.inUse.set.Store(set)
	}
	return err
}
