package flow_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

const endSession = "https://login.hospital.example/logout"

// sharedPC is a browser in which Alice of a provider is signed in.
func sharedPC(t *testing.T, change func(*people.IdentityProvider, *authorize.Config)) (*authorizetest.Provider, *servertest.Browser) {
	t.Helper()
	alice := authorizetest.Person{Subject: "1", Claims: map[string]any{"preferred_username": "alice", "email": "alice@hospital.example"}}
	bob := authorizetest.Person{Subject: "2", Claims: map[string]any{"preferred_username": "bob"}}
	p := authorizetest.Start(t, func(s *authorizetest.Settings) {
		s.Metadata, s.People = map[string]any{"end_session_endpoint": endSession}, []authorizetest.Person{alice, bob}
	})
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		idp.Domains = []string{"hospital.example"}
		if change != nil {
			change(idp, c)
		}
	}))
	servertest.Federate(b, nil)
	if !b.SignedIn() {
		t.Fatal("not signed in")
	}
	return p, b
}

// wantAnother checks that a response signs Alice out at the provider and here, and then leads to the provider with a login_hint.
func wantAnother(t *testing.T, p *authorizetest.Provider, b *servertest.Browser, out *url.URL, hint string) {
	t.Helper()
	q := out.Query()
	if !strings.HasPrefix(out.String(), endSession+"?") || q.Get("client_id") == "" || q.Get("post_logout_redirect_uri") != servertest.Issuer+"/oauth2/logout/hospital" {
		t.Fatalf("not signed out at the provider: %s", out)
	}
	if b.SignedIn() {
		t.Error("still signed in here")
	}
	b.Follow(b.Get("/oauth2/logout/hospital?state=" + url.QueryEscape(q.Get("state"))))
	asked := p.Requests(authorizetest.Authorization)
	if got := asked[len(asked)-1].Form.Get("login_hint"); got != hint {
		t.Errorf("login_hint %q, want %q", got, hint)
	}
}

// The next person at a shared computer is not led into the sign-in of the one before, whatever makes the provider be asked.
func TestNextPersonSignsInAsThemselves(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		asked url.Values
		hint  string // sent to the provider afterwards
	}{
		{"prompt=select_account", url.Values{"prompt": {"select_account"}}, ""},
		{"prompt=select_account for who is signed in", url.Values{"prompt": {"select_account"}, "login_hint": {"ALICE"}}, ""},
		{"prompt=login for another", url.Values{"prompt": {"login"}, "login_hint": {"bob"}}, "bob"},
		{"max_age for another", url.Values{"max_age": {"0"}, "login_hint": {"bob"}}, "bob"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, b := sharedPC(t, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil })
			page, sealed := b.OpenForm(b.Authorize(servertest.Request(tt.asked)))
			servertest.WantText(t, page, "Continue as alice", "Use another account")
			wantAnother(t, p, b, servertest.Location(t, b.Post("/oauth2/select_account", servertest.Decision(sealed, "other"))), tt.hint)
		})
	}
}

// A request that any site may have sent the browser with signs nobody out, and who is signed in can sign in again.
func TestLoginHintSignsNobodyOut(t *testing.T) {
	t.Parallel()
	p, b := sharedPC(t, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil })
	_, sealed := b.OpenForm(b.Authorize(servertest.Request(url.Values{"prompt": {"login"}, "login_hint": {"bob"}})))
	if !b.SignedIn() {
		t.Error("signed out")
	}
	b.Follow(b.Post("/oauth2/select_account", servertest.Decision(sealed, "continue")))
	asked := p.Requests(authorizetest.Authorization)
	last := asked[len(asked)-1].Form
	servertest.Equal(t, last.Get("prompt")+" "+last.Get("login_hint"), "login ")
}

// Who signs in again as themselves is not asked which account, nor is anybody where no page may be shown.
func TestLoginHintOfWhoIsSignedIn(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]url.Values{
		"the user name":     {"prompt": {"login"}, "login_hint": {"Alice"}},
		"the address":       {"prompt": {"login"}, "login_hint": {"alice@hospital.example"}},
		"the subject there": {"prompt": {"login"}, "login_hint": {"1"}},
		"no name":           {"prompt": {"login"}},
		"no page":           {"prompt": {"none"}, "max_age": {"0"}, "login_hint": {"bob"}},
		"another way":       {"prompt": {"login"}, "login_hint": {"bob"}, "identity_provider": {"local"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, b := sharedPC(t, nil)
			to := servertest.Location(t, b.Authorize(servertest.Request(asked)))
			if to.Path == "/oauth2/select_account" || !b.SignedIn() {
				t.Errorf("sent to %s", to)
			}
		})
	}
}

// Who types an address of a provider at which somebody else is signed in means to sign in as themselves.
func TestTypedAddressOfAnother(t *testing.T) {
	t.Parallel()
	p, b := sharedPC(t, nil)
	next := func(address string) *url.URL {
		_, sealed := b.OpenForm(b.Authorize(servertest.Request(url.Values{"prompt": {"login"}})))
		to, err := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {address}}).Location()
		servertest.NoError(t, err)
		return to
	}
	servertest.Equal(t, next("alice@hospital.example").Path, "/oauth2/login/hospital")
	wantAnother(t, p, b, next("bob@hospital.example"), "bob@hospital.example")
}

// A provider is given the ID token as a hint where it is kept, so that it need not ask whether to sign out.
func TestUseAnotherAccountByKeptToken(t *testing.T) {
	t.Parallel()
	_, b := sharedPC(t, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.KeepUpstreamToken = true })
	_, sealed := b.OpenForm(b.Authorize(servertest.Request(selectAccount)))
	out := servertest.Location(t, b.Post("/oauth2/select_account", servertest.Decision(sealed, "other")))
	if strings.Count(out.Query().Get("id_token_hint"), ".") != 2 {
		t.Errorf("no hint: %s", out)
	}
}
