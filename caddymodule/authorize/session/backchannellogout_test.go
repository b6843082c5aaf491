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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

func saying(name string, value any) func(*authorizetest.IDToken) {
	return func(t *authorizetest.IDToken) {
		if t.Claims[name] = value; value == nil {
			delete(t.Claims, name)
		}
	}
}

// OpenID Connect Back-Channel Logout 1.0 §2.5, §2.7, §2.8: whoever signs out at the
// provider is signed out of what began there, and of nothing else.
func TestSignedOutAtProvider(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t, func(s *authorizetest.Settings) { s.IDToken = saying("sid", "one") })
	s := servertest.NewFederated(t, p, nil)
	one, two, local, none := servertest.NewBrowser(t, s), servertest.NewBrowser(t, s), servertest.NewBrowser(t, s), servertest.NewBrowser(t, s)
	begin := func() map[string]*servertest.Browser {
		all := map[string]*servertest.Browser{"one": one, "two": two, "local": local, "none": none}
		for sid, b := range all {
			b.Cookies = map[string]string{}
			if sid == "local" {
				b.Answer(servertest.Request(nil))
				continue
			}
			p.Change(func(s *authorizetest.Settings) { s.IDToken = saying("sid", sid) })
			if sid == "none" {
				p.Change(func(s *authorizetest.Settings) { s.IDToken = nil })
			}
			servertest.Federate(b, nil)
		}
		return all
	}
	for _, tt := range []struct {
		name string
		says []func(*authorizetest.IDToken)
		ends string
	}{
		{"by sub", nil, "one two none"},
		{"by sid", []func(*authorizetest.IDToken){saying("sub", nil), saying("sid", "one")}, "one"},
		{"by both", []func(*authorizetest.IDToken){saying("sid", "one")}, "one none"},
		{"another person", []func(*authorizetest.IDToken){saying("sub", "another")}, ""},
		{"another person's session", []func(*authorizetest.IDToken){saying("sub", "another"), saying("sid", "one")}, ""},
		{"another session", []func(*authorizetest.IDToken){saying("sub", nil), saying("sid", "three")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := begin()
			r := servertest.NotifyBackchannelLogout(t, s, p.LogoutToken(tt.says...))
			if r.StatusCode != http.StatusOK || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%d %v: %s", r.StatusCode, r.Header, servertest.Body(t, r))
			}
			for name, b := range all {
				if ended := strings.Contains(" "+tt.ends+" ", " "+name+" "); b.SignedIn() == ended {
					t.Errorf("%s: ended %v", name, !ended)
				}
			}
		})
	}
}

// A provider has its say about its own sign-ins alone, whatever their sub and sid.
func TestSignedOutAtOneProvider(t *testing.T) {
	t.Parallel()
	p, other := authorizetest.Start(t), authorizetest.Start(t)
	for _, provider := range []*authorizetest.Provider{p, other} {
		provider.Change(func(s *authorizetest.Settings) { s.IDToken = saying("sid", "one") })
	}
	s := servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		clinic := servertest.Hospital(other)
		clinic.Key = "clinic"
		c.IdentityProviders = []people.IdentityProvider{clinic}
	})
	b := servertest.NewBrowser(t, s)
	servertest.Federate(b, servertest.ByProvider("clinic"))
	if r := servertest.NotifyBackchannelLogout(t, s, p.LogoutToken(saying("sid", "one"))); r.StatusCode != http.StatusOK || !b.SignedIn() {
		t.Errorf("%d", r.StatusCode)
	}
	if r := servertest.NewBrowser(t, s).Post("/oauth2/backchannel_logout/clinic", url.Values{"logout_token": {other.LogoutToken()}}); r.StatusCode != http.StatusOK || b.SignedIn() {
		t.Errorf("by its own: %d", r.StatusCode)
	}
}

// What is said by another provider, or for another, or twice, ends nothing, and is 400.
func TestSignedOutAtProviderRefused(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	store := store.NewMemory(0, 0)
	var trail servertest.AuditTrail
	s := servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store, c.Audit = store, trail.Record })
	b := servertest.NewBrowser(t, s)
	used := p.LogoutToken()
	servertest.NotifyBackchannelLogout(t, s, used)
	servertest.Federate(b, nil)
	for name, token := range map[string]string{
		"nothing": "", "no token": "x", "used before": used,
		"of another provider": authorizetest.Start(t).LogoutToken(),
		"for another client":  p.LogoutToken(authorizetest.WrongAudience),
		"an unsigned one":     p.LogoutToken(authorizetest.AlgorithmNone),
		"another's key":       p.LogoutToken(authorizetest.ForeignKey),
		"with a nonce":        p.LogoutToken(saying("nonce", "n")),
	} {
		trail.Take()
		r := servertest.NotifyBackchannelLogout(t, s, token)
		if got := servertest.Decode[servertest.TokenResponse](t, r); r.StatusCode != http.StatusBadRequest || got.Error != "invalid_request" || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %+v", name, r.StatusCode, got)
		}
		if got := trail.Take(); got != "sign-out invalid_request hospital user= client= scope=" {
			t.Errorf("%s: events %q", name, got)
		}
	}
	if !b.SignedIn() {
		t.Error("signed out")
	}
	if r := servertest.NewBrowser(t, s).Get("/oauth2/backchannel_logout/hospital?logout_token=" + p.LogoutToken()); r.StatusCode != http.StatusMethodNotAllowed || !b.SignedIn() {
		t.Errorf("GET: %d", r.StatusCode)
	}
	if r := servertest.NewBrowser(t, s).Post("/oauth2/backchannel_logout/other", url.Values{"logout_token": {p.LogoutToken()}}); r.StatusCode != http.StatusNotFound || !b.SignedIn() {
		t.Errorf("a provider that is none: %d", r.StatusCode)
	}
}

