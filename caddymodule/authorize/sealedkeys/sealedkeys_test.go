package sealedkeys_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/sealedkeys"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

const name = "fhir/keys/x.json"

// secret returns a valid secret that is different for each letter.
func secret(letter string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

func keysOf(t *testing.T, letters ...string) keyring.SharedKeys {
	t.Helper()
	var secrets []string
	for _, letter := range letters {
		secrets = append(secrets, secret(letter))
	}
	keys, err := sealedkeys.NewKeys(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// gateway returns the keyring of a gateway that uses a store.
func gateway(t *testing.T, s store.Store) *keyring.Keyring {
	return newKeyring(&sealedkeys.Storage{Store: s, Keys: keysOf(t, "a")}, slog.DiscardHandler)
}

func newKeyring(storage keyring.Storage, log slog.Handler) *keyring.Keyring {
	return keyring.New(storage, name, slog.New(log))
}

func jwks(t *testing.T, k *keyring.Keyring) string {
	t.Helper()
	set, err := k.JWKS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(set)
}

// If several gateways start concurrently with an empty store, only one of them generates the signing keys and storage keys, and
// all use them.
func TestOneSetOfKeysWins(t *testing.T) {
	t.Parallel()
	shared := storetest.NewSharedMemory()
	var all sync.WaitGroup
	var rings, sets [5]string
	for i := range rings {
		all.Go(func() {
			k := gateway(t, shared.Gateway())
			sets[i] = jwks(t, k)
			sealed, err := k.SealStored(t.Context(), "text", "")
			if err != nil {
				t.Error(err)
			}
			rings[i], _, _ = strings.Cut(sealed, ".")
		})
	}
	all.Wait()
	for i := range rings {
		if sets[i] != sets[0] || rings[i] != rings[0] {
			t.Fatal("gateways on one store have different keys")
		}
	}
}

// Gateways can unseal each other's data, such as cookies, sealed requests, links to pages and jobs, and second factors, and
// they compute the same MACs.
func TestGatewaysOpenEachOthersSeals(t *testing.T) {
	t.Parallel()
	shared := storetest.NewSharedMemory()
	a, b := gateway(t, shared.Gateway()), gateway(t, shared.Gateway())
	ctx := t.Context()
	sealed, err := a.Seal(ctx, "text", "browser")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := b.Unseal(ctx, sealed, "browser", time.Hour); text != "text" || err != nil {
		t.Errorf("sealed for a browser: %q, %v", text, err)
	}
	if sealed, err = a.SealStored(ctx, "text", "alice"); err != nil {
		t.Fatal(err)
	}
	if text, err := b.UnsealStored(ctx, sealed, "alice"); text != "text" || err != nil {
		t.Errorf("stored: %q, %v", text, err)
	}
	ours, err1 := a.MAC(ctx, "text")
	theirs, err2 := b.MAC(ctx, "text")
	if err1 != nil || err2 != nil || !bytes.Equal(ours, theirs) {
		t.Error("other MACs", err1, err2)
	}
}

// Gateways read another gateway's new key before it is used for signing.
func TestKeysOfOtherGatewaysAreLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := storetest.NewSharedMemory()
		a, b := gateway(t, shared.Gateway()), gateway(t, shared.Gateway())
		before := jwks(t, a)
		time.Sleep(90 * 24 * time.Hour)
		after := jwks(t, a)
		time.Sleep(6 * time.Minute)
		if after == before || jwks(t, b) != after {
			t.Error("the new keys are not published by the other gateway")
		}
	})
}

