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

// ErrUnknownKey means that the keyring contains no key with the requested kid.
var ErrUnknownKey = errors.New("signing key not found")

const (
	// rotationInterval is the age at which a new key replaces a key.
	rotationInterval = 90 * 24 * time.Hour

	// Retention is how long a key remains published after it was rotated. It is longer than the lifetime of any token.
	Retention = 24 * time.Hour

	// refreshInterval is the maximum age of the keys in memory, so that gateways with shared storage read new keys well within
	// publishLead.
	refreshInterval = 5 * time.Minute

	// storageTimeout is the time limit for storage operations. They are not canceled with their request.
	storageTimeout = 30 * time.Second
)

// Keyring contains the keys of one issuer. It loads them from storage on first use, rotates them
// every 90 days, and shares them with all gateways on the same storage.
type Keyring struct {
	storage       Storage
	storageName   string
	logger        *slog.Logger
	loaded        *KeysInUse
	StorageSealer // seals with the storage keys
	storageKeys   *storageKeyring
}

// KeysInUse contains the keys of a [Keyring] in memory.
type KeysInUse struct {
	mu        sync.Mutex // held while the keys are read from storage
	tokenKeys atomic.Pointer[keySet]

	storageKeys storageKeysInUse
	problem     atomic.Pointer[loadProblem] // why the stored keys could not be used; nil if they are in use
}

// New returns the keyring that is stored under a name. It does not access the storage.
func New(storage Storage, name string, logger *slog.Logger) *Keyring {
	k := &Keyring{storage: storage, storageName: name, logger: logger}
	k.InheritKeys(new(KeysInUse))
	return k
}

// KeysInUse returns the keys in memory, for [Keyring.InheritKeys] of the keyring that replaces this one.
func (k *Keyring) KeysInUse() *KeysInUse { return k.loaded }

// InheritKeys makes the keyring use the keys that another keyring has in memory. It must be called before any other method.
func (k *Keyring) InheritKeys(keys *KeysInUse) {
	k.loaded = keys
	k.storageKeys = &storageKeyring{storage: k.storage, name: storageKeyName(k.storageName), loaded: &keys.storageKeys}
	k.StorageSealer = k.storageKeys
}

// Key implements [Keys].
func (k *Keyring) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	set, err := k.currentKeys(ctx)
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	key, ok := set.keyByID(kid)
	if !ok || key.JWK.Algorithm == string(sealAlgorithm) {
		return jose.JSONWebKey{}, ErrUnknownKey
	}
	return key.JWK.Public(), nil
}

// JWKS implements [Keys].
func (k *Keyring) JWKS(ctx context.Context) ([]byte, error) {
	set, err := k.currentKeys(ctx)
	if err != nil {
		return nil, err
	}
	return set.jwks, nil
}

// HasKey implements [Keys].
func (k *Keyring) HasKey(ctx context.Context, kid string) (bool, error) {
	set, err := k.currentKeys(ctx)
	if err != nil {
		return false, err
	}
	_, ok := set.keyByID(kid)
	return ok, nil
}

// Signer implements [SignerSource].
func (k *Keyring) Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error) {
	set, err := k.currentKeys(ctx)
	if err != nil {
		return nil, err
	}
	key, ok := set.activeKey(alg, time.Now())
	if !ok {
		return nil, fmt.Errorf("%w for %s", ErrUnknownKey, alg)
	}
	return set.signers[signerID{key.JWK.KeyID, typ}], nil
}

// currentKeys returns the keys in memory if they are recent, and otherwise reads the storage.
func (k *Keyring) currentKeys(ctx context.Context) (*keySet, error) {
	if set := k.loaded.tokenKeys.Load(); set.isFresh() {
		return set, nil
	}
	if !k.loaded.mu.TryLock() {
		if set := k.loaded.tokenKeys.Load(); set != nil && time.Since(set.loadedAt) < 2*refreshInterval {
			return set, nil // another goroutine is reading the storage, which may take a long time
		}
		k.loaded.mu.Lock()
	}
	defer k.loaded.mu.Unlock()
	if set := k.loaded.tokenKeys.Load(); set.isFresh() { // another goroutine has just read the storage
		return set, nil
	}
	return k.refreshLocked(ctx)
}