// A logout that fails is 400 too (§2.8), and the token counts when it comes again.
func TestSignedOutAtProviderFails(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	p.Fail(authorizetest.Keys, authorizetest.Status(http.StatusServiceUnavailable))
	if r := servertest.NotifyBackchannelLogout(t, servertest.NewFederated(t, p, nil), p.LogoutToken()); r.StatusCode != http.StatusBadRequest || servertest.Decode[servertest.TokenResponse](t, r).Error != "server_error" {
		t.Errorf("without keys: %d", r.StatusCode)
	}
	p.Fail(authorizetest.Keys, nil)
	fails := false
	store := storetest.NewIntercepted(func(_, key string) error {
		if fails && strings.HasPrefix(key, "upstream-sessions:") {
			return errors.New("the store is away")
		}
		return nil
	})
	s := servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = store })
	b, token := servertest.NewBrowser(t, s), p.LogoutToken()
	servertest.Federate(b, nil)
	fails = true
	if r := servertest.NotifyBackchannelLogout(t, s, token); r.StatusCode != http.StatusBadRequest || servertest.Decode[servertest.TokenResponse](t, r).Error != "server_error" || !b.SignedIn() {
		t.Errorf("while the store is away: %d", r.StatusCode)
	}
	fails = false
	if r := servertest.NotifyBackchannelLogout(t, s, token); r.StatusCode != http.StatusOK || b.SignedIn() {
		t.Errorf("when it is back: %d", r.StatusCode)
	}
}

// A gateway that dies, at whatever call of the store, leaves the token as it was or the
// person signed out: the provider sends it again, perhaps to another gateway.
func TestSignedOutAtProviderByGatewayThatDies(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	for at, died := 1, true; died; at++ {
		calls, alive := 0, true
		store := storetest.NewIntercepted(func(string, string) error {
			if calls++; alive || calls < at {
				return nil
			}
			return errors.New("the gateway is dead")
		})
		s := servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = store })
		b, token := servertest.NewBrowser(t, s), p.LogoutToken()
		servertest.Federate(b, nil)
		calls, alive = 0, false
		servertest.NotifyBackchannelLogout(t, s, token)
		died, alive = calls >= at, true
		r := servertest.NotifyBackchannelLogout(t, s, token)
		if used := r.StatusCode == http.StatusBadRequest; b.SignedIn() || used == died {
			t.Errorf("dead at call %d, and sent again: %d, signed in %v", at, r.StatusCode, b.SignedIn())
		}
	}
}

// A store that is full keeps nobody signed in.
func TestSignedOutAtProviderWhereTheStoreIsFull(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	store := store.NewMemory(100, 0)
	s := servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store = store })
	b := servertest.NewBrowser(t, s)
	servertest.Federate(b, nil)
	for i := 0; store.Add(t.Context(), strconv.Itoa(i), nil, time.Hour) == nil; i++ {
	}
	if r := servertest.NotifyBackchannelLogout(t, s, p.LogoutToken()); r.StatusCode != http.StatusOK {
		t.Errorf("%d: %s", r.StatusCode, servertest.Body(t, r))
	}
	if sessions, err := s.Sessions(t.Context(), ""); err != nil || len(sessions) != 0 {
		t.Errorf("%+v, %v", sessions, err)
	}
}

// Our own clients are told in turn.
func TestSignedOutAtProviderIsPassedOn(t *testing.T) {
	t.Parallel()
	p, client := authorizetest.Start(t), servertest.NewParty(t)
	s := servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Clients[0].BackchannelLogoutURI = client.URI
	})
	b := servertest.NewBrowser(t, s)
	sid := b.Claims(servertest.FederatedTokens(b, nil).IDToken)["sid"]
	servertest.NotifyBackchannelLogout(t, s, p.LogoutToken())
	if got := b.Claims(<-client.Tokens); got["sid"] != sid || sid == nil {
		t.Errorf("told of %v, not of %v", got["sid"], sid)
	}
}
