package session_test

import (
	"cmp"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Clients with a certificate from a private certificate authority can be notified.
func TestNotificationWithPrivateCA(t *testing.T) {
	t.Parallel()
	tokens := make(chan string, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { tokens <- r.PostFormValue("logout_token") }))
	t.Cleanup(server.Close)
	tr := make(authorizetest.Trail, 100)
	s := authorizetest.New(t, func(c *authorize.Config) {
		c.Audit = tr.Record
		c.Clients[0].BackchannelLogoutURI = server.URL
		c.Clients[0].Transport = server.Client().Transport
	})
	authorizetest.NewBrowser(t, s).SignInAlice(authorizetest.Request(nil))
	if _, err := s.EndSessions(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	if e := tr.WaitForNotification("app"); e.Err != nil || <-tokens == "" {
		t.Errorf("%v", e.Err)
	}
}

// Logout tokens are signed with the algorithm of the client's ID tokens (OpenID Connect Back-Channel Logout 1.0 §2.6).
func TestLogoutTokenAlgorithm(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"", "RS256", "ES256"} {
		p := authorizetest.NewLogoutReceiver(t)
		s := authorizetest.New(t, func(c *authorize.Config) {
			c.Clients[0].BackchannelLogoutURI, c.Clients[0].IDTokenAlgorithm = p.URI, algorithm
		})
		authorizetest.NewBrowser(t, s).SignInAlice(authorizetest.Request(nil))
		if _, err := s.EndSessions(t.Context(), "alice"); err != nil {
			t.Fatal(err)
		}
		want := []jose.SignatureAlgorithm{jose.SignatureAlgorithm(cmp.Or(algorithm, "RS256"))}
		if _, err := jose.ParseSignedCompact(<-p.Tokens, want); err != nil {
			t.Errorf("%q: %v", algorithm, err)
		}
	}
}

// Clients that received an ID token are notified, no matter how the session ends.
func TestClientsAreNotified(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		q            url.Values
		end          func(t *testing.T, s *authorize.Server, b *authorizetest.Browser)
		wantNotified bool
	}{
		{"by the server", nil, func(t *testing.T, s *authorize.Server, _ *authorizetest.Browser) {
			if _, err := s.EndSessions(t.Context(), "alice"); err != nil {
				t.Error(err)
			}
		}, true},
		{"by another who signs in", nil, func(_ *testing.T, _ *authorize.Server, b *authorizetest.Browser) {
			b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
		}, true},
		{"not when the same person signs in again", nil, func(_ *testing.T, _ *authorize.Server, b *authorizetest.Browser) {
			b.SignInAlice(authorizetest.Request(url.Values{"prompt": {"login"}}))
		}, false},
		{"after the same person signed in again", nil, func(t *testing.T, s *authorize.Server, b *authorizetest.Browser) {
			b.SignInAlice(authorizetest.Request(url.Values{"prompt": {"login"}}))
			if _, err := s.EndSessions(t.Context(), "alice"); err != nil {
				t.Error(err)
			}
		}, true},
		{"not without an ID token", url.Values{"scope": {"demo.read"}}, func(t *testing.T, s *authorize.Server, _ *authorizetest.Browser) {
			if _, err := s.EndSessions(t.Context(), "alice"); err != nil {
				t.Error(err)
			}
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := authorizetest.NewLogoutReceiver(t)
			s, tr := authorizetest.NewNotifyingServer(t, p)
			b := authorizetest.NewBrowser(t, s)
			b.SignInAlice(authorizetest.Request(tt.q))
			tt.end(t, s, b)
			// Bob's session ends last. An unexpected notification would arrive before his.
			bob := authorizetest.NewBrowser(t, s)
			bob.SignIn(authorizetest.Request(nil), "bob", "other")
			if tt.wantNotified {
				if sub := b.Claims(<-p.Tokens)["sub"]; sub != "alice" {
					t.Errorf("logout token for %v", sub)
				}
			}
			if _, err := s.EndSessions(t.Context(), "bob"); err != nil {
				t.Error(err)
			}
			if sub := b.Claims(<-p.Tokens)["sub"]; sub != "bob" {
				t.Errorf("logout token for %v", sub)
			}
			tr.WaitForNotification("app")
		})
	}
}

