package flow_test

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

func implicit(change url.Values) url.Values {
	q := servertest.Request(url.Values{"response_type": {"id_token"}, "nonce": {"n"}})
	maps.Copy(q, change)
	return q
}

func fragment(t *testing.T, u *url.URL) url.Values {
	t.Helper()
	_, raw, _ := strings.Cut(u.String(), "#")
	f, err := url.ParseQuery(raw)
	servertest.NoError(t, err)
	return f
}

// OpenID Connect Core §3.2.2.5: the answers of the implicit flow, in the fragment.
func TestImplicitFlow(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, responseType, want string }{
		{"id_token", "id_token", "id_token state iss"},
		{"id_token token", "id_token token", "id_token access_token token_type expires_in state iss"},
		{"token id_token", "token id_token", "id_token access_token token_type expires_in state iss"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, servertest.EveryFlow))
			u := b.Answer(implicit(url.Values{"response_type": {tt.responseType}}))
			_, raw, _ := strings.Cut(u.String(), "#")
			var names []string
			for pair := range strings.SplitSeq(raw, "&") {
				names = append(names, strings.SplitN(pair, "=", 2)[0])
			}
			if got := strings.Join(names, " "); got != tt.want || u.RawQuery != "" {
				t.Errorf("fragment %q, query %q", got, u.RawQuery)
			}
			claims, access := b.Claims(fragment(t, u).Get("id_token")), fragment(t, u).Get("access_token")
			if claims["nonce"] != "n" || claims["sub"] != "alice" || (claims["at_hash"] != nil) != (access != "") {
				t.Errorf("ID token %v", claims)
			}
			if access != "" {
				servertest.CheckIDToken(b, fragment(t, u).Get("id_token"), access, "n")
			}
		})
	}
}

// OpenID Connect Core §5.4: without an access token the claims that the scope asks
// for are in the ID token; with one they are userinfo's.
func TestImplicitFlowClaims(t *testing.T) {
	t.Parallel()
	for responseType, want := range map[string]bool{"id_token": true, "id_token token": false} {
		b := servertest.NewBrowser(t, servertest.New(t, servertest.EveryFlow))
		u := b.Answer(implicit(url.Values{"response_type": {responseType}, "scope": {"openid profile email"}}))
		claims := b.Claims(fragment(t, u).Get("id_token"))
		if got := claims["name"] == "Alice Adams" && claims["email_verified"] == true; got != want || claims["phone_number"] != nil {
			t.Errorf("%s: %v", responseType, claims)
		}
	}
}

// Where errors go: to the query, as the interface has it for code and token, unless
// the request asks for another mode or for a flow that the interface does not know.
func TestErrorMode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, mode, want string
		change           url.Values
	}{
		{"an ID token without a nonce", "#", "invalid_request", url.Values{"response_type": {"id_token"}}},
		{"an ID token and a token without a nonce", "#", "invalid_request", url.Values{"response_type": {"id_token token"}}},
		{"an ID token without openid", "#", "invalid_request", url.Values{"response_type": {"id_token"}, "nonce": {"n"}, "scope": {"demo.read"}}},
		{"an ID token in the query", "#", "invalid_request", url.Values{"response_type": {"id_token"}, "nonce": {"n"}, "response_mode": {"query"}}},
		{"an ID token that the client may not have", "?", "unsupported_response_type", url.Values{"client_id": {"strict"}, "response_type": {"id_token"}, "nonce": {"n"}}},
		{"a token", "?", "invalid_scope", url.Values{"response_type": {"token"}, "scope": {"nonsense"}}},
		{"a token, by fragment", "#", "invalid_scope", url.Values{"response_type": {"token"}, "scope": {"nonsense"}, "response_mode": {"fragment"}}},
		{"a code in the fragment", "?", "invalid_request", url.Values{"response_mode": {"fragment"}}},
		{"an unknown mode", "?", "invalid_request", url.Values{"response_mode": {"web_message"}}},
		{"a token by an unknown mode", "?", "invalid_request", url.Values{"response_type": {"token"}, "response_mode": {"smile"}}},
		{"a response type with a space", "?", "unsupported_response_type", url.Values{"response_type": {"code "}}},
		{"a response type twice", "?", "unsupported_response_type", url.Values{"response_type": {"token token"}}},
		{"two modes", "?", "invalid_request", url.Values{"response_mode": {"form_post", "form_post"}}},
		{"no response type, by fragment", "?", "invalid_request", url.Values{"response_type": {""}, "response_mode": {"fragment"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := servertest.Location(t, servertest.NewBrowser(t, servertest.New(t, servertest.EveryFlow)).Authorize(servertest.Request(tt.change)))
			q, other := u.Query(), fragment(t, u)
			if tt.mode == "#" {
				q, other = other, q
			}
			if q.Get("error") != tt.want || q.Get("iss") != servertest.Issuer || len(other) != 0 {
				t.Errorf("%s", u)
			}
		})
	}
}

var policyParts = regexp.MustCompile(`form-action (\S+); script-src 'sha256-([^']*)'$`)

// posted reads the page that posts an answer.
func posted(t *testing.T, r *http.Response) (action string, fields url.Values) {
	t.Helper()
	page := servertest.Body(t, r)
	form := servertest.ReadForm(page)
	if r.StatusCode != http.StatusOK || form.Action == "" || r.Header.Get("Location") != "" {
		t.Fatalf("status %d: %s", r.StatusCode, page)
	}
	return form.Action, form.Fields
}

