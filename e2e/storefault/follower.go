package storefault

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A follower contains the values in the updates that it has received.
type follower struct {
	mu     sync.Mutex
	values map[string]string
}

// follow subscribes a follower to the store until the end of the test.
func follow(t *testing.T, s store.SharedStore) *follower {
	f := &follower{values: map[string]string{}}
	ctx, end := context.WithCancel(context.Background())
	done, began := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	go func() {
		defer close(done)
		defer begin()
		_ = s.Subscribe(ctx, func(u store.Update) { f.hear(u); begin() })
	}()
	t.Cleanup(func() { end(); <-done })
	<-began
	return f
}

func (f *follower) hear(u store.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.IsComplete {
		clear(f.values)
	}
	for _, c := range u.Changes {
		if f.values[c.Key] = string(c.Value); c.Value == nil {
			delete(f.values, c.Key)
		}
	}
}

// await waits until the values of the follower equal want.
func (f *follower) await(t *testing.T, want map[string]string) {
	t.Helper()
	knows := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return maps.Equal(f.values, want)
	}
	for end := time.Now().Add(10 * time.Second); !knows(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not learn of %q", want)
		}
	}
}

// followerCut changes entries while the follower is disconnected. The follower must receive the changes when it reconnects.
func followerCut(t *testing.T, n *Network) {
	must(t, n.Direct.Put(t.Context(), "revoked:old", []byte("v"), long))
	followed := make(chan error, 1)
	heard := make(chan struct{}, 1000)
	go func() {
		followed <- n.Store.Subscribe(t.Context(), func(store.Update) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}()
	<-heard
	n.Proxy.SetRefusing(true)
	select {
	case err := <-followed:
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("following ended with %v", err)
		}
	case <-time.After(n.Timeout + 3*slack):
		t.Error("it follows what it cannot reach")
	}
	must(t, n.Direct.Delete(t.Context(), "revoked:old"))
	must(t, n.Direct.Put(t.Context(), "revoked:new", []byte("v"), long))
	n.Proxy.SetRefusing(false)
	n.wantBack(t)
	f := follow(t, n.Store)
	f.await(t, map[string]string{"revoked:new": "v"})
}

// followerSilent checks that while the store does not respond, Subscribe fails without reporting a later query time.
func followerSilent(t *testing.T, n *Network) {
	var mu sync.Mutex
	var heard time.Time
	followed := make(chan error, 1)
	go func() {
		followed <- n.Store.Subscribe(t.Context(), func(u store.Update) {
			mu.Lock()
			defer mu.Unlock()
			heard = u.QueriedAt
		})
	}()
	time.Sleep(n.Timeout)
	n.Proxy.SetSilent(true)
	silent := time.Now()
	select {
	case err := <-followed:
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("following ended with %v", err)
		}
	case <-time.After(2*n.Timeout + 3*slack):
		t.Error("it follows what does not answer")
	}
	mu.Lock()
	defer mu.Unlock()
	if heard.IsZero() || heard.After(silent.Add(10*time.Millisecond)) {
		t.Errorf("it heard %v after the last answer", heard.Sub(silent))
	}
	n.Proxy.SetSilent(false)
}
