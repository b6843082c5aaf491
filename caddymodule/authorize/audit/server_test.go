package audit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// Each outcome causes one event with its kind, user and client.
func TestAudit(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var trail authorizetest.AuditTrail
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		c.Audit = trail.Record
		idp.Allow = []people.AllowRule{{Claim: "email", Value: "sam@clinic.example"}}
	})
	const alice = " user=alice client=app scope=openid"
	signedIn := "sign-in success user=alice client=app scope=\nauthorization success code" + alice
	tests := []struct {
		name string
		do   func(b *authorizetest.Browser)
		want string
	}{
		{"a code", func(b *authorizetest.Browser) { b.Code(nil) }, signedIn},
		{"tokens in the fragment", func(b *authorizetest.Browser) {
			b.SignInAlice(authorizetest.Request(url.Values{"response_type": {"token"}}))
		},
			"sign-in success user=alice client=app scope=\nauthorization success token" + alice},
		{"signed in already", func(b *authorizetest.Browser) { b.Code(nil); trail.Drain(); b.Authorize(authorizetest.Request(nil)) }, "authorization success code" + alice},
		{"a wrong password", func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "alice", "wrong") }, "sign-in access_denied user=alice client=app scope="},
		{"a wrong password for another spelling", func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "Alice ", "right") }, "sign-in access_denied user=alice client=app scope="},
		{"a password in the wrong field", func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "right", "alice") }, "sign-in access_denied user= client=app scope="},
		{"an unknown client", func(b *authorizetest.Browser) { b.Authorize(authorizetest.Request(url.Values{"client_id": {"x"}})) }, "authorization invalid_request user= client= scope="},
		{"a refused scope", func(b *authorizetest.Browser) { b.Authorize(authorizetest.Request(url.Values{"scope": {"other"}})) }, "authorization invalid_scope code user= client=app scope="},
		{"a page of another browser", func(b *authorizetest.Browser) { b.Get("/oauth2/login?request=x") }, "sign-in invalid_request user= client= scope="},
		{"a provider that fails", func(b *authorizetest.Browser) {
			p.SetFault(providertest.Token, providertest.ErrorResponse(http.StatusBadRequest, "invalid_grant"))
			defer p.SetFault(providertest.Token, nil)
			authorizetest.SignInAtProvider(b, nil)
		}, "sign-in invalid_request hospital user= client=app scope="},
		{"a code exchanged", func(b *authorizetest.Browser) {
			code := b.Code(nil)
			trail.Drain()
			b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))
		}, "token success authorization_code" + alice},
		{"a code exchanged twice", func(b *authorizetest.Browser) {
			code := b.Code(nil)
			b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))
			trail.Drain()
			b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))
		}, "revocation success user=alice client=app scope=openid\ntoken invalid_grant authorization_code user=alice client=app scope="},
		{"client credentials", func(b *authorizetest.Browser) {
			r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
			r.SetBasicAuth("service", "hush")
			b.Send(r)
		}, "token success client_credentials user= client=service scope=system/*.rs"},
		{"a wrong client secret", func(b *authorizetest.Browser) {
			r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
			r.SetBasicAuth("service", "wrong")
			b.Send(r)
		}, "token invalid_client client_credentials user= client=service scope="},
		{"no form", func(b *authorizetest.Browser) { b.Send(httptest.NewRequest(http.MethodPost, "/oauth2/token", nil)) }, "token invalid_request user= client= scope="},
		{"a token revoked", func(b *authorizetest.Browser) {
			token := b.Tokens(nil).AccessToken
			trail.Drain()
			b.Post("/oauth2/revoke", url.Values{"token": {token}, "client_id": {"app"}})
		}, "revocation success user=alice client=app scope="},
		{"a token of another client", func(b *authorizetest.Browser) {
			token := b.Tokens(nil).AccessToken
			trail.Drain()
			b.Post("/oauth2/revoke", url.Values{"token": {token}, "client_id": {"strict"}})
		}, "revocation unauthorized_client user= client=strict scope="},
		{"signed out", func(b *authorizetest.Browser) {
			hint := b.Tokens(nil).IDToken
			trail.Drain()
			b.Get("/oauth2/logout?id_token_hint=" + hint)
		}, "sign-out success user=alice client=app scope="},
		{"signed out without a session", func(b *authorizetest.Browser) { b.Get("/oauth2/logout") }, ""},
		{"a wrong hint", func(b *authorizetest.Browser) { b.Get("/oauth2/logout?id_token_hint=x") }, "sign-out invalid_request user= client= scope="},
		{"a provider's answer of another browser", func(b *authorizetest.Browser) { b.Get("/oauth2/callback/hospital?code=x&state=y") }, "sign-in invalid_request hospital user= client= scope="},
		{"away to a provider by another browser's page", func(b *authorizetest.Browser) { b.Get("/oauth2/login/hospital?request=x") }, "sign-in invalid_request hospital user= client= scope="},
		{"not let in from a provider", func(b *authorizetest.Browser) { authorizetest.SignInAtProvider(b, nil) }, "sign-in access_denied hospital user= client=app scope=\nauthorization access_denied code hospital user= client=app scope="},
		{"userinfo and introspection refused", func(b *authorizetest.Browser) {
			b.Get("/oauth2/userinfo")
			b.Post("/oauth2/introspect", url.Values{"token": {"x"}, "client_id": {"nobody"}})
		}, ""},
		{"introspection refused to a known client", func(b *authorizetest.Browser) {
			b.Post("/oauth2/introspect", url.Values{"token": {"x"}, "client_id": {"app"}})
		}, "token invalid_client user= client=app scope="},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			trail.Drain()
			tt.do(authorizetest.NewBrowser(t, s))
			authorizetest.Equal(t, trail.Drain(), tt.want)
		})
	}
}