// Refresh reloads the keys. It returns an error only if loading fails and there are no keys in memory.
func (k *Keyring) Refresh(ctx context.Context) error {
	k.loaded.mu.Lock()
	defer k.loaded.mu.Unlock()
	_, err := k.refreshLocked(ctx)
	return err
}

// refreshLocked reloads the keys. The caller must hold mu. If the storage fails, the keys in memory remain in use, because new
// keys would invalidate all tokens.
func (k *Keyring) refreshLocked(ctx context.Context) (*keySet, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	set, err := k.loadKeys(ctx)
	k.recordProblem(err)
	if old := k.loaded.tokenKeys.Load(); err != nil && old != nil {
		stale := *old
		stale.loadedAt = time.Now() // retry after refreshInterval
		set, err = &stale, nil
	}
	if err != nil {
		return nil, err
	}
	k.loaded.tokenKeys.Store(set)
	return set, nil
}

// loadProblem is why the stored keys are not in use.
type loadProblem struct {
	err      error
	loggedAt time.Time
}

// LoadError returns the error that prevents the use of the stored keys, or nil. It does not access the storage.
func (k *Keyring) LoadError() error {
	if p := k.loaded.problem.Load(); p != nil {
		return p.err
	}
	return nil
}

// recordProblem records the result of reading the keys. It logs the first error, and repeated errors at most once per
// refreshInterval. The caller must hold mu.
func (k *Keyring) recordProblem(err error) {
	if err == nil {
		k.loaded.problem.Store(nil)
		return
	}
	p := &loadProblem{err, time.Now()}
	last := k.loaded.problem.Load()
	repeated := last != nil && time.Since(last.loggedAt) < refreshInterval
	if repeated {
		p.loggedAt = last.loggedAt
	}
	k.loaded.problem.Store(p)
	if !repeated && k.loaded.tokenKeys.Load() != nil {
		k.logger.Error("failed to reload signing keys; restore them before a restart, or all tokens become invalid", "error", err)
	}
}

func (s *keySet) isFresh() bool { return s != nil && time.Since(s.loadedAt) < refreshInterval }

var (
	errKeysMissing = errors.New("signing keys in use are missing from the storage; restore the key file from a backup")
	errNoKeys      = errors.New("the key file contains no keys; remove it if it never contained any")
)

// loadKeys loads the keys from storage, and adds new keys if rotation is due.
func (k *Keyring) loadKeys(ctx context.Context) (*keySet, error) {
	document, err := k.storage.Load(ctx, k.storageName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("loading signing keys from %s: %w", k.location(), err)
	}
	set, err := k.parseKeys(document)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", k.location(), err)
	case set.needsRenewal():
		return k.renewKeys(ctx)
	}
	return set, nil
}

// parseKeys decodes stored keys. A nil document means that no keys have been stored yet. Keys in use may be missing from the
// document. If the storage is authentic, they were lost and are restored. Otherwise, parseKeys returns errKeysMissing.
func (k *Keyring) parseKeys(document []byte) (*keySet, error) {
	isNew := document == nil
	if isNew {
		document = []byte("[]")
	}
	set, err := parseKeySet(document, time.Now())
	if err != nil {
		return nil, err
	}
	lost := set.missingFrom(k.loaded.tokenKeys.Load())
	switch {
	case len(lost) > 0 && !k.storage.IsAuthentic():
		return nil, errKeysMissing
	case len(set.keys) == 0 && !isNew:
		return nil, errNoKeys
	}
	set.missing = lost
	return set, nil
}

func (k *Keyring) location() string { return k.storage.Location(k.storageName) }

// renewKeys adds new keys if rotation is due and restores lost keys, unless another gateway has just done so.
func (k *Keyring) renewKeys(ctx context.Context) (*keySet, error) {
	generated, restored := 0, 0
	set, err := k.replaceStored(ctx, "renewing", func(set *keySet) ([]storedKey, error) {
		if generated, restored = 0, 0; !set.needsRenewal() {
			return nil, nil
		}
		keys, err := set.renewedKeys(time.Now())
		generated, restored = len(keys), len(set.missing)
		return keys, err
	})
	switch {
	case err != nil:
	case restored > 0:
		k.logger.Warn("missing signing keys restored to the store", "stored", k.location(), "keys", restored)
	case generated > 0:
		k.logger.Info("signing keys generated", "stored", k.location(), "keys", generated)
	}
	return set, err
}

