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

// sharedStorage is a Storage in memory that can be made to fail, and counts
// how often it was written.
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

func testKeyring(storage LockedStorage) *Keyring {
	return New(Locked{storage}, "keys", slog.New(slog.DiscardHandler))
}

// signedBy returns the id of the key that signs now.
func signedBy(t *testing.T, k *Keyring, alg jose.SignatureAlgorithm) string {
	t.Helper()
	set, err := k.current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key, _ := set.active(alg, time.Now())
	return key.JWK.KeyID
}

func published(t *testing.T, k *Keyring, kid string) bool {
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
		all.Go(func() { kids[i] = signedBy(t, testKeyring(storage), AccessTokenAlgorithm) })
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

// A key is followed by a new one after 90 days, which is published an hour
// before it signs; the old one stays published for what it has signed.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := testKeyring(new(sharedStorage))
		first := signedBy(t, k, AccessTokenAlgorithm)
		time.Sleep(lifetime - time.Minute)
		if got := signedBy(t, k, AccessTokenAlgorithm); got != first {
			t.Error("rotated before its time")
		}
		time.Sleep(10 * time.Minute)
		if got := signedBy(t, k, AccessTokenAlgorithm); got != first {
			t.Error("a key signs before it was published for an hour")
		}
		if set := k.inUse.set.Load(); len(set.keys) != 6 {
			t.Errorf("%d keys, want the old and the new one of three algorithms", len(set.keys))
		}
		time.Sleep(publishLead)
		second := signedBy(t, k, AccessTokenAlgorithm)
		if second == first || !published(t, k, first) {
			t.Error("the new key does not sign, or the old one is gone")
		}
		time.Sleep(lifetime)
		third := signedBy(t, k, AccessTokenAlgorithm)
		if third != second || published(t, k, first) || !published(t, k, second) {
			t.Error("after another 90 days the first key must be gone and the second one sign on")
		}
	})
}

// A gateway learns of a key that another one made before that key signs.
func TestKeysOfOthersAreLearned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		one, other := testKeyring(storage), testKeyring(storage)
		signedBy(t, one, IDTokenAlgorithm)
		signedBy(t, other, IDTokenAlgorithm)
		time.Sleep(lifetime)
		signedBy(t, one, IDTokenAlgorithm)
		time.Sleep(publishLead)
		if kid := signedBy(t, one, IDTokenAlgorithm); !published(t, other, kid) {
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
		kid := signedBy(t, k, AccessTokenAlgorithm)
		storage.fail = errors.New("disk on fire")
		time.Sleep(time.Hour)
		if got := signedBy(t, k, AccessTokenAlgorithm); got != kid {
			t.Errorf("with failing storage signed by %q, want the key in memory", got)
		}
	})
}

// Nobody waits for keys to be read again, but whoever reads them.
func TestKeysWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k := testKeyring(storage)
		kid := signedBy(t, k, AccessTokenAlgorithm)
		time.Sleep(refresh + time.Second)
		k.inUse.mu.Lock() // as while the storage does not answer
		before := time.Now()
		if got := signedBy(t, k, AccessTokenAlgorithm); got != kid || time.Since(before) > 0 {
			t.Errorf("signed by %q after %v", got, time.Since(before))
		}
		k.inUse.mu.Unlock()
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

// keyFile is a storage of files.
type keyFile struct{ sharedStorage }

func (*keyFile) Filename(key string) string { return "/srv/" + key + ".json" }

// Keys in use go on when what is stored of them is damaged, gone or cannot be read, by
// the same keyring and by the one of the next configuration. Nothing is written, and
// an error names the file.
func TestKeysInUseGoOn(t *testing.T) {
	t.Parallel()
	others, err := json.Marshal(storedKeys(t))
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
		{"other keys", others, nil},
		{"not to be read", []byte("[]"), fs.ErrPermission},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			storage := new(keyFile)
			before := New(Locked{storage}, "keys", logger)
			kid := signedBy(t, before, AccessTokenAlgorithm)
			storage.file, storage.fail, storage.writes = test.file, test.fail, 0
			after := New(Locked{storage}, "keys", logger)
			after.TakeOver(before.inUse)
			if err := after.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
			if got := signedBy(t, after, AccessTokenAlgorithm); got != kid {
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

// storedKeys are those that a new gateway makes.
func storedKeys(t *testing.T) []storedKey {
	t.Helper()
	set, err := testKeyring(new(sharedStorage)).current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return set.keys
}

// A key that is missing among those stored, as in an older copy, is no reason to make
// another: what it signed would end. One that was left out because it is spent is none
// to go on without the stored ones.
func TestKeysPartlyGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k, late := testKeyring(storage), testKeyring(storage)
		kid := signedBy(t, k, AccessTokenAlgorithm)
		signedBy(t, late, AccessTokenAlgorithm)
		whole := storage.file
		for i := range k.inUse.set.Load().keys {
			kept, err := json.Marshal(slices.Delete(slices.Clone(k.inUse.set.Load().keys), i, i+1))
			if err != nil {
				t.Fatal(err)
			}
			storage.file, storage.writes = kept, 0
			if err := k.Refresh(t.Context()); err != nil || storage.writes > 0 || signedBy(t, k, AccessTokenAlgorithm) != kid {
				t.Errorf("without key %d: %v, written %d times", i, err, storage.writes)
			}
		}
		storage.file = whole
		for range 3 {
			time.Sleep(lifetime)
			signedBy(t, k, AccessTokenAlgorithm)
		}
		if err := late.Refresh(t.Context()); err != nil || published(t, late, kid) || signedBy(t, late, AccessTokenAlgorithm) != signedBy(t, k, AccessTokenAlgorithm) {
			t.Errorf("after three rotations: %v, or other keys", err)
		}
	})
}

