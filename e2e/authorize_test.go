package e2e

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The authorization endpoint redirects invalid requests to the client with an error before the user has to sign in.
func TestAuthorizeErrors(t *testing.T) {
	tests := []struct {
		name   string
		change url.Values // an empty list removes the parameter
		err    string
	}{
		{"no response_type", url.Values{"response_type": nil}, "invalid_request"},
		{"unknown response_type", url.Values{"response_type": {"id_token"}}, "unsupported_response_type"},
		{"challenge without method", url.Values{"code_challenge": {strings.Repeat("a", 43)}}, "invalid_request"},
		{"method without challenge", url.Values{"code_challenge_method": {"S256"}}, "invalid_request"},
		{"method plain", url.Values{"code_challenge": {strings.Repeat("a", 43)}, "code_challenge_method": {"plain"}}, "invalid_request"},
		{"token flow not permitted", url.Values{"client_id": {"demo-confidential"}, "redirect_uri": {appCallback}, "response_type": {"token"}}, "unauthorized_client"},
		{"unknown scope", url.Values{"scope": {"openid nonsense"}}, "invalid_scope"},
		{"state is a JSON object", url.Values{"state": {`{"a":1}`}}, "invalid_request"},
		{"a parameter twice", url.Values{"scope": {"openid", "profile"}}, "invalid_request"},
	}
	person := example.newPerson(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request := url.Values{
				"response_type": {"code"}, "client_id": {"demo-app"}, "redirect_uri": {callback},
				"scope": {"openid"}, "state": {"abc"},
			}
			maps.Copy(request, test.change)
			end := person.authorize(t, request).location(t)
			query := end.Query()
			if got := query.Get("error"); got != test.err {
				t.Errorf("error %q, want %q: %s", got, test.err, end)
			}
			if end.Fragment != "" || query.Has("code") {
				t.Errorf("fragment or code in %s", end)
			}
			if !strings.HasPrefix(end.String(), request.Get("redirect_uri")+"?") {
				t.Errorf("sent to %s", end)
			}
			if state := request.Get("state"); state == "abc" && query.Get("state") != state {
				t.Errorf("state %q, want %q", query.Get("state"), state)
			}
		})
	}
}

// Errors are shown on a page instead of being redirected if the redirect URI is invalid.
func TestAuthorizeErrorPage(t *testing.T) {
	tests := []struct {
		name                string
		client, redirectURI string
	}{
		{"unknown client", "<b>nobody</b>", callback},
		{"no client", "", callback},
		{"unknown redirect URI", "demo-app", "https://evil.example/callback"},
		{"longer redirect URI", "demo-app", callback + "/"},
		{"another port", "demo-app", "http://localhost:3001/callback"},
		{"no redirect URI", "demo-app", ""},
	}
	person := example.newPerson(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request := url.Values{"response_type": {"code"}}
			if test.client != "" {
				request.Set("client_id", test.client)
			}
			if test.redirectURI != "" {
				request.Set("redirect_uri", test.redirectURI)
			}
			page := person.authorize(t, request).is(t, http.StatusBadRequest)
			if page.header.Get("Location") != "" {
				t.Errorf("redirects to %q", page.header.Get("Location"))
			}
			for _, input := range []string{test.client, "evil.example"} {
				if input != "" && strings.Contains(string(page.body), input) {
					t.Errorf("the page repeats %q", input)
				}
			}
			checkPageHeaders(t, page)
		})
	}
}

func TestAuthorizeMethods(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		t.Run(method, func(t *testing.T) {
			refused := send(t, example.client, newRequest(t, method, example.issuer+"/oauth2/authorize", "")).is(t, http.StatusMethodNotAllowed)
			if allow := refused.header.Get("Allow"); !strings.Contains(allow, http.MethodGet) {
				t.Errorf("Allow %q", allow)
			}
		})
	}
}

// checkPageHeaders checks the headers that prevent framing, caching and cross-site scripting (RFC 9700 §4.16).
func checkPageHeaders(t *testing.T, page httpResponse) {
	t.Helper()
	policy := page.header.Get("Content-Security-Policy")
	for _, part := range []string{"frame-ancestors 'none'", "default-src 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("Content-Security-Policy %q lacks %s", policy, part)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "script-src") {
		t.Errorf("Content-Security-Policy allows scripts: %q", policy)
	}
	if got := page.header.Get("Cache-Control"); !strings.Contains(got, "no-store") {
		t.Errorf("Cache-Control %q, want no-store", got)
	}
	if got := page.header.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options %q", got)
	}
	if got := page.header.Get("Referrer-Policy"); got != "no-referrer" {
		t.Errorf("Referrer-Policy %q, want no-referrer", got)
	}
	if strings.Contains(strings.ToLower(string(page.body)), "<script") {
		t.Error("the page has a script")
	}
}
