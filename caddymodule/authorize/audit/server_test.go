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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// Each outcome is one event, of which kind, by whom and for whom.
func TestAudit(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	var trail servertest.AuditTrail
	s := servertest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		c.Audit = trail.Record
		idp.Allow = []people.AllowRule{{Claim: "email", Value: "sam@clinic.example"}}
	})
	const alice = " user=alice client=app scope=openid"
	signedIn := "sign-in success user=alice client=app scope=\nauthorization success code" + alice
	tests := []struct {
		name string
		do   func(b *servertest.Browser)
		want string
	}{
		{"a code", func(b *servertest.Browser) { b.Code(nil) }, signedIn},
		{"tokens in the fragment", func(b *servertest.Browser) { b.Answer(servertest.Request(url.Values{"response_type": {"token"}})) },
			"sign-in success user=alice client=app scope=\nauthorization success token" + alice},
		{"signed in already", func(b *servertest.Browser) { b.Code(nil); trail.Take(); b.Authorize(servertest.Request(nil)) }, "authorization success code" + alice},
		{"a wrong password", func(b *servertest.Browser) { b.SignIn(servertest.Request(nil), "alice", "wrong") }, "sign-in access_denied user=alice client=app scope="},
		{"a wrong password for another spelling", func(b *servertest.Browser) { b.SignIn(servertest.Request(nil), "Alice ", "right") }, "sign-in access_denied user=alice client=app scope="},
		{"a password in the wrong field", func(b *servertest.Browser) { b.SignIn(servertest.Request(nil), "right", "alice") }, "sign-in access_denied user= client=app scope="},
		{"an unknown client", func(b *servertest.Browser) { b.Authorize(servertest.Request(url.Values{"client_id": {"x"}})) }, "authorization invalid_request user= client= scope="},
		{"a refused scope", func(b *servertest.Browser) { b.Authorize(servertest.Request(url.Values{"scope": {"other"}})) }, "authorization invalid_scope code user= client=app scope="},
		{"a page of another browser", func(b *servertest.Browser) { b.Get("/oauth2/login?request=x") }, "sign-in invalid_request user= client= scope="},
		{"a provider that fails", func(b *servertest.Browser) {
			p.Fail(authorizetest.Token, authorizetest.ErrorResponse(http.StatusBadRequest, "invalid_grant"))
			defer p.Fail(authorizetest.Token, nil)
			servertest.Federate(b, nil)
		}, "sign-in invalid_request hospital user= client=app scope="},
		{"a code exchanged", func(b *servertest.Browser) {
			code := b.Code(nil)
			trail.Take()
			b.Post("/oauth2/token", servertest.CodeForm(code, nil))
		}, "token success authorization_code" + alice},
		{"a code exchanged twice", func(b *servertest.Browser) {
			code := b.Code(nil)
			b.Post("/oauth2/token", servertest.CodeForm(code, nil))
			trail.Take()
			b.Post("/oauth2/token", servertest.CodeForm(code, nil))
		}, "revocation success user=alice client=app scope=openid\ntoken invalid_grant authorization_code user=alice client=app scope="},
		{"client credentials", func(b *servertest.Browser) {
			r := servertest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
			r.SetBasicAuth("service", "hush")
			b.Send(r)
		}, "token success client_credentials user= client=service scope=system/*.rs"},
		{"a wrong client secret", func(b *servertest.Browser) {
			r := servertest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
			r.SetBasicAuth("service", "wrong")
			b.Send(r)
		}, "token invalid_client client_credentials user= client=service scope="},
		{"no form", func(b *servertest.Browser) { b.Send(httptest.NewRequest(http.MethodPost, "/oauth2/token", nil)) }, "token invalid_request user= client= scope="},
		{"a token revoked", func(b *servertest.Browser) {
			token := b.Tokens(nil).AccessToken
			trail.Take()
			b.Post("/oauth2/revoke", url.Values{"token": {token}, "client_id": {"app"}})
		}, "revocation success user=alice client=app scope="},
		{"a token of another client", func(b *servertest.Browser) {
			token := b.Tokens(nil).AccessToken
			trail.Take()
			b.Post("/oauth2/revoke", url.Values{"token": {token}, "client_id": {"strict"}})
		}, "revocation unauthorized_client user= client=strict scope="},
		{"signed out", func(b *servertest.Browser) {
			hint := b.Tokens(nil).IDToken
			trail.Take()
			b.Get("/oauth2/logout?id_token_hint=" + hint)
		}, "sign-out success user=alice client=app scope="},
		{"signed out without a session", func(b *servertest.Browser) { b.Get("/oauth2/logout") }, ""},
		{"a wrong hint", func(b *servertest.Browser) { b.Get("/oauth2/logout?id_token_hint=x") }, "sign-out invalid_request user= client= scope="},
		{"a provider's answer of another browser", func(b *servertest.Browser) { b.Get("/oauth2/callback/hospital?code=x&state=y") }, "sign-in invalid_request hospital user= client= scope="},
		{"away to a provider by another browser's page", func(b *servertest.Browser) { b.Get("/oauth2/login/hospital?request=x") }, "sign-in invalid_request hospital user= client= scope="},
		{"not let in from a provider", func(b *servertest.Browser) { servertest.Federate(b, nil) }, "sign-in access_denied hospital user= client=app scope=\nauthorization access_denied code hospital user= client=app scope="},
		{"userinfo and introspection refused", func(b *servertest.Browser) {
			b.Get("/oauth2/userinfo")
			b.Post("/oauth2/introspect", url.Values{"token": {"x"}, "client_id": {"nobody"}})
		}, ""},
		{"introspection refused to a known client", func(b *servertest.Browser) {
			b.Post("/oauth2/introspect", url.Values{"token": {"x"}, "client_id": {"app"}})
		}, "token invalid_client user= client=app scope="},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			trail.Take()
			tt.do(servertest.NewBrowser(t, s))
			servertest.Equal(t, trail.Take(), tt.want)
		})
	}
}

