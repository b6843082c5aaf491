package session_test

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

func withClaim(name string, value any) func(*providertest.IDToken) {
	return func(t *providertest.IDToken) {
		if t.Claims[name] = value; value == nil {
			delete(t.Claims, name)
		}
	}
}

// A logout at the provider ends only sessions that started with a sign-in at this provider (OpenID Connect Back-Channel Logout
// 1.0 §2.5, §2.7, §2.8).
func TestSignedOutAtProvider(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) { s.IDToken = withClaim("sid", "one") })
	s := authorizetest.NewFederatedServer(t, p, nil)
	one, two, local, none := authorizetest.NewBrowser(t, s), authorizetest.NewBrowser(t, s), authorizetest.NewBrowser(t, s), authorizetest.NewBrowser(t, s)
	begin := func() map[string]*authorizetest.Browser {
		all := map[string]*authorizetest.Browser{"one": one, "two": two, "local": local, "none": none}
		for sid, b := range all {
			b.Cookies = map[string]string{}
			if sid == "local" {
				b.SignInAlice(authorizetest.Request(nil))
				continue
			}
			p.Change(func(s *providertest.Settings) { s.IDToken = withClaim("sid", sid) })
			if sid == "none" {
				p.Change(func(s *providertest.Settings) { s.IDToken = nil })
			}
			authorizetest.SignInAtProvider(b, nil)
		}
		return all
	}
	for _, tt := range []struct {
		name    string
		changes []func(*providertest.IDToken)
		ends    string
	}{
		{"by sub", nil, "one two none"},
		{"by sid", []func(*providertest.IDToken){withClaim("sub", nil), withClaim("sid", "one")}, "one"},
		{"by both", []func(*providertest.IDToken){withClaim("sid", "one")}, "one none"},
		{"another person", []func(*providertest.IDToken){withClaim("sub", "another")}, ""},
		{"another person's session", []func(*providertest.IDToken){withClaim("sub", "another"), withClaim("sid", "one")}, ""},
		{"another session", []func(*providertest.IDToken){withClaim("sub", nil), withClaim("sid", "three")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := begin()
			r := authorizetest.NotifyBackchannelLogout(t, s, p.LogoutToken(tt.changes...))
			if r.StatusCode != http.StatusOK || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%d %v: %s", r.StatusCode, r.Header, authorizetest.Body(t, r))
			}
			for name, b := range all {
				if ended := strings.Contains(" "+tt.ends+" ", " "+name+" "); b.HasSession() == ended {
					t.Errorf("%s: ended %v", name, !ended)
				}
			}
		})
	}
}

// A provider can end only sessions that started there, whatever sub and sid the token contains.
func TestSignedOutAtOneProvider(t *testing.T) {
	t.Parallel()
	p, other := providertest.Start(t), providertest.Start(t)
	for _, provider := range []*providertest.Provider{p, other} {
		provider.Change(func(s *providertest.Settings) { s.IDToken = withClaim("sid", "one") })
	}
	s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		clinic := authorizetest.HospitalProvider(other)
		clinic.Key = "clinic"
		c.IdentityProviders = []people.IdentityProvider{clinic}
	})
	b := authorizetest.NewBrowser(t, s)
	authorizetest.SignInAtProvider(b, authorizetest.SelectProvider("clinic"))
	if r := authorizetest.NotifyBackchannelLogout(t, s, p.LogoutToken(withClaim("sid", "one"))); r.StatusCode != http.StatusOK || !b.HasSession() {
		t.Errorf("%d", r.StatusCode)
	}
	if r := authorizetest.NewBrowser(t, s).Post("/oauth2/backchannel_logout/clinic", url.Values{"logout_token": {other.LogoutToken()}}); r.StatusCode != http.StatusOK || b.HasSession() {
		t.Errorf("by its own: %d", r.StatusCode)
	}
}

// Invalid logout tokens are rejected with status 400, e.g. tokens of another provider, for another client, or sent before.
func TestSignedOutAtProviderRefused(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	store := store.NewMemory(0, 0)
	var trail authorizetest.AuditTrail
	s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store, c.Audit = store, trail.Record })
	b := authorizetest.NewBrowser(t, s)
	used := p.LogoutToken()
	authorizetest.NotifyBackchannelLogout(t, s, used)
	authorizetest.SignInAtProvider(b, nil)
	for name, token := range map[string]string{
		"nothing": "", "no token": "x", "used before": used,
		"of another provider": providertest.Start(t).LogoutToken(),
		"for another client":  p.LogoutToken(providertest.WrongAudience),
		"an unsigned one":     p.LogoutToken(providertest.AlgorithmNone),
		"another's key":       p.LogoutToken(providertest.ForeignKey),
		"with a nonce":        p.LogoutToken(withClaim("nonce", "n")),
	} {
		trail.Drain()
		r := authorizetest.NotifyBackchannelLogout(t, s, token)
		if got := authorizetest.Decode[authorizetest.TokenResponse](t, r); r.StatusCode != http.StatusBadRequest || got.Error != "invalid_request" || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %+v", name, r.StatusCode, got)
		}
		if got := trail.Drain(); got != "sign-out invalid_request hospital user= client= scope=" {
			t.Errorf("%s: events %q", name, got)
		}
	}
	if !b.HasSession() {
		t.Error("signed out")
	}
	if r := authorizetest.NewBrowser(t, s).Get("/oauth2/backchannel_logout/hospital?logout_token=" + p.LogoutToken()); r.StatusCode != http.StatusMethodNotAllowed || !b.HasSession() {
		t.Errorf("GET: %d", r.StatusCode)
	}
	if r := authorizetest.NewBrowser(t, s).Post("/oauth2/backchannel_logout/other", url.Values{"logout_token": {p.LogoutToken()}}); r.StatusCode != http.StatusNotFound || !b.HasSession() {
		t.Errorf("unknown provider: %d", r.StatusCode)
	}
}

