package relyingparty_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const issuer = "https://login.example"

// A provider that is down does not receive a request for each sign-in.
func TestDiscoveryBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		idp := providertest.New(issuer)
		idp.SetFault(providertest.Discovery, providertest.NeverRespond)
		p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport = handlerTransport{idp} })
		ask := func(wait time.Duration, requests int) error {
			t.Helper()
			start := time.Now()
			_, err := p.AuthenticationURL(t.Context(), newRequest())
			if waited := time.Since(start); waited != wait {
				t.Errorf("waited %v, want %v", waited, wait)
			}
			if n := count(idp, providertest.Discovery); n != requests {
				t.Errorf("%d requests, want %d", n, requests)
			}
			return err
		}
		checkFault(t, ask(relyingparty.DefaultTimeout, 1), readTimeout, nil)
		for range 100 {
			checkFault(t, ask(0, 1), readTimeout, nil)
		}
		time.Sleep(time.Second)
		checkFault(t, ask(relyingparty.DefaultTimeout, 2), readTimeout, nil)
		time.Sleep(time.Second)
		checkFault(t, ask(0, 2), readTimeout, nil)
		idp.SetFault(providertest.Discovery, nil)
		time.Sleep(time.Second)
		if err := ask(0, 3); err != nil {
			t.Error("up again:", err)
		}
	})
}

// The document is refreshed hourly. If that fails, the previous document remains in use and a warning is logged.
func TestDiscoveryRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		idp := providertest.New(issuer)
		p := newProvider(t, idp, func(c *relyingparty.Config) {
			c.Transport, c.Logger = handlerTransport{idp}, slog.New(slog.NewTextHandler(&log, nil))
		})
		ask := func(requests int) {
			t.Helper()
			if _, err := p.AuthenticationURL(t.Context(), newRequest()); err != nil {
				t.Error(err)
			}
			synctest.Wait() // wait for background requests
			if n := count(idp, providertest.Discovery); n != requests {
				t.Errorf("%d requests, want %d", n, requests)
			}
		}
		ask(1)
		time.Sleep(time.Hour - time.Second)
		ask(1)
		time.Sleep(time.Second)
		ask(2)
		idp.SetFault(providertest.Discovery, providertest.Status(500))
		time.Sleep(time.Hour)
		ask(3)
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, issuer) {
			t.Errorf("log: %s", text)
		}
	})
}

// New does not send a request, because the provider may be down or behind the server that is starting.
func TestNewDoesNothing(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	newProvider(t, idp, nil)
	if n := count(idp, providertest.Discovery); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// While the keys are unavailable, a flood of tokens causes no additional requests. Available keys are used without waiting.
func TestFloodDuringOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s, keys := newServedKeySet(t, nil)
		wantKey(t, keys, "good", nil)
		s.serve(providertest.NeverRespond)
		time.Sleep(2 * time.Minute)
		start := time.Now()
		var e *relyingparty.Error
		for i := range 1000 {
			if _, err := keys.Key(t.Context(), fmt.Sprint(i)); !errors.As(err, &e) || e.Kind != relyingparty.KeysTimeout {
				t.Fatal(err)
			}
		}
		s.want(t, 2)
		if waited := time.Since(start); waited != relyingparty.DefaultTimeout {
			t.Errorf("waited %v", waited)
		}
		time.Sleep(time.Hour)
		wantWait(t, keys, "good", 0, nil)
		time.Sleep(relyingparty.DefaultTimeout) // until the background request times out
	})
}

// During an outage, old keys remain in use for a day. Only one request waits for the provider.
func TestStaleKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, s, keys := newServedKeySet(t, nil)
		wantWait(t, keys, "good", 0, nil)
		s.serve(providertest.NeverRespond)
		time.Sleep(time.Hour + time.Minute)
		wantWait(t, keys, "good", relyingparty.DefaultTimeout, nil)
		for range 100 {
			time.Sleep(10 * time.Minute)
			wantWait(t, keys, "good", 0, nil)
		}
		time.Sleep(24 * time.Hour)
		wantWait(t, keys, "good", relyingparty.DefaultTimeout, context.DeadlineExceeded) // the keys have been stale for more than a day
		s.serveKeys(good.public())
		time.Sleep(time.Minute)
		wantWait(t, keys, "good", 0, nil)
	})
}

func TestKeysBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(keyServer)
		s.serve(providertest.Status(http.StatusInternalServerError))
		keys := newKeySet(t, s)
		requests := 0
		for _, wait := range []int{0, 1, 2, 4, 8, 16, 32, 60, 60} {
			if wait > 0 {
				time.Sleep(time.Duration(wait)*time.Second - time.Nanosecond)
				for range 100 {
					wantKey(t, keys, "good", relyingparty.ErrStatus)
				}
				s.want(t, requests)
				time.Sleep(time.Nanosecond)
			}
			requests++
			wantKey(t, keys, "good", relyingparty.ErrStatus)
			s.want(t, requests)
		}
	})
}

// A provider that fails immediately also receives fewer and fewer requests, down to one per minute.
func TestFloodDuringErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s, keys := newServedKeySet(t, nil)
		wantKey(t, keys, "good", nil)
		s.serve(providertest.Status(http.StatusInternalServerError))
		for minute := range 5 {
			time.Sleep(time.Minute - 40*time.Second)
			for i := range 40 {
				if _, err := keys.Key(t.Context(), fmt.Sprint(i)); err == nil {
					t.Error("found")
				}
				time.Sleep(time.Second)
			}
			s.want(t, 7+minute)
		}
	})
}
