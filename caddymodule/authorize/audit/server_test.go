package audit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// Each outcome is one event, of which kind, by whom and for whom.
func TestAudit(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var trail authorizetest.AuditTrail
	s := authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
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
			b.Answer(authorizetest.Request(url.Values{"response_type": {"token"}}))
		},
			"sign-in success user=alice client=app scope=\nauthorization success token" + alice},
		{"signed in already", func(b *authorizetest.Browser) { b.Code(nil); trail.Take(); b.Authorize(authorizetest.Request(nil)) }, "authorization success code" + alice},
		{"a wrong password", func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "alice", "wrong") }, "sign-in access_denied user=alice client=app scope="},
		{"a wrong password for another spelling", func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "Alice ", "right") }, "sign-in access_denied user=alice client=app scope="},
		{"a password in the wrong field", func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "right", "alice") }, "sign-in access_denied user= client=app scope="},
		{"an unknown client", func(b *authorizetest.Browser) { b.Authorize(authorizetest.Request(url.Values{"client_id": {"x"}})) }, "authorization invalid_request user= client= scope="},
		{"a refused scope", func(b *authorizetest.Browser) { b.Authorize(authorizetest.Request(url.Values{"scope": {"other"}})) }, "authorization invalid_scope code user= client=app scope="},
		{"a page of another browser", func(b *authorizetest.Browser) { b.Get("/oauth2/login?request=x") }, "sign-in invalid_request user= client= scope="},
		{"a provider that fails", func(b *authorizetest.Browser) {
			p.Fail(providertest.Token, providertest.ErrorResponse(http.StatusBadRequest, "invalid_grant"))
			defer p.Fail(providertest.Token, nil)
			authorizetest.Federate(b, nil)
		}, "sign-in invalid_request hospital user= client=app scope="},
		{"a code exchanged", func(b *authorizetest.Browser) {
			code := b.Code(nil)
			trail.Take()
			b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))
		}, "token success authorization_code" + alice},
		{"a code exchanged twice", func(b *authorizetest.Browser) {
			code := b.Code(nil)
			b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))
			trail.Take()
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
			trail.Take()
			b.Post("/oauth2/revoke", url.Values{"token": {token}, "client_id": {"app"}})
		}, "revocation success user=alice client=app scope="},
		{"a token of another client", func(b *authorizetest.Browser) {
			token := b.Tokens(nil).AccessToken
			trail.Take()
			b.Post("/oauth2/revoke", url.Values{"token": {token}, "client_id": {"strict"}})
		}, "revocation unauthorized_client user= client=strict scope="},
		{"signed out", func(b *authorizetest.Browser) {
			hint := b.Tokens(nil).IDToken
			trail.Take()
			b.Get("/oauth2/logout?id_token_hint=" + hint)
		}, "sign-out success user=alice client=app scope="},
		{"signed out without a session", func(b *authorizetest.Browser) { b.Get("/oauth2/logout") }, ""},
		{"a wrong hint", func(b *authorizetest.Browser) { b.Get("/oauth2/logout?id_token_hint=x") }, "sign-out invalid_request user= client= scope="},
		{"a provider's answer of another browser", func(b *authorizetest.Browser) { b.Get("/oauth2/callback/hospital?code=x&state=y") }, "sign-in invalid_request hospital user= client= scope="},
		{"away to a provider by another browser's page", func(b *authorizetest.Browser) { b.Get("/oauth2/login/hospital?request=x") }, "sign-in invalid_request hospital user= client= scope="},
		{"not let in from a provider", func(b *authorizetest.Browser) { authorizetest.Federate(b, nil) }, "sign-in access_denied hospital user= client=app scope=\nauthorization access_denied code hospital user= client=app scope="},
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
			trail.Take()
			tt.do(authorizetest.NewBrowser(t, s))
			authorizetest.Equal(t, trail.Take(), tt.want)
		})
	}
}

// What was refused is anonymous unless somebody had proved something: as a client,
// by a secret or key, or as a person. What succeeded never is.
func TestAnonymousEvents(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	var last audit.Event
	s := authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
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
		{"nobody is signed in", func(b *authorizetest.Browser) { b.Authorize(authorizetest.Request(url.Values{"prompt": {"none"}})) }, true},
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
		{"not let in from a provider", func(b *authorizetest.Browser) { authorizetest.Federate(b, nil) }, false},
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
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Audit = trail.Record }))
	if authorizetest.Federate(b, nil).Query().Get("code") == "" {
		t.Fatal("no code")
	}
	lines := strings.Split(trail.Take(), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "sign-in success hospital user=") || strings.Contains(lines[0], "user= ") {
		t.Errorf("events %q", lines)
	}
}

// The address is the one that the configuration finds, not the peer's.
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