// OAuth 2.0 Form Post Response Mode §2, for every flow and for errors.
func TestFormPost(t *testing.T) {
	t.Parallel()
	const state = `"><script>alert(1)</script>&amp;+ü`
	tests := []struct {
		name   string
		change url.Values
		want   string
	}{
		{"code", nil, "code"},
		{"token", url.Values{"response_type": {"token"}}, "access_token"},
		{"id_token", url.Values{"response_type": {"id_token"}, "nonce": {"n"}}, "id_token"},
		{"an error", url.Values{"scope": {"nonsense"}}, "error"},
		{"an error before the mode is checked", url.Values{"response_type": {""}}, "error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, servertest.EveryFlow))
			b.Answer(servertest.Request(nil))
			q := servertest.Request(tt.change)
			q.Set("response_mode", "form_post")
			q.Set("state", state)
			r := b.Authorize(q)
			action, fields := posted(t, r)
			if action != servertest.Callback || !fields.Has(tt.want) || fields.Get("state") != state || fields.Get("iss") != servertest.Issuer {
				t.Errorf("to %s: %v", action, fields)
			}
			if fields.Has("code") && fields.Has("error") {
				t.Errorf("code and error: %v", fields)
			}
		})
	}
}

// The page may run its own script and post to the client's origin, and nothing else.
func TestFormPostPolicy(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	b.Answer(servertest.Request(nil))
	r := b.Authorize(servertest.Request(url.Values{"response_mode": {"form_post"}}))
	policy := r.Header.Get("Content-Security-Policy")
	parts := policyParts.FindStringSubmatch(policy)
	if parts == nil || parts[1] != "https://app.example.org" || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Fatalf("policy %q", policy)
	}
	page := servertest.Body(t, r)
	_, rest, _ := strings.Cut(page, "<script>")
	script, _, _ := strings.Cut(rest, "</script>")
	if digest(script) != parts[2] || !strings.Contains(page, "<button>") {
		t.Errorf("the script %q has the hash %s, allowed is %s", script, digest(script), parts[2])
	}
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("header %v", r.Header)
	}
}

// Browsers do not post line ends and bytes beyond UTF-8 as they are.
func TestFormPostState(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	for _, state := range []string{"line\nbreak", "\xff"} {
		if _, fields := posted(t, b.Authorize(servertest.Request(url.Values{"response_mode": {"form_post"}, "state": {state}}))); fields.Get("error") != "invalid_request" {
			t.Errorf("state %q: %v", state, fields)
		}
	}
}

func TestResponseModesDiscovered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change       func(*authorize.Config)
		types, modes string
	}{
		"all":       {servertest.EveryFlow, "code token id_token id_token token", "query form_post fragment"},
		"code only": {func(c *authorize.Config) { c.Clients = c.Clients[1:3] }, "code", "query form_post"},
	} {
		m := servertest.Decode[map[string]any](t, servertest.NewBrowser(t, servertest.New(t, tt.change)).Get("/.well-known/openid-configuration"))
		if servertest.Words(m["response_types_supported"]) != tt.types || servertest.Words(m["response_modes_supported"]) != tt.modes {
			t.Errorf("%s: %v, %v", name, m["response_types_supported"], m["response_modes_supported"])
		}
	}
}

// RFC 9207 §2, §3: success and error say who answers, and discovery announces it.
func TestIssuerInEveryAnswer(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, servertest.EveryFlow))
	b.Answer(servertest.Request(nil))
	for _, responseType := range append([]string{"", "magic"}, client.ResponseTypes...) {
		for _, prompt := range []string{"", "none login"} {
			u := servertest.Location(t, b.Authorize(servertest.Request(url.Values{"response_type": {responseType}, "nonce": {"n"}, "prompt": {prompt}})))
			if values := u.Query(); values.Get("iss") != servertest.Issuer && fragment(t, u).Get("iss") != servertest.Issuer {
				t.Errorf("response_type %q: %s", responseType, u)
			}
		}
	}
	m := servertest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
	if m["authorization_response_iss_parameter_supported"] != true || m["issuer"] != servertest.Issuer {
		t.Errorf("%v", m)
	}
}

// The token flow is off unless a client is given it, is told nowhere else, brings
// no refresh token, and is kept by no cache (RFC 9700 §2.1.2).
func TestTokenFlowIsOffByDefault(t *testing.T) {
	t.Parallel()
	q := servertest.Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {servertest.Callback + "?tenant=1"}})
	for _, responseType := range []string{"token", "id_token", "id_token token", "code token", "code id_token", "none"} {
		q.Set("response_type", responseType)
		u := servertest.Location(t, servertest.NewBrowser(t, servertest.New(t, nil)).Authorize(q))
		if got := u.Query().Get("error"); got != "unauthorized_client" && got != "unsupported_response_type" {
			t.Errorf("%s: %s", responseType, u)
		}
	}
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	b.Answer(servertest.Request(nil))
	r := b.Authorize(servertest.Request(url.Values{"response_type": {"token"}}))
	if f := fragment(t, servertest.Location(t, r)); f.Get("access_token") == "" || f.Has("refresh_token") || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v, %v", f, r.Header)
	}
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}
