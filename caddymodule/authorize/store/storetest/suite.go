package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// New creates an empty store for at most maxEntries entries, with a reserve for [ReservedKind]. Resources are released with
// t.Cleanup. [Run] calls New in a synctest bubble, so the store may not leave any goroutines running.
type New func(t *testing.T, maxEntries int) store.Store

// ReservedKind is a kind of entries that a full store must still accept; see [store.Capacity].
const ReservedKind = "revoked"

// A Suite contains the tests for an implementation of [store.Store].
type Suite struct {
	New New // creates the store to be tested

	// Lifetime is the lifetime of entries in the tests. Zero means a minute of synctest's clock. A store with connections or
	// goroutines cannot run in a synctest bubble. It needs a real lifetime of about a second.
	Lifetime time.Duration

	// ApproximateLimit skips the tests of the limit, for stores that do not count their entries at each change.
	ApproximateLimit bool
}

// Run runs the tests of a [Suite] with synctest's clock. newStore creates the stores.
func Run(t *testing.T, newStore New) { Suite{New: newStore}.Run(t) }

// Run runs the tests as subtests of t.
func (s Suite) Run(t *testing.T) {
	for _, tt := range slices.Concat(callTests, stepTests, entriesTests) {
		if s.ApproximateLimit && tt.needsExactLimit {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			runWithClock(t, s.Lifetime, func(t *testing.T, lifetime time.Duration) {
				tt.test(t, t.Context(), testedStore{s.New(t, entryLimit), lifetime})
			})
		})
	}
}

// runWithClock runs a test with synctest's clock if lifetime is zero. Otherwise, it runs the test in parallel with others,
// because the test mostly waits.
func runWithClock(t *testing.T, lifetime time.Duration, test func(*testing.T, time.Duration)) {
	if lifetime == 0 {
		synctest.Test(t, func(t *testing.T) { test(t, time.Minute) })
		return
	}
	t.Parallel()
	test(t, lifetime)
}

// entryLimit is the maximum number of entries of the tested stores.
const entryLimit = 8

// A storeTest is a test of a [Suite].
type storeTest struct {
	name            string
	test            func(*testing.T, context.Context, testedStore)
	needsExactLimit bool // whether the test requires an exact limit
}

// A testedStore is a store under test.
type testedStore struct {
	store.Store
	lifetime time.Duration // lifetime of entries
}

// waitForExpiry waits until entries that were stored before have expired. Stores may round expiry up.
func (s testedStore) waitForExpiry() { time.Sleep(s.lifetime + s.lifetime/4) }

func wantKeys(t *testing.T, s store.Store, prefix string, want ...string) {
	t.Helper()
	got, err := s.List(t.Context(), prefix)
	requireNoError(t, err)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("List(%q) = %q, want %q", prefix, got, want)
	}
}

// countConcurrentSuccesses calls f concurrently and returns how many calls returned nil.
func countConcurrentSuccesses(f func() error) int32 {
	var won atomic.Int32
	var all sync.WaitGroup
	start := make(chan struct{})
	for range 64 {
		all.Go(func() {
			<-start
			if f() == nil {
				won.Add(1)
			}
		})
	}
	close(start)
	all.Wait()
	return won.Load()
}

func fillStore(t *testing.T, s testedStore) {
	t.Helper()
	for i := range 8 {
		requireNoError(t, s.Put(t.Context(), fmt.Sprint(i), []byte("v"), s.lifetime))
	}
}

