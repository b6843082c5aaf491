package keyring

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// sharedStorage is an in-memory [Storage] that can fail. It counts writes.
type sharedStorage struct {
	lock   sync.Mutex
	mu     sync.Mutex
	file   []byte
	fail   error
	writes int
}

func (s *sharedStorage) Lock(context.Context, string) error   { s.lock.Lock(); return nil }
func (s *sharedStorage) Unlock(context.Context, string) error { s.lock.Unlock(); return nil }

func (s *sharedStorage) Load(context.Context, string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil && s.file == nil {
		return nil, fs.ErrNotExist
	}
	return s.file, s.fail
}

func (s *sharedStorage) Store(_ context.Context, _ string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = value
	s.writes++
	return s.fail
}

func testKeyring(storage CertMagicStorage) *Keyring {
	return New(LockingStorage{storage}, "keys", slog.New(slog.DiscardHandler))
}

// signingKeyID returns the kid of the active signing key.
func signingKeyID(t *testing.T, k *Keyring, alg jose.SignatureAlgorithm) string {
	t.Helper()
	set, err := k.currentKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key, _ := set.activeKey(alg, time.Now())
	return key.JWK.KeyID
}

func isPublished(t *testing.T, k *Keyring, kid string) bool {
	t.Helper()
	_, err := k.Key(t.Context(), kid)
	if err != nil && !errors.Is(err, ErrUnknownKey) {
		t.Fatal(err)
	}
	return err == nil
}

func TestKeysAreMadeOnce(t *testing.T) {
	t.Parallel()
	storage := new(sharedStorage)
	kids := make([]string, 8)
	var all sync.WaitGroup
	for i := range kids {
		all.Go(func() { kids[i] = signingKeyID(t, testKeyring(storage), AccessTokenAlgorithm) })
	}
	all.Wait()
	for _, kid := range kids {
		if kid == "" || kid != kids[0] {
			t.Errorf("gateways with one storage sign with %q", kids)
			break
		}
	}
	if storage.writes != 1 {
		t.Errorf("the keys were written %d times", storage.writes)
	}
}

// A key is rotated after 90 days. The new key is published an hour before it is used for signing. The old key remains published
// while its signatures are valid.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := testKeyring(new(sharedStorage))
		first := signingKeyID(t, k, AccessTokenAlgorithm)
		time.Sleep(rotationInterval - time.Minute)
		if got := signingKeyID(t, k, AccessTokenAlgorithm); got != first {
			t.Error("rotated before its time")
		}
		time.Sleep(10 * time.Minute)
		if got := signingKeyID(t, k, AccessTokenAlgorithm); got != first {
			t.Error("a key signs before it was published for an hour")
		}
		if set := k.loaded.tokenKeys.Load(); len(set.keys) != 6 {
			t.Errorf("%d keys, want the old and the new one of three algorithms", len(set.keys))
		}
		time.Sleep(publishLead)
		second := signingKeyID(t, k, AccessTokenAlgorithm)
		if second == first || !isPublished(t, k, first) {
			t.Error("the new key does not sign, or the old one is gone")
		}
		time.Sleep(rotationInterval)
		third := signingKeyID(t, k, AccessTokenAlgorithm)
		if third != second || isPublished(t, k, first) || !isPublished(t, k, second) {
			t.Error("after another 90 days the first key must be gone and the second one sign on")
		}
	})
}

// A gateway reads another gateway's new key before that key is used for signing.
func TestKeysOfOtherGatewaysAreLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		one, other := testKeyring(storage), testKeyring(storage)
		signingKeyID(t, one, IDTokenAlgorithm)
		signingKeyID(t, other, IDTokenAlgorithm)
		time.Sleep(rotationInterval)
		signingKeyID(t, one, IDTokenAlgorithm)
		time.Sleep(publishLead)
		if kid := signingKeyID(t, one, IDTokenAlgorithm); !isPublished(t, other, kid) {
			t.Error("the key is unknown to the other gateway")
		}
	})
}

func TestKeysWhenStorageFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := &sharedStorage{fail: errors.New("disk on fire")}
		k := testKeyring(storage)
		if _, err := k.JWKS(t.Context()); !errors.Is(err, storage.fail) {
			t.Errorf("first read: %v", err)
		}
		storage.fail = nil
		kid := signingKeyID(t, k, AccessTokenAlgorithm)
		storage.fail = errors.New("disk on fire")
		time.Sleep(time.Hour)
		if got := signingKeyID(t, k, AccessTokenAlgorithm); got != kid {
			t.Errorf("with failing storage signed by %q, want the key in memory", got)
		}
	})
}