// A rejection is anonymous unless the sender was authenticated, as a client by secret or key, or as a user. Successes are never
// anonymous.
func TestAnonymousEvents(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var last audit.Event
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		c.Audit = func(_ context.Context, e audit.Event) { last = e }
		c.Clients[2].Consent = client.ConsentRequired
		c.Users[1].TOTPSecret = authorizetest.TOTPSecret
		idp.Allow = []people.AllowRule{{Claim: "email", Value: "sam@clinic.example"}}
	})
	for _, tt := range []struct {
		name string
		do   func(b *authorizetest.Browser)
		want bool
	}{
		{"an unknown client", func(b *authorizetest.Browser) { b.Authorize(authorizetest.Request(url.Values{"client_id": {"x"}})) }, true},
		{"a refused scope", func(b *authorizetest.Browser) { b.Authorize(authorizetest.Request(url.Values{"scope": {"other"}})) }, true},
		{"prompt=none without a session", func(b *authorizetest.Browser) { b.Authorize(authorizetest.Request(url.Values{"prompt": {"none"}})) }, true},
		{"a wrong password", func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "alice", "wrong") }, true},
		{"a public client's wrong code", func(b *authorizetest.Browser) { b.Post("/oauth2/token", authorizetest.CodeForm("x", nil)) }, true},
		{"a wrong secret", func(b *authorizetest.Browser) {
			b.Post("/oauth2/token", authorizetest.CodeForm("x", url.Values{"client_id": {"confidential"}, "client_secret": {"wrong"}}))
		}, true},
		{"a provider's answer of another browser", func(b *authorizetest.Browser) { b.Get("/oauth2/callback/hospital?code=x&state=y") }, true},
		{"a client's wrong code", func(b *authorizetest.Browser) {
			b.Post("/oauth2/token", authorizetest.CodeForm("x", url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}}))
		}, false},
		{"a revocation that is refused", func(b *authorizetest.Browser) {
			b.Post("/oauth2/revoke", url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}})
		}, false},
		{"a wrong second factor", func(b *authorizetest.Browser) {
			page, err := b.SignIn(authorizetest.Request(nil), "bob", "other").Location()
			authorizetest.NoError(t, err)
			b.Post("/oauth2/login", url.Values{"factor": {page.Query().Get("factor")}, "code": {"000000"}})
		}, false},
		{"consent that is needed", func(b *authorizetest.Browser) {
			b.SignIn(authorizetest.Request(nil), "alice", "right")
			q := authorizetest.Request(authorizetest.PKCE())
			q.Set("client_id", "strict")
			q.Set("prompt", "none")
			b.Authorize(q)
		}, false},
		{"not let in from a provider", func(b *authorizetest.Browser) { authorizetest.SignInAtProvider(b, nil) }, false},
		{"a code", func(b *authorizetest.Browser) { b.Code(nil) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			last = audit.Event{}
			tt.do(authorizetest.NewBrowser(t, s))
			if last.Kind == "" || last.Anonymous != tt.want {
				t.Errorf("%+v", last)
			}
		})
	}
}