// All clients of a session are notified, including those that were added concurrently.
func TestAllClientsAreNotified(t *testing.T) {
	t.Parallel()
	p := authorizetest.NewLogoutReceiver(t)
	names := []string{"a", "b", "c", "d", "e"}
	s := authorizetest.New(t, func(c *authorize.Config) {
		for _, name := range names {
			c.Clients = append(c.Clients, client.Client{ID: name, PKCE: client.PKCEOptional, RedirectURIs: []string{authorizetest.Callback}, BackchannelLogoutURI: p.URI})
		}
	})
	b := authorizetest.NewBrowser(t, s)
	b.SignInAlice(authorizetest.Request(nil))
	var wg sync.WaitGroup
	for _, name := range names {
		same := authorizetest.NewBrowser(t, s)
		same.Cookies["__Host-fhir-session"] = b.Cookies["__Host-fhir-session"]
		wg.Go(func() { same.Authorize(authorizetest.Request(url.Values{"client_id": {name}})) })
	}
	wg.Wait()
	if _, err := s.EndSessions(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	notified := map[any]bool{}
	for range names {
		notified[b.Claims(<-p.Tokens)["aud"]] = true
	}
	if len(notified) != len(names) {
		t.Errorf("notified clients: %v", notified)
	}
}

// The outcome of a notification is recorded. If the client rejects or redirects it, it is not retried.
func TestClientRefusesLogoutToken(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusFound, http.StatusTemporaryRedirect} {
		p := authorizetest.NewLogoutReceiver(t)
		p.Status.Store(int32(status))
		s, tr := authorizetest.NewNotifyingServer(t, p)
		authorizetest.NewBrowser(t, s).SignInAlice(authorizetest.Request(nil))
		if _, err := s.EndSessions(t.Context(), "alice"); err != nil {
			t.Fatal(err)
		}
		var refusal *oauth2.Error
		if e := tr.WaitForNotification("app"); !errors.As(e.Err, &refusal) || refusal.Code != "temporarily_unavailable" {
			t.Errorf("%d: recorded %+v", status, e)
		}
		if got := len(p.Tokens); got != 1 {
			t.Errorf("%d: %d notifications", status, got)
		}
	}
}

// A failed notification is retried in the background.
func TestNotificationIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tokens []string
		s, tr := authorizetest.NewNotifyingServer(t, &authorizetest.LogoutReceiver{URI: "https://app.example/backchannel", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			tokens = append(tokens, r.PostFormValue("logout_token"))
			status := http.StatusServiceUnavailable
			if len(tokens) > 1 {
				status = http.StatusNoContent
			}
			return &http.Response{StatusCode: status, Body: http.NoBody}, nil
		})})
		b := authorizetest.NewBrowser(t, s)
		b.SignInAlice(authorizetest.Request(nil))
		before := time.Now()
		if _, err := s.EndSessions(t.Context(), "alice"); err != nil || b.HasSession() {
			t.Errorf("error %v", err)
		}
		if e := tr.WaitForNotification("app"); e.Err != nil {
			t.Errorf("recorded %+v", e)
		}
		if len(tokens) != 2 || tokens[1] != tokens[0] || time.Since(before) < time.Second {
			t.Errorf("%d notifications, after %v, same token again: %t", len(tokens), time.Since(before), tokens[len(tokens)-1] == tokens[0])
		}
	})
}

// roundTripper implements [http.RoundTripper] with a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestBackchannelLogoutURIIsChecked(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"http://app.example/", "https://app.example/#f", "https://u:p@app.example/", "/x", "javascript:alert(1)"} {
		c := authorizetest.Config()
		c.Clients[0].BackchannelLogoutURI = uri
		if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), "backchannel_logout_uri") {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// The audit event of a notification describes the ended session, whatever the request that ended it does next.
func TestNotificationEvent(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
		synctest.Test(t, func(t *testing.T) {
			answer := make(chan int)
			s, tr := authorizetest.NewNotifyingServer(t, &authorizetest.LogoutReceiver{URI: "https://app.example/backchannel", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: <-answer, Body: http.NoBody}, nil
			})})
			b := authorizetest.NewBrowser(t, s)
			b.Tokens(nil)
			b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}, "response_type": {"token"}, "scope": {"email"}}), "bob", "other")
			for len(tr) > 0 {
				<-tr
			}
			answer <- status
			if e := tr.WaitForNotification("app"); e.User != "alice" || e.Scope != "" {
				t.Errorf("%d: %+v", status, e)
			}
		})
	}
}
