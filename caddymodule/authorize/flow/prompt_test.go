package flow_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// What prompt and max_age make of an earlier sign-in, five minutes ago, and of
// none (OpenID Connect Core §3.1.2.1). The answer is a code, the page, or an error.
func TestPromptAndMaxAge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, signedIn, signedOut string
		asked                     url.Values
	}{
		{"nothing asked", "code", "page", nil},
		{"prompt none", "code", "login_required", url.Values{"prompt": {"none"}}},
		{"prompt login", "page", "page", url.Values{"prompt": {"login"}}},
		{"prompt select_account", "select_account", "page", url.Values{"prompt": {"select_account"}}},
		{"prompt login and select_account", "page", "page", url.Values{"prompt": {"login select_account"}}},
		{"prompt select_account and consent", "select_account", "page", url.Values{"prompt": {"select_account consent"}}},
		{"prompt none and consent", "invalid_request", "invalid_request", url.Values{"prompt": {"none consent"}}},
		{"prompt consent", "consent", "page", url.Values{"prompt": {"consent"}}},
		{"an unknown prompt", "code", "page", url.Values{"prompt": {"smile"}}},
		{"prompt none and login", "invalid_request", "invalid_request", url.Values{"prompt": {"none login"}}},
		{"max_age of ten minutes", "code", "page", url.Values{"max_age": {"600"}}},
		{"max_age of a minute", "page", "page", url.Values{"max_age": {"60"}}},
		{"max_age 0", "page", "page", url.Values{"max_age": {"0"}}},
		{"max_age of a minute without a page", "login_required", "login_required", url.Values{"max_age": {"60"}, "prompt": {"none"}}},
		{"max_age that is no number", "invalid_request", "invalid_request", url.Values{"max_age": {"-1"}}},
		{"identity_provider local", "code", "page", servertest.ByProvider("local")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := servertest.NewBrowser(t, servertest.New(t, nil))
				b.Answer(servertest.Request(nil))
				time.Sleep(5 * time.Minute)
				servertest.Equal(t, outcome(t, b, tt.asked), tt.signedIn, "signed in")
				servertest.Equal(t, outcome(t, servertest.NewBrowser(t, b.Server), tt.asked), tt.signedOut, "signed out")
			})
		})
	}
}

func outcome(t *testing.T, b *servertest.Browser, asked url.Values) string {
	t.Helper()
	return outcomeOf(servertest.Location(t, b.Authorize(servertest.Request(asked))))
}

// outcomeOf says what an answer that leads to u is.
func outcomeOf(u *url.URL) string {
	switch {
	case u.Path == "/oauth2/login":
		return "page"
	case u.Host == "":
		return strings.TrimPrefix(u.Path, "/oauth2/")
	case u.Query().Has("code"):
		return "code"
	}
	return u.Query().Get("error")
}

// A sign-in that was asked for anew is answered, not asked for again.
func TestPromptLoginIsAnswered(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	b.Answer(servertest.Request(nil))
	servertest.WantCode(t, b.Answer(servertest.Request(url.Values{"prompt": {"login"}, "max_age": {"0"}})))
}

// A page that was left open until the sign-in is older than max_age leads to another
// one (OpenID Connect Core §3.1.2.1); a person who has just signed in has a few minutes
// to answer it.
func TestMaxAgeOfPageLeftOpen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, page, decision, maxAge string
		open                         time.Duration
		want                         string
	}{
		{"consent, not for long", "consent", "allow", "600", 4 * time.Minute, "code"},
		{"consent, for too long", "consent", "allow", "600", 6 * time.Minute, "page"},
		{"consent, for too long, and denied", "consent", "deny", "600", 6 * time.Minute, "access_denied"},
		{"consent, without max_age", "consent", "allow", "", 50 * time.Minute, "code"},
		{"account, not for long", "select_account", "continue", "600", 4 * time.Minute, "code"},
		{"account, for too long", "select_account", "continue", "600", 6 * time.Minute, "page"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := servertest.NewBrowser(t, servertest.New(t, nil))
				b.Answer(servertest.Request(nil))
				time.Sleep(5 * time.Minute)
				q := url.Values{"prompt": {tt.page}, "max_age": {tt.maxAge}}
				_, sealed := b.OpenForm(b.Authorize(servertest.Request(q)))
				time.Sleep(tt.open)
				servertest.Equal(t, outcomeOf(servertest.Location(t, b.Post("/oauth2/"+tt.page, servertest.Decision(sealed, tt.decision)))), tt.want)
			})
		})
	}
}

// Whatever max_age says, a person who signs in comes to an end.
func TestShortMaxAgeIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewBrowser(t, servertest.New(t, consentRequired))
		r := b.SignIn(servertest.Request(url.Values{"max_age": {"0"}}), "alice", "right")
		time.Sleep(4 * time.Minute) // the page is read
		servertest.WantCode(t, b.Allow(r))
	})
}

// Where there is one way to go, the provider decides whether a page is needed.
func TestPromptNoneIsPassedOn(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil }))
	servertest.WantCode(t, servertest.Federate(b, url.Values{"prompt": {"none"}}))
	if asked := p.Requests(authorizetest.Authorization); len(asked) != 1 || asked[0].Form.Get("prompt") != "none" {
		t.Errorf("the provider was asked %v", asked)
	}
}

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
// one way to go, and the provider signs nobody out.
func TestSelectAnotherAccountAtProvider(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t, func(s *authorizetest.Settings) {
		s.Metadata = map[string]any{"end_session_endpoint": nil, "prompt_values_supported": []string{"select_account"}}
	})
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