// replaceStored replaces the stored keys with those returned by update, unless update returns nil.
func (k *Keyring) replaceStored(ctx context.Context, action string, update func(*keySet) ([]storedKey, error)) (*keySet, error) {
	document, err := k.storage.Update(ctx, k.storageName, func(document []byte) ([]byte, error) {
		set, err := k.parseKeys(document)
		if err != nil {
			return nil, err
		}
		keys, err := update(set)
		if keys == nil || err != nil {
			return document, err
		}
		return json.Marshal(keys)
	})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", action, k.location(), err)
	}
	return k.parseKeys(document)
}

// KeyInfo is the public information about a key.
type KeyInfo struct {
	KeyID      string    `json:"kid"`         // kid in the JWKS and in tokens (RFC 7517 §4.5)
	Algorithm  string    `json:"alg"`         // ES256, RS256 or A256GCM (RFC 7518)
	Created    time.Time `json:"created"`     // creation time
	AgeSeconds int64     `json:"age_seconds"` // age since Created
	IsActive   bool      `json:"active"`      // whether the key signs or seals now; others verify, or are not used yet
}

// Info returns information about the keys in memory. There are none before the first use. It does not access the storage.
func (k *Keyring) Info() []KeyInfo {
	set := k.loaded.tokenKeys.Load()
	if set == nil {
		return nil
	}
	info := make([]KeyInfo, len(set.keys))
	for i, key := range set.keys {
		active, _ := set.activeKey(jose.SignatureAlgorithm(key.JWK.Algorithm), time.Now())
		info[i] = KeyInfo{key.JWK.KeyID, key.JWK.Algorithm, key.Created, int64(time.Since(key.Created).Seconds()), active.JWK.KeyID == key.JWK.KeyID}
	}
	return info
}

var keyAlgorithms = []jose.SignatureAlgorithm{AccessTokenAlgorithm, IDTokenAlgorithm, sealAlgorithm}

// needsRenewal reports whether the newest key of an algorithm is due for rotation, or keys in use are missing from the storage.
func (s *keySet) needsRenewal() bool {
	return len(s.missing) > 0 || slices.ContainsFunc(keyAlgorithms, func(alg jose.SignatureAlgorithm) bool {
		return time.Since(s.newestCreation(alg)) >= rotationInterval
	})
}

// isExpired reports whether a key was rotated so long ago that all tokens it signed have expired.
func (s *keySet) isExpired(k storedKey, now time.Time) bool {
	return slices.ContainsFunc(s.keys, func(next storedKey) bool {
		return next.JWK.Algorithm == k.JWK.Algorithm && next.Created.After(k.Created) &&
			now.Sub(next.Created) >= publishLead+Retention
	})
}

// missingFrom returns keys in use that were lost or replaced in the storage, rather than rotated out or retired.
func (s *keySet) missingFrom(inUse *keySet) (missing []storedKey) {
	if inUse == nil {
		return nil
	}
	for _, key := range inUse.keys {
		if _, found := s.keyByID(key.JWK.KeyID); !found && !s.isExpired(key, time.Now()) && !s.isRetired(key) {
			missing = append(missing, key)
		}
	}
	return missing
}

func (s *keySet) isRetired(key storedKey) bool {
	return slices.ContainsFunc(s.retired, func(k storedKey) bool { return k.JWK.KeyID == key.JWK.KeyID })
}

