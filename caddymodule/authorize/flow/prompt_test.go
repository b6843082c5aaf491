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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// prompt and max_age have the specified effect with a five-minute-old session and without a session (OpenID Connect Core
// §3.1.2.1). The outcome is a code, a page or an error.
func TestPromptAndMaxAge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, signedIn, signedOut string
		parameters                url.Values
	}{
		{"no parameters", "code", "page", nil},
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
		{"negative max_age", "invalid_request", "invalid_request", url.Values{"max_age": {"-1"}}},
		{"identity_provider local", "code", "page", authorizetest.SelectProvider("local")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
				b.SignInAlice(authorizetest.Request(nil))
				time.Sleep(5 * time.Minute)
				authorizetest.Equal(t, outcome(t, b, tt.parameters), tt.signedIn, "signed in")
				authorizetest.Equal(t, outcome(t, authorizetest.NewBrowser(t, b.Server), tt.parameters), tt.signedOut, "signed out")
			})
		})
	}
}

func outcome(t *testing.T, b *authorizetest.Browser, parameters url.Values) string {
	t.Helper()
	return outcomeOf(authorizetest.Location(t, b.Authorize(authorizetest.Request(parameters))))
}

// outcomeOf classifies a redirect target.
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

// prompt=login requires exactly one new sign-in.
func TestPromptLoginIsAnswered(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	b.SignInAlice(authorizetest.Request(nil))
	authorizetest.WantCode(t, b.SignInAlice(authorizetest.Request(url.Values{"prompt": {"login"}, "max_age": {"0"}})))
}

// If a page is left open until the age of the sign-in exceeds max_age, a new sign-in is required (OpenID Connect Core
// §3.1.2.1). After a new sign-in, the person has a few minutes for the page.
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
				b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
				b.SignInAlice(authorizetest.Request(nil))
				time.Sleep(5 * time.Minute)
				q := url.Values{"prompt": {tt.page}, "max_age": {tt.maxAge}}
				_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(q)))
				time.Sleep(tt.open)
				authorizetest.Equal(t, outcomeOf(authorizetest.Location(t, b.Post("/oauth2/"+tt.page, authorizetest.DecisionForm(sealed, tt.decision)))), tt.want)
			})
		})
	}
}

// Sign-in completes even with the shortest max_age.
func TestShortMaxAgeIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, consentRequired))
		r := b.SignIn(authorizetest.Request(url.Values{"max_age": {"0"}}), "alice", "right")
		time.Sleep(4 * time.Minute) // time spent on the page
		authorizetest.WantCode(t, b.Allow(r))
	})
}

// If there is a single identity provider, prompt=none is forwarded, and the provider determines whether a page is needed.
func TestPromptNoneIsForwarded(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil }))
	authorizetest.WantCode(t, authorizetest.SignInAtProvider(b, url.Values{"prompt": {"none"}}))
	if requests := p.Requests(providertest.Authorization); len(requests) != 1 || requests[0].Form.Get("prompt") != "none" {
		t.Errorf("requests to the provider: %v", requests)
	}
}

var selectAccount = url.Values{"prompt": {"select_account"}}

func TestSelectAccount(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	b.SignInAlice(authorizetest.Request(nil))
	page, sealed := b.OpenForm(b.Authorize(authorizetest.Request(selectAccount)))
	authorizetest.WantText(t, page, "<strong>The App</strong>", "Continue as Alice Adams <small>alice</small>", "Use another account")
	authorizetest.WantCode(t, authorizetest.Location(t, b.Post("/oauth2/select_account", authorizetest.DecisionForm(sealed, "continue"))))
	_, signIn := b.OpenForm(b.Post("/oauth2/select_account", authorizetest.DecisionForm(sealed, "other")))
	u := authorizetest.Location(t, b.Post("/oauth2/login", url.Values{"request": {signIn}, "username": {"bob"}, "password": {"other"}}))
	answer := b.RequestTokens(authorizetest.CodeForm(u.Query().Get("code"), nil))
	authorizetest.Equal(t, b.Claims(answer.IDToken)["sub"], "bob")
}

// "Use another account" sends the browser to the provider with prompt=select_account if the only provider has no logout
// endpoint.
func TestSelectAnotherAccountAtProvider(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.Metadata = map[string]any{"end_session_endpoint": nil, "prompt_values_supported": []string{"select_account"}}
	})
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil }))
	authorizetest.SignInAtProvider(b, nil)
	_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(selectAccount)))
	leave := authorizetest.Location(t, b.Post("/oauth2/select_account", authorizetest.DecisionForm(sealed, "other")))
	if at := authorizetest.Location(t, b.Get(leave.String())); at.Query().Get("prompt") != "select_account" {
		t.Errorf("sent to %s", at)
	}
}