// Requests do not wait while another request reloads the keys.
func TestKeysWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k := testKeyring(storage)
		kid := signingKeyID(t, k, AccessTokenAlgorithm)
		time.Sleep(refreshInterval + time.Second)
		k.loaded.mu.Lock() // simulates a storage that does not respond
		before := time.Now()
		if got := signingKeyID(t, k, AccessTokenAlgorithm); got != kid || time.Since(before) > 0 {
			t.Errorf("signed by %q after %v", got, time.Since(before))
		}
		k.loaded.mu.Unlock()
	})
}

func TestKeysOfBrokenFile(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", "{", "[]", "null", `[{"created":"x"}]`, `[{"jwk":{"kty":"oct","k":"AA","alg":"ES256","kid":"a"}}]`} {
		storage := &sharedStorage{file: []byte(file)}
		if _, err := testKeyring(storage).JWKS(t.Context()); err == nil || !strings.Contains(err.Error(), "keys in storage") || storage.writes > 0 {
			t.Errorf("file %q: %v, written %d times", file, err, storage.writes)
		}
	}
}

// keyFile is a file-based storage.
type keyFile struct{ sharedStorage }

func (*keyFile) Filename(key string) string { return "/srv/" + key + ".json" }

// If the stored keys are damaged, missing or unreadable, the keys in memory remain in use, in this keyring and in its
// successor. Nothing is written, and the error contains the file name.
func TestKeysInUseSurviveDamage(t *testing.T) {
	t.Parallel()
	otherKeys, err := json.Marshal(storedKeys(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		file []byte
		fail error
	}{
		{"missing", nil, nil},
		{"empty", []byte{}, nil},
		{"cut", []byte(`[{"created":"2026-01-0`), nil},
		{"without keys", []byte("[]"), nil},
		{"other keys", otherKeys, nil},
		{"not to be read", []byte("[]"), fs.ErrPermission},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			storage := new(keyFile)
			before := New(LockingStorage{storage}, "keys", logger)
			kid := signingKeyID(t, before, AccessTokenAlgorithm)
			storage.file, storage.fail, storage.writes = test.file, test.fail, 0
			after := New(LockingStorage{storage}, "keys", logger)
			after.InheritKeys(before.loaded)
			if err := after.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
			if got := signingKeyID(t, after, AccessTokenAlgorithm); got != kid {
				t.Errorf("signed by %q, want %q", got, kid)
			}
			if storage.writes > 0 || !bytes.Equal(storage.file, test.file) {
				t.Errorf("written %d times: %q", storage.writes, storage.file)
			}
			if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "/srv/keys.json") {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

// storedKeys returns the keys that a new keyring generates.
func storedKeys(t *testing.T) []storedKey {
	t.Helper()
	set, err := testKeyring(new(sharedStorage)).currentKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return set.keys
}

// If a stored key is missing, e.g. after a backup was restored, no new key is generated, because that would invalidate tokens.
// A key that is missing because it was rotated out does not prevent the use of the stored keys.
func TestKeysPartlyMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k, late := testKeyring(storage), testKeyring(storage)
		kid := signingKeyID(t, k, AccessTokenAlgorithm)
		signingKeyID(t, late, AccessTokenAlgorithm)
		complete := storage.file
		for i := range k.loaded.tokenKeys.Load().keys {
			partial, err := json.Marshal(slices.Delete(slices.Clone(k.loaded.tokenKeys.Load().keys), i, i+1))
			if err != nil {
				t.Fatal(err)
			}
			storage.file, storage.writes = partial, 0
			if err := k.Refresh(t.Context()); err != nil || storage.writes > 0 || signingKeyID(t, k, AccessTokenAlgorithm) != kid {
				t.Errorf("without key %d: %v, written %d times", i, err, storage.writes)
			}
		}
		storage.file = complete
		for range 3 {
			time.Sleep(rotationInterval)
			signingKeyID(t, k, AccessTokenAlgorithm)
		}
		if err := late.Refresh(t.Context()); err != nil || isPublished(t, late, kid) || signingKeyID(t, late, AccessTokenAlgorithm) != signingKeyID(t, k, AccessTokenAlgorithm) {
			t.Errorf("after three rotations: %v, or other keys", err)
		}
	})
}

// While keys in use are missing from the storage, rotation generates no new key, because tokens would become invalid.
func TestKeysMissingWhenRotationDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k := testKeyring(storage)
		kid := signingKeyID(t, k, AccessTokenAlgorithm)
		storage.file, storage.writes = nil, 0
		time.Sleep(rotationInterval + time.Hour)
		if got := signingKeyID(t, k, AccessTokenAlgorithm); got != kid || storage.writes > 0 {
			t.Errorf("signed by %q, want %q; written %d times", got, kid, storage.writes)
		}
	})
}

