package securityevents_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// Tokens from before an account was linked to a local user end with it for good: they stay void if the link is removed and
// the person signs in again.
func TestEventEndsUnlinkedPast(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: providertest.Alice.Subject, Claims: map[string]any{"email": "alice@example.org", "email_verified": true}}}
	})
	kept := store.NewMemory(0, 0)
	server := func(linked bool) *authorize.Server {
		return authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			refreshing(nil, c)
			idp.LinkEmail, c.Store = linked, kept
		})
	}
	unlinked := server(false)
	before := authorizetest.SignInFederated(t, unlinked)
	if r := push(t, server(true), eventsPath, event(p, risc+"account-disabled")); r.StatusCode != http.StatusAccepted {
		t.Fatalf("%d", r.StatusCode)
	}
	authorizetest.SignInFederated(t, unlinked)
	if left := before.Left(); left != "nothing" {
		t.Errorf("left: %s", left)
	}
}

// An event that names one session alone ends that session, whatever the event is about.
func TestEventOfSessionAlone(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) { s.IDToken = providertest.Saying("sid", "one") })
	s := authorizetest.NewFederated(t, p, refreshing)
	for name := range map[string]bool{risc + "account-disabled": true, risc + "account-purged": true, caep + "credential-change": true, caep + "session-revoked": true} {
		alice := authorizetest.SignInFederated(t, s)
		id := map[string]any{"format": "complex", "session": map[string]any{"format": "opaque", "id": "one"}}
		if r := push(t, s, eventsPath, event(p, name, providertest.Saying("sub_id", id))); r.StatusCode != http.StatusAccepted {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
		if left := alice.Left(); left != "all but the session" {
			t.Errorf("%s: left: %s", name, left)
		}
	}
}

// A first sign-in that is being stored while its person's account is disabled ends, though no account is known yet.
func TestEventWhileSigningInFirst(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var s http.Handler
	sent := false
	kept := storetest.NewIntercepted(func(method, key string) error {
		if !sent && method == "Put" && strings.HasPrefix(key, "account:") {
			sent = true
			if r := push(t, s, eventsPath, event(p, risc+"account-disabled")); r.StatusCode != http.StatusAccepted {
				t.Errorf("%d", r.StatusCode)
			}
		}
		return nil
	})
	s = authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) { refreshing(idp, c); c.Store = kept })
	b := authorizetest.NewBrowser(t, s)
	if back := authorizetest.Federate(b, nil); back.Query().Get("error") != "login_required" || b.SignedIn() {
		t.Errorf("%v, signed in: %v", back, b.SignedIn())
	}
	if !sent {
		t.Error("no account was stored")
	}
}

// Only application/secevent+jwt is accepted (RFC 8935 §2), so that no form of a web page can send an event.
func TestEventOfAnotherType(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederated(t, p, refreshing)
	alice := authorizetest.SignInFederated(t, s)
	for _, kind := range []string{"", "text/plain", "application/jwt", "application/json", "application/x-www-form-urlencoded"} {
		r := authorizetest.PostRequest(eventsPath, nil)
		r.Header.Set("Content-Type", kind)
		if answer := authorizetest.SendBody(t, s, r, event(p, risc+"account-disabled")); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %d", kind, answer.StatusCode)
		}
	}
	if left := alice.Left(); left != "all" {
		t.Errorf("left: %s", left)
	}
}

// An event during which one call of the store fails, whichever, is either accepted and acted upon, or can be sent again.
func TestEventFailsOnce(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	for at, failed := 1, true; failed; at++ {
		calls := -1 << 30
		kept := storetest.NewIntercepted(func(string, string) error {
			if calls++; calls == at {
				return errors.New("the store is away")
			}
			return nil
		})
		s := authorizetest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			refreshing(nil, c)
			c.Store = kept
		})
		alice, token := authorizetest.SignInFederated(t, s), event(p, risc+"account-disabled")
		calls = 0
		status := push(t, s, eventsPath, token).StatusCode
		failed = calls >= at
		if calls = -1 << 30; status != http.StatusAccepted {
			status = push(t, s, eventsPath, token).StatusCode
		}
		if left := alice.Left(); status != http.StatusAccepted || left != "nothing" {
			t.Errorf("call %d failed: %d, left: %s", at, status, left)
		}
	}
}

// An event is signed by an algorithm that the provider lists for its ID tokens, even if its key fits others.
func TestEventOfAnotherAlgorithm(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) { s.KeyAlgorithm = "" })
	s := authorizetest.NewFederated(t, p, refreshing)
	for _, tt := range []struct {
		algorithm jose.SignatureAlgorithm
		status    int
		left      string
	}{{jose.PS256, http.StatusBadRequest, "all"}, {jose.RS512, http.StatusBadRequest, "all"}, {jose.RS256, http.StatusAccepted, "nothing"}} {
		alice := authorizetest.SignInFederated(t, s)
		token := event(p, risc+"account-disabled", func(t *providertest.IDToken) { t.Algorithm = tt.algorithm })
		if r := push(t, s, eventsPath, token); r.StatusCode != tt.status {
			t.Errorf("%s: %d", tt.algorithm, r.StatusCode)
		}
		if left := alice.Left(); left != tt.left {
			t.Errorf("%s: left: %s", tt.algorithm, left)
		}
	}
}