func wantValue(t *testing.T, s store.Store, key, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), key)
	if err != nil || string(got) != want {
		t.Errorf("Get(%q) = %q, %v; want %q", key, got, err, want)
	}
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// callTests are the tests of single calls.
var callTests = []storeTest{
	{"Put, then Get", testPutThenGet, false},
	{"Put replaces the value", testPutReplaces, false},
	{"values are copied", testValueIsCopy, false},
	{"Add rejects an existing key", testAddExisting, false},
	{"Add succeeds after expiry", testAddAfterExpiry, false},
	{"Get after expiry returns ErrNotFound", testGetAfterExpiry, false},
	{"Swap replaces a matching value", testSwapReplaces, false},
	{"Swap rejects a changed value", testSwapChanged, false},
	{"Take succeeds once", testTakeOnce, false},
	{"Take after expiry returns ErrNotFound", testTakeAfterExpiry, false},
	{"Put after Take", testPutAfterTake, false},
	{"delete", testDeleteRemoves, false},
	{"List by prefix", testListByPrefix, false},
	{"List matches the prefix literally", testListLiteralPrefix, false},
	{"List omits expired entries", testListAfterExpiry, false},
	{"values may contain any bytes", testArbitraryBytes, false},
	{"full store rejects new entries and keeps existing ones", testFullStoreRejects, true},
	{"full store accepts reserved kinds", testFullStoreReserve, true},
	{"expired entries make room in a full store", testExpiryFreesSpace, true},
	{"concurrent Take succeeds once", testTakeRace, false},
	{"concurrent Add succeeds once", testAddRace, false},
	{"concurrent Swap succeeds once", testSwapRace, false},
	{"concurrent changes of many keys", testManyKeys, false},
}

func testPutThenGet(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	wantValue(t, s, "k", "v")
	if _, err := s.Get(ctx, "other"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get of an absent key: got %v, want ErrNotFound", err)
	}
}

func testPutReplaces(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("old"), s.lifetime))
	requireNoError(t, s.Put(ctx, "k", []byte("new"), 2*s.lifetime))
	s.waitForExpiry()
	wantValue(t, s, "k", "new")
}

func testValueIsCopy(t *testing.T, ctx context.Context, s testedStore) {
	v := []byte("v")
	requireNoError(t, s.Put(ctx, "k", v, s.lifetime))
	v[0] = 'x'
	got, err := s.Get(ctx, "k")
	requireNoError(t, err)
	got[0] = 'y'
	wantValue(t, s, "k", "v")
}

func testAddExisting(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Add(ctx, "k", []byte("first"), s.lifetime))
	if err := s.Add(ctx, "k", []byte("second"), s.lifetime); !errors.Is(err, store.ErrExists) {
		t.Errorf("second Add: got %v, want ErrExists", err)
	}
	wantValue(t, s, "k", "first")
}

func testAddAfterExpiry(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Add(ctx, "k", []byte("first"), s.lifetime))
	s.waitForExpiry()
	requireNoError(t, s.Add(ctx, "k", []byte("second"), s.lifetime))
	wantValue(t, s, "k", "second")
}

func testGetAfterExpiry(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	time.Sleep(s.lifetime - s.lifetime/4)
	wantValue(t, s, "k", "v")
	time.Sleep(s.lifetime / 2)
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get after expiry: got %v, want ErrNotFound", err)
	}
}

func testSwapReplaces(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("old"), s.lifetime))
	requireNoError(t, s.Swap(ctx, "k", []byte("old"), []byte("new"), 2*s.lifetime))
	s.waitForExpiry()
	wantValue(t, s, "k", "new")
}

func testSwapChanged(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	for _, old := range []string{"", "w", "vv"} {
		if err := s.Swap(ctx, "k", []byte(old), []byte("new"), s.lifetime); !errors.Is(err, store.ErrChanged) {
			t.Errorf("Swap with old value %q: got %v, want ErrChanged", old, err)
		}
	}
	wantValue(t, s, "k", "v")
	s.waitForExpiry()
	for _, key := range []string{"k", "never"} {
		if err := s.Swap(ctx, key, []byte("v"), []byte("new"), s.lifetime); !errors.Is(err, store.ErrChanged) {
			t.Errorf("Swap of an absent key: got %v, want ErrChanged", err)
		}
	}
}

