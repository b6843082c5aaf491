package flow_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// The names of these cases quote the interface's table of request parameters
// (§4.1) and of errors (§7). Each is an error at the redirect URI.
func TestAuthorizeErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change url.Values
		want   string
	}{
		{"response_type: a missing response_type yields invalid_request", url.Values{"response_type": {""}}, "invalid_request"},
		{"an unknown response_type", url.Values{"response_type": {"id_token"}}, "unsupported_response_type"},
		{"two response types at once", url.Values{"response_type": {"code token"}}, "unsupported_response_type"},
		{"code_challenge_method: a value other than S256 yields invalid_request", url.Values{"code_challenge_method": {"plain"}, "code_challenge": {servertest.S256(servertest.Verifier)}}, "invalid_request"},
		{"code_challenge_method is compared with case", url.Values{"code_challenge_method": {"s256"}, "code_challenge": {servertest.S256(servertest.Verifier)}}, "invalid_request"},
		{"code_challenge: without code_challenge_method yields invalid_request", url.Values{"code_challenge": {servertest.S256(servertest.Verifier)}}, "invalid_request"},
		{"code_challenge: required when code_challenge_method is given", url.Values{"code_challenge_method": {"S256"}}, "invalid_request"},
		{"code_challenge that is no SHA-256", url.Values{"code_challenge_method": {"S256"}, "code_challenge": {"short"}}, "invalid_request"},
		{"code_challenge with padding", url.Values{"code_challenge_method": {"S256"}, "code_challenge": {servertest.S256(servertest.Verifier) + "="}}, "invalid_request"},
		{"PKCE that the client requires", url.Values{"client_id": {"strict"}}, "invalid_request"},
		{"unauthorized_client: asks for token without permission for it", url.Values{"client_id": {"strict"}, "response_type": {"token"}}, "unauthorized_client"},
		{"unauthorized_client: asks for code without permission for it", url.Values{"client_id": {"implicit"}}, "unauthorized_client"},
		{"invalid_scope: unknown", url.Values{"scope": {"openid nonsense"}}, "invalid_scope"},
		{"invalid_scope: malformed", url.Values{"scope": {`openid "profile"`}}, "invalid_scope"},
		{"invalid_scope: not valid for the client", url.Values{"client_id": {"confidential"}, "redirect_uri": {servertest.Callback + "?tenant=1"}, "scope": {"demo.read"}}, "invalid_scope"},
		{"invalid_scope: nothing that is listed", url.Values{"scope": {"user/Observation.cud launch/patient"}}, "invalid_scope"},
		{"invalid_scope: malformed, as SMART has it", url.Values{"scope": {"openid user/Observation.sr"}}, "invalid_scope"},
		{"invalid_scope: malformed launch context", url.Values{"scope": {"openid launch/"}}, "invalid_scope"},
		{"state: must not be a URL-encoded JSON string", url.Values{"state": {`{"return":"/"}`}}, "invalid_request"},
		{"state: nor a JSON array", url.Values{"state": {` ["a"]`}}, "invalid_request"},
		{"state: URL-encoded JSON, encoded once more", url.Values{"state": {"%7B%22a%22%3A1%7D"}}, "invalid_request"},
		{"a token for another resource", url.Values{"resource": {"https://other.example/fhir/R4"}}, "invalid_target"},
		{"and one for this", url.Values{"resource": {servertest.FHIRBase, "https://other.example/fhir/R4"}}, "invalid_target"},
		{"a nonce that an ID token cannot hold", url.Values{"nonce": {"\xff"}}, "invalid_request"},
		{"a system scope for a person", url.Values{"client_id": {"confidential"}, "redirect_uri": {servertest.Callback + "?tenant=1"}, "scope": {"system/*.rs"}}, "invalid_scope"},
		{"a parameter twice", url.Values{"scope": {"openid", "profile"}}, "invalid_request"},
		{"an unknown parameter twice", url.Values{"x": {"1", "2"}}, "invalid_request"},
		{"a parameter over 8 KiB", url.Values{"nonce": {strings.Repeat("n", 8<<10+1)}}, "invalid_request"},
		{"all parameters over 32 KiB", url.Values{"a": {strings.Repeat("n", 8<<10)}, "b": {strings.Repeat("n", 8<<10)}, "c": {strings.Repeat("n", 8<<10)}, "d": {strings.Repeat("n", 8<<10)}}, "invalid_request"},
		{"a request object", url.Values{"request": {"eyJ"}}, "request_not_supported"},
		{"a request_uri", url.Values{"request_uri": {"https://evil.example/"}}, "request_uri_not_supported"},
		{"a code in the fragment", url.Values{"response_mode": {"fragment"}}, "invalid_request"},
		{"tokens in the query", url.Values{"response_mode": {"query"}, "response_type": {"token"}}, "invalid_request"},
		{"a token for another FHIR server", url.Values{"aud": {"https://other.example/fhir/R4"}}, "invalid_request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := servertest.Location(t, servertest.NewBrowser(t, servertest.New(t, nil)).Authorize(servertest.Request(tt.change)))
			q := u.Query()
			if q.Get("error") != tt.want {
				t.Errorf("error %q, want %q, at %s", q.Get("error"), tt.want, u)
			}
			if q.Has("error_description") {
				t.Errorf("error_description %q, the interface has none", q.Get("error_description"))
			}
			if u.Fragment != "" || q.Has("code") {
				t.Errorf("more than an error: %s", u)
			}
			if q.Get("iss") != servertest.Issuer {
				t.Errorf("iss %q", q.Get("iss"))
			}
		})
	}
}