func TestAuditOfFederatedSignIn(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var trail authorizetest.AuditTrail
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Audit = trail.Record }))
	if authorizetest.SignInAtProvider(b, nil).Query().Get("code") == "" {
		t.Fatal("no code")
	}
	lines := strings.Split(trail.Drain(), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "sign-in success hospital user=") || strings.Contains(lines[0], "user= ") {
		t.Errorf("events %q", lines)
	}
}

// The address in events is the one determined by the configuration, not that of the TCP peer.
func TestAuditAddress(t *testing.T) {
	t.Parallel()
	var got string
	s := authorizetest.New(t, func(c *authorize.Config) {
		c.ClientAddress = func(*http.Request) string { return "203.0.113.7" }
		c.Audit = func(_ context.Context, e audit.Event) { got = e.Address }
	})
	authorizetest.NewBrowser(t, s).Authorize(url.Values{})
	if got != "203.0.113.7" {
		t.Errorf("address %q", got)
	}
}

// A throttled attempt causes one event with the wait and, if the account exists, the account.
func TestAuditOfWaits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, typed, user string
		anonymous         bool
		do                func(b *authorizetest.Browser)
	}{
		{"a password", "alice", "alice", true, func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "alice", "wrong") }},
		{"nonexistent user", "hunter2", "", true, func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "hunter2", "wrong") }},
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
				if last.Kind != audit.KindSignIn || last.User != tt.user || last.Anonymous != tt.anonymous {
					t.Errorf("refused: %+v", last)
				}
				tt.do(authorizetest.NewBrowser(t, s))
				if last.Kind != audit.KindLockout || last.User != tt.user || last.Anonymous != tt.anonymous {
					t.Errorf("delayed: %+v", last)
				}
				authorizetest.Equal(t, last.Err.Error(), "access_denied: too many failed attempts: wait a second")
			})
		})
	}
}

// The audit log distinguishes the correct password of a disabled user from a wrong password. The page and the delay are the same.
func TestAuditOfDisabledUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var last audit.Event
		s := authorizetest.New(t, func(c *authorize.Config) {
			c.Audit = func(_ context.Context, e audit.Event) { last = e }
			c.Users[0].Disabled, c.Lockout.Failures = true, 1
		})
		var pages []string
		for _, tt := range []struct{ user, password, reason string }{
			{"alice", "right", "access_denied: user is disabled"},
			{"alice", "right", "access_denied: too many failed attempts: wait a second"},
			{"bob", "wrong", "access_denied: unknown user or wrong password"},
		} {
			r := authorizetest.NewBrowser(t, s).SignIn(authorizetest.Request(nil), tt.user, tt.password)
			authorizetest.Equal(t, last.Err.Error(), tt.reason)
			authorizetest.Equal(t, last.Outcome(), "access_denied")
			text := authorizetest.Body(t, r)
			_, alert, _ := strings.Cut(text, `role="alert"`)
			alert, _, _ = strings.Cut(alert, "</p>")
			pages = append(pages, fmt.Sprint(r.StatusCode, alert))
		}
		if pages[0] != pages[2] || pages[0] == pages[1] {
			t.Errorf("pages %q", pages)
		}
	})
}

// A mistyped user or client is recorded as invalid_request, not as a server error.
func TestAuditOfUnknownPerson(t *testing.T) {
	t.Parallel()
	var last audit.Event
	s := authorizetest.New(t, func(c *authorize.Config) { c.Audit = func(_ context.Context, e audit.Event) { last = e } })
	for _, tt := range []struct{ user, client, want string }{{"alcie", "", `no user "alcie"`}, {"", "ap", `no client "ap"`}, {"alcie", "app", `no user "alcie"`}, {"alice", "ap", `no client "ap"`}} {
		_, err := s.RevokeGrants(t.Context(), tt.user, tt.client)
		if !errors.Is(err, token.ErrUnknownPrincipal) || !strings.HasPrefix(err.Error(), tt.want) || last.Outcome() != "invalid_request" {
			t.Errorf("%s %s: %v, outcome %s", tt.user, tt.client, err, last.Outcome())
		}
	}
}