// If a logout fails, the status is also 400 (Back-Channel Logout §2.8), and the token can be sent again.
func TestSignedOutAtProviderFails(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	p.SetFault(providertest.Keys, providertest.Status(http.StatusServiceUnavailable))
	if r := authorizetest.NotifyBackchannelLogout(t, authorizetest.NewFederatedServer(t, p, nil), p.LogoutToken()); r.StatusCode != http.StatusBadRequest || authorizetest.Decode[authorizetest.TokenResponse](t, r).Error != "server_error" {
		t.Errorf("without keys: %d", r.StatusCode)
	}
	p.SetFault(providertest.Keys, nil)
	fails := false
	store := storetest.NewInterceptedStore(func(_, key string) error {
		if fails && strings.HasPrefix(key, "upstream-sessions:") {
			return errors.New("the store is away")
		}
		return nil
	})
	s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = store })
	b, token := authorizetest.NewBrowser(t, s), p.LogoutToken()
	authorizetest.SignInAtProvider(b, nil)
	fails = true
	if r := authorizetest.NotifyBackchannelLogout(t, s, token); r.StatusCode != http.StatusBadRequest || authorizetest.Decode[authorizetest.TokenResponse](t, r).Error != "server_error" || !b.HasSession() {
		t.Errorf("while the store is away: %d", r.StatusCode)
	}
	fails = false
	if r := authorizetest.NotifyBackchannelLogout(t, s, token); r.StatusCode != http.StatusOK || b.HasSession() {
		t.Errorf("when it is back: %d", r.StatusCode)
	}
}

// No matter at which store call a gateway crashes, afterwards the person is signed out or the provider can send the token to
// another gateway.
func TestSignedOutAtProviderByCrashedGateway(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	for at, died := 1, true; died; at++ {
		calls, alive := 0, true
		store := storetest.NewInterceptedStore(func(string, string) error {
			if calls++; alive || calls < at {
				return nil
			}
			return errors.New("the gateway is dead")
		})
		s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = store })
		b, token := authorizetest.NewBrowser(t, s), p.LogoutToken()
		authorizetest.SignInAtProvider(b, nil)
		calls, alive = 0, false
		authorizetest.NotifyBackchannelLogout(t, s, token)
		died, alive = calls >= at, true
		r := authorizetest.NotifyBackchannelLogout(t, s, token)
		if used := r.StatusCode == http.StatusBadRequest; b.HasSession() || used == died {
			t.Errorf("dead at call %d, and sent again: %d, signed in %v", at, r.StatusCode, b.HasSession())
		}
	}
}

// Logout at the provider works if the store is full.
func TestSignedOutAtProviderWithFullStore(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	store := store.NewMemory(100, 0)
	s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = store })
	b := authorizetest.NewBrowser(t, s)
	authorizetest.SignInAtProvider(b, nil)
	for i := 0; store.Add(t.Context(), strconv.Itoa(i), nil, time.Hour) == nil; i++ {
	}
	if r := authorizetest.NotifyBackchannelLogout(t, s, p.LogoutToken()); r.StatusCode != http.StatusOK {
		t.Errorf("%d: %s", r.StatusCode, authorizetest.Body(t, r))
	}
	if sessions, err := s.Sessions(t.Context(), ""); err != nil || len(sessions) != 0 {
		t.Errorf("%+v, %v", sessions, err)
	}
}

// A logout at the provider also notifies the clients of the session.
func TestSignedOutAtProviderNotifiesClients(t *testing.T) {
	t.Parallel()
	p, client := providertest.Start(t), authorizetest.NewLogoutReceiver(t)
	s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Clients[0].BackchannelLogoutURI = client.URI
	})
	b := authorizetest.NewBrowser(t, s)
	sid := b.Claims(authorizetest.FederatedTokens(b, nil).IDToken)["sid"]
	authorizetest.NotifyBackchannelLogout(t, s, p.LogoutToken())
	if got := b.Claims(<-client.Tokens); got["sid"] != sid || sid == nil {
		t.Errorf("logout token for %v, want %v", got["sid"], sid)
	}
}
