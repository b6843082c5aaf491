package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// stepTests are the tests of Append, and of several calls in one step.
var stepTests = []storeTest{
	{"append to what is there", appendGrows, false},
	{"append refuses what is too long", appendRefuses, false},
	{"append does not shorten a lifetime", appendKeepsLifetime, false},
	{"append after expiry starts anew", appendAfterExpiry, false},
	{"no item of many appenders is lost", appendersRace, false},
	{"a step does all its calls", stepDoesAll, false},
	{"a step that fails changes nothing", failedStep, false},
	{"a step is too much for a full store", stepFull, true},
	{"a step makes room for itself", stepMakesRoom, true},
	{"one of many steps wins", stepsRace, false},
	{"a step of nothing", emptyStep, false},
	{"a step finds an empty value", stepFindsEmpty, false},
}

func appendGrows(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Append(ctx, "k", []byte("ab"), 4, s.lifetime))
	time.Sleep(s.lifetime / 2)
	must(t, s.Append(ctx, "k", []byte("cd"), 4, s.lifetime))
	time.Sleep(s.lifetime * 3 / 4) // its lifetime counts from the latest item
	wantValue(t, s, "k", "abcd")
}

func appendRefuses(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("abc"), s.lifetime))
	if err := s.Append(ctx, "k", []byte("de"), 4, s.lifetime); !errors.Is(err, store.ErrTooLong) {
		t.Errorf("Append to five of four bytes: %v", err)
	}
	if err := s.Append(ctx, "new", []byte("abcde"), 4, s.lifetime); !errors.Is(err, store.ErrTooLong) {
		t.Errorf("Append of five of four bytes: %v", err)
	}
	wantValue(t, s, "k", "abc")
	wantKeys(t, s, "new")
}

func appendKeepsLifetime(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "k", []byte("ab"), 3*s.lifetime))
	must(t, s.Append(ctx, "k", []byte("cd"), 4, s.lifetime))
	s.expire()
	wantValue(t, s, "k", "abcd")
}

func appendAfterExpiry(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Append(ctx, "k", []byte("old"), 9, s.lifetime))
	s.expire()
	must(t, s.Append(ctx, "k", []byte("new"), 9, s.lifetime))
	wantValue(t, s, "k", "new")
}

func appendersRace(t *testing.T, ctx context.Context, s subject) {
	if won := race(func() error { return s.Append(ctx, "k", []byte("ab"), 100, s.lifetime) }); won != 50 {
		t.Errorf("%d items of 2 bytes in 100", won)
	}
	wantValue(t, s, "k", strings.Repeat("ab", 50))
}

// The keys of a step all end in the same identifier, as those of a grant do: a store that is
// spread over servers keeps them together by it.
func stepDoesAll(t *testing.T, ctx context.Context, s subject) {
	for _, key := range []string{"swapped:1", "taken:1", "deleted:1", "read:1", "grown:1"} {
		must(t, s.Put(ctx, key, []byte("old"), s.lifetime))
	}
	get, none, take := &store.Call{Op: store.Get, Key: "read:1"}, &store.Call{Op: store.Get, Key: "nothing:1"}, &store.Call{Op: store.Take, Key: "taken:1"}
	must(t, s.Do(
		ctx, get, none, take,
		&store.Call{Op: store.Put, Key: "put:1", Value: []byte("new"), TTL: s.lifetime},
		&store.Call{Op: store.Add, Key: "added:1", Value: []byte("new"), TTL: s.lifetime},
		&store.Call{Op: store.Swap, Key: "swapped:1", Old: []byte("old"), Value: []byte("new"), TTL: s.lifetime},
		&store.Call{Op: store.Append, Key: "grown:1", Value: []byte("er"), Max: 5, TTL: s.lifetime},
		&store.Call{Op: store.Delete, Key: "deleted:1"},
		&store.Call{Op: store.Delete, Key: "never there:1"},
	))
	if string(get.Value) != "old" || none.Value != nil || string(take.Value) != "old" {
		t.Errorf("found %q, %q and %q", get.Value, none.Value, take.Value)
	}
	for key, want := range map[string]string{"read:1": "old", "put:1": "new", "added:1": "new", "swapped:1": "new", "grown:1": "older"} {
		wantValue(t, s, key, want)
	}
	wantKeys(t, s, "taken:1")
	wantKeys(t, s, "deleted:1")
}