// The event of a failed federated sign-in contains the identity provider and, if known, the account.
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
			p.SetFault(providertest.Discovery, providertest.ErrorResponse(http.StatusBadGateway, "x"))
			b.Get(authorizetest.Location(b.T, b.Authorize(authorizetest.Request(url.Values{"identity_provider": {"hospital"}}))).String())
		}, ""},
		{"another browser's answer", nil, func(_ *providertest.Provider, b *authorizetest.Browser) {
			b.Get("/oauth2/callback/hospital?code=x&state=y")
		}, ""},
		{"disabled local user", func(idp *people.IdentityProvider, c *authorize.Config) {
			idp.LinkEmail = true
			c.Users[0].Email, c.Users[0].Disabled = "alice@hospital.example", true
		}, func(_ *providertest.Provider, b *authorizetest.Browser) {
			b.Follow(b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
		}, "alice"},
		{"person without an account", func(idp *people.IdentityProvider, _ *authorize.Config) { idp.Allow = clinic },
			func(_ *providertest.Provider, b *authorizetest.Browser) {
				b.Follow(b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital"))))
			}, ""},
		{"a wrong second factor", func(idp *people.IdentityProvider, c *authorize.Config) {
			idp.LinkEmail = true
			c.Users[0].Email, c.Users[0].TOTPSecret = "alice@hospital.example", authorizetest.TOTPSecret
		}, func(_ *providertest.Provider, b *authorizetest.Browser) {
			page := authorizetest.Body(b.T, b.Follow(b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital")))))
			b.SendOTP(authorizetest.FieldValue(b.T, page, "factor"), "000000")
		}, "alice"},
		{"malformed logout token", nil, func(_ *providertest.Provider, b *authorizetest.Browser) {
			b.Post("/oauth2/backchannel_logout/hospital", url.Values{"logout_token": {"x"}})
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.Start(t)
			var last audit.Event
			s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
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

// Each ended session causes one event with the reason.
func TestAuditOfEndedSessions(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	for _, tt := range []struct {
		name string
		do   func(s *authorize.Server, b *authorizetest.Browser)
		want string
	}{
		{"signed out", func(_ *authorize.Server, b *authorizetest.Browser) {
			b.Get("/oauth2/logout?id_token_hint=" + authorizetest.TokensWithSession(b).IDToken)
		}, "signed out in the browser"},
		{"by an app, without the browser", func(s *authorize.Server, b *authorizetest.Browser) {
			authorizetest.NewBrowser(t, s).Get("/oauth2/logout?id_token_hint=" + authorizetest.TokensWithSession(b).IDToken)
		}, "signed out by a logout request with id_token_hint"},
		{"sign-in of another user", func(_ *authorize.Server, b *authorizetest.Browser) {
			b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
		}, "replaced by another sign-in in the same browser"},
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
			s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
				c.Audit = func(_ context.Context, e audit.Event) {
					if e.Kind == audit.KindSignOut && e.Provider == "hospital" {
						reasons = append(reasons, e.Reason)
					}
				}
			})
			b := authorizetest.NewBrowser(t, s)
			authorizetest.SignInAtProvider(b, nil)
			tt.do(s, b)
			if len(reasons) != 1 || reasons[0] != tt.want {
				t.Errorf("reasons %q, want %q", reasons, tt.want)
			}
		})
	}
}

// refusedEvents collects the rejections of a server.
type refusedEvents []audit.Event

// Record implements [authorize.Config].Audit.
func (r *refusedEvents) Record(_ context.Context, e audit.Event) {
	if e.Err != nil {
		*r = append(*r, e)
	}
}

// check checks that a request was rejected and that each of its events contains the client.
func (r *refusedEvents) check(t *testing.T, name, clientID string, status int) {
	t.Helper()
	events := *r
	*r = nil
	if len(events) == 0 {
		t.Errorf("%s: no event, status %d", name, status)
	}
	for _, e := range events {
		if e.ClientID != clientID {
			t.Errorf("%s: the event names %q: %s %v", name, e.ClientID, e.Kind, e.Err)
		}
	}
}

// TestRefusalsNameClient sends requests that are rejected, with each authentication method, to each endpoint for clients. The
// audit log must contain the client, whichever part of the request identifies it.
func TestRefusalsNameClient(t *testing.T) {
	t.Parallel()
	var trail refusedEvents
	server := authorizetest.New(t, func(c *authorize.Config) {
		c.Audit = trail.Record
		for i := range c.Clients {
			c.Clients[i].PostLogoutRedirectURIs = []string{authorizetest.PostLogoutRedirectURI}
		}
		c.Clients = append(c.Clients, client.Client{
			ID: "backend", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}, LaunchContext: true,
			RedirectURIs: []string{authorizetest.Callback}, JWKS: authorizetest.PublicKeys(jose.ES256, jose.RS256),
		}, client.Client{ID: "a client", Secret: "s3cret", RedirectURIs: []string{authorizetest.Callback}})
	})
	assertion := func(claims, header map[string]any) url.Values {
		return url.Values{"client_assertion_type": {authorizetest.AssertionType}, "client_assertion": {authorizetest.Assertion(t, jose.ES256, claims, header)}}
	}
	with := func(form url.Values, name, value string) url.Values {
		form = maps.Clone(form)
		form.Set(name, value)
		return form
	}
	used := assertion(nil, nil)
	authorizetest.NewBrowser(t, server).Post("/oauth2/token", with(used, "grant_type", "client_credentials"))
	trail = nil
	methods := map[string]struct {
		client string
		form   func() url.Values
		basic  []string
		proves bool // whether the request authenticates the client
	}{
		"assertion":               {"backend", func() url.Values { return assertion(nil, nil) }, nil, true},
		"assertion and client_id": {"backend", func() url.Values { return with(assertion(nil, nil), "client_id", "backend") }, nil, true},
		"expired assertion": {"backend", func() url.Values {
			return assertion(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, nil)
		}, nil, false},
		"assertion for another server": {"backend", func() url.Values { return assertion(map[string]any{"aud": "https://x.example"}, nil) }, nil, false},
		"assertion without jti":        {"backend", func() url.Values { return assertion(map[string]any{"jti": nil}, nil) }, nil, false},
		"assertion without sub":        {"backend", func() url.Values { return assertion(map[string]any{"sub": nil}, nil) }, nil, false},
		"assertion without iss":        {"backend", func() url.Values { return assertion(map[string]any{"iss": nil}, nil) }, nil, false},
		"assertion by an unknown key":  {"backend", func() url.Values { return assertion(nil, map[string]any{"kid": "x"}) }, nil, false},
		"assertion of a wrong typ":     {"backend", func() url.Values { return assertion(nil, map[string]any{"typ": "at+jwt"}) }, nil, false},
		"used assertion":               {"backend", func() url.Values { return used }, nil, false},
		"assertion and no type":        {"backend", func() url.Values { return with(assertion(nil, nil), "client_assertion_type", "") }, nil, false},
		"assertion of a client without keys": {"service", func() url.Values {
			return assertion(map[string]any{"iss": "service", "sub": "service"}, nil)
		}, nil, false},
		"basic":                     {"confidential", nil, []string{"confidential", "s3cret/+ %"}, true},
		"basic, encoded":            {"a client", nil, []string{"a+client", "s3cret"}, true},
		"basic, wrong secret":       {"confidential", nil, []string{"confidential", "wrong"}, false},
		"basic, encoded and wrong":  {"a client", nil, []string{"a+client", "wrong"}, false},
		"basic and secret":          {"confidential", func() url.Values { return url.Values{"client_secret": {"x"}} }, []string{"confidential", "x"}, false},
		"post":                      {"confidential", func() url.Values { return url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}} }, nil, true},
		"post, wrong secret":        {"confidential", func() url.Values { return url.Values{"client_id": {"confidential"}, "client_secret": {"wrong"}} }, nil, false},
		"confidential, no secret":   {"confidential", func() url.Values { return url.Values{"client_id": {"confidential"}} }, nil, false},
		"public":                    {"app", func() url.Values { return url.Values{"client_id": {"app"}} }, nil, true},
		"public, but with a secret": {"app", func() url.Values { return url.Values{"client_id": {"app"}, "client_secret": {"x"}} }, nil, false},
	}
	rejected := map[string]map[string]url.Values{ // rejected even if the client is authenticated
		"/oauth2/token":      {"no grant_type": {}, "unknown grant_type": {"grant_type": {"x"}}, "malformed code": {"grant_type": {"authorization_code"}, "code": {"x"}}},
		"/oauth2/par":        {"wrong redirect_uri": {"redirect_uri": {"https://x.example"}, "response_type": {"code"}}, "no redirect_uri": {}, "request_uri": {"request_uri": {"urn:x"}}},
		"/oauth2/revoke":     {"no token": {}},
		"/oauth2/introspect": {"no token": {}},
		"/oauth2/launch":     {"no app": {}},
	}
	rightButForClient := map[string]url.Values{
		"/oauth2/token": {"grant_type": {"client_credentials"}}, "/oauth2/revoke": {"token": {"x"}}, "/oauth2/introspect": {"token": {"x"}},
	}
	for _, requests := range rejected {
		requests["a parameter twice"] = url.Values{"token": {"x", "y"}}
	}
	for name, m := range methods {
		send := func(path string, parameters url.Values) int {
			form := maps.Clone(parameters)
			if m.form != nil {
				maps.Copy(form, m.form())
			}
			r := authorizetest.PostRequest(path, form)
			if m.basic != nil {
				r.SetBasicAuth(m.basic[0], m.basic[1])
			}
			return authorizetest.NewBrowser(t, server).Send(r).StatusCode
		}
		for path, requests := range rejected {
			for request, parameters := range requests {
				trail.check(t, path+", "+request+", "+name, m.client, send(path, parameters))
			}
		}
		for path, parameters := range rightButForClient {
			if !m.proves {
				trail.check(t, path+", "+name, m.client, send(path, parameters))
			}
		}
	}
}