// Someone with access to the store can neither read nor add keys.
func TestStoredKeysAreSealed(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(0, 0)
	jwks(t, gateway(t, s))
	value, err := s.Get(t.Context(), "keyring:"+name)
	if err != nil || strings.Contains(string(value), `"kty"`) || len(value) < 1000 {
		t.Fatalf("%s, %v", value, err)
	}
	for name, forged := range map[string]string{
		"not sealed":         `[{"created":"2026-01-01T00:00:00Z"}]`,
		"another version":    "9" + string(value[1:]),
		"altered":            string(value[:len(value)-4]) + "AAAA",
		"moved from another": string(sealedAs(t, "fhir/keys/other.json")),
	} {
		if err := s.Put(t.Context(), "keyring:fhir/keys/x.json", []byte(forged), time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := gateway(t, s).JWKS(t.Context()); err == nil || !strings.Contains(err.Error(), "keyring:fhir/keys/x.json in the durable store") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sealedAs returns stored keys that were sealed under another name.
func sealedAs(t *testing.T, other string) []byte {
	s := store.NewMemory(0, 0)
	jwks(t, keyring.New(&sealedkeys.Storage{Store: s, Keys: keysOf(t, "a")}, other, slog.New(slog.DiscardHandler)))
	value, err := s.Get(t.Context(), "keyring:"+other)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// An operator can replace the sealing key: append the new key, move it to the front, then remove the old key.
func TestSealingKeyIsReplaced(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(0, 0)
	var first string
	for i, letters := range [][]string{{"a"}, {"a", "b"}, {"b", "a"}, {"b"}} {
		k := newKeyring(&sealedkeys.Storage{Store: s, Keys: keysOf(t, letters...)}, slog.DiscardHandler)
		if set := jwks(t, k); i == 0 {
			first = set
		} else if set != first {
			t.Errorf("with %q: other keys", letters)
		}
	}
	k := newKeyring(&sealedkeys.Storage{Store: s, Keys: keysOf(t, "a")}, slog.DiscardHandler)
	if _, err := k.JWKS(t.Context()); err == nil || !strings.Contains(err.Error(), "another store_key") {
		t.Errorf("with the key that was given up: %v", err)
	}
}

// The first gateway that has keys in its legacy storage copies them to the store, and all gateways use them.
func TestEarlierKeysAreTakenOver(t *testing.T) {
	t.Parallel()
	earlier := [2]*providertest.Storage{{}, {}} // legacy storages of two gateways, with different keys
	var sets [2]string
	for i, e := range earlier {
		sets[i] = jwks(t, newKeyring(e, slog.DiscardHandler))
	}
	sealed, err := newKeyring(earlier[0], slog.DiscardHandler).SealStored(t.Context(), "text", "")
	if err != nil {
		t.Fatal(err)
	}
	shared := storetest.NewSharedMemory()
	for i, e := range []*providertest.Storage{earlier[0], earlier[1], {}} {
		k := newKeyring(&sealedkeys.Storage{Store: shared.Gateway(), Keys: keysOf(t, "a"), LegacyStorage: e}, slog.DiscardHandler)
		if jwks(t, k) != sets[0] {
			t.Errorf("gateway %d has other keys than the first", i)
		}
		if text, err := k.UnsealStored(t.Context(), sealed, ""); text != "text" || err != nil {
			t.Errorf("gateway %d: %q, %v", i, text, err)
		}
	}
}

// If several gateways copy keys from their legacy storage concurrently, all use the keys of one gateway afterwards.
func TestEarlierKeysAtOnce(t *testing.T) {
	t.Parallel()
	shared := storetest.NewSharedMemory()
	var all sync.WaitGroup
	var sets [5]string
	for i := range sets {
		earlier := new(providertest.Storage)
		jwks(t, newKeyring(earlier, slog.DiscardHandler))
		all.Go(func() {
			sets[i] = jwks(t, newKeyring(&sealedkeys.Storage{Store: shared.Gateway(), Keys: keysOf(t, "a"), LegacyStorage: earlier}, slog.DiscardHandler))
		})
	}
	all.Wait()
	for i := range sets {
		if sets[i] != sets[0] {
			t.Fatal("gateways on one store have different keys")
		}
	}
}

// If a store has lost its data, a gateway that uses the keys restores them before new keys are generated. An outage of the
// store changes nothing.
func TestStoreLosesKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := store.NewMemory(0, 0)
		a := gateway(t, memory)
		before := jwks(t, a)
		for _, key := range []string{"keyring:" + name} {
			if err := memory.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		if jwks(t, a) != before || jwks(t, gateway(t, memory)) != before {
			t.Error("other keys")
		}
		shared := storetest.NewSharedMemory()
		g := shared.Gateway()
		var log bytes.Buffer
		b := newKeyring(&sealedkeys.Storage{Store: g, Keys: keysOf(t, "a")}, slog.NewTextHandler(&log, nil))
		before = jwks(t, b)
		g.SetDown(true)
		time.Sleep(24 * time.Hour)
		if jwks(t, b) != before || !strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("while the store is down: other keys, or no error: %s", log.String())
		}
	})
}

// sealedValues contains a token and sealed values that a gateway has created.
type sealedValues struct{ token, sealed, stored string }

func newSealedValues(t *testing.T, k *keyring.Keyring) sealedValues {
	t.Helper()
	token, err1 := keyring.Sign(t.Context(), k, keyring.AccessTokenAlgorithm, keyring.AccessTokenType, struct{}{})
	sealed, err2 := k.Seal(t.Context(), "text", "")
	stored, err3 := k.SealStored(t.Context(), "text", "")
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	return sealedValues{token, sealed, stored}
}

// isGood returns an error for the values that a keyring does not accept.
func (m sealedValues) isGood(ctx context.Context, k *keyring.Keyring) error {
	token, err := jose.ParseSignedCompact(m.token, []jose.SignatureAlgorithm{keyring.AccessTokenAlgorithm})
	if err != nil {
		return err
	}
	if _, err := k.Key(ctx, token.Signatures[0].Header.KeyID); err != nil {
		return fmt.Errorf("the key of a token: %w", err)
	}
	if _, err := k.Unseal(ctx, m.sealed, "", 24*time.Hour); err != nil {
		return fmt.Errorf("sealed: %w", err)
	}
	if _, err := k.UnsealStored(ctx, m.stored, ""); err != nil {
		return fmt.Errorf("stored: %w", err)
	}
	return nil
}

// deleteAll deletes all entries of a store.
func deleteAll(t *testing.T, s store.Store) {
	t.Helper()
	keys, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// permutations returns all permutations of events.
func permutations(events []string) (all [][]string) {
	if len(events) == 0 {
		return [][]string{nil}
	}
	for i, first := range events {
		remaining := append(append([]string{}, events[:i]...), events[i+1:]...)
		for _, order := range permutations(remaining) {
			all = append(all, append([]string{first}, order...))
		}
	}
	return all
}

// lossyGateways are gateways that share a store, which loses its data.
type lossyGateways struct {
	store   store.Store
	running []*keyring.Keyring
	made    []sealedValues
}

func (l *lossyGateways) start(ctx context.Context, t *testing.T) {
	k := gateway(t, l.store)
	l.running = append(l.running, k)
	l.made = append(l.made, newSealedValues(t, k))
	go k.Watch(ctx)
}

func (l *lossyGateways) happen(ctx context.Context, t *testing.T, event string) {
	switch event {
	case "loss":
		deleteAll(t, l.store)
	case "a moment":
		time.Sleep(1100 * time.Millisecond)
	default:
		l.start(ctx, t)
	}
	for _, k := range l.running {
		l.made = append(l.made, newSealedValues(t, k))
	}
}

// firstKeys returns keys generated at the start time of a bubble. They are always the same, because generating an RSA key takes
// longer than the test.
func firstKeys() *providertest.Storage {
	return &providertest.Storage{Files: maps.Clone(earlierKeys())}
}

var earlierKeys = sync.OnceValue(func() map[string][]byte {
	storage := new(providertest.Storage)
	if _, err := newKeyring(storage, slog.DiscardHandler).SealStored(context.Background(), "", ""); err != nil {
		panic(err) // cannot fail in memory
	}
	if err := newKeyring(storage, slog.DiscardHandler).Refresh(context.Background()); err != nil {
		panic(err)
	}
	created := regexp.MustCompile(`"created":"[^"]*"`)
	for name, keys := range storage.Files {
		storage.Files[name] = created.ReplaceAll(keys, []byte(`"created":"2000-01-01T00:00:00Z"`))
	}
	return storage.Files
})

// No matter when gateways start relative to a loss of the store's data, they soon accept each other's values, as does a gateway
// that starts later. The former keys remain in use.
func TestGatewaysAgreeAfterLoss(t *testing.T) {
	t.Parallel()
	earlierKeys()
	for _, order := range permutations([]string{"loss", "start", "start another", "a moment"}) {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				l := &lossyGateways{store: store.NewMemory(0, 0)}
				newSealedValues(t, newKeyring(&sealedkeys.Storage{Store: l.store, Keys: keysOf(t, "a"), LegacyStorage: firstKeys()}, slog.DiscardHandler))
				time.Sleep(2 * time.Hour)
				l.start(ctx, t)
				for _, event := range order {
					l.happen(ctx, t, event)
				}
				time.Sleep(3 * time.Second)
				l.running = append(l.running, gateway(t, l.store))
				l.check(t)
				before, _, _ := strings.Cut(l.made[0].sealed, ".")
				if after, _, _ := strings.Cut(newSealedValues(t, l.running[3]).sealed, "."); after != before {
					t.Errorf("sealed by %s, not by %s", after, before)
				}
			})
		})
	}
}