// A page accepts decisions only from the session and browser to which it was shown. Cross-site forms, other sessions and
// altered seals are rejected.
func TestDecisionFormIsBound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(b *authorizetest.Browser, sealed *string)
	}{
		{"in another browser", func(b *authorizetest.Browser, _ *string) { authorizetest.ReplaceBrowserCookies(b) }},
		{"without cookies", func(b *authorizetest.Browser, _ *string) { clear(b.Cookies) }},
		{"signed out", func(b *authorizetest.Browser, _ *string) { delete(b.Cookies, "__Host-fhir-session") }},
		{"by the next person at this browser", func(b *authorizetest.Browser, _ *string) {
			b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
		}},
		{"changed", func(_ *authorizetest.Browser, s *string) { *s = authorizetest.AlterLetter(*s) }},
		{"of the sign-in page", func(b *authorizetest.Browser, s *string) {
			*s = authorizetest.Location(b.T, b.Authorize(authorizetest.Request(url.Values{"prompt": {"login"}}))).Query().Get("request")
		}},
		{"missing", func(_ *authorizetest.Browser, s *string) { *s = "" }},
	}
	for path, q := range map[string]url.Values{"/oauth2/select_account": selectAccount, "/oauth2/consent": {"prompt": {"consent"}}} {
		for _, tt := range tests {
			t.Run(path+"/"+tt.name, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
				b.SignInAlice(authorizetest.Request(nil))
				_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(q)))
				tt.do(b, &sealed)
				for _, decision := range []string{"continue", "other", "allow", "deny"} {
					if r := b.Post(path, authorizetest.DecisionForm(sealed, decision)); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" {
						t.Errorf("%s: status %d, sent to %q", decision, r.StatusCode, r.Header.Get("Location"))
					}
				}
			})
		}
	}
}

// A form without a button value, e.g. submitted by a script, has no effect.
func TestFormWithoutDecision(t *testing.T) {
	t.Parallel()
	for path, q := range map[string]url.Values{"/oauth2/select_account": selectAccount, "/oauth2/consent": {"prompt": {"consent"}}} {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
		b.SignInAlice(authorizetest.Request(nil))
		_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(q)))
		authorizetest.WantStatus(t, b.Post(path, authorizetest.DecisionForm(sealed, "")), http.StatusBadRequest, path)
	}
}

// Effect of an id_token_hint for alice depending on the session's user (OpenID Connect Core §3.1.2.1, §3.1.2.6).
func TestIDTokenHint(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		signedIn string // "" for no session
		prompt   string
		change   func(hint string) string
		want     string
	}{
		{"the same person", "alice", "", nil, "code"},
		{"the same person, without a page", "alice", "none", nil, "code"},
		{"another person", "bob", "", nil, "page"},
		{"another person, without a page", "bob", "none", nil, "login_required"},
		{"nobody", "", "", nil, "page"},
		{"no session, prompt=none", "", "none", nil, "login_required"},
		{"malformed hint", "alice", "", func(string) string { return "x" }, "invalid_request"},
		{"a hint with another signature", "alice", "", func(h string) string { return h[:len(h)-8] + "AAAAAAAA" }, "invalid_request"},
		{"hint with a forged signature", "alice", "none", func(h string) string {
			_, rest, _ := strings.Cut(h, ".")
			payload, _, _ := strings.Cut(rest, ".")
			return "eyJhbGciOiJub25lIn0." + payload + "."
		}, "invalid_request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := authorizetest.New(t, nil)
			hint := authorizetest.NewBrowser(t, server).Tokens(nil).IDToken
			b := authorizetest.NewBrowser(t, server)
			if tt.signedIn != "" {
				b.SignIn(authorizetest.Request(nil), tt.signedIn, map[string]string{"alice": "right", "bob": "other"}[tt.signedIn])
			}
			if tt.change != nil {
				hint = tt.change(hint)
			}
			authorizetest.Equal(t, outcome(t, b, url.Values{"id_token_hint": {hint}, "prompt": {tt.prompt}}), tt.want)
		})
	}
}

func TestExpiredIDTokenHint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
		hint := b.Tokens(nil).IDToken
		time.Sleep(2 * time.Hour)
		authorizetest.Equal(t, outcome(t, b, url.Values{"id_token_hint": {hint}, "prompt": {"none"}}), "code")
	})
}

