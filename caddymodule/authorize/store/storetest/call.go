package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// callTests are the tests of each method.
var callTests = []storeTest{
	{"put then get", putThenGet, false},
	{"put replaces", putReplaces, false},
	{"a value is a copy", valueIsCopy, false},
	{"add refuses a taken key", addRefuses, false},
	{"add succeeds after expiry", addAfterExpiry, false},
	{"get after expiry finds nothing", getAfterExpiry, false},
	{"swap what is there", swapReplaces, false},
	{"swap refuses what changed", swapRefuses, false},
	{"take once", takeOnce, false},
	{"take after expiry finds nothing", takeAfterExpiry, false},
	{"taken may be put again", takenThenPut, false},
	{"delete", deleteRemoves, false},
	{"list by prefix", listByPrefix, false},
	{"list takes a prefix as it is", listLiterally, false},
	{"list leaves out what expired", listAfterExpiry, false},
	{"any bytes are a value", anyBytes, false},
	{"full refuses and keeps", fullRefuses, true},
	{"full takes what ends something", fullTakesEndings, true},
	{"full makes room by expiry", fullMakesRoom, true},
	{"one of many takers wins", takersRace, false},
	{"one of many adders wins", addersRace, false},
	{"one of many swappers wins", swappersRace, false},
	{"many keys at once", manyKeys, false},
}

func putThenGet(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	wantValue(t, s, "k", "v")
	if _, err := s.Get(ctx, "other"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get of a key never put: %v", err)
	}
}

func putReplaces(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("old"), s.lifetime))
	must(t, s.Put(ctx, "k", []byte("new"), 2*s.lifetime))
	s.expire()
	wantValue(t, s, "k", "new")
}

func valueIsCopy(t *testing.T, ctx context.Context, s subject) {
	v := []byte("v")
	must(t, s.Put(ctx, "k", v, s.lifetime))
	v[0] = 'x'
	got, err := s.Get(ctx, "k")
	must(t, err)
	got[0] = 'y'
	wantValue(t, s, "k", "v")
}

func addRefuses(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Add(ctx, "k", []byte("first"), s.lifetime))
	if err := s.Add(ctx, "k", []byte("second"), s.lifetime); !errors.Is(err, store.ErrExists) {
		t.Errorf("second Add: %v", err)
	}
	wantValue(t, s, "k", "first")
}

func addAfterExpiry(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Add(ctx, "k", []byte("first"), s.lifetime))
	s.expire()
	must(t, s.Add(ctx, "k", []byte("second"), s.lifetime))
	wantValue(t, s, "k", "second")
}

func getAfterExpiry(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	time.Sleep(s.lifetime - s.lifetime/4)
	wantValue(t, s, "k", "v")
	time.Sleep(s.lifetime / 2)
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get after expiry: %v", err)
	}
}

func swapReplaces(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("old"), s.lifetime))
	must(t, s.Swap(ctx, "k", []byte("old"), []byte("new"), 2*s.lifetime))
	s.expire()
	wantValue(t, s, "k", "new")
}

func swapRefuses(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	for _, old := range []string{"", "w", "vv"} {
		if err := s.Swap(ctx, "k", []byte(old), []byte("new"), s.lifetime); !errors.Is(err, store.ErrChanged) {
			t.Errorf("Swap for %q: %v", old, err)
		}
	}
	wantValue(t, s, "k", "v")
	s.expire()
	for _, key := range []string{"k", "never"} {
		if err := s.Swap(ctx, key, []byte("v"), []byte("new"), s.lifetime); !errors.Is(err, store.ErrChanged) {
			t.Errorf("Swap of nothing: %v", err)
		}
	}
}

func takeOnce(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	v, err := s.Take(ctx, "k")
	must(t, err)
	if string(v) != "v" {
		t.Errorf("Take: %q", v)
	}
	if _, err := s.Take(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("second Take: %v", err)
	}
}

func takeAfterExpiry(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	s.expire()
	if _, err := s.Take(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Take after expiry: %v", err)
	}
}

// takenThenPut takes what was put again: whatever a store remembers of the first Take, in
// order to repeat its answer, is not in the way.
func takenThenPut(t *testing.T, ctx context.Context, s subject) {
	for _, value := range []string{"first", "second", "third"} {
		must(t, s.Add(ctx, "k", []byte(value), s.lifetime))
		v, err := s.Take(ctx, "k")
		if err != nil || string(v) != value {
			t.Errorf("Take: %q, %v; want %q", v, err, value)
		}
		wantKeys(t, s, "")
	}
	if err := s.Swap(ctx, "k", []byte("third"), []byte("fourth"), s.lifetime); !errors.Is(err, store.ErrChanged) {
		t.Errorf("Swap of what was taken: %v", err)
	}
	must(t, s.Append(ctx, "k", []byte("new"), 3, s.lifetime))
	wantValue(t, s, "k", "new")
}