func TestAuthorizeMalformedQuery(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	u := servertest.Location(t, b.Get("/oauth2/authorize?"+servertest.Request(nil).Encode()+"&x=%zz"))
	servertest.WantError(t, u, "invalid_request")
}

// "Behaviour when client_id or redirect_uri is itself invalid: not shown": a page
// with status 400, that sends nobody anywhere and repeats nothing.
func TestAuthorizeRefusesUntrustedDestination(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change url.Values
	}{
		{"client_id: must be the identifier of an already registered client", url.Values{"client_id": {"<script>x"}}},
		{"client_id missing", url.Values{"client_id": {""}}},
		{"client_id twice", url.Values{"client_id": {"app", "app"}}},
		{"redirect_uri missing", url.Values{"redirect_uri": {""}}},
		{"redirect_uri twice", url.Values{"redirect_uri": {servertest.Callback, servertest.Callback}}},
		{"redirect_uri: must match exactly, trailing slashes included", url.Values{"redirect_uri": {servertest.Callback + "/"}}},
		{"redirect_uri: must match exactly, punctuation included", url.Values{"redirect_uri": {servertest.Callback + "?"}}},
		{"redirect_uri: must match exactly, case included", url.Values{"redirect_uri": {"https://APP.example.org/callback"}}},
		{"redirect_uri: must match exactly, port included", url.Values{"redirect_uri": {"http://localhost:3001/callback"}}},
		{"redirect_uri: must be pre-registered for the client", url.Values{"redirect_uri": {servertest.Callback + "?tenant=1"}}},
		{"redirect_uri: must be an absolute URI", url.Values{"redirect_uri": {"/callback"}}},
		{"redirect_uri: must not contain a fragment", url.Values{"redirect_uri": {servertest.Callback + "#f"}}},
		{"redirect_uri: with user information", url.Values{"redirect_uri": {"https://app.example.org@evil.example/callback"}}},
		{"redirect_uri of a script", url.Values{"redirect_uri": {"javascript:alert(1)"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := servertest.NewBrowser(t, servertest.New(t, nil)).Authorize(servertest.Request(tt.change))
			if r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" {
				t.Errorf("status %d, Location %q", r.StatusCode, r.Header.Get("Location"))
			}
			page := servertest.Body(t, r)
			for _, values := range tt.change {
				for _, v := range values {
					if v != "" && v != "app" && strings.Contains(page, v) {
						t.Errorf("the page repeats %q", v)
					}
				}
			}
			servertest.WantText(t, r.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		})
	}
}

