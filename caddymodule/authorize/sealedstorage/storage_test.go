package sealedstorage_test

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/sealedstorage"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

const name = "fhir/keys/x.json"

// secret is one that an operator could have made, another for each letter.
func secret(letter string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

func keysOf(t *testing.T, letters ...string) keyring.SharedKeys {
	t.Helper()
	var secrets []string
	for _, letter := range letters {
		secrets = append(secrets, secret(letter))
	}
	keys, err := sealedstorage.NewKeys(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// gateway is the keyring of a gateway on a store.
func gateway(t *testing.T, s store.Store) *keyring.Keyring {
	return ring(&sealedstorage.Storage{Store: s, Keys: keysOf(t, "a")}, slog.DiscardHandler)
}

func ring(storage keyring.Storage, log slog.Handler) *keyring.Keyring {
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

// Of gateways that start at once on an empty store one makes the keys, and all use them:
// those that sign, and that of what is stored.
func TestOneSetOfKeysWins(t *testing.T) {
	t.Parallel()
	shared := storetest.NewShared()
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

// What one gateway sealed another opens, and both compute the same MAC: cookies, sealed
// requests, links to pages and jobs, second factors.
func TestGatewaysOpenEachOthersSeals(t *testing.T) {
	t.Parallel()
	shared := storetest.NewShared()
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

// A key that one gateway made is known to the others before it signs.
func TestKeysOfOtherGatewaysAreLearned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := storetest.NewShared()
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

// Who reads the store learns no key, and can put none of their own there.
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

// sealedAs returns keys as stored under another name.
func sealedAs(t *testing.T, other string) []byte {
	s := store.NewMemory(0, 0)
	jwks(t, keyring.New(&sealedstorage.Storage{Store: s, Keys: keysOf(t, "a")}, other, slog.New(slog.DiscardHandler)))
	value, err := s.Get(t.Context(), "keyring:"+other)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// The key that seals can be replaced: add the new one behind, put it first, remove the old.
func TestSealingKeyIsReplaced(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(0, 0)
	var first string
	for i, letters := range [][]string{{"a"}, {"a", "b"}, {"b", "a"}, {"b"}} {
		k := ring(&sealedstorage.Storage{Store: s, Keys: keysOf(t, letters...)}, slog.DiscardHandler)
		if set := jwks(t, k); i == 0 {
			first = set
		} else if set != first {
			t.Errorf("with %q: other keys", letters)
		}
	}
	k := ring(&sealedstorage.Storage{Store: s, Keys: keysOf(t, "a")}, slog.DiscardHandler)
	if _, err := k.JWKS(t.Context()); err == nil || !strings.Contains(err.Error(), "another store_key") {
		t.Errorf("with the key that was given up: %v", err)
	}
}

// Keys from before the store was used are taken over by the first gateway that has some, and
// used by all.
func TestEarlierKeysAreTakenOver(t *testing.T) {
	t.Parallel()
	earlier := [2]*providertest.Storage{{}, {}} // of gateways that had keys of their own
	var sets [2]string
	for i, e := range earlier {
		sets[i] = jwks(t, ring(e, slog.DiscardHandler))
	}
	sealed, err := ring(earlier[0], slog.DiscardHandler).SealStored(t.Context(), "text", "")
	if err != nil {
		t.Fatal(err)
	}
	shared := storetest.NewShared()
	for i, e := range []*providertest.Storage{earlier[0], earlier[1], {}} {
		k := ring(&sealedstorage.Storage{Store: shared.Gateway(), Keys: keysOf(t, "a"), Earlier: e}, slog.DiscardHandler)
		if jwks(t, k) != sets[0] {
			t.Errorf("gateway %d has other keys than the first", i)
		}
		if text, err := k.UnsealStored(t.Context(), sealed, ""); text != "text" || err != nil {
			t.Errorf("gateway %d: %q, %v", i, text, err)
		}
	}
}

// Of gateways that take over keys of their own at once, one wins.
func TestEarlierKeysAtOnce(t *testing.T) {
	t.Parallel()
	shared := storetest.NewShared()
	var all sync.WaitGroup
	var sets [5]string
	for i := range sets {
		earlier := new(providertest.Storage)
		jwks(t, ring(earlier, slog.DiscardHandler))
		all.Go(func() {
			sets[i] = jwks(t, ring(&sealedstorage.Storage{Store: shared.Gateway(), Keys: keysOf(t, "a"), Earlier: earlier}, slog.DiscardHandler))
		})
	}
	all.Wait()
	for i := range sets {
		if sets[i] != sets[0] {
			t.Fatal("gateways on one store have different keys")
		}
	}
}

// A store that has lost its data gets the keys back from a gateway that uses them, before it
// makes others; one that does not answer changes nothing.
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
		shared := storetest.NewShared()
		g := shared.Gateway()
		var log bytes.Buffer
		b := ring(&sealedstorage.Storage{Store: g, Keys: keysOf(t, "a")}, slog.NewTextHandler(&log, nil))
		before = jwks(t, b)
		g.SetDown(true)
		time.Sleep(24 * time.Hour)
		if jwks(t, b) != before || !strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("while the store is down: other keys, or no error: %s", log.String())
		}
	})
}