// TestBrowserRefusalsNameClient is like TestRefusalsNameClient, but for browser endpoints, access tokens, and refresh tokens
// sent without a client_id.
func TestBrowserRefusalsNameClient(t *testing.T) {
	t.Parallel()
	var trail refusedEvents
	server := authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.WithSelfRegistered(authorizetest.SelfRegisteredClient(func(c *client.Client) { c.PendingApproval = true }))(c)
		c.AuthorizePOST, c.Audit = true, trail.Record
		c.Clients[0].PostLogoutRedirectURIs = []string{authorizetest.PostLogoutRedirectURI}
		c.Clients[2].RequirePushed = true
	})
	b := authorizetest.NewBrowser(t, server)
	hint := authorizetest.NewBrowser(t, server).Tokens(nil).IDToken
	r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
	r.SetBasicAuth("service", "hush")
	token := authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)).AccessToken
	bearer := func(path string, form url.Values) *http.Request {
		r := authorizetest.PostRequest(path, form)
		r.Header.Set("Authorization", "Bearer "+token)
		return r
	}
	get := func(target string) *http.Request {
		return authorizetest.MarkAsTLS(httptest.NewRequest(http.MethodGet, target, nil))
	}
	authorize := func(change url.Values) *http.Request {
		return get("/oauth2/authorize?" + authorizetest.Request(change).Encode())
	}
	trail = nil
	const wrong = "https://app.example.org/callback/WRONG"
	for _, tt := range []struct {
		name, client string
		request      *http.Request
		sent         bool // whether the request contained an unregistered redirect URI
	}{
		{"wrong redirect_uri", "app", authorize(url.Values{"redirect_uri": {wrong}}), true},
		{"no redirect_uri", "app", authorize(url.Values{"redirect_uri": {""}}), false},
		{"redirect_uri twice", "app", get("/oauth2/authorize?" + authorizetest.Request(nil).Encode() + "&redirect_uri=x"), false},
		{"unknown scope", "app", authorize(url.Values{"scope": {"x"}}), false},
		{"malformed query", "app", get("/oauth2/authorize?client_id=app&state=%"), false},
		{"unknown request_uri", "app", get("/oauth2/authorize?client_id=app&request_uri=urn:ietf:params:oauth:request_uri:x"), false},
		{"unknown sealed request_uri", "app", get("/oauth2/authorize?client_id=app&request_uri=urn:ietf:params:oauth:request_uri:x.y"), false},
		{"pushed request, twice", "app", get("/oauth2/authorize?client_id=app&request_uri=urn:ietf:params:oauth:request_uri:x&request_uri=y"), false},
		{"not pushed", "strict", authorize(url.Values{"client_id": {"strict"}}), false},
		{"request object", "app", authorize(url.Values{"request": {"x.y.z"}}), false},
		{"pending approval", authorizetest.SelfRegisteredID, authorize(url.Values{"client_id": {authorizetest.SelfRegisteredID}}), false},
		{"posted, twice", "app", authorizetest.PostRequest("/oauth2/authorize", url.Values{"client_id": {"app"}, "scope": {"a", "b"}}), false},
		{"posted with a query", "app", authorizetest.PostRequest("/oauth2/authorize?x=y", url.Values{"client_id": {"app"}}), false},

		{"logout, wrong address", "app", get("/oauth2/logout?client_id=app&post_logout_redirect_uri=" + url.QueryEscape(wrong)), true},
		{"logout by a hint, wrong address", "app", get("/oauth2/logout?id_token_hint=" + hint + "&post_logout_redirect_uri=" + url.QueryEscape(wrong)), true},
		{"logout with a malformed hint", "app", get("/oauth2/logout?client_id=app&id_token_hint=x"), false},
		{"logout, a parameter twice", "app", get("/oauth2/logout?client_id=app&state=x&state=y"), false},

		{"userinfo without openid", "service", bearer("/oauth2/userinfo", nil), false},
		{"introspection by a token, no token named", "service", bearer("/oauth2/introspect", nil), false},

		{"pushed, wrong redirect_uri", "app", authorizetest.PostRequest("/oauth2/par", authorizetest.Request(url.Values{"redirect_uri": {wrong}})), true},
		{"pushed, waits for approval", authorizetest.SelfRegisteredID, authorizetest.PostRequest("/oauth2/par", authorizetest.Request(url.Values{"client_id": {authorizetest.SelfRegisteredID}, "client_secret": {authorizetest.SelfRegisteredSecret}})), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response := authorizetest.NewBrowser(t, server).Send(tt.request)
			body, err := io.ReadAll(response.Body)
			authorizetest.NoError(t, err)
			events := trail
			trail.check(t, tt.name, tt.client, response.StatusCode)
			if strings.Contains(string(body)+response.Header.Get("Location"), "WRONG") {
				t.Errorf("the response shows the URI: %s", body)
			}
			for _, e := range events {
				if want := map[bool]string{true: wrong}[tt.sent]; e.RequestedURI != want {
					t.Errorf("the event has the URI %q, want %q", e.RequestedURI, want)
				}
				if tt.sent && (e.ClosestURI == "" || strings.Contains(e.ClosestURI, "localhost")) {
					t.Errorf("the closest is %q", e.ClosestURI)
				}
			}
		})
	}
}