func TestAuthorizeMethods(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		r := servertest.PostRequest("/oauth2/authorize", servertest.Request(nil))
		r.Method = method
		if got := b.Send(r); got.StatusCode != http.StatusMethodNotAllowed || got.Header.Get("Allow") != "GET" {
			t.Errorf("%s: %d, Allow %q", method, got.StatusCode, got.Header.Get("Allow"))
		}
	}
}

func TestAuthorizePOST(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.AuthorizePOST = true }))
	r := b.Post("/oauth2/authorize", servertest.Request(nil))
	if r.StatusCode != http.StatusSeeOther {
		t.Fatalf("status %d", r.StatusCode)
	}
	servertest.Equal(t, servertest.Location(t, b.Get(r.Header.Get("Location"))).Path, "/oauth2/login")
	servertest.WantStatus(t, b.Post("/oauth2/authorize?state=x", servertest.Request(nil)), http.StatusBadRequest, "parameters in query and body")
}

// "HTTPS is required."
func TestHTTPSRequired(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.IsHTTPS = func(*http.Request) bool { return false } }))
	for _, path := range []string{"/oauth2/authorize?" + servertest.Request(nil).Encode(), "/oauth2/login", "/oauth2/userinfo", "/.well-known/openid-configuration", "/.well-known/jwks.json"} {
		if r := b.Get(path); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" {
			t.Errorf("GET %s: %d", path, r.StatusCode)
		}
	}
	servertest.WantStatus(t, b.Post("/oauth2/token", servertest.CodeForm("x", nil)), http.StatusBadRequest, "token")
}

// Behind a proxy that is not trusted, the refusal says what is to be done.
func TestHTTPSRequiredBehindProxy(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, func(c *authorize.Config) { c.IsHTTPS = func(*http.Request) bool { return false } })
	for _, tt := range []struct {
		header, value string
		told          bool
	}{{"X-Forwarded-Proto", "https", true}, {"Forwarded", "proto=https", true}, {"X-Real-Ip", "192.0.2.1", false}} {
		r := httptest.NewRequest(http.MethodGet, servertest.Issuer+"/.well-known/openid-configuration", nil)
		r.Header.Set(tt.header, tt.value)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if told := strings.Contains(w.Body.String(), "trusted_proxies"); w.Code != http.StatusBadRequest || told != tt.told {
			t.Errorf("%s: %d %s", tt.header, w.Code, w.Body)
		}
	}
}

// "Errors are not returned to the client as an HTTP 500": a store that is full is
// temporarily_unavailable at the redirect URI (RFC 6749 §4.1.2.1).
func TestAuthorizeWithFullStore(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Store = store.NewMemory(1, 0) }))
	u := b.Answer(servertest.Request(nil)) // the session takes the one place
	if q := u.Query(); q.Get("error") != "temporarily_unavailable" || q.Has("error_description") || q.Get("state") != "s" {
		t.Errorf("%s", u)
	}
}