// A hint signed with a deleted key does not identify the person.
func TestIDTokenHintOfForgottenKey(t *testing.T) {
	t.Parallel()
	other := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		c.Keys = keyring.New(new(providertest.Storage), "keys.json", c.Logger)
	}))
	hint := url.Values{"id_token_hint": {other.Tokens(nil).IDToken}}
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	b.SignInAlice(authorizetest.Request(nil))
	authorizetest.Equal(t, outcome(t, b, hint), "page", "signed in")
	authorizetest.WantCode(t, b.SignInAlice(authorizetest.Request(hint)), "signed in anew")
}

// Access tokens and ID tokens of other clients are rejected as hints.
func TestIDTokenHintOfAnotherKind(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	answer := b.Tokens(nil)
	authorizetest.Equal(t, outcome(t, b, url.Values{"id_token_hint": {answer.AccessToken}}), "invalid_request", "access token")
	q := authorizetest.Request(authorizetest.PKCE())
	q.Set("client_id", "strict")
	q.Set("id_token_hint", answer.IDToken)
	authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(q)), "invalid_request", "another client's")
}

// ID tokens of another issuer are rejected as hints even if the signing keys are shared, because issuers have separate users.
func TestIDTokenHintOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	other := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Issuer = "https://other.example.org" }))
	authorizetest.Equal(t, outcome(t, authorizetest.NewBrowser(t, authorizetest.New(t, nil)), url.Values{"id_token_hint": {other.Tokens(nil).IDToken}}), "invalid_request")
}

// If someone other than the hinted person signs in, the client does not learn who they are.
func TestAnotherPersonSignsIn(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	for name, parameters := range map[string]url.Values{
		"id_token_hint": {"id_token_hint": {authorizetest.NewBrowser(t, server).Tokens(nil).IDToken}},
		"claims":        {"claims": {`{"id_token":{"sub":{"value":"alice"}}}`}},
	} {
		u := authorizetest.Location(t, authorizetest.NewBrowser(t, server).SignIn(authorizetest.Request(parameters), "bob", "other"))
		if q := u.Query(); q.Get("error") != "login_required" || q.Has("code") {
			t.Errorf("%s: %s", name, u)
		}
	}
}

// The sign-in page is prefilled with login_hint.
func TestSignInPageHint(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	for name, parameters := range map[string]url.Values{
		"login_hint":    {"login_hint": {"alice"}},
		"id_token_hint": {"id_token_hint": {authorizetest.NewBrowser(t, server).Tokens(nil).IDToken}},
		"requested sub": {"claims": {`{"id_token":{"sub":{"value":"alice"}}}`}},
	} {
		b := authorizetest.NewBrowser(t, server)
		if page, _ := b.OpenForm(b.Authorize(authorizetest.Request(parameters))); !strings.Contains(page, `name="username" value="alice"`) {
			t.Errorf("%s: %s", name, page)
		}
	}
	b := authorizetest.NewBrowser(t, server)
	if page, _ := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"login_hint": {`"><script>x`}}))); strings.Contains(page, "<script>x") {
		t.Error("login_hint is not escaped")
	}
}

const endSession = "https://login.hospital.example/logout"

// sharedComputer returns a browser in which Alice is signed in by a provider.
func sharedComputer(t *testing.T, change func(*people.IdentityProvider, *authorize.Config)) (*providertest.Provider, *authorizetest.Browser) {
	t.Helper()
	alice := providertest.Person{Subject: "1", Claims: map[string]any{"preferred_username": "alice", "email": "alice@hospital.example"}}
	bob := providertest.Person{Subject: "2", Claims: map[string]any{"preferred_username": "bob"}}
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.Metadata, s.People = map[string]any{"end_session_endpoint": endSession}, []providertest.Person{alice, bob}
	})
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		idp.Domains = []string{"hospital.example"}
		if change != nil {
			change(idp, c)
		}
	}))
	authorizetest.SignInAtProvider(b, nil)
	if !b.HasSession() {
		t.Fatal("not signed in")
	}
	return p, b
}

// checkAccountSwitch checks that a response signs Alice out at the gateway and at the provider, and then sends login_hint to
// the provider.
func checkAccountSwitch(t *testing.T, p *providertest.Provider, b *authorizetest.Browser, out *url.URL, hint string) {
	t.Helper()
	q := out.Query()
	if !strings.HasPrefix(out.String(), endSession+"?") || q.Get("client_id") == "" || q.Get("post_logout_redirect_uri") != authorizetest.Issuer+"/oauth2/logout/hospital" {
		t.Fatalf("not signed out at the provider: %s", out)
	}
	if b.HasSession() {
		t.Error("still signed in here")
	}
	b.Follow(b.Get("/oauth2/logout/hospital?state=" + url.QueryEscape(q.Get("state"))))
	requests := p.Requests(providertest.Authorization)
	if got := requests[len(requests)-1].Form.Get("login_hint"); got != hint {
		t.Errorf("login_hint %q, want %q", got, hint)
	}
}

