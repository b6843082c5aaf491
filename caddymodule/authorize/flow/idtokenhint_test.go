package flow_test

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// What an id_token_hint of alice's makes of who is signed in (OpenID Connect Core
// §3.1.2.1, §3.1.2.6).
func TestIDTokenHint(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		signedIn string // "" for nobody
		prompt   string
		change   func(hint string) string
		want     string
	}{
		{"the same person", "alice", "", nil, "code"},
		{"the same person, without a page", "alice", "none", nil, "code"},
		{"another person", "bob", "", nil, "page"},
		{"another person, without a page", "bob", "none", nil, "login_required"},
		{"nobody", "", "", nil, "page"},
		{"nobody, without a page", "", "none", nil, "login_required"},
		{"a hint that is no token", "alice", "", func(string) string { return "x" }, "invalid_request"},
		{"a hint with another signature", "alice", "", func(h string) string { return h[:len(h)-8] + "AAAAAAAA" }, "invalid_request"},
		{"a hint of nobody's signature", "alice", "none", func(h string) string {
			_, rest, _ := strings.Cut(h, ".")
			payload, _, _ := strings.Cut(rest, ".")
			return "eyJhbGciOiJub25lIn0." + payload + "."
		}, "invalid_request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := servertest.New(t, nil)
			hint := servertest.NewBrowser(t, server).Tokens(nil).IDToken
			b := servertest.NewBrowser(t, server)
			if tt.signedIn != "" {
				b.SignIn(servertest.Request(nil), tt.signedIn, map[string]string{"alice": "right", "bob": "other"}[tt.signedIn])
			}
			if tt.change != nil {
				hint = tt.change(hint)
			}
			servertest.Equal(t, outcome(t, b, url.Values{"id_token_hint": {hint}, "prompt": {tt.prompt}}), tt.want)
		})
	}
}

func TestExpiredIDTokenHint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewBrowser(t, servertest.New(t, nil))
		hint := b.Tokens(nil).IDToken
		time.Sleep(2 * time.Hour)
		servertest.Equal(t, outcome(t, b, url.Values{"id_token_hint": {hint}, "prompt": {"none"}}), "code")
	})
}

// A hint whose key is no longer kept proves nobody to be that person.
func TestIDTokenHintOfForgottenKey(t *testing.T) {
	t.Parallel()
	other := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		c.Keys = keyring.New(new(authorizetest.Storage), "keys.json", c.Logger)
	}))
	hint := url.Values{"id_token_hint": {other.Tokens(nil).IDToken}}
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	b.Answer(servertest.Request(nil))
	servertest.Equal(t, outcome(t, b, hint), "page", "signed in")
	servertest.WantCode(t, b.Answer(servertest.Request(hint)), "signed in anew")
}

// An access token is not a hint, and neither is an ID token of another client.
func TestIDTokenHintOfAnotherKind(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	answer := b.Tokens(nil)
	servertest.Equal(t, outcome(t, b, url.Values{"id_token_hint": {answer.AccessToken}}), "invalid_request", "access token")
	q := servertest.Request(servertest.PKCE())
	q.Set("client_id", "strict")
	q.Set("id_token_hint", answer.IDToken)
	servertest.WantError(t, servertest.Location(t, b.Authorize(q)), "invalid_request", "another client's")
}

// Issuers that share their keys do not share their people.
func TestIDTokenHintOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	other := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Issuer = "https://other.example.org" }))
	servertest.Equal(t, outcome(t, servertest.NewBrowser(t, servertest.New(t, nil)), url.Values{"id_token_hint": {other.Tokens(nil).IDToken}}), "invalid_request")
}

// Whoever signs in, another person than the one asked for is not told to the client.
func TestAnotherPersonSignsIn(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, nil)
	for name, asked := range map[string]url.Values{
		"id_token_hint": {"id_token_hint": {servertest.NewBrowser(t, server).Tokens(nil).IDToken}},
		"claims":        {"claims": {`{"id_token":{"sub":{"value":"alice"}}}`}},
	} {
		u := servertest.Location(t, servertest.NewBrowser(t, server).SignIn(servertest.Request(asked), "bob", "other"))
		if q := u.Query(); q.Get("error") != "login_required" || q.Has("code") {
			t.Errorf("%s: %s", name, u)
		}
	}
}

// The sign-in page begins with the name that is hinted at.
func TestSignInPageHint(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, nil)
	for name, asked := range map[string]url.Values{
		"login_hint":            {"login_hint": {"alice"}},
		"id_token_hint":         {"id_token_hint": {servertest.NewBrowser(t, server).Tokens(nil).IDToken}},
		"the sub that is asked": {"claims": {`{"id_token":{"sub":{"value":"alice"}}}`}},
	} {
		b := servertest.NewBrowser(t, server)
		if page, _ := b.OpenForm(b.Authorize(servertest.Request(asked))); !strings.Contains(page, `name="username" value="alice"`) {
			t.Errorf("%s: %s", name, page)
		}
	}
	b := servertest.NewBrowser(t, server)
	if page, _ := b.OpenForm(b.Authorize(servertest.Request(url.Values{"login_hint": {`"><script>x`}}))); strings.Contains(page, "<script>x") {
		t.Error("login_hint is not escaped")
	}
}
