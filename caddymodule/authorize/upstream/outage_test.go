package upstream_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// While the keys cannot be had, a flood does no more, and keys that are there
// are used without waiting.
func TestFloodDuringOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s := ecPair("good"), new(keyServer)
		s.serveKeys(good.public())
		keys := newKeySet(t, s)
		if _, err := keys.Key(t.Context(), "good"); err != nil {
			t.Fatal(err)
		}
		s.serve(authorizetest.Silent)
		time.Sleep(2 * time.Minute)
		start := time.Now()
		var e *upstream.Error
		for i := range 1000 {
			if _, err := keys.Key(t.Context(), fmt.Sprint(i)); !errors.As(err, &e) || e.Kind != upstream.KeysTimeout {
				t.Fatal(err)
			}
		}
		s.want(t, 2)
		if waited := time.Since(start); waited != upstream.DefaultTimeout {
			t.Errorf("waited %v", waited)
		}
		time.Sleep(time.Hour)
		start = time.Now()
		if _, err := keys.Key(t.Context(), "good"); err != nil || time.Since(start) != 0 {
			t.Error(err, time.Since(start))
		}
		time.Sleep(upstream.DefaultTimeout) // until the request behind it ends
	})
}

// Old keys go on being used in an outage: one request waits for the provider,
// no other does, and after a day it is over.
func TestStaleKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s := ecPair("good"), new(keyServer)
		s.serveKeys(good.public())
		keys := newKeySet(t, s)
		ask := func(want time.Duration) error {
			start := time.Now()
			_, err := keys.Key(t.Context(), "good")
			if waited := time.Since(start); waited != want {
				t.Errorf("waited %v, want %v", waited, want)
			}
			return err
		}
		if err := ask(0); err != nil {
			t.Fatal(err)
		}
		s.serve(authorizetest.Silent)
		time.Sleep(time.Hour + time.Minute)
		if err := ask(upstream.DefaultTimeout); err != nil {
			t.Error(err)
		}
		for range 100 {
			time.Sleep(10 * time.Minute)
			if err := ask(0); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(24 * time.Hour)
		if err := ask(upstream.DefaultTimeout); err == nil {
			t.Error("a key of two days ago is good")
		}
		s.serveKeys(good.public())
		time.Sleep(time.Minute)
		if err := ask(0); err != nil {
			t.Error("outage over:", err)
		}
	})
}

func TestKeysBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(keyServer)
		s.serve(authorizetest.Status(http.StatusInternalServerError))
		keys := newKeySet(t, s)
		requests := 0
		for _, wait := range []int{0, 1, 2, 4, 8, 16, 32, 60, 60} {
			if wait > 0 {
				time.Sleep(time.Duration(wait)*time.Second - time.Nanosecond)
				for range 100 {
					if _, err := keys.Key(t.Context(), "good"); !errors.Is(err, upstream.ErrStatus) {
						t.Fatal(err)
					}
				}
				s.want(t, requests)
				time.Sleep(time.Nanosecond)
			}
			requests++
			if _, err := keys.Key(t.Context(), "good"); !errors.Is(err, upstream.ErrStatus) {
				t.Fatal(err)
			}
			s.want(t, requests)
		}
	})
}

// A provider that fails at once is spared too.
func TestFloodDuringErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s := ecPair("good"), new(keyServer)
		s.serveKeys(good.public())
		keys := newKeySet(t, s)
		if _, err := keys.Key(t.Context(), "good"); err != nil {
			t.Fatal(err)
		}
		s.serve(authorizetest.Status(http.StatusInternalServerError))
		for minute := range 5 {
			time.Sleep(time.Minute - 40*time.Second)
			for i := range 40 {
				if _, err := keys.Key(t.Context(), fmt.Sprint(i)); err == nil {
					t.Error("found")
				}
				time.Sleep(time.Second)
			}
			s.want(t, 1+minute)
		}
	})
}