// What the client's list does not cover of SMART's scopes is left out, and the answer says what
// was granted (RFC 6749 §3.3).
func TestScopeGrantedInPart(t *testing.T) {
	t.Parallel()
	lenient := func(c *authorize.Config) { c.Clients[0].Compat = []string{client.IgnoreUnknownScopes} }
	for name, tt := range map[string]struct {
		asked, want string
		change      func(*authorize.Config)
	}{
		"a resource that is not listed":     {"openid user/Patient.write user/Patient.read", "openid user/Patient.read", nil},
		"permissions that are not listed":   {"user/Observation.cruds", "user/Observation.rs", nil},
		"another level":                     {"openid patient/*.rs user/Patient.r", "openid user/Patient.r", nil},
		"a system scope for a person":       {"openid system/*.rs", "openid", nil},
		"refresh tokens that it may not":    {"openid offline_access online_access", "openid", nil},
		"launch context":                    {"openid launch launch/patient launch/questionnaire?role=https://a.example/r", "openid", nil},
		"an unknown word, by option":        {"openid nonsense api:read user/Patient.r", "openid user/Patient.r", lenient},
		"another client's word, by option":  {"openid reports.read", "openid", lenient},
		"a type that R4 has not, by option": {"openid user/Foo.rs", "openid", lenient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := servertest.NewBrowser(t, servertest.New(t, tt.change))
			servertest.Equal(t, b.Redeem(b.Answer(servertest.Request(url.Values{"scope": {tt.asked}}))).Scope, tt.want, tt.asked)
		})
	}
	for name, scope := range map[string]string{"nothing is left": "nonsense", "malformed": "openid user/Patient.sr", "a type that R4 has not": "openid user/Foo.rs"} {
		var change func(*authorize.Config)
		if scope == "nonsense" {
			change = lenient
		}
		b := servertest.NewBrowser(t, servertest.New(t, change))
		u := servertest.Location(t, b.Authorize(servertest.Request(url.Values{"scope": {scope}})))
		servertest.Equal(t, u.Query().Get("error"), "invalid_scope", name)
	}
}

// A client can have every error explained, in what an error_description may hold, and send JSON as
// state.
func TestClientOptions(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, func(c *authorize.Config) { c.Clients[0].Compat = []string{client.ErrorDescription, client.JSONState} })
	allowed := regexp.MustCompile(`^[\x20-\x21\x23-\x5b\x5d-\x7e]+$`) // RFC 6749 §4.1.2.1
	for _, change := range []url.Values{
		{"response_type": {""}}, {"response_type": {"nonsense"}}, {"scope": {"nonsense"}}, {"code_challenge": {"x"}}, {"prompt": {"none"}},
		{"launch": {"nonsense"}}, {"request": {"x"}}, {"id_token_hint": {"x"}}, {"aud": {"https://other.example"}}, {"claims": {"x"}},
	} {
		q := servertest.Location(t, servertest.NewBrowser(t, server).Authorize(servertest.Request(change))).Query()
		if q.Get("error") == "" || !allowed.MatchString(q.Get("error_description")) {
			t.Errorf("%v: %v", change, q)
		}
	}
	state := `{"codeChallenge":"a b","n":[1]}`
	if q := servertest.NewBrowser(t, server).Answer(servertest.Request(url.Values{"state": {state}})).Query(); q.Get("state") != state || q.Get("code") == "" {
		t.Errorf("JSON as state: %v", q)
	}
}

// An EHR that is named may frame the pages of an authorization request, errors included, and no
// other page.
func TestFrameAncestors(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, func(c *authorize.Config) {
		c.FrameAncestors = []string{"https://ehr.example", "http://localhost:8000"}
		c.Clients[0].Consent = client.ConsentRequired
	})
	b := servertest.NewBrowser(t, server)
	for name, r := range map[string]*http.Response{
		"sign-in": b.Follow(b.Authorize(servertest.Request(nil))), "error": b.Authorize(servertest.Request(url.Values{"client_id": {"nobody"}})),
		"consent":   b.Follow(b.SignIn(servertest.Request(nil), "alice", "right")),
		"form_post": b.Authorize(servertest.Request(url.Values{"prompt": {"none"}, "response_mode": {"form_post"}})),
	} {
		policy := r.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "; frame-ancestors https://ehr.example http://localhost:8000;") || r.Header.Get("X-Frame-Options") != "" {
			t.Errorf("%s: %d, %s, X-Frame-Options %q", name, r.StatusCode, policy, r.Header.Get("X-Frame-Options"))
		}
	}
	for _, path := range []string{"/oauth2/account", "/oauth2/logout"} {
		r := b.Get(path)
		if policy := r.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-ancestors 'none'") || r.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %d %s", path, r.StatusCode, policy)
		}
	}
	for _, origin := range []string{"https://*.example", "https://ehr.example/", "https://ehr.example; script-src *", "http://ehr.example", "*", "'self'", ""} {
		c := servertest.Config()
		c.FrameAncestors = []string{origin}
		if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), "frame_ancestors") {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
