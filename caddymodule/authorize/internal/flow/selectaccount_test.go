package flow_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

var selectAccount = url.Values{"prompt": {"select_account"}}

func TestSelectAccount(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	b.Answer(servertest.Request(nil))
	page, sealed := b.OpenForm(b.Authorize(servertest.Request(selectAccount)))
	servertest.WantText(t, page, "<strong>The App</strong>", "Continue as Alice Adams <small>alice</small>", "Use another account")
	servertest.WantCode(t, servertest.Location(t, b.Post("/oauth2/select_account", servertest.Decision(sealed, "continue"))))
	_, signIn := b.OpenForm(b.Post("/oauth2/select_account", servertest.Decision(sealed, "other")))
	u := servertest.Location(t, b.Post("/oauth2/login", url.Values{"request": {signIn}, "username": {"bob"}, "password": {"other"}}))
	answer := b.RequestTokens(servertest.CodeForm(u.Query().Get("code"), nil))
	servertest.Equal(t, b.Claims(answer.IDToken)["sub"], "bob")
}

// "Use another account" leads to the provider, and it is told why, where there is
// one way to go.
func TestSelectAnotherAccountAtProvider(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil }))
	servertest.Federate(b, nil)
	_, sealed := b.OpenForm(b.Authorize(servertest.Request(selectAccount)))
	leave := servertest.Location(t, b.Post("/oauth2/select_account", servertest.Decision(sealed, "other")))
	if at := servertest.Location(t, b.Get(leave.String())); at.Query().Get("prompt") != "select_account" {
		t.Errorf("sent to %s", at)
	}
}

// A question is answered by whom it was asked, in the browser it was asked in:
// another site's form, another person's session and a changed seal lead nowhere.
func TestQuestionIsBound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(b *servertest.Browser, sealed *string)
	}{
		{"in another browser", func(b *servertest.Browser, _ *string) { servertest.BecomeAnother(b) }},
		{"without cookies", func(b *servertest.Browser, _ *string) { clear(b.Cookies) }},
		{"signed out", func(b *servertest.Browser, _ *string) { delete(b.Cookies, "__Host-fhir-session") }},
		{"by the next person at this browser", func(b *servertest.Browser, _ *string) {
			b.SignIn(servertest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
		}},
		{"changed", func(_ *servertest.Browser, s *string) { *s = servertest.Altered(*s) }},
		{"of the sign-in page", func(b *servertest.Browser, s *string) {
			*s = servertest.Location(b.T, b.Authorize(servertest.Request(url.Values{"prompt": {"login"}}))).Query().Get("request")
		}},
		{"missing", func(_ *servertest.Browser, s *string) { *s = "" }},
	}
	for path, q := range map[string]url.Values{"/oauth2/select_account": selectAccount, "/oauth2/consent": {"prompt": {"consent"}}} {
		for _, tt := range tests {
			t.Run(path+"/"+tt.name, func(t *testing.T) {
				b := servertest.NewBrowser(t, servertest.New(t, nil))
				b.Answer(servertest.Request(nil))
				_, sealed := b.OpenForm(b.Authorize(servertest.Request(q)))
				tt.do(b, &sealed)
				for _, decision := range []string{"continue", "other", "allow", "deny"} {
					if r := b.Post(path, servertest.Decision(sealed, decision)); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" {
						t.Errorf("%s: status %d, sent to %q", decision, r.StatusCode, r.Header.Get("Location"))
					}
				}
			})
		}
	}
}

// A form without a decision, such as one that a script sends, decides nothing.
func TestQuestionWithoutDecision(t *testing.T) {
	t.Parallel()
	for path, q := range map[string]url.Values{"/oauth2/select_account": selectAccount, "/oauth2/consent": {"prompt": {"consent"}}} {
		b := servertest.NewBrowser(t, servertest.New(t, nil))
		b.Answer(servertest.Request(nil))
		_, sealed := b.OpenForm(b.Authorize(servertest.Request(q)))
		servertest.WantStatus(t, b.Post(path, servertest.Decision(sealed, "")), http.StatusBadRequest, path)
	}
}
