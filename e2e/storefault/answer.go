package storefault

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A change is a store call with the value of the entry before and after the call.
type change struct {
	name         string
	before       string // value before the call; "" if there is no entry
	call         store.Call
	found, after string
}

var changes = []change{
	{"Put", "", store.Call{Op: store.Put, Value: []byte("new"), TTL: long}, "", "new"},
	{"Add", "", store.Call{Op: store.Add, Value: []byte("new"), TTL: long}, "", "new"},
	{"Swap", "old", store.Call{Op: store.Swap, Old: []byte("old"), Value: []byte("new"), TTL: long}, "", "new"},
	{"Append", "old", store.Call{Op: store.Append, Value: []byte("er"), Max: 5, TTL: long}, "", "older"},
	{"Take", "old", store.Call{Op: store.Take}, "old", ""},
	{"Delete", "old", store.Call{Op: store.Delete}, "", ""},
}

// responseLost checks that a change succeeds and is applied exactly once even if the responses to the first one or two attempts
// are lost.
func responseLost(t *testing.T, n *Network) {
	for _, c := range changes {
		for lost := range 3 {
			key := fmt.Sprintf("%s:%d", c.name, lost)
			prepare(t, n, key, c.before)
			n.Proxy.LoseAnswers(lost, nil)
			call := c.call
			call.Key = key
			step := []*store.Call{&call, {Op: store.Append, Key: "count:" + key, Value: []byte("x"), Max: 9, TTL: long}}
			if err := n.Store.Do(t.Context(), step...); err != nil {
				t.Errorf("%s, %d answers lost: %v", c.name, lost, err)
			}
			n.Proxy.LoseAnswers(0, nil)
			if c.found != "" && string(call.Value) != c.found {
				t.Errorf("%s found %q, want %q", c.name, call.Value, c.found)
			}
			checkEntry(t, n.Direct, key, c.after)
			checkEntry(t, n.Direct, "count:"+key, "x")
		}
	}
}

func prepare(t *testing.T, n *Network, key, value string) {
	t.Helper()
	if value != "" {
		must(t, n.Direct.Put(t.Context(), key, []byte(value), long))
	}
}

// checkEntry checks the value of an entry; "" means that the entry does not exist.
func checkEntry(t *testing.T, s store.Store, key, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), key)
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	if err != nil || string(got) != want {
		t.Errorf("%s = %q, %v; want %q", key, got, err, want)
	}
}

// responseLostMeanwhile changes the entry through another gateway before a change is resent. The resent change must succeed,
// and the other change must not be overwritten.
func responseLostMeanwhile(t *testing.T, n *Network) {
	for _, c := range changes {
		key := "meanwhile:" + c.name
		prepare(t, n, key, c.before)
		other := "theirs"
		n.Proxy.LoseAnswers(1, func() {
			if c.after == "" {
				must(t, n.Direct.Add(context.Background(), key, []byte(other), long))
				return
			}
			other = ""
			_, err := n.Direct.Take(context.Background(), key)
			must(t, err)
		})
		call := c.call
		call.Key = key
		if err := n.Store.Do(t.Context(), &call); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.found != "" && string(call.Value) != c.found {
			t.Errorf("%s found %q, want %q", c.name, call.Value, c.found)
		}
		checkEntry(t, n.Direct, key, other)
	}
}

func announcementLost(t *testing.T, n *Network) {
	f := follow(t, n.Direct)
	n.Proxy.LoseAnswers(1, nil)
	must(t, n.Store.Add(t.Context(), "revoked:1", []byte("v"), long))
	f.await(t, map[string]string{"revoked:1": "v"})
	n.Proxy.LoseAnswers(1, nil)
	_, err := n.Store.Take(t.Context(), "revoked:1")
	must(t, err)
	f.await(t, map[string]string{})
}
