package revalidation_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const interval, outage = 5 * time.Minute, 8 * time.Hour // defaults

// hospital is an in-memory identity provider with gateways that share a store.
type hospital struct {
	*providertest.Provider
	t       *testing.T
	stored  *faultyStore
	servers []*authorize.Server
	delay   time.Duration // delay of each response
}

// RoundTrip implements [http.RoundTripper].
func (h *hospital) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(h.delay)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.Clone(r.Context()))
	return w.Result(), r.Context().Err()
}

// faultyStore fails the changes selected by fails.
type faultyStore struct {
	store.Store
	mu    sync.Mutex
	fails func(*store.Call) bool
}

var errBroken = errors.New("broken")

func (s *faultyStore) failing(fails func(*store.Call) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

// Do implements [store.Store].
func (s *faultyStore) Do(ctx context.Context, calls ...*store.Call) error {
	s.mu.Lock()
	fails := s.fails
	s.mu.Unlock()
	for _, c := range calls {
		if fails != nil && fails(c) {
			return errBroken
		}
	}
	return s.Store.Do(ctx, calls...)
}

// inHospital runs a test in a synctest bubble with a number of gateways that sweep. A negative number disables sweeps.
func inHospital(t *testing.T, gateways int, change func(*people.IdentityProvider, *authorize.Config), test func(*hospital)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &hospital{Provider: providertest.New("https://login.hospital.example"), t: t, stored: &faultyStore{Store: store.NewMemory(0, 0)}}
		h.Change(func(s *providertest.Settings) {
			s.KeyAlgorithm, s.Metadata["id_token_signing_alg_values_supported"] = "ES256", []string{"ES256"} // fast to sign
			s.Metadata["scopes_supported"] = []string{"openid", "profile", "email", "offline_access"}
		})
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer func() { end(); running.Wait() }()
		for range max(gateways, -gateways) {
			s := authorizetest.NewFederatedServer(t, h.Provider, func(p *people.IdentityProvider, c *authorize.Config) {
				authorizetest.AllowRefreshTokens(c)
				authorizetest.UseES256(c)
				c.Clients[0].Scopes = append(c.Clients[0].Scopes, "groups")
				c.Store, p.Transport = h.stored, h
				c.SessionLifetime, c.AccessTokenLifetime = 24*time.Hour, 24*time.Hour
				if change != nil {
					change(p, c)
				}
			})
			h.servers = append(h.servers, s)
			if gateways > 0 {
				running.Go(func() { s.Run(ctx) })
			}
		}
		test(h)
	})
}

// signIn signs Alice in and returns her browser and tokens with the given scopes.
func (h *hospital) signIn(lasting string) (*authorizetest.Browser, authorizetest.TokenResponse) {
	h.t.Helper()
	b := authorizetest.NewBrowser(h.t, h.servers[0])
	q := authorizetest.SelectProvider("hospital")
	q.Set("scope", "openid groups user/*.rs "+lasting)
	there := authorizetest.Location(h.t, authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(q))))
	back := h.Authorize(h.t, there.String())
	answer := authorizetest.Location(h.t, b.Get("/oauth2/callback/hospital?"+back.Encode()))
	tokens := b.Redeem(answer)
	if tokens.RefreshToken == "" {
		h.t.Fatalf("no refresh token: %v", answer)
	}
	return b, tokens
}

// becomes replaces the provider's claims about Alice; nil deletes her.
func (h *hospital) becomes(claims map[string]any) {
	h.Change(func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: "another"}}
		if claims != nil {
			s.People = []providertest.Person{{Subject: providertest.Alice.Subject, Claims: claims}}
		}
	})
}

// sentRefreshTokens returns the refresh tokens that were sent to the provider.
func (h *hospital) sentRefreshTokens() (tokens []string) {
	for _, r := range h.Requests(providertest.Token) {
		if token := r.Form.Get("refresh_token"); token != "" {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// keys returns the store keys of the given kind.
func (h *hospital) keys(kind string) []string {
	keys, err := h.stored.List(h.t.Context(), kind+":")
	authorizetest.NoError(h.t, err)
	return keys
}

// waitForSweep waits for d and for the sweep at the end of d.
func waitForSweep(d time.Duration) { time.Sleep(d + time.Second); synctest.Wait() }

// wantInvalid checks that the session and the tokens are invalid.
func (h *hospital) wantInvalid(b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
	h.t.Helper()
	if b.HasSession() {
		h.t.Error("the session is still valid")
	}
	authorizetest.CheckTokensInvalid(b, tokens.RefreshToken, tokens.AccessToken)
}

// wantWorks checks that the session and the access token are valid, and returns refreshed tokens.
func (h *hospital) wantWorks(b *authorizetest.Browser, tokens authorizetest.TokenResponse) authorizetest.TokenResponse {
	h.t.Helper()
	if !b.HasSession() {
		h.t.Error("the session ended")
	}
	return h.wantServed(b, tokens)
}

// wantServed checks that tokens are valid, without causing activity of the person, and returns refreshed tokens.
func (h *hospital) wantServed(b *authorizetest.Browser, tokens authorizetest.TokenResponse) authorizetest.TokenResponse {
	h.t.Helper()
	if !b.IsTokenValid(tokens.AccessToken) {
		h.t.Error("the access token ended")
	}
	next := b.Refresh(tokens.RefreshToken, nil)
	if next.AccessToken == "" {
		h.t.Fatalf("refresh: %s %s", next.Error, next.Description)
	}
	return next
}

// holds reports whether a text occurs anywhere in the store.
func (h *hospital) holds(text string) bool {
	keys, err := h.stored.List(h.t.Context(), "")
	authorizetest.NoError(h.t, err)
	values, err := store.ReadValues(h.t.Context(), h.stored, keys...)
	authorizetest.NoError(h.t, err)
	for _, value := range values {
		if strings.Contains(string(value), text) {
			return true
		}
	}
	return false
}
