package bearer

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
)

// bindingTo is the binding of a token of a person's client.
func bindingTo(subject, scope string) string {
	return bindingOf(&guard.Token{Issuer: "https://issuer.example", Subject: subject, ClientID: "app", Scope: scope})
}

// TestPageStates checks the limits: a client that exceeds its own loses its oldest state, whatever the scopes of its
// tokens, and no other client's.
func TestPageStates(t *testing.T) {
	t.Parallel()
	states := newStates(store.NewMemory(0, 0), stateLimits{ofClient: 3, bytesOfClient: 100, bytes: 150})
	put := func(subject, key string, size int) error {
		return states.PutState(t.Context(), bindingTo(subject, "patient/*.rs "+key), key, make([]byte, size), time.Hour)
	}
	kept := func(keys ...string) string {
		var all []string
		for _, key := range keys {
			if _, err := states.GetState(t.Context(), key); err == nil {
				all = append(all, key)
			} else if !errors.Is(err, enforce.ErrNoPageState) {
				t.Errorf("%s: %v", key, err)
			}
		}
		return strings.Join(all, " ")
	}
	for i, size := range []int{10, 10, 10, 10} {
		if err := put("alice", strconv.Itoa(i), size); err != nil {
			t.Fatal(err)
		}
	}
	if got := kept("0", "1", "2", "3"); got != "1 2 3" {
		t.Errorf("beyond the number of states, %q are left", got)
	}
	if err := put("alice", "large", 85); err != nil {
		t.Fatal(err)
	}
	if got := kept("1", "2", "3", "large"); got != "3 large" {
		t.Errorf("beyond the size, %q are left", got)
	}
	if err := put("bob", "small", 50); err != nil {
		t.Error(err)
	}
	if got := kept("3", "large", "small"); got != "3 large small" {
		t.Errorf("within the size for all, %q are left", got)
	}
	if err := put("carol", "other", 60); err != nil {
		t.Error(err)
	}
	if got := kept("3", "large", "small", "other"); got != "small other" {
		t.Errorf("beyond the size for all, %q are left: the client with the most bytes must lose its states", got)
	}
	if states.bytes != 110 || len(states.sizes) != 2 || states.sizes[bindingClient(bindingTo("bob", ""))] != 50 {
		t.Errorf("%d bytes, %v", states.bytes, states.sizes)
	}
}

func TestPageStatesExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		states := newStates(store.NewMemory(0, 0), stateLimits{ofClient: 10, bytesOfClient: 100, bytes: 100})
		for range 3 {
			if err := states.PutState(t.Context(), bindingTo("alice", ""), "key", make([]byte, 90), time.Hour); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour + time.Second)
			if _, err := states.GetState(t.Context(), "key"); !errors.Is(err, enforce.ErrNoPageState) {
				t.Error(err)
			}
			if states.sweep(); len(states.clients) > 0 || states.bytes != 0 {
				t.Errorf("%d bytes of %d clients are left", states.bytes, len(states.clients))
			}
		}
	})
}

// TestPageStatesFullStore checks that a full store is an error, and counts nothing.
func TestPageStatesFullStore(t *testing.T) {
	t.Parallel()
	full := store.NewMemory(1, 0)
	states := newStates(full, defaultStateLimits)
	if err := full.Put(t.Context(), "code:1", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := states.PutState(t.Context(), bindingTo("alice", ""), "key", make([]byte, 9), time.Hour); !errors.Is(err, store.ErrFull) || states.bytes != 0 {
		t.Errorf("%v, %d bytes", err, states.bytes)
	}
}