// A key that is due is not made when the ones in use are gone: with them would go
// their tokens.
func TestKeysGoneWhenDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k := testKeyring(storage)
		kid := signedBy(t, k, AccessTokenAlgorithm)
		storage.file, storage.writes = nil, 0
		time.Sleep(lifetime + time.Hour)
		if got := signedBy(t, k, AccessTokenAlgorithm); got != kid || storage.writes > 0 {
			t.Errorf("signed by %q, want %q; written %d times", got, kid, storage.writes)
		}
	})
}

func TestSealedKeyIsNoVerificationKey(t *testing.T) {
	t.Parallel()
	k := testKeyring(new(sharedStorage))
	if published(t, k, signedBy(t, k, sealAlgorithm)) {
		t.Error("the sealing key can be asked for")
	}
}

// TestMain lets keyrings take turns among a few RSA keys. Those that follow each other differ.
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

// Keys that an operator rotates are published at once, also to gateways that share the storage,
// and sign an hour later. What was signed before stays valid for as long as it lives.
func TestRotate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k, other := testKeyring(storage), testKeyring(storage)
		first := signedBy(t, k, AccessTokenAlgorithm)
		if got := signedBy(t, other, AccessTokenAlgorithm); got != first {
			t.Fatal("two gateways with keys of their own")
		}
		before := len(k.Info())
		time.Sleep(time.Second)
		if err := k.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := signedBy(t, k, AccessTokenAlgorithm); got != first || len(k.Info()) != before+2 {
			t.Errorf("signed by another key at once, or not one new key of either kind: %v", k.Info())
		}
		time.Sleep(publishLead)
		for name, gateway := range map[string]*Keyring{"this": k, "the other": other} {
			if second := signedBy(t, gateway, AccessTokenAlgorithm); second == first || !published(t, gateway, first) {
				t.Errorf("at %s gateway: an hour later the new key does not sign, or the old one is gone", name)
			}
		}
		time.Sleep(Retention + time.Minute)
		if err := k.Rotate(t.Context()); err != nil || published(t, k, first) {
			t.Errorf("a day later the old key is still there: %v", err)
		}
	})
}

// Whoever rotates all the time makes neither a set of keys without end nor one without a key.
func TestRotateIsBounded(t *testing.T) {
	t.Parallel()
	storage := new(sharedStorage)
	var all sync.WaitGroup
	for range 2 {
		k := testKeyring(storage)
		all.Go(func() {
			for range maxKeys {
				if err := k.Rotate(t.Context()); err != nil && !errors.Is(err, ErrManyKeys) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	k := testKeyring(storage)
	if kid := signedBy(t, k, AccessTokenAlgorithm); kid == "" || len(k.Info()) != 2*maxKeys+1 {
		t.Errorf("%d keys", len(k.Info()))
	}
}

// Keys are not replaced by a rotation while the stored ones are missing.
func TestRotateWithoutTheStoredKeys(t *testing.T) {
	t.Parallel()
	storage := new(sharedStorage)
	k := testKeyring(storage)
	first := signedBy(t, k, AccessTokenAlgorithm)
	storage.file = nil
	if err := k.Rotate(t.Context()); !errors.Is(err, errKeysGone) || signedBy(t, k, AccessTokenAlgorithm) != first {
		t.Errorf("%v", err)
	}
}

// A key that an operator retired is gone at once; a gateway that has it in memory does not put it back, and learns of that.
func TestRetire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := new(sharedStorage)
		k, other := testKeyring(storage), testKeyring(storage)
		first := signedBy(t, k, AccessTokenAlgorithm)
		signedBy(t, other, AccessTokenAlgorithm)
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
			if second := signedBy(t, gateway, AccessTokenAlgorithm); second == first || published(t, gateway, first) {
				t.Errorf("%s gateway still has the key", name)
			}
		}
		if second, third := signedBy(t, k, AccessTokenAlgorithm), signedBy(t, other, AccessTokenAlgorithm); second != third {
			t.Error("two gateways with keys of their own")
		}
		time.Sleep(Retention + time.Minute)
		if err := k.Rotate(t.Context()); err != nil || strings.Contains(string(storage.file), first) {
			t.Errorf("it is remembered for ever: %v", err)
		}
	})
}