func testTakeOnce(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	v, err := s.Take(ctx, "k")
	requireNoError(t, err)
	if string(v) != "v" {
		t.Errorf("Take: %q", v)
	}
	if _, err := s.Take(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("second Take: got %v, want ErrNotFound", err)
	}
}

func testTakeAfterExpiry(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	s.waitForExpiry()
	if _, err := s.Take(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Take after expiry: got %v, want ErrNotFound", err)
	}
}

// testPutAfterTake takes a key, stores it again and takes it again. A store may remember the first Take in order to repeat its
// response, but this may not affect the second.
func testPutAfterTake(t *testing.T, ctx context.Context, s testedStore) {
	for _, value := range []string{"first", "second", "third"} {
		requireNoError(t, s.Add(ctx, "k", []byte(value), s.lifetime))
		v, err := s.Take(ctx, "k")
		if err != nil || string(v) != value {
			t.Errorf("Take: %q, %v; want %q", v, err, value)
		}
		wantKeys(t, s, "")
	}
	if err := s.Swap(ctx, "k", []byte("third"), []byte("fourth"), s.lifetime); !errors.Is(err, store.ErrChanged) {
		t.Errorf("Swap after Take: got %v, want ErrChanged", err)
	}
	requireNoError(t, s.Append(ctx, "k", []byte("new"), 3, s.lifetime))
	wantValue(t, s, "k", "new")
}

// testArbitraryBytes stores values that scripts, protocols or text columns may not support, under keys with pattern characters.
func testArbitraryBytes(t *testing.T, ctx context.Context, s testedStore) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for key, value := range map[string]string{
		"empty": "", "zero": "\x00", "all": string(all), "number": "1e3", "true": "true", "lines": "a\r\nb\n",
		"kind:{tag}": "v", "kind:*?[a-z]": "v", "kind:per%cent_": "v",
	} {
		requireNoError(t, s.Add(ctx, key, []byte(value), s.lifetime))
		wantValue(t, s, key, value)
		requireNoError(t, s.Swap(ctx, key, []byte(value), []byte(value+"+"), s.lifetime))
		v, err := s.Take(ctx, key)
		if err != nil || string(v) != value+"+" {
			t.Errorf("Take(%q) = %q, %v; want %q", key, v, err, value+"+")
		}
	}
}

func testDeleteRemoves(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	requireNoError(t, s.Delete(ctx, "k"))
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get after Delete: got %v, want ErrNotFound", err)
	}
	requireNoError(t, s.Delete(ctx, "k"))
}

func testListByPrefix(t *testing.T, ctx context.Context, s testedStore) {
	for _, key := range []string{"session:b", "session:a", "sessions", "code:a"} {
		requireNoError(t, s.Put(ctx, key, []byte("v"), s.lifetime))
	}
	wantKeys(t, s, "session:", "session:a", "session:b")
	wantKeys(t, s, "nothing:")
}