// anyBytes stores values that a script, a protocol or a text column may not take, and keys
// that hold what patterns mean something by.
func anyBytes(t *testing.T, ctx context.Context, s subject) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for key, value := range map[string]string{
		"empty": "", "zero": "\x00", "all": string(all), "number": "1e3", "true": "true", "lines": "a\r\nb\n",
		"kind:{tag}": "v", "kind:*?[a-z]": "v", "kind:per%cent_": "v",
	} {
		must(t, s.Add(ctx, key, []byte(value), s.lifetime))
		wantValue(t, s, key, value)
		must(t, s.Swap(ctx, key, []byte(value), []byte(value+"+"), s.lifetime))
		v, err := s.Take(ctx, key)
		if err != nil || string(v) != value+"+" {
			t.Errorf("Take(%q) = %q, %v; want %q", key, v, err, value+"+")
		}
	}
}

func deleteRemoves(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	must(t, s.Delete(ctx, "k"))
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get after Delete: %v", err)
	}
	must(t, s.Delete(ctx, "k"))
}

func listByPrefix(t *testing.T, ctx context.Context, s subject) {
	for _, key := range []string{"session:b", "session:a", "sessions", "code:a"} {
		must(t, s.Put(ctx, key, []byte("v"), s.lifetime))
	}
	wantKeys(t, s, "session:", "session:a", "session:b")
	wantKeys(t, s, "nothing:")
}

// listLiterally lists by prefixes that mean something to patterns of Redis or SQL.
func listLiterally(t *testing.T, ctx context.Context, s subject) {
	for _, key := range []string{"a*b", "a_b", "a[b", "aXb", `a\b`} {
		must(t, s.Put(ctx, key, []byte("v"), s.lifetime))
	}
	for _, prefix := range []string{"a*", "a_", "a[", `a\`} {
		wantKeys(t, s, prefix, prefix+"b")
	}
	wantKeys(t, s, "A")
}

func listAfterExpiry(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "session:short", []byte("v"), s.lifetime))
	must(t, s.Put(ctx, "session:long", []byte("v"), 3*s.lifetime))
	time.Sleep(2 * s.lifetime)
	wantKeys(t, s, "session:", "session:long")
}

func fullRefuses(t *testing.T, ctx context.Context, s subject) {
	fill(t, s)
	if err := s.Put(ctx, "more", nil, s.lifetime); !errors.Is(err, store.ErrFull) {
		t.Errorf("Put into a full store: %v", err)
	}
	if err := s.Add(ctx, "more", nil, s.lifetime); !errors.Is(err, store.ErrFull) {
		t.Errorf("Add to a full store: %v", err)
	}
	must(t, s.Put(ctx, "0", []byte("again"), s.lifetime))
	wantValue(t, s, "7", "v")
}

// fullTakesEndings stores revocations, and refuses all else, until their room is full too.
func fullTakesEndings(t *testing.T, ctx context.Context, s subject) {
	fill(t, s)
	for _, key := range []string{EndingKind + ":1", EndingKind + ":2"} {
		must(t, s.Put(ctx, key, []byte("v"), s.lifetime))
		wantValue(t, s, key, "v")
	}
	must(t, s.Append(ctx, EndingKind+":2", []byte("w"), 9, s.lifetime))
	refused := []*store.Call{
		{Op: store.Add, Key: "code:1", TTL: s.lifetime}, {Op: store.Add, Key: EndingKind + ":3", TTL: s.lifetime},
	}
	if err := s.Do(ctx, refused...); !errors.Is(err, store.ErrFull) {
		t.Errorf("a step that also stores a code: %v", err)
	}
	wantKeys(t, s, EndingKind, EndingKind+":1", EndingKind+":2")
	if store.IsShared(s.Store) {
		return // one of several gateways takes any number
	}
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = s.Add(ctx, fmt.Sprint(EndingKind, ":more", i), nil, s.lifetime)
	}
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("after a hundred revocations: %v", err)
	}
}

func fullMakesRoom(t *testing.T, ctx context.Context, s subject) {
	fill(t, s)
	s.expire()
	must(t, s.Put(ctx, "more", []byte("v"), s.lifetime))
	wantValue(t, s, "more", "v")
}

func takersRace(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	if won := race(func() error { _, err := s.Take(ctx, "k"); return err }); won != 1 {
		t.Errorf("%d takers got the value", won)
	}
}

func addersRace(t *testing.T, ctx context.Context, s subject) {
	if won := race(func() error { return s.Add(ctx, "k", []byte("v"), s.lifetime) }); won != 1 {
		t.Errorf("%d adders succeeded", won)
	}
}

func swappersRace(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("old"), s.lifetime))
	if won := race(func() error { return s.Swap(ctx, "k", []byte("old"), []byte("new"), s.lifetime) }); won != 1 {
		t.Errorf("%d swappers succeeded", won)
	}
}

// manyKeys also shows that the bound counts each key once, however often it was
// written and removed.
func manyKeys(t *testing.T, ctx context.Context, s subject) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			key := fmt.Sprint(i)
			for range 4 {
				err := errors.Join(s.Put(ctx, key, []byte("v"), s.lifetime), s.Swap(ctx, key, []byte("v"), []byte("w"), s.lifetime), s.Delete(ctx, key))
				if err != nil {
					t.Errorf("key %s: %v", key, err)
				}
			}
		})
	}
	all.Wait()
	fill(t, s)
}
