package storefault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A Suite tests how a store behaves when the network or its server fails. It needs a server and takes real time.
type Suite struct {
	// New returns a network with an empty store.
	New func(t *testing.T) *Network
}

// A Network is a store with connections that can be disrupted.
type Network struct {
	Store   store.SharedStore // connected through the proxy; subscribed to entries of the kind "revoked"
	Direct  store.SharedStore // the same store, with a direct connection
	Proxy   *Proxy            // disrupts connections
	Timeout time.Duration     // timeout of the store's calls

	// Stop kills the server with SIGKILL; Start starts it again with its data. If nil, the tests that need them are skipped.
	Stop, Start func()
}

// Run runs the tests.
func (s Suite) Run(t *testing.T) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, *Network)
	}{
		{"an answer is lost", responseLost},
		{"an answer is lost, and others change the entry", responseLostMeanwhile},
		{"a change that is announced is lost", announcementLost},
		{"no answer comes", noResponse},
		{"no answer comes to many", noResponseToMany},
		{"the caller does not wait", callerCancels},
		{"a change without an answer", changeWithoutResponse},
		{"idle connections are cut", idleCut},
		{"answers come late", lateResponse},
		{"connections are refused", connectionRefused},
		{"a follower is cut off", followerCut},
		{"a follower hears nothing", followerSilent},
		{"the server restarts", restart},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := s.New(t)
			establishConnection(t, n)
			tt.test(t, n)
		})
	}
}

// long is a lifetime of entries that exceeds the duration of the tests.
const long = time.Hour

// slack is how much a call may exceed its timeout on a busy machine.
const slack = time.Second

// establishConnection makes a call to establish the connection, so that the next response belongs to a call of the test.
func establishConnection(t *testing.T, n *Network) {
	t.Helper()
	must(t, n.Store.Put(t.Context(), "warm:1", []byte("v"), long))
	_, err := n.Store.Take(t.Context(), "warm:1")
	must(t, err)
}

// methods returns a function for each method of the store that calls it.
func methods(ctx context.Context, s store.Store) map[string]func() error {
	return map[string]func() error{
		"Put":    func() error { return s.Put(ctx, "none:1", nil, long) },
		"Add":    func() error { return s.Add(ctx, "none:2", nil, long) },
		"Swap":   func() error { return s.Swap(ctx, "none:3", nil, nil, long) },
		"Append": func() error { return s.Append(ctx, "none:4", nil, 9, long) },
		"Get":    func() error { _, err := s.Get(ctx, "none:5"); return err },
		"Take":   func() error { _, err := s.Take(ctx, "none:6"); return err },
		"Delete": func() error { return s.Delete(ctx, "none:7") },
		"List":   func() error { _, err := s.List(ctx, "none:"); return err },
		"Do":     func() error { return s.Do(ctx, &store.Call{Op: store.Get, Key: "none:8"}) },
	}
}

// wantUnavailable checks that a call fails within its timeout and that the error is store.ErrUnavailable.
func (n *Network) wantUnavailable(t *testing.T, name string, call func() error) {
	t.Helper()
	began := time.Now()
	if err := call(); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: %v, want %v", name, err, store.ErrUnavailable)
	}
	if took := time.Since(began); took > n.Timeout+slack {
		t.Errorf("%s took %v", name, took)
	}
}

// wantBack waits until the store responds again. It does not create a new client.
func (n *Network) wantBack(t *testing.T) {
	t.Helper()
	began := time.Now()
	for {
		err := n.Store.Put(t.Context(), "back:1", []byte("v"), long)
		if err == nil {
			return
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("it does not come back: %v", err)
		}
	}
}

func noResponse(t *testing.T, n *Network) {
	n.Proxy.SetSilent(true)
	for name, call := range methods(t.Context(), n.Store) {
		n.wantUnavailable(t, name, call)
	}
	n.Proxy.SetSilent(false)
	n.wantBack(t)
}

func noResponseToMany(t *testing.T, n *Network) {
	n.Proxy.SetSilent(true)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			n.wantUnavailable(t, "Add", func() error { return n.Store.Add(t.Context(), fmt.Sprint("many:", i), nil, long) })
		})
	}
	all.Wait()
	n.Proxy.SetSilent(false)
	n.wantBack(t)
}

// callerCancels checks that a call returns the context's error if the caller cancels it before the store's timeout.
func callerCancels(t *testing.T, n *Network) {
	n.Proxy.SetSilent(true)
	ctx, cancel := context.WithTimeout(t.Context(), n.Timeout/10)
	defer cancel()
	began := time.Now()
	err := n.Store.Add(ctx, "left:1", nil, long)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the caller's time is over: %v", err)
	}
	if took := time.Since(began); took > n.Timeout/10+slack {
		t.Errorf("it took %v", took)
	}
	ended, end := context.WithCancel(t.Context())
	time.AfterFunc(n.Timeout/10, end)
	if err := n.Store.Add(ended, "left:2", nil, long); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller has left: %v", err)
	}
	n.Proxy.SetSilent(false)
	n.wantBack(t)
}

// changeWithoutResponse checks that a change without a response was applied either completely or not at all.
func changeWithoutResponse(t *testing.T, n *Network) {
	must(t, n.Direct.Put(t.Context(), "code:1", []byte("v"), long))
	n.Proxy.SetSilent(true)
	n.wantUnavailable(t, "Do", func() error {
		return n.Store.Do(
			t.Context(), &store.Call{Op: store.Take, Key: "code:1"},
			&store.Call{Op: store.Add, Key: "grant:1", Value: []byte("v"), TTL: long},
		)
	})
	n.Proxy.SetSilent(false)
	n.wantBack(t)
	_, codeErr := n.Store.Get(t.Context(), "code:1")
	_, grantErr := n.Store.Get(t.Context(), "grant:1")
	if consumed, added := errors.Is(codeErr, store.ErrNotFound), grantErr == nil; consumed != added {
		t.Errorf("half done: the code: %v; the grant: %v", codeErr, grantErr)
	}
}

func idleCut(t *testing.T, n *Network) {
	for name, call := range methods(t.Context(), n.Store) {
		n.Proxy.Cut()
		if err := call(); errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func lateResponse(t *testing.T, n *Network) {
	n.Proxy.SetDelay(n.Timeout / 8)
	defer n.Proxy.SetDelay(0)
	must(t, n.Store.Add(t.Context(), "late:1", []byte("v"), long))
	_, err := n.Store.Take(t.Context(), "late:1")
	must(t, err)
}

func connectionRefused(t *testing.T, n *Network) {
	n.Proxy.SetRefusing(true)
	for name, call := range methods(t.Context(), n.Store) {
		n.wantUnavailable(t, name, call)
	}
	n.Proxy.SetRefusing(false)
	n.wantBack(t)
}

func restart(t *testing.T, n *Network) {
	if n.Stop == nil {
		t.Skip("the server cannot be stopped")
	}
	must(t, n.Store.Put(t.Context(), "kept:1", []byte("v"), long))
	n.Stop()
	for name, call := range methods(t.Context(), n.Store) {
		n.wantUnavailable(t, name, call)
	}
	n.Start()
	n.wantBack(t)
	checkEntry(t, n.Store, "kept:1", "v")
	if _, err := n.Store.Take(t.Context(), "kept:1"); err != nil {
		t.Errorf("Take after the restart: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