// check checks that the gateways have the same keys and accept all values created so far.
func (l *lossyGateways) check(t *testing.T) {
	t.Helper()
	var mac []byte
	for i, k := range l.running {
		for _, m := range l.made {
			if err := m.isGood(t.Context(), k); err != nil {
				t.Errorf("gateway %d: %v", i, err)
			}
		}
		if jwks(t, k) != jwks(t, l.running[0]) || k.LoadError() != nil {
			t.Errorf("gateway %d: other keys, or a problem: %v", i, k.LoadError())
		}
		got, err := k.MAC(t.Context(), "text")
		if mac == nil {
			mac = got
		}
		if err != nil || !bytes.Equal(got, mac) {
			t.Errorf("gateway %d: another key is active, or none: %v", i, err)
		}
	}
}

// If an attacker restores an older store entry, the gateways add the keys in use again, but not retired keys.
func TestOlderKeysPutBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := store.NewMemory(0, 0)
		k := gateway(t, s)
		jwks(t, k)
		old, err := s.Get(ctx, "keyring:"+name)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			time.Sleep(91 * 24 * time.Hour)
			jwks(t, k)
		}
		before := jwks(t, k)
		if err := s.Put(ctx, "keyring:"+name, old, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		go k.Watch(ctx)
		time.Sleep(2 * time.Second)
		if after := jwks(t, gateway(t, s)); after != before || jwks(t, k) != before {
			t.Errorf("before: %s\nafter: %s", before, after)
		}
	})
}