// Whichever call of a step fails, the others have not been made, and it says why.
func failedStep(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "there:1", []byte("old"), s.lifetime))
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
			must(t, s.Put(ctx, "kept:1", nil, s.lifetime))
			at := 0
			if last {
				at = len(calls)
			}
			err := s.Do(ctx, slices.Insert(calls, at, tt.call)...)
			if !errors.Is(err, tt.want) || !errors.Is(tt.call.Err, tt.want) {
				t.Errorf("step with %v of %q: %v, the call: %v", tt.call.Op, tt.call.Key, err, tt.call.Err)
			}
			tt.call.Err = nil
			wantKeys(t, s, "put:1")
			wantKeys(t, s, "grown:1")
			wantKeys(t, s, "kept:1", "kept:1")
			wantValue(t, s, "there:1", "old")
		}
	}
}

// What a step deletes makes room for what it stores, in whatever order.
func stepMakesRoom(t *testing.T, ctx context.Context, s subject) {
	for _, key := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		must(t, s.Put(ctx, key, []byte("v"), s.lifetime))
	}
	step := func(key string) error {
		return s.Do(
			ctx, &store.Call{Op: store.Add, Key: "new " + key, Value: []byte("v"), TTL: s.lifetime},
			&store.Call{Op: store.Delete, Key: key},
		)
	}
	must(t, step("1"))
	if err := step("never there"); !errors.Is(err, store.ErrFull) {
		t.Errorf("a step that deletes nothing: %v", err)
	}
	wantKeys(t, s, "new", "new 1")
	wantKeys(t, s, "1")
}

func stepFull(t *testing.T, ctx context.Context, s subject) {
	for _, key := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		must(t, s.Put(ctx, key, []byte("v"), s.lifetime))
	}
	step := func() error {
		return s.Do(
			ctx, &store.Call{Op: store.Put, Key: "1", Value: []byte("w"), TTL: 3 * s.lifetime},
			&store.Call{Op: store.Add, Key: "8", Value: []byte("v"), TTL: s.lifetime},
			&store.Call{Op: store.Append, Key: "9", Value: []byte("v"), Max: 9, TTL: s.lifetime},
		)
	}
	if err := step(); !errors.Is(err, store.ErrFull) {
		t.Errorf("two more entries where there is room for one: %v", err)
	}
	wantValue(t, s, "1", "v")
	wantKeys(t, s, "8")
	s.expire()
	must(t, step())
	wantKeys(t, s, "", "1", "8", "9")
}

// stepsRace has steps take an entry and leave two others, as whoever redeems a code does.
func stepsRace(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "code:1", []byte("v"), s.lifetime))
	won := race(func() error {
		return s.Do(
			ctx, &store.Call{Op: store.Put, Key: "grant:1", Value: []byte("v"), TTL: s.lifetime},
			&store.Call{Op: store.Append, Key: "grants:1", Value: []byte("v"), Max: 99, TTL: s.lifetime},
			&store.Call{Op: store.Take, Key: "code:1"},
		)
	})
	if won != 1 {
		t.Errorf("%d steps took the code", won)
	}
	wantValue(t, s, "grants:1", "v")
}

func emptyStep(t *testing.T, ctx context.Context, s subject) { must(t, s.Do(ctx)) }

// stepFindsEmpty tells an empty value from none.
func stepFindsEmpty(t *testing.T, ctx context.Context, s subject) {
	must(t, s.Put(ctx, "put:1", nil, s.lifetime))
	must(t, s.Append(ctx, "appended:1", nil, 0, s.lifetime))
	for _, key := range []string{"put:1", "appended:1"} {
		c := &store.Call{Op: store.Get, Key: key}
		must(t, s.Do(ctx, c))
		if c.Value == nil || len(c.Value) > 0 {
			t.Errorf("%s: found %#v", key, c.Value)
		}
	}
}
