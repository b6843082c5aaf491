package authorize_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// open opens the page that an answer leads to, and returns it and its sealed request.
func (b *browser) open(r *http.Response) (page, sealed string) {
	b.t.Helper()
	page = body(b.t, b.get(location(b.t, r).String()))
	field := hiddenField.FindStringSubmatch(page)
	if field == nil {
		b.t.Fatalf("no form: %s", page)
	}
	return page, field[1]
}

func decide(sealed, decision string) url.Values {
	return url.Values{"request": {sealed}, "decision": {decision}}
}

var selectAccount = url.Values{"prompt": {"select_account"}}

func TestSelectAccount(t *testing.T) {
	b := newBrowser(t, newServer(t, nil))
	b.answer(request(nil))
	page, sealed := b.open(b.authorize(request(selectAccount)))
	for _, want := range []string{"<strong>The App</strong>", "Continue as Alice Adams <small>alice</small>", "Use another account"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if u := location(t, b.post("/oauth2/select_account", decide(sealed, "continue"))); u.Query().Get("code") == "" {
		t.Errorf("continued to %s", u)
	}
	_, signIn := b.open(b.post("/oauth2/select_account", decide(sealed, "other")))
	u := location(t, b.post("/oauth2/login", url.Values{"request": {signIn}, "username": {"bob"}, "password": {"other"}}))
	answer := decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(u.Query().Get("code"), nil)))
	if sub := b.claims(answer.IDToken)["sub"]; sub != "bob" {
		t.Errorf("the other account is %v", sub)
	}
}

// "Use another account" leads to the provider, and it is told why, where there is
// one way to go.
func TestSelectAnotherAccountAtProvider(t *testing.T) {
	p := authorizetest.Start(t)
	b := newBrowser(t, federated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil }))
	b.federate(nil)
	_, sealed := b.open(b.authorize(request(selectAccount)))
	leave := location(t, b.post("/oauth2/select_account", decide(sealed, "other")))
	if at := location(t, b.get(leave.String())); at.Query().Get("prompt") != "select_account" {
		t.Errorf("sent to %s", at)
	}
}

// A question is answered by whom it was asked, in the browser it was asked in:
// another site's form, another person's session and a changed seal lead nowhere.
func TestQuestionIsBound(t *testing.T) {
	tests := []struct {
		name string
		do   func(b *browser, sealed *string)
	}{
		{"in another browser", func(b *browser, _ *string) { b.becomeAnother() }},
		{"without cookies", func(b *browser, _ *string) { clear(b.cookies) }},
		{"signed out", func(b *browser, _ *string) { delete(b.cookies, "__Host-fhir-session") }},
		{"by the next person at this browser", func(b *browser, _ *string) { b.signIn(request(url.Values{"prompt": {"login"}}), "bob", "other") }},
		{"changed", func(_ *browser, s *string) { *s = altered(*s) }},
		{"of the sign-in page", func(b *browser, s *string) {
			*s = location(b.t, b.authorize(request(url.Values{"prompt": {"login"}}))).Query().Get("request")
		}},
		{"missing", func(_ *browser, s *string) { *s = "" }},
	}
	for path, q := range map[string]url.Values{"/oauth2/select_account": selectAccount, "/oauth2/consent": {"prompt": {"consent"}}} {
		for _, tt := range tests {
			t.Run(path+"/"+tt.name, func(t *testing.T) {
				b := newBrowser(t, newServer(t, nil))
				b.answer(request(nil))
				_, sealed := b.open(b.authorize(request(q)))
				tt.do(b, &sealed)
				for _, decision := range []string{"continue", "other", "allow", "deny"} {
					if r := b.post(path, decide(sealed, decision)); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" {
						t.Errorf("%s: status %d, sent to %q", decision, r.StatusCode, r.Header.Get("Location"))
					}
				}
			})
		}
	}
}

// A form without a decision, such as one that a script sends, decides nothing.
func TestQuestionWithoutDecision(t *testing.T) {
	for path, q := range map[string]url.Values{"/oauth2/select_account": selectAccount, "/oauth2/consent": {"prompt": {"consent"}}} {
		b := newBrowser(t, newServer(t, nil))
		b.answer(request(nil))
		_, sealed := b.open(b.authorize(request(q)))
		if r := b.post(path, decide(sealed, "")); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}