// Stored keys that are damaged, or sealed with another key, are not modified. The problem is reported as long as it lasts, and
// logged every five minutes.
func TestUnreadableKeysAreAProblem(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"keyring:" + name, "keyring:fhir/keys/x-stored.json"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := store.NewMemory(0, 0)
			var log bytes.Buffer
			k := newKeyring(&sealedkeys.Storage{Store: s, Keys: keysOf(t, "a")}, slog.NewTextHandler(&log, nil))
			m := newSealedValues(t, k)
			good, err := s.Get(ctx, entry)
			if err != nil {
				t.Fatal(err)
			}
			put := func(value []byte) {
				if err := s.Put(ctx, entry, value, 24*time.Hour); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
			}
			go k.Watch(ctx)
			put([]byte("damaged"))
			if stored, _ := s.Get(ctx, entry); k.LoadError() == nil || string(stored) != "damaged" || m.isGood(ctx, k) != nil {
				t.Errorf("%s: %v, stored %q", entry, k.LoadError(), stored)
			}
			time.Sleep(6 * time.Minute)
			put(good)
			synctest.Wait()
			if n := strings.Count(log.String(), "level=ERROR"); k.LoadError() != nil || n != 2 {
				t.Errorf("%s: %v, logged %d times: %s", entry, k.LoadError(), n, log.String())
			}
		})
	}
}