// On a shared computer, the next person does not end up in the previous person's session at the provider, regardless of how
// they reach the provider.
func TestNextPersonSignsInAsThemselves(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		parameters url.Values
		hint       string // login_hint sent to the provider afterwards
	}{
		{"prompt=select_account", url.Values{"prompt": {"select_account"}}, ""},
		{"prompt=select_account for the current user", url.Values{"prompt": {"select_account"}, "login_hint": {"ALICE"}}, ""},
		{"prompt=login for another", url.Values{"prompt": {"login"}, "login_hint": {"bob"}}, "bob"},
		{"max_age for another", url.Values{"max_age": {"0"}, "login_hint": {"bob"}}, "bob"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, b := sharedComputer(t, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil })
			page, sealed := b.OpenForm(b.Authorize(authorizetest.Request(tt.parameters)))
			authorizetest.WantText(t, page, "Continue as alice", "Use another account")
			checkAccountSwitch(t, p, b, authorizetest.Location(t, b.Post("/oauth2/select_account", authorizetest.DecisionForm(sealed, "other"))), tt.hint)
		})
	}
}

// The link that starts a request for another person again shows the account page, as the request did.
func TestRestartForAnotherPerson(t *testing.T) {
	t.Parallel()
	_, b := sharedComputer(t, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil })
	_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"login"}, "login_hint": {"bob"}})))
	failed := authorizetest.Body(t, b.Post("/oauth2/select_account", authorizetest.DecisionForm(sealed, "")))
	page, _ := b.OpenForm(b.Get(linkTo(t, failed, "Sign in to The App again")))
	authorizetest.WantText(t, page, "Continue as alice", "Use another account")
}

// A login_hint, which any site can send, does not end the session by itself, and the current user can sign in again.
func TestLoginHintKeepsSession(t *testing.T) {
	t.Parallel()
	p, b := sharedComputer(t, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil })
	_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"login"}, "login_hint": {"bob"}})))
	if !b.HasSession() {
		t.Error("signed out")
	}
	b.Follow(b.Post("/oauth2/select_account", authorizetest.DecisionForm(sealed, "continue")))
	requests := p.Requests(providertest.Authorization)
	last := requests[len(requests)-1].Form
	authorizetest.Equal(t, last.Get("prompt")+" "+last.Get("login_hint"), "login ")
}

// The account page is shown only if login_hint identifies another person at the same identity provider and the request permits
// pages.
func TestLoginHintOfCurrentUser(t *testing.T) {
	t.Parallel()
	for name, parameters := range map[string]url.Values{
		"the user name":     {"prompt": {"login"}, "login_hint": {"Alice"}},
		"the address":       {"prompt": {"login"}, "login_hint": {"alice@hospital.example"}},
		"the subject there": {"prompt": {"login"}, "login_hint": {"1"}},
		"no name":           {"prompt": {"login"}},
		"no page":           {"prompt": {"none"}, "max_age": {"0"}, "login_hint": {"bob"}},
		"another way":       {"prompt": {"login"}, "login_hint": {"bob"}, "identity_provider": {"local"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, b := sharedComputer(t, nil)
			to := authorizetest.Location(t, b.Authorize(authorizetest.Request(parameters)))
			if to.Path == "/oauth2/select_account" || !b.HasSession() {
				t.Errorf("sent to %s", to)
			}
		})
	}
}

// If another person is signed in at the provider to which a typed address belongs, that person is signed out first.
func TestTypedAddressOfAnotherPerson(t *testing.T) {
	t.Parallel()
	p, b := sharedComputer(t, nil)
	next := func(address string) *url.URL {
		_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"login"}})))
		to, err := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {address}}).Location()
		authorizetest.NoError(t, err)
		return to
	}
	authorizetest.Equal(t, next("alice@hospital.example").Path, "/oauth2/login/hospital")
	checkAccountSwitch(t, p, b, next("bob@hospital.example"), "bob@hospital.example")
}

// If an ID token is stored, it is sent to the provider as a hint, so that the provider can skip its confirmation.
func TestUseAnotherAccountWithToken(t *testing.T) {
	t.Parallel()
	_, b := sharedComputer(t, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.KeepUpstreamToken = true })
	_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(selectAccount)))
	out := authorizetest.Location(t, b.Post("/oauth2/select_account", authorizetest.DecisionForm(sealed, "other")))
	if strings.Count(out.Query().Get("id_token_hint"), ".") != 2 {
		t.Errorf("no hint: %s", out)
	}
}