// TestRedirectOfRefusal checks that an unregistered URI is logged truncated and escaped, with the closest registered URI.
func TestRedirectOfRefusal(t *testing.T) {
	t.Parallel()
	var rejections audit.Rejections
	server := authorizetest.New(t, func(c *authorize.Config) {
		c.Clients[0].RedirectURIs = []string{"https://other.example/callback", "https://app.example.org/callback", "https://app.example.org/cb"}
		c.Audit = func(_ context.Context, e audit.Event) { rejections.Record(c.Issuer, e) }
	})
	for sent, want := range map[string]audit.UnregisteredRedirect{
		"https://app.example.org/callback/":          {RequestedURI: "https://app.example.org/callback/", ClosestURI: "https://app.example.org/callback"},
		"http://app.example.org/callback":            {RequestedURI: "http://app.example.org/callback", ClosestURI: "https://app.example.org/callback"},
		"https://other.example/callback?x=\x1b[1m\n": {RequestedURI: `https://other.example/callback?x=\x1b[1m\n`, ClosestURI: "https://other.example/callback"},
		"https://app.example.org/" + strings.Repeat("x", 5000): {
			RequestedURI: "https://app.example.org/" + strings.Repeat("x", 256-24), ClosestURI: "https://app.example.org/callback",
		},
	} {
		authorizetest.NewBrowser(t, server).Authorize(authorizetest.Request(url.Values{"redirect_uri": {sent}}))
		all := rejections.ForClient(authorizetest.Issuer, "app")
		if len(all) == 0 || all[len(all)-1].UnregisteredRedirect != want {
			t.Errorf("%q: %+v", sent, all)
		}
	}
}