func TestSealedKeyIsNoVerificationKey(t *testing.T) {
	t.Parallel()
	k := testKeyring(new(sharedStorage))
	if isPublished(t, k, signingKeyID(t, k, sealAlgorithm)) {
		t.Error("the sealing key is published")
	}
}

// TestMain makes keyrings use a few RSA keys in turn, because generating them is slow. Consecutive keys differ.
func TestMain(m *testing.M) {
	const few = 4
	var keys [few]func() (*rsa.PrivateKey, error)
	for i := range keys {
		keys[i] = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })
	}
	var turn atomic.Uint32
	generateRSA = func(io.Reader, int) (*rsa.PrivateKey, error) { return keys[turn.Add(1)%few]() }
	os.Exit(m.Run())
}

// New keys from Rotate are published immediately, including by gateways with the same storage, and used for signing an hour
// later. Earlier signatures remain valid.
func TestRotate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k, other := testKeyring(storage), testKeyring(storage)
		first := signingKeyID(t, k, AccessTokenAlgorithm)
		if got := signingKeyID(t, other, AccessTokenAlgorithm); got != first {
			t.Fatal("two gateways with keys of their own")
		}
		before := len(k.Info())
		time.Sleep(time.Second)
		if err := k.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := signingKeyID(t, k, AccessTokenAlgorithm); got != first || len(k.Info()) != before+2 {
			t.Errorf("signed by another key at once, or not one new key of either kind: %v", k.Info())
		}
		checkActive := func() {
			t.Helper()
			for _, key := range k.Info() {
				if alg := jose.SignatureAlgorithm(key.Algorithm); alg != sealAlgorithm && key.IsActive != (key.KeyID == signingKeyID(t, k, alg)) {
					t.Errorf("active keys: %+v", k.Info())
				}
			}
		}
		checkActive()
		time.Sleep(publishLead)
		checkActive()
		for name, gateway := range map[string]*Keyring{"this": k, "the other": other} {
			if second := signingKeyID(t, gateway, AccessTokenAlgorithm); second == first || !isPublished(t, gateway, first) {
				t.Errorf("at %s gateway: an hour later the new key does not sign, or the old one is gone", name)
			}
		}
		time.Sleep(Retention + time.Minute)
		if err := k.Rotate(t.Context()); err != nil || isPublished(t, k, first) {
			t.Errorf("a day later the old key is still there: %v", err)
		}
	})
}

// Repeated rotation neither makes the key set grow without limit nor leaves it empty.
func TestRotateIsBounded(t *testing.T) {
	t.Parallel()
	storage := new(sharedStorage)
	var all sync.WaitGroup
	for range 2 {
		k := testKeyring(storage)
		all.Go(func() {
			for range maxKeysPerAlgorithm {
				if err := k.Rotate(t.Context()); err != nil && !errors.Is(err, ErrTooManyKeys) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	k := testKeyring(storage)
	if kid := signingKeyID(t, k, AccessTokenAlgorithm); kid == "" || len(k.Info()) != 2*maxKeysPerAlgorithm+1 {
		t.Errorf("%d keys", len(k.Info()))
	}
}

// Rotate returns an error while the stored keys are missing.
func TestRotateWithoutTheStoredKeys(t *testing.T) {
	t.Parallel()
	storage := new(sharedStorage)
	k := testKeyring(storage)
	first := signingKeyID(t, k, AccessTokenAlgorithm)
	storage.file = nil
	if err := k.Rotate(t.Context()); !errors.Is(err, errKeysMissing) || signingKeyID(t, k, AccessTokenAlgorithm) != first {
		t.Errorf("%v", err)
	}
}

// A retired key is removed immediately. Gateways that have the key in memory do not restore it and stop using it.
func TestRetire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k, other := testKeyring(storage), testKeyring(storage)
		first := signingKeyID(t, k, AccessTokenAlgorithm)
		signingKeyID(t, other, AccessTokenAlgorithm)
		if err := k.Retire(t.Context(), "none"); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("a key that there is not: %v", err)
		}
		if err := k.Retire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if err := other.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		for name, gateway := range map[string]*Keyring{"this": k, "the other": other, "a new": testKeyring(storage)} {
			if second := signingKeyID(t, gateway, AccessTokenAlgorithm); second == first || isPublished(t, gateway, first) {
				t.Errorf("%s gateway still has the key", name)
			}
		}
		if second, third := signingKeyID(t, k, AccessTokenAlgorithm), signingKeyID(t, other, AccessTokenAlgorithm); second != third {
			t.Error("two gateways with keys of their own")
		}
		time.Sleep(Retention + time.Minute)
		if err := k.Rotate(t.Context()); err != nil || strings.Contains(string(storage.file), first) {
			t.Errorf("it is remembered for ever: %v", err)
		}
	})
}
