package audit_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// Whoever must wait is told of by their account, where there is one, and the wait in
// words, once.
func TestAuditOfWaits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, typed, user string
		anonymous         bool
		do                func(b *authorizetest.Browser)
	}{
		{"a password", "alice", "alice", true, func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "alice", "wrong") }},
		{"of nobody", "hunter2", "", true, func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "hunter2", "wrong") }},
		{"a second factor", "bob", "bob", false, func(b *authorizetest.Browser) {
			b.SendOTP(b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "bob", "other")), "000000")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last audit.Event
				s := authorizetest.New(t, func(c *authorize.Config) {
					c.Audit = func(_ context.Context, e audit.Event) { last = e }
					c.Users[1].TOTPSecret, c.Lockout.Failures = authorizetest.TOTPSecret, 1
				})
				tt.do(authorizetest.NewBrowser(t, s))
				if last.Kind != audit.SignIn || last.User != tt.user || last.Anonymous != tt.anonymous {
					t.Errorf("refused: %+v", last)
				}
				tt.do(authorizetest.NewBrowser(t, s))
				if last.Kind != audit.Lockout || last.User != tt.user || last.Anonymous != tt.anonymous {
					t.Errorf("delayed: %+v", last)
				}
				authorizetest.Equal(t, last.Err.Error(), "access_denied: too many wrong tries: wait a second")
			})
		})
	}
}

// A refusal on the way to a provider and back names it, and the account where it is known.
func TestAuditOfFailedFederation(t *testing.T) {
	t.Parallel()
	clinic := []people.AllowRule{{Claim: "email", Value: "sam@clinic.example"}}
	for _, tt := range []struct {
		name   string
		change func(*people.IdentityProvider, *authorize.Config)
		do     func(p *providertest.Provider, b *authorizetest.Browser)
		user   string
	}{
		{"it cannot be reached", nil, func(p *providertest.Provider, b *authorizetest.Browser) {
			p.Fail(providertest.Discovery, providertest.ErrorResponse(http.StatusBadGateway, "x"))
			b.Get(authorizetest.Location(b.T, b.Authorize(authorizetest.Request(url.Values{"identity_provider": {"hospital"}}))).String())
		}, ""},
		{"another browser's answer", nil, func(_ *providertest.Provider, b *authorizetest.Browser) {
			b.Get("/oauth2/callback/hospital?code=x&state=y")
		}, ""},
		{"whom it says is a disabled user here", func(idp *people.IdentityProvider, c *authorize.Config) {
			idp.LinkEmail = true
			c.Users[0].Email, c.Users[0].Disabled = "alice@hospital.example", true
		}, func(_ *providertest.Provider, b *authorizetest.Browser) {
			b.Follow(b.Authorize(authorizetest.Request(authorizetest.ByProvider("hospital"))))
		}, "alice"},
		{"whom it says has no account", func(idp *people.IdentityProvider, _ *authorize.Config) { idp.Allow = clinic },
			func(_ *providertest.Provider, b *authorizetest.Browser) {
				b.Follow(b.Authorize(authorizetest.Request(authorizetest.ByProvider("hospital"))))
			}, ""},
		{"a wrong second factor", func(idp *people.IdentityProvider, c *authorize.Config) {
			idp.LinkEmail = true
			c.Users[0].Email, c.Users[0].TOTPSecret = "alice@hospital.example", authorizetest.TOTPSecret
		}, func(_ *providertest.Provider, b *authorizetest.Browser) {
			page := authorizetest.Body(b.T, b.Follow(b.Authorize(authorizetest.Request(authorizetest.ByProvider("hospital")))))
			b.SendOTP(authorizetest.Field(b.T, page, "factor"), "000000")
		}, "alice"},
		{"a logout token that is none", nil, func(_ *providertest.Provider, b *authorizetest.Browser) {
			b.Post("/oauth2/backchannel_logout/hospital", url.Values{"logout_token": {"x"}})
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t)
			var last audit.Event
			s := authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				c.Audit = func(_ context.Context, e audit.Event) { last = e }
				if tt.change != nil {
					tt.change(idp, c)
				}
			})
			tt.do(p, authorizetest.NewBrowser(t, s))
			if last.Err == nil || last.Provider != "hospital" || last.User != tt.user {
				t.Errorf("%+v", last)
			}
		})
	}
}

// Each session that is ended is one record that says how.
func TestAuditOfEndedSessions(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	for _, tt := range []struct {
		name string
		do   func(s *authorize.Server, b *authorizetest.Browser)
		want string
	}{
		{"signed out", func(_ *authorize.Server, b *authorizetest.Browser) {
			b.Get("/oauth2/logout?id_token_hint=" + authorizetest.TokensOfSession(b).IDToken)
		}, "signed out in its browser"},
		{"by an app, without the browser", func(s *authorize.Server, b *authorizetest.Browser) {
			authorizetest.NewBrowser(t, s).Get("/oauth2/logout?id_token_hint=" + authorizetest.TokensOfSession(b).IDToken)
		}, "signed out by an ID token of it, from elsewhere"},
		{"somebody else signs in", func(_ *authorize.Server, b *authorizetest.Browser) {
			b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
		}, "somebody signed in in its place in the same browser"},
		{"an administrator", func(s *authorize.Server, _ *authorizetest.Browser) {
			list, _ := s.Sessions(t.Context(), "")
			s.EndSessions(t.Context(), list[0].User)
		}, "ended by an administrator"},
		{"at the provider", func(s *authorize.Server, _ *authorizetest.Browser) {
			authorizetest.NotifyBackchannelLogout(t, s, p.LogoutToken())
		}, "signed out at the identity provider"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var reasons []string
			s := authorizetest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
				c.Audit = func(_ context.Context, e audit.Event) {
					if e.Kind == audit.SignOut && e.Provider == "hospital" {
						reasons = append(reasons, e.Reason)
					}
				}
			})
			b := authorizetest.NewBrowser(t, s)
			authorizetest.Federate(b, nil)
			tt.do(s, b)
			if len(reasons) != 1 || reasons[0] != tt.want {
				t.Errorf("reasons %q, want %q", reasons, tt.want)
			}
		})
	}
}
