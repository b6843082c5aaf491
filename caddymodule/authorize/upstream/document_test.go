package upstream_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

const issuer = "https://login.example"

// A provider that is down is not asked for each who wants to sign in.
func TestDiscoveryBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		idp := authorizetest.New(issuer)
		idp.Fail(authorizetest.Discovery, authorizetest.Silent)
		p := newProvider(t, idp, func(c *upstream.Config) { c.Transport = inMemory{idp} })
		ask := func(wait time.Duration, requests int) error {
			t.Helper()
			start := time.Now()
			_, err := p.AuthenticationURL(t.Context(), newRequest())
			if waited := time.Since(start); waited != wait {
				t.Errorf("waited %v, want %v", waited, wait)
			}
			if n := count(idp, authorizetest.Discovery); n != requests {
				t.Errorf("%d requests, want %d", n, requests)
			}
			return err
		}
		checkFault(t, ask(upstream.DefaultTimeout, 1), readTimeout, nil)
		for range 100 {
			checkFault(t, ask(0, 1), readTimeout, nil)
		}
		time.Sleep(time.Second)
		checkFault(t, ask(upstream.DefaultTimeout, 2), readTimeout, nil)
		time.Sleep(time.Second)
		checkFault(t, ask(0, 2), readTimeout, nil)
		idp.Fail(authorizetest.Discovery, nil)
		time.Sleep(time.Second)
		if err := ask(0, 3); err != nil {
			t.Error("up again:", err)
		}
	})
}

// The document is renewed hourly; when that fails, the old one goes on being
// used, and the log tells.
func TestDiscoveryRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		idp := authorizetest.New(issuer)
		p := newProvider(t, idp, func(c *upstream.Config) {
			c.Transport, c.Logger = inMemory{idp}, slog.New(slog.NewTextHandler(&log, nil))
		})
		ask := func(requests int) {
			t.Helper()
			if _, err := p.AuthenticationURL(t.Context(), newRequest()); err != nil {
				t.Error(err)
			}
			synctest.Wait() // for what is fetched behind it
			if n := count(idp, authorizetest.Discovery); n != requests {
				t.Errorf("%d requests, want %d", n, requests)
			}
		}
		ask(1)
		time.Sleep(time.Hour - time.Second)
		ask(1)
		time.Sleep(time.Second)
		ask(2)
		idp.Fail(authorizetest.Discovery, authorizetest.Status(500))
		time.Sleep(time.Hour)
		ask(3)
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, issuer) {
			t.Errorf("log: %s", text)
		}
	})
}

// New asks nobody: the provider may be down, or behind the server that is just
// starting.
func TestNewDoesNothing(t *testing.T) {
	t.Parallel()
	idp := authorizetest.Start(t)
	newProvider(t, idp, nil)
	if n := count(idp, authorizetest.Discovery); n != 0 {
		t.Errorf("%d requests", n)
	}
}
