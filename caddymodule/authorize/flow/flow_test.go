package flow_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// The code flow redirects to redirect_uri with code and state in the query (docs/evidence/interface.md §4.1).
func TestCodeFlow(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	u := b.SignInAlice(authorizetest.Request(nil))
	q := u.Query()
	if got, _, _ := strings.Cut(u.String(), "?"); got != authorizetest.Callback {
		t.Errorf("sent to %s", got)
	}
	if u.Fragment != "" || strings.Contains(u.String(), "#") {
		t.Errorf("code and state are returned in the query string, never in the fragment: %s", u)
	}
	if q.Get("state") != "s" || q.Get("iss") != authorizetest.Issuer || len(q) != 3 {
		t.Errorf("parameters %v", q)
	}
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`).MatchString(q.Get("code")) {
		t.Errorf("code %q", q.Get("code"))
	}
	answer := b.RequestTokens(authorizetest.CodeForm(q.Get("code"), nil))
	if answer.TokenType != "Bearer" || answer.ExpiresIn != 3600 || answer.Scope != "openid" || answer.RefreshToken != "" {
		t.Errorf("%+v", answer)
	}
	authorizetest.CheckIDToken(b, answer.IDToken, answer.AccessToken, "")
}

// With PKCE and code_challenge_method S256, the code flow has the same response as without PKCE (docs/evidence/interface.md
// §4.1).
func TestCodeFlowWithPKCE(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		parameters url.Values
		verifier   string
		want       string
	}{
		{"the verifier", authorizetest.PKCE(), authorizetest.Verifier, ""},
		{"no verifier", authorizetest.PKCE(), "", "invalid_grant"},
		{"another verifier", authorizetest.PKCE(), strings.Repeat("x", 43), "invalid_grant"},
		{"the challenge as verifier", authorizetest.PKCE(), authorizetest.S256(authorizetest.Verifier), "invalid_grant"},
		{"a verifier too short", authorizetest.PKCE(), "short", "invalid_grant"},
		{"a verifier of other characters", authorizetest.PKCE(), authorizetest.Verifier + "!", "invalid_grant"},
		{"a verifier where no challenge was", nil, authorizetest.Verifier, "invalid_grant"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
			form := authorizetest.CodeForm(b.Code(tt.parameters), url.Values{"code_verifier": {tt.verifier}})
			authorizetest.Equal(t, b.RequestTokens(form).Error, tt.want)
		})
	}
}

// If no scope is requested, openid is granted. Otherwise, the allowed scopes are granted (docs/evidence/interface.md §4.1).
func TestGrantedScope(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, requested, want string }{
		{"no scope", "", "openid"},
		{"system-reserved scopes", "openid email phone profile", "openid email phone profile"},
		{"custom scopes associated with the client", "demo.read openid", "demo.read openid"},
		{"a SMART scope covered by the list", "user/Observation.rs", "user/Observation.rs"},
		{"a SMART wildcard that the list covers in part", "openid user/*.cruds", "openid user/*.rs"},
		{"a scope twice", "openid openid", "openid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
			answer := b.Tokens(url.Values{"scope": {tt.requested}})
			if answer.Scope != tt.want || b.Claims(answer.AccessToken)["scope"] != tt.want {
				t.Errorf("scope %q, want %q", answer.Scope, tt.want)
			}
		})
	}
}

func TestTokenFlowReturnsNarrowedScope(t *testing.T) {
	t.Parallel()
	u := authorizetest.NewBrowser(t, authorizetest.New(t, nil)).SignInAlice(authorizetest.Request(url.Values{"response_type": {"token"}, "scope": {"user/*.cruds"}}))
	if f, _ := url.ParseQuery(u.Fragment); f.Get("scope") != "user/*.rs" {
		t.Errorf("fragment %v", f)
	}
}

// The response contains the unchanged state (docs/evidence/interface.md §4.1).
func TestStateUnchanged(t *testing.T) {
	t.Parallel()
	states := []string{
		"simple", "a b+c&d=e#f?g/h", "ünïcödé ☃", "%7B%22a%22", "eyJhIjoxfQ==", "{not json", "\"json string\"", "123",
		"line\nbreak", "\xff\xfe", "<script>", strings.Repeat("x", 8<<10),
	}
	for _, flow := range []string{"code", "token"} {
		for _, state := range states {
			u := authorizetest.NewBrowser(t, authorizetest.New(t, nil)).SignInAlice(authorizetest.Request(url.Values{"response_type": {flow}, "state": {state}}))
			values := u.Query()
			if flow == "token" {
				_, raw, _ := strings.Cut(u.String(), "#")
				values, _ = url.ParseQuery(raw)
			}
			if values.Get("state") != state {
				t.Errorf("%s: state %.40q came back as %.40q", flow, state, values.Get("state"))
			}
		}
	}
	if u := authorizetest.NewBrowser(t, authorizetest.New(t, nil)).SignInAlice(authorizetest.Request(url.Values{"state": {""}})); u.Query().Has("state") {
		t.Errorf("state that was not sent: %s", u)
	}
}

func TestRedirectURIQueryIsPreserved(t *testing.T) {
	t.Parallel()
	u := authorizetest.NewBrowser(t, authorizetest.New(t, nil)).SignInAlice(authorizetest.Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}}))
	if q := u.Query(); q.Get("tenant") != "1" || q.Get("code") == "" {
		t.Errorf("%s", u)
	}
}

func TestOmitIssuer(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Clients[0].Compat = []string{client.CompatOmitIssuer} }))
	if u := b.SignInAlice(authorizetest.Request(nil)); u.Query().Has("iss") {
		t.Errorf("%s", u)
	}
}