// testListLiteralPrefix lists keys by prefixes that contain pattern characters of Redis or SQL.
func testListLiteralPrefix(t *testing.T, ctx context.Context, s testedStore) {
	for _, key := range []string{"a*b", "a_b", "a[b", "aXb", `a\b`} {
		requireNoError(t, s.Put(ctx, key, []byte("v"), s.lifetime))
	}
	for _, prefix := range []string{"a*", "a_", "a[", `a\`} {
		wantKeys(t, s, prefix, prefix+"b")
	}
	wantKeys(t, s, "A")
}

func testListAfterExpiry(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "session:short", []byte("v"), s.lifetime))
	requireNoError(t, s.Put(ctx, "session:long", []byte("v"), 3*s.lifetime))
	time.Sleep(2 * s.lifetime)
	wantKeys(t, s, "session:", "session:long")
}

func testFullStoreRejects(t *testing.T, ctx context.Context, s testedStore) {
	fillStore(t, s)
	if err := s.Put(ctx, "more", nil, s.lifetime); !errors.Is(err, store.ErrFull) {
		t.Errorf("Put into a full store: got %v, want ErrFull", err)
	}
	if err := s.Add(ctx, "more", nil, s.lifetime); !errors.Is(err, store.ErrFull) {
		t.Errorf("Add to a full store: got %v, want ErrFull", err)
	}
	requireNoError(t, s.Put(ctx, "0", []byte("again"), s.lifetime))
	wantValue(t, s, "7", "v")
}

// testFullStoreReserve checks that a full store accepts revocations until the reserve is exhausted, and no other entries.
func testFullStoreReserve(t *testing.T, ctx context.Context, s testedStore) {
	fillStore(t, s)
	for _, key := range []string{ReservedKind + ":1", ReservedKind + ":2"} {
		requireNoError(t, s.Put(ctx, key, []byte("v"), s.lifetime))
		wantValue(t, s, key, "v")
	}
	requireNoError(t, s.Append(ctx, ReservedKind+":2", []byte("w"), 9, s.lifetime))
	rejected := []*store.Call{
		{Op: store.Add, Key: "code:1", TTL: s.lifetime}, {Op: store.Add, Key: ReservedKind + ":3", TTL: s.lifetime},
	}
	if err := s.Do(ctx, rejected...); !errors.Is(err, store.ErrFull) {
		t.Errorf("step that also adds a code to a full store: got %v, want ErrFull", err)
	}
	wantKeys(t, s, ReservedKind, ReservedKind+":1", ReservedKind+":2")
	if store.IsShared(s.Store) {
		return // a shared store accepts any number of revocations
	}
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = s.Add(ctx, fmt.Sprint(ReservedKind, ":more", i), nil, s.lifetime)
	}
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("after 100 revocations: got %v, want ErrFull", err)
	}
}

func testExpiryFreesSpace(t *testing.T, ctx context.Context, s testedStore) {
	fillStore(t, s)
	s.waitForExpiry()
	requireNoError(t, s.Put(ctx, "more", []byte("v"), s.lifetime))
	wantValue(t, s, "more", "v")
}

func testTakeRace(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("v"), s.lifetime))
	if won := countConcurrentSuccesses(func() error { _, err := s.Take(ctx, "k"); return err }); won != 1 {
		t.Errorf("%d concurrent Take calls succeeded, want 1", won)
	}
}

func testAddRace(t *testing.T, ctx context.Context, s testedStore) {
	if won := countConcurrentSuccesses(func() error { return s.Add(ctx, "k", []byte("v"), s.lifetime) }); won != 1 {
		t.Errorf("%d concurrent Add calls succeeded, want 1", won)
	}
}

func testSwapRace(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("old"), s.lifetime))
	if won := countConcurrentSuccesses(func() error { return s.Swap(ctx, "k", []byte("old"), []byte("new"), s.lifetime) }); won != 1 {
		t.Errorf("%d concurrent Swap calls succeeded, want 1", won)
	}
}

// testManyKeys stores and removes keys repeatedly and checks that the limit counts each key once.
func testManyKeys(t *testing.T, ctx context.Context, s testedStore) {
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
	fillStore(t, s)
}

// stepTests are the tests of Append and of steps with several calls.
var stepTests = []storeTest{
	{"Append extends an existing value", testAppendExtends, false},
	{"Append rejects values above the maximum length", testAppendTooLong, false},
	{"Append does not shorten the lifetime", testAppendLifetime, false},
	{"Append after expiry creates a new value", testAppendAfterExpiry, false},
	{"concurrent Append loses no items", testAppendRace, false},
	{"a step executes all its calls", testStepExecutesAll, false},
	{"a failed step changes nothing", testFailedStep, false},
	{"a step that exceeds the limit is rejected", testStepInFullStore, true},
	{"deletions in a step make room for its additions", testStepFreesSpace, true},
	{"one of many concurrent steps succeeds", testStepRace, false},
	{"a step without calls succeeds", testEmptyStep, false},
	{"a step distinguishes empty values from absent ones", testStepEmptyValue, false},
}

func testAppendExtends(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Append(ctx, "k", []byte("ab"), 4, s.lifetime))
	time.Sleep(s.lifetime / 2)
	requireNoError(t, s.Append(ctx, "k", []byte("cd"), 4, s.lifetime))
	time.Sleep(s.lifetime * 3 / 4) // the lifetime starts when the latest item was appended
	wantValue(t, s, "k", "abcd")
}

func testAppendTooLong(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("abc"), s.lifetime))
	if err := s.Append(ctx, "k", []byte("de"), 4, s.lifetime); !errors.Is(err, store.ErrTooLong) {
		t.Errorf("Append beyond the maximum length: got %v, want ErrTooLong", err)
	}
	if err := s.Append(ctx, "new", []byte("abcde"), 4, s.lifetime); !errors.Is(err, store.ErrTooLong) {
		t.Errorf("Append of a value above the maximum length: got %v, want ErrTooLong", err)
	}
	wantValue(t, s, "k", "abc")
	wantKeys(t, s, "new")
}

func testAppendLifetime(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "k", []byte("ab"), 3*s.lifetime))
	requireNoError(t, s.Append(ctx, "k", []byte("cd"), 4, s.lifetime))
	s.waitForExpiry()
	wantValue(t, s, "k", "abcd")
}

func testAppendAfterExpiry(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Append(ctx, "k", []byte("old"), 9, s.lifetime))
	s.waitForExpiry()
	requireNoError(t, s.Append(ctx, "k", []byte("new"), 9, s.lifetime))
	wantValue(t, s, "k", "new")
}

func testAppendRace(t *testing.T, ctx context.Context, s testedStore) {
	if won := countConcurrentSuccesses(func() error { return s.Append(ctx, "k", []byte("ab"), 100, s.lifetime) }); won != 50 {
		t.Errorf("%d items of 2 bytes were appended, want 50", won)
	}
	wantValue(t, s, "k", strings.Repeat("ab", 50))
}

// testStepExecutesAll executes a step with keys that end in the same identifier, like those of a grant. A distributed store
// uses the identifier to store them on the same server.
func testStepExecutesAll(t *testing.T, ctx context.Context, s testedStore) {
	for _, key := range []string{"swapped:1", "taken:1", "deleted:1", "read:1", "grown:1"} {
		requireNoError(t, s.Put(ctx, key, []byte("old"), s.lifetime))
	}
	get, missing, take := &store.Call{Op: store.Get, Key: "read:1"}, &store.Call{Op: store.Get, Key: "nothing:1"}, &store.Call{Op: store.Take, Key: "taken:1"}
	requireNoError(t, s.Do(
		ctx, get, missing, take,
		&store.Call{Op: store.Put, Key: "put:1", Value: []byte("new"), TTL: s.lifetime},
		&store.Call{Op: store.Add, Key: "added:1", Value: []byte("new"), TTL: s.lifetime},
		&store.Call{Op: store.Swap, Key: "swapped:1", Old: []byte("old"), Value: []byte("new"), TTL: s.lifetime},
		&store.Call{Op: store.Append, Key: "grown:1", Value: []byte("er"), Max: 5, TTL: s.lifetime},
		&store.Call{Op: store.Delete, Key: "deleted:1"},
		&store.Call{Op: store.Delete, Key: "never there:1"},
	))
	if string(get.Value) != "old" || missing.Value != nil || string(take.Value) != "old" {
		t.Errorf("step returned values %q, %q and %q", get.Value, missing.Value, take.Value)
	}
	for key, want := range map[string]string{"read:1": "old", "put:1": "new", "added:1": "new", "swapped:1": "new", "grown:1": "older"} {
		wantValue(t, s, key, want)
	}
	wantKeys(t, s, "taken:1")
	wantKeys(t, s, "deleted:1")
}

// testFailedStep checks that if any call of a step fails, the others have no effect and the error states the reason.
func testFailedStep(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "there:1", []byte("old"), s.lifetime))
	for _, tt := range []struct {
		call *store.Call
		want error
	}{
		{&store.Call{Op: store.Add, Key: "there:1", Value: []byte("new"), TTL: s.lifetime}, store.ErrExists},
		{&store.Call{Op: store.Swap, Key: "there:1", Old: []byte("other"), Value: []byte("new"), TTL: s.lifetime}, store.ErrChanged},
		{&store.Call{Op: store.Swap, Key: "nothing:1", Value: []byte("new"), TTL: s.lifetime}, store.ErrChanged},
		{&store.Call{Op: store.Take, Key: "nothing:1"}, store.ErrNotFound},
		{&store.Call{Op: store.Append, Key: "there:1", Value: []byte("new"), Max: 5, TTL: s.lifetime}, store.ErrTooLong},
	} {
		for _, last := range []bool{false, true} {
			calls := []*store.Call{
				{Op: store.Put, Key: "put:1", Value: []byte("new"), TTL: s.lifetime},
				{Op: store.Append, Key: "grown:1", Value: []byte("new"), Max: 9, TTL: s.lifetime},
				{Op: store.Delete, Key: "kept:1"},
			}
			requireNoError(t, s.Put(ctx, "kept:1", nil, s.lifetime))
			at := 0
			if last {
				at = len(calls)
			}
			err := s.Do(ctx, slices.Insert(calls, at, tt.call)...)
			if !errors.Is(err, tt.want) || !errors.Is(tt.call.Err, tt.want) {
				t.Errorf("step with %v of %q: unexpected error %v; error of the call: %v", tt.call.Op, tt.call.Key, err, tt.call.Err)
			}
			tt.call.Err = nil
			wantKeys(t, s, "put:1")
			wantKeys(t, s, "grown:1")
			wantKeys(t, s, "kept:1", "kept:1")
			wantValue(t, s, "there:1", "old")
		}
	}
}

// testStepFreesSpace checks that deletions in a step free space for its additions, in any order.
func testStepFreesSpace(t *testing.T, ctx context.Context, s testedStore) {
	for _, key := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		requireNoError(t, s.Put(ctx, key, []byte("v"), s.lifetime))
	}
	step := func(key string) error {
		return s.Do(
			ctx, &store.Call{Op: store.Add, Key: "new " + key, Value: []byte("v"), TTL: s.lifetime},
			&store.Call{Op: store.Delete, Key: key},
		)
	}
	requireNoError(t, step("1"))
	if err := step("never there"); !errors.Is(err, store.ErrFull) {
		t.Errorf("step that deletes an absent key: got %v, want ErrFull", err)
	}
	wantKeys(t, s, "new", "new 1")
	wantKeys(t, s, "1")
}

func testStepInFullStore(t *testing.T, ctx context.Context, s testedStore) {
	for _, key := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		requireNoError(t, s.Put(ctx, key, []byte("v"), s.lifetime))
	}
	step := func() error {
		return s.Do(
			ctx, &store.Call{Op: store.Put, Key: "1", Value: []byte("w"), TTL: 3 * s.lifetime},
			&store.Call{Op: store.Add, Key: "8", Value: []byte("v"), TTL: s.lifetime},
			&store.Call{Op: store.Append, Key: "9", Value: []byte("v"), Max: 9, TTL: s.lifetime},
		)
	}
	if err := step(); !errors.Is(err, store.ErrFull) {
		t.Errorf("two new entries with capacity for one: got %v, want ErrFull", err)
	}
	wantValue(t, s, "1", "v")
	wantKeys(t, s, "8")
	s.waitForExpiry()
	requireNoError(t, step())
	wantKeys(t, s, "", "1", "8", "9")
}

// testStepRace executes concurrent steps that take one entry and store two others, as when a code is redeemed.
func testStepRace(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "code:1", []byte("v"), s.lifetime))
	won := countConcurrentSuccesses(func() error {
		return s.Do(
			ctx, &store.Call{Op: store.Put, Key: "grant:1", Value: []byte("v"), TTL: s.lifetime},
			&store.Call{Op: store.Append, Key: "grants:1", Value: []byte("v"), Max: 99, TTL: s.lifetime},
			&store.Call{Op: store.Take, Key: "code:1"},
		)
	})
	if won != 1 {
		t.Errorf("%d concurrent steps succeeded, want 1", won)
	}
	wantValue(t, s, "grants:1", "v")
}

func testEmptyStep(t *testing.T, ctx context.Context, s testedStore) { requireNoError(t, s.Do(ctx)) }

// testStepEmptyValue checks that an empty value is not treated as a missing one.
func testStepEmptyValue(t *testing.T, ctx context.Context, s testedStore) {
	requireNoError(t, s.Put(ctx, "put:1", nil, s.lifetime))
	requireNoError(t, s.Append(ctx, "appended:1", nil, 0, s.lifetime))
	for _, key := range []string{"put:1", "appended:1"} {
		c := &store.Call{Op: store.Get, Key: key}
		requireNoError(t, s.Do(ctx, c))
		if c.Value == nil || len(c.Value) > 0 {
			t.Errorf("Get(%s) in a step = %#v, want an empty value", key, c.Value)
		}
	}
}

// entriesTests are the tests of [store.Exporter], which is optional.
var entriesTests = []storeTest{
	{"Entries returns all unexpired entries", testAllEntries, false},
	{"Entries stops at the first error", testEntriesError, false},
}

func testAllEntries(t *testing.T, ctx context.Context, s testedStore) {
	exporter := requireExporter(t, s)
	requireNoError(t, s.Put(ctx, "code:short", []byte("v"), s.lifetime))
	requireNoError(t, s.Put(ctx, "code:taken", []byte("v"), 3*s.lifetime))
	requireNoError(t, s.Put(ctx, "session:long", []byte("\x00long"), 3*s.lifetime))
	requireNoError(t, s.Append(ctx, "grants:empty", nil, 0, 4*s.lifetime))
	s.waitForExpiry()
	_, err := s.Take(ctx, "code:taken")
	requireNoError(t, err)
	got := map[string]string{}
	requireNoError(t, exporter.Entries(ctx, func(key string, value []byte, ttl time.Duration) error {
		got[key] = string(value)
		maxTTL := 3 * s.lifetime
		if key == "session:long" {
			maxTTL = 2 * s.lifetime
		}
		if ttl > maxTTL || ttl < maxTTL-s.lifetime {
			t.Errorf("%s: remaining lifetime is %v, want about %v", key, ttl, maxTTL)
		}
		return nil
	}))
	if want := map[string]string{"session:long": "\x00long", "grants:empty": ""}; !maps.Equal(got, want) {
		t.Errorf("Entries returned %q, want %q", got, want)
	}
}

func testEntriesError(t *testing.T, ctx context.Context, s testedStore) {
	exporter := requireExporter(t, s)
	requireNoError(t, s.Put(ctx, "a", nil, s.lifetime))
	requireNoError(t, s.Put(ctx, "b", nil, s.lifetime))
	seen, stop := 0, errors.New("stop")
	err := exporter.Entries(ctx, func(string, []byte, time.Duration) error { seen++; return stop })
	if !errors.Is(err, stop) || seen != 1 {
		t.Errorf("Entries returned %d entries and error %v, want 1 and the callback's error", seen, err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	err = exporter.Entries(ended, func(string, []byte, time.Duration) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Entries with canceled context: got %v, want context.Canceled", err)
	}
}

func requireExporter(t *testing.T, s testedStore) store.Exporter {
	exporter, ok := s.Store.(store.Exporter)
	if !ok {
		t.Skip("store does not implement store.Exporter")
	}
	return exporter
}