// What was refused is anonymous unless somebody had proved something: as a client,
// by a secret or key, or as a person. What succeeded never is.
func TestAnonymousEvents(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	var last audit.Event
	s := servertest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		c.Audit = func(_ context.Context, e audit.Event) { last = e }
		c.Clients[2].Consent = client.ConsentRequired
		c.Users[1].TOTPSecret = servertest.TOTPSecret
		idp.Allow = []people.AllowRule{{Claim: "email", Value: "sam@clinic.example"}}
	})
	for _, tt := range []struct {
		name string
		do   func(b *servertest.Browser)
		want bool
	}{
		{"an unknown client", func(b *servertest.Browser) { b.Authorize(servertest.Request(url.Values{"client_id": {"x"}})) }, true},
		{"a refused scope", func(b *servertest.Browser) { b.Authorize(servertest.Request(url.Values{"scope": {"other"}})) }, true},
		{"nobody is signed in", func(b *servertest.Browser) { b.Authorize(servertest.Request(url.Values{"prompt": {"none"}})) }, true},
		{"a wrong password", func(b *servertest.Browser) { b.SignIn(servertest.Request(nil), "alice", "wrong") }, true},
		{"a public client's wrong code", func(b *servertest.Browser) { b.Post("/oauth2/token", servertest.CodeForm("x", nil)) }, true},
		{"a wrong secret", func(b *servertest.Browser) {
			b.Post("/oauth2/token", servertest.CodeForm("x", url.Values{"client_id": {"confidential"}, "client_secret": {"wrong"}}))
		}, true},
		{"a provider's answer of another browser", func(b *servertest.Browser) { b.Get("/oauth2/callback/hospital?code=x&state=y") }, true},
		{"a client's wrong code", func(b *servertest.Browser) {
			b.Post("/oauth2/token", servertest.CodeForm("x", url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}}))
		}, false},
		{"a revocation that is refused", func(b *servertest.Browser) {
			b.Post("/oauth2/revoke", url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}})
		}, false},
		{"a wrong second factor", func(b *servertest.Browser) {
			page, err := b.SignIn(servertest.Request(nil), "bob", "other").Location()
			servertest.NoError(t, err)
			b.Post("/oauth2/login", url.Values{"factor": {page.Query().Get("factor")}, "code": {"000000"}})
		}, false},
		{"consent that is needed", func(b *servertest.Browser) {
			b.SignIn(servertest.Request(nil), "alice", "right")
			q := servertest.Request(servertest.PKCE())
			q.Set("client_id", "strict")
			q.Set("prompt", "none")
			b.Authorize(q)
		}, false},
		{"not let in from a provider", func(b *servertest.Browser) { servertest.Federate(b, nil) }, false},
		{"a code", func(b *servertest.Browser) { b.Code(nil) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			last = audit.Event{}
			tt.do(servertest.NewBrowser(t, s))
			if last.Kind == "" || last.Anonymous != tt.want {
				t.Errorf("%+v", last)
			}
		})
	}
}

func TestAuditOfFederatedSignIn(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	var trail servertest.AuditTrail
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Audit = trail.Record }))
	if servertest.Federate(b, nil).Query().Get("code") == "" {
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
	s := servertest.New(t, func(c *authorize.Config) {
		c.ClientAddress = func(*http.Request) string { return "203.0.113.7" }
		c.Audit = func(_ context.Context, e audit.Event) { got = e.Address }
	})
	servertest.NewBrowser(t, s).Authorize(url.Values{})
	if got != "203.0.113.7" {
		t.Errorf("address %q", got)
	}
}