// renewedKeys returns the keys without expired ones, and with lost keys and any new keys that are due. It keeps the records of
// keys retired by an operator as long as gateways may have them in memory.
func (s *keySet) renewedKeys(now time.Time) ([]storedKey, error) {
	retired := slices.DeleteFunc(slices.Clone(s.retired), func(k storedKey) bool { return now.Sub(k.RetiredAt) > Retention })
	s = &keySet{keys: slices.Concat(s.keys, s.missing)}
	keys := slices.DeleteFunc(slices.Clone(s.keys), func(k storedKey) bool { return s.isExpired(k, now) })
	for _, alg := range keyAlgorithms {
		if now.Sub(s.newestCreation(alg)) < rotationInterval {
			continue
		}
		key, err := generateKey(alg, now)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return append(keys, retired...), nil
}

// maxKeysPerAlgorithm is the maximum number of published keys per algorithm, enforced by [Keyring.Rotate].
const maxKeysPerAlgorithm = 8

// ErrTooManyKeys means that keys were rotated so often that too many of them are still published.
var ErrTooManyKeys = fmt.Errorf("signing keys rotated too often: %d keys of one algorithm are still published; try again in 24 hours", maxKeysPerAlgorithm)

// Rotate adds a key for each token algorithm. New keys are published immediately and used for signing after an hour. Previous
// keys remain published until the tokens that they signed have expired. No token is invalidated.
func (k *Keyring) Rotate(ctx context.Context) error {
	err := k.replaceKeys(ctx, "rotating", func(set *keySet) ([]storedKey, error) { return set.rotatedKeys(time.Now()) })
	if errors.Is(err, ErrTooManyKeys) {
		return ErrTooManyKeys
	}
	if err == nil {
		k.logger.Info("signing keys rotated by operator; the new keys are used after one hour", "stored", k.location(), "keys", len(IDTokenAlgorithms))
	}
	return err
}

// replaceKeys is like [Keyring.replaceStored], but also starts using the new keys.
func (k *Keyring) replaceKeys(ctx context.Context, action string, update func(*keySet) ([]storedKey, error)) error {
	k.loaded.mu.Lock()
	defer k.loaded.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	set, err := k.replaceStored(ctx, action, update)
	if err == nil {
		k.loaded.tokenKeys.Store(set)
	}
	return err
}

// rotatedKeys returns the keys without expired ones, and with lost keys and a new key for each token algorithm.
func (s *keySet) rotatedKeys(now time.Time) ([]storedKey, error) {
	keys, err := s.renewedKeys(now)
	if err != nil {
		return nil, err
	}
	for _, alg := range IDTokenAlgorithms {
		isActive := func(k storedKey) bool { return k.JWK.Algorithm == string(alg) && k.RetiredAt.IsZero() }
		if len(slices.DeleteFunc(slices.Clone(keys), func(k storedKey) bool { return !isActive(k) })) >= maxKeysPerAlgorithm {
			return nil, ErrTooManyKeys
		}
		key, err := generateKey(alg, now)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Retire removes a key immediately, which invalidates every token signed with it. The error is [ErrUnknownKey] for an unknown
// key. If it is the last key of its algorithm, a new key replaces it.
func (k *Keyring) Retire(ctx context.Context, kid string) error {
	err := k.replaceKeys(ctx, "retiring", func(set *keySet) ([]storedKey, error) { return set.withRetired(kid, time.Now()) })
	if err == nil {
		k.logger.Warn("signing key retired by operator; its tokens are invalid", "stored", k.location(), "kid", kid)
	}
	return err
}

// withRetired returns the keys after retiring the key with the given kid.
func (s *keySet) withRetired(kid string, now time.Time) ([]storedKey, error) {
	key, found := s.keyByID(kid)
	if !found {
		return nil, ErrUnknownKey
	}
	key.RetiredAt = now
	if public := key.JWK.Public(); public.Valid() {
		key.JWK = public
	}
	remaining := &keySet{missing: s.missing, retired: append(slices.Clone(s.retired), key)}
	remaining.keys = slices.DeleteFunc(slices.Clone(s.keys), func(k storedKey) bool { return k.JWK.KeyID == kid })
	return remaining.renewedKeys(now)
}

// watchInterval is the time between checks whether shared keys have changed.
const watchInterval = time.Second

// Watch checks the keys of an authentic storage until ctx is canceled. New keys of other gateways are used as soon as they are
// stored, and lost keys are restored before they are needed. If the storage is not authentic, Watch returns immediately.
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
			k.reloadIfChanged(ctx)
		}
	}
}

// reloadIfChanged reloads the keys if the stored document has changed. It records errors and retries at the next check.
func (k *Keyring) reloadIfChanged(ctx context.Context) {
	k.loaded.mu.Lock()
	defer k.loaded.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	err := k.reloadTokenKeys(ctx)
	if err == nil {
		err = k.storageKeys.reload(ctx)
	}
	k.recordProblem(err)
}

// reloadTokenKeys reloads the token keys. The caller must hold mu.
func (k *Keyring) reloadTokenKeys(ctx context.Context) error {
	document, err := k.storage.Load(ctx, k.storageName)
	if old := k.loaded.tokenKeys.Load(); err == nil && old != nil && bytes.Equal(document, old.document) {
		return nil
	}
	set, err := k.loadKeys(ctx)
	if err == nil {
		k.loaded.tokenKeys.Store(set)
	}
	return err
}
