package flow_test

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// The case names quote the tables of request parameters (§4.1) and errors (§7) in docs/evidence/interface.md. Each error is
// returned to the redirect URI.
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
		{"code_challenge_method: a value other than S256 yields invalid_request", url.Values{"code_challenge_method": {"plain"}, "code_challenge": {authorizetest.S256(authorizetest.Verifier)}}, "invalid_request"},
		{"code_challenge_method is compared with case", url.Values{"code_challenge_method": {"s256"}, "code_challenge": {authorizetest.S256(authorizetest.Verifier)}}, "invalid_request"},
		{"code_challenge: without code_challenge_method yields invalid_request", url.Values{"code_challenge": {authorizetest.S256(authorizetest.Verifier)}}, "invalid_request"},
		{"code_challenge: required when code_challenge_method is given", url.Values{"code_challenge_method": {"S256"}}, "invalid_request"},
		{"code_challenge that is no SHA-256", url.Values{"code_challenge_method": {"S256"}, "code_challenge": {"short"}}, "invalid_request"},
		{"code_challenge with padding", url.Values{"code_challenge_method": {"S256"}, "code_challenge": {authorizetest.S256(authorizetest.Verifier) + "="}}, "invalid_request"},
		{"PKCE that the client requires", url.Values{"client_id": {"strict"}}, "invalid_request"},
		{"unauthorized_client: asks for token without permission for it", url.Values{"client_id": {"strict"}, "response_type": {"token"}}, "unauthorized_client"},
		{"unauthorized_client: asks for code without permission for it", url.Values{"client_id": {"implicit"}}, "unauthorized_client"},
		{"invalid_scope: unknown", url.Values{"scope": {"openid nonsense"}}, "invalid_scope"},
		{"invalid_scope: malformed", url.Values{"scope": {`openid "profile"`}}, "invalid_scope"},
		{"invalid_scope: not valid for the client", url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}, "scope": {"demo.read"}}, "invalid_scope"},
		{"invalid_scope: nothing that is listed", url.Values{"scope": {"user/Observation.cud launch/patient"}}, "invalid_scope"},
		{"invalid_scope: malformed, as SMART has it", url.Values{"scope": {"openid user/Observation.sr"}}, "invalid_scope"},
		{"invalid_scope: malformed launch context", url.Values{"scope": {"openid launch/"}}, "invalid_scope"},
		{"state: must not be a URL-encoded JSON string", url.Values{"state": {`{"return":"/"}`}}, "invalid_request"},
		{"state: nor a JSON array", url.Values{"state": {` ["a"]`}}, "invalid_request"},
		{"state: URL-encoded JSON, encoded once more", url.Values{"state": {"%7B%22a%22%3A1%7D"}}, "invalid_request"},
		{"a token for another resource", url.Values{"resource": {"https://other.example/fhir/R4"}}, "invalid_target"},
		{"and one for this", url.Values{"resource": {authorizetest.FHIRBase, "https://other.example/fhir/R4"}}, "invalid_target"},
		{"a nonce that an ID token cannot hold", url.Values{"nonce": {"\xff"}}, "invalid_request"},
		{"a system scope for a person", url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}, "scope": {"system/*.rs"}}, "invalid_scope"},
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
			u := authorizetest.Location(t, authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Authorize(authorizetest.Request(tt.change)))
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
			if q.Get("iss") != authorizetest.Issuer {
				t.Errorf("iss %q", q.Get("iss"))
			}
		})
	}
}

func TestAuthorizeMalformedQuery(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	u := authorizetest.Location(t, b.Get("/oauth2/authorize?"+authorizetest.Request(nil).Encode()+"&x=%zz"))
	authorizetest.WantError(t, u, "invalid_request")
}

// If client_id or redirect_uri is invalid, the response is an error page with status 400, without a redirect and without
// request values (docs/evidence/interface.md §4.1).
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
		{"redirect_uri twice", url.Values{"redirect_uri": {authorizetest.Callback, authorizetest.Callback}}},
		{"redirect_uri: must match exactly, trailing slashes included", url.Values{"redirect_uri": {authorizetest.Callback + "/"}}},
		{"redirect_uri: must match exactly, punctuation included", url.Values{"redirect_uri": {authorizetest.Callback + "?"}}},
		{"redirect_uri: must match exactly, case included", url.Values{"redirect_uri": {"https://APP.example.org/callback"}}},
		{"redirect_uri: must match exactly, port included", url.Values{"redirect_uri": {"http://localhost:3001/callback"}}},
		{"redirect_uri: must be pre-registered for the client", url.Values{"redirect_uri": {authorizetest.Callback + "?tenant=1"}}},
		{"redirect_uri: must be an absolute URI", url.Values{"redirect_uri": {"/callback"}}},
		{"redirect_uri: must not contain a fragment", url.Values{"redirect_uri": {authorizetest.Callback + "#f"}}},
		{"redirect_uri: with user information", url.Values{"redirect_uri": {"https://app.example.org@evil.example/callback"}}},
		{"redirect_uri of a script", url.Values{"redirect_uri": {"javascript:alert(1)"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Authorize(authorizetest.Request(tt.change))
			if r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" {
				t.Errorf("status %d, Location %q", r.StatusCode, r.Header.Get("Location"))
			}
			page := authorizetest.Body(t, r)
			for _, values := range tt.change {
				for _, v := range values {
					if v != "" && v != "app" && strings.Contains(page, v) {
						t.Errorf("the page repeats %q", v)
					}
				}
			}
			authorizetest.WantText(t, r.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		})
	}
}

func TestAuthorizeMethods(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		r := authorizetest.PostRequest("/oauth2/authorize", authorizetest.Request(nil))
		r.Method = method
		if got := b.Send(r); got.StatusCode != http.StatusMethodNotAllowed || got.Header.Get("Allow") != "GET" {
			t.Errorf("%s: %d, Allow %q", method, got.StatusCode, got.Header.Get("Allow"))
		}
	}
}

func TestAuthorizePOST(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.AuthorizePOST = true }))
	r := b.Post("/oauth2/authorize", authorizetest.Request(nil))
	if r.StatusCode != http.StatusSeeOther {
		t.Fatalf("status %d", r.StatusCode)
	}
	authorizetest.Equal(t, authorizetest.Location(t, b.Get(r.Header.Get("Location"))).Path, "/oauth2/login")
	authorizetest.WantStatus(t, b.Post("/oauth2/authorize?state=x", authorizetest.Request(nil)), http.StatusBadRequest, "parameters in query and body")
}

// The authorization endpoint requires https (docs/evidence/interface.md §4.1).
func TestHTTPSRequired(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.IsHTTPS = func(*http.Request) bool { return false } }))
	for _, path := range []string{"/oauth2/authorize?" + authorizetest.Request(nil).Encode(), "/oauth2/login", "/oauth2/userinfo", "/.well-known/openid-configuration", "/.well-known/jwks.json"} {
		if r := b.Get(path); r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" {
			t.Errorf("GET %s: %d", path, r.StatusCode)
		}
	}
	authorizetest.WantStatus(t, b.Post("/oauth2/token", authorizetest.CodeForm("x", nil)), http.StatusBadRequest, "token")
}

// Behind an untrusted proxy, the error explains the fix.
func TestHTTPSRequiredBehindProxy(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, func(c *authorize.Config) { c.IsHTTPS = func(*http.Request) bool { return false } })
	for _, tt := range []struct {
		header, value string
		wantHint      bool
	}{{"X-Forwarded-Proto", "https", true}, {"Forwarded", "proto=https", true}, {"X-Real-Ip", "192.0.2.1", false}} {
		r := httptest.NewRequest(http.MethodGet, authorizetest.Issuer+"/.well-known/openid-configuration", nil)
		r.Header.Set(tt.header, tt.value)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if hasHint := strings.Contains(w.Body.String(), "trusted_proxies"); w.Code != http.StatusBadRequest || hasHint != tt.wantHint {
			t.Errorf("%s: %d %s", tt.header, w.Code, w.Body)
		}
	}
}

// If the store is full, the redirect URI receives temporarily_unavailable (RFC 6749 §4.1.2.1), and the status is never 500
// (docs/evidence/interface.md §7).
func TestAuthorizeWithFullStore(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store.NewMemory(1, 0) }))
	u := b.SignInAlice(authorizetest.Request(nil)) // the session fills the store, which has a capacity of one
	if q := u.Query(); q.Get("error") != "temporarily_unavailable" || q.Has("error_description") || q.Get("state") != "s" {
		t.Errorf("%s", u)
	}
}

// SMART scopes that the client may not request are omitted, and the response contains the granted
// scope (RFC 6749 §3.3).
func TestScopeGrantedInPart(t *testing.T) {
	t.Parallel()
	lenient := func(c *authorize.Config) { c.Clients[0].Compat = []string{client.CompatIgnoreUnknownScopes} }
	for name, tt := range map[string]struct {
		requested, want string
		change          func(*authorize.Config)
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
			b := authorizetest.NewBrowser(t, authorizetest.New(t, tt.change))
			authorizetest.Equal(t, b.Redeem(b.SignInAlice(authorizetest.Request(url.Values{"scope": {tt.requested}}))).Scope, tt.want, tt.requested)
		})
	}
	for name, scope := range map[string]string{"nothing is left": "nonsense", "malformed": "openid user/Patient.sr", "a type that R4 has not": "openid user/Foo.rs"} {
		var change func(*authorize.Config)
		if scope == "nonsense" {
			change = lenient
		}
		b := authorizetest.NewBrowser(t, authorizetest.New(t, change))
		u := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"scope": {scope}})))
		authorizetest.Equal(t, u.Query().Get("error"), "invalid_scope", name)
	}
}

// With the compatibility options, every error has an error_description in the permitted characters, and JSON is accepted as
// state.
func TestClientOptions(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, func(c *authorize.Config) {
		c.Clients[0].Compat = []string{client.CompatErrorDescription, client.CompatJSONState}
	})
	allowed := regexp.MustCompile(`^[\x20-\x21\x23-\x5b\x5d-\x7e]+$`) // RFC 6749 §4.1.2.1
	for _, change := range []url.Values{
		{"response_type": {""}}, {"response_type": {"nonsense"}}, {"scope": {"nonsense"}}, {"code_challenge": {"x"}}, {"prompt": {"none"}},
		{"launch": {"nonsense"}}, {"request": {"x"}}, {"id_token_hint": {"x"}}, {"aud": {"https://other.example"}}, {"claims": {"x"}},
	} {
		q := authorizetest.Location(t, authorizetest.NewBrowser(t, server).Authorize(authorizetest.Request(change))).Query()
		if q.Get("error") == "" || !allowed.MatchString(q.Get("error_description")) {
			t.Errorf("%v: %v", change, q)
		}
	}
	state := `{"codeChallenge":"a b","n":[1]}`
	if q := authorizetest.NewBrowser(t, server).SignInAlice(authorizetest.Request(url.Values{"state": {state}})).Query(); q.Get("state") != state || q.Get("code") == "" {
		t.Errorf("JSON as state: %v", q)
	}
}

// A configured EHR may frame only the pages of an authorization request, including its error pages.
func TestFrameAncestors(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, func(c *authorize.Config) {
		c.FrameAncestors = []string{"https://ehr.example", "http://localhost:8000"}
		c.Clients[0].Consent = client.ConsentRequired
	})
	b := authorizetest.NewBrowser(t, server)
	for name, r := range map[string]*http.Response{
		"sign-in": b.Follow(b.Authorize(authorizetest.Request(nil))), "error": b.Authorize(authorizetest.Request(url.Values{"client_id": {"nobody"}})),
		"consent":   b.Follow(b.SignIn(authorizetest.Request(nil), "alice", "right")),
		"form_post": b.Authorize(authorizetest.Request(url.Values{"prompt": {"none"}, "response_mode": {"form_post"}})),
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
		c := authorizetest.Config()
		c.FrameAncestors = []string{origin}
		if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), "frame_ancestors") {
			t.Errorf("%q: %v", origin, err)
		}
	}
}

// Unsupported and unknown parameters have no effect (RFC 6749 §3.1, OpenID Connect Core §3.1.2.1, §15.1).
func TestHarmlessParameters(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"ui_locales": "fr-CA fr en", "claims_locales": "de", "display": "popup", "acr_values": "gold silver",
		"login_hint": "somebody@example.org", "registration": "{}", "unknown": "x", "redirect_uri2": "https://evil.example/",
	} {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
		u := b.SignInAlice(authorizetest.Request(url.Values{name: {value}}))
		if u.Query().Get("code") == "" || !strings.HasPrefix(u.String(), authorizetest.Callback+"?") {
			t.Errorf("%s: %s", name, u)
		}
	}
}

// A redirect URI given in two parameters, encodings or cases either resolves to the registered URI
// or is rejected without a redirect.
func TestParameterPollution(t *testing.T) {
	t.Parallel()
	good, evil := url.QueryEscape(authorizetest.Callback), url.QueryEscape("https://evil.example/")
	tail := "&client_id=app&response_type=code&scope=nonsense"
	for _, query := range []string{
		"redirect_uri=" + good + "&redirect_uri=" + evil + tail,
		"redirect_uri=" + evil + "&redirect_uri=" + good + tail,
		"redirect_uri=" + good + "&redirect_ur%69=" + evil + tail,
		"redirect_uri=" + good + "&redirect_uri[]=" + evil + tail,
		"redirect_uri=" + good + "&REDIRECT_URI=" + evil + tail,
		"redirect_uri=" + good + ";redirect_uri=" + evil + tail,
		"redirect_uri=" + good + "%26redirect_uri=" + evil + tail,
		"redirect_uri=" + good + "%00" + evil + tail,
		"redirect_uri=" + good + "%0d%0aLocation:" + evil + tail,
		"redirect_uri=" + evil + tail,
		"redirect_uri=" + good + tail + "&client_id=strict",
	} {
		r := authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Get("/oauth2/authorize?" + query)
		to := r.Header.Get("Location")
		if to != "" && !strings.HasPrefix(to, authorizetest.Callback+"?error=invalid_") || to == "" && r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s\nstatus %d, sent to %q", query, r.StatusCode, to)
		}
		if strings.Contains(authorizetest.Body(t, r)+to, "evil") {
			t.Errorf("%s: the answer repeats it", query)
		}
	}
}

// A request_uri is never fetched, because that would allow SSRF (RFC 9700 §4.10).
func TestRequestURIIsNotFetched(t *testing.T) {
	t.Parallel()
	fetched := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fetched = true }))
	defer inside.Close()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for _, uri := range []string{inside.URL, "urn:ietf:params:oauth:request_uri:" + inside.URL} {
		b.Authorize(authorizetest.Request(url.Values{"request_uri": {uri}}))
		b.Post("/oauth2/par", authorizetest.Request(url.Values{"request_uri": {uri}}))
	}
	if fetched {
		t.Error("the request_uri was fetched")
	}
}

// A form-encoded query has only & as a separator (URL Standard §5.1). A semicolon is an ordinary
// character (RFC 3986 §2.2).
func TestSemicolonSeparatesNothing(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	b.SignInAlice(authorizetest.Request(nil))
	u := authorizetest.Location(t, b.Get("/oauth2/authorize?"+authorizetest.Request(url.Values{"state": {""}}).Encode()+"&state=a;nonce=b"))
	if q := u.Query(); q.Get("state") != "a;nonce=b" {
		t.Fatalf("%s", u)
	}
	r := authorizetest.PostRequest("/oauth2/token", nil)
	r.Body = io.NopCloser(strings.NewReader(authorizetest.CodeForm(u.Query().Get("code"), nil).Encode() + "&x=a;code=b"))
	if got := authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)); got.AccessToken == "" {
		t.Errorf("%+v", got)
	}
}

// A malformed query is a client error, not an internal error that alerts the operator (RFC 9110 §15.5.1).
func TestMalformedQuery(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/oauth2/authorize", "/oauth2/login", "/oauth2/select_account", "/oauth2/consent", "/oauth2/logout"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.URL.RawQuery = "request=%%%"
		authorizetest.WantStatus(t, authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Send(r), http.StatusBadRequest, path)
	}
}

// RFC 9126 §2.3: "the authorization server responds with an HTTP 413". The other endpoints do the
// same (RFC 9110 §15.5.14).
func TestOversizedForm(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for name, tt := range map[string]struct {
		form   url.Values
		status int
	}{
		"a field over 8 KiB": {url.Values{"username": {strings.Repeat("a", 8<<10+1)}}, http.StatusBadRequest},
		"over 64 KiB":        {url.Values{"request": {strings.Repeat("a", 64<<10)}}, http.StatusRequestEntityTooLarge},
	} {
		for _, path := range []string{"/oauth2/login", "/oauth2/par", "/oauth2/token", "/oauth2/revoke", "/oauth2/introspect"} {
			authorizetest.WantStatus(t, b.Post(path, tt.form), tt.status, path, name)
		}
	}
}

// Endpoints that accept tokens read them from a POST body only, and their responses, including
// errors, are not cacheable.
func TestTokensInFormsOnly(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithResourceServer))
	token := b.Tokens(nil).AccessToken
	for _, path := range []string{"/oauth2/token", "/oauth2/revoke", "/oauth2/introspect"} {
		query := url.Values{"token": {token}, "client_id": {"app"}, "grant_type": {"refresh_token"}}.Encode()
		asJSON := authorizetest.PostRequest(path, nil)
		asJSON.Header.Set("Content-Type", "application/json")
		tests := map[string]*http.Response{
			"the query":   b.Send(authorizetest.PostRequest(path+"?"+query, nil)),
			"JSON":        b.Send(asJSON),
			"twice":       b.Post(path, url.Values{"client_id": {"app", "app"}, "token": {token}}),
			"too large":   b.Post(path, url.Values{"client_id": {"app"}, "token": {token}, "x": {strings.Repeat("a", 64<<10)}}),
			"GET":         b.Get(path + "?" + query),
			"no password": b.Post(path, url.Values{"grant_type": {"password"}, "username": {"alice"}, "password": {"right"}, "client_id": {"app"}}),
		}
		for name, r := range tests {
			if r.StatusCode < 400 || r.StatusCode >= 500 {
				t.Errorf("%s by %s: %d", path, name, r.StatusCode)
			}
			if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Pragma") != "no-cache" {
				t.Errorf("%s by %s: header %v", path, name, r.Header)
			}
		}
	}
	if !b.IsTokenValid(token) {
		t.Error("one of them revoked the token")
	}
	for path, client := range map[string]string{"/oauth2/revoke": "app", "/oauth2/introspect": "fhir-server"} {
		secret := map[string]string{"fhir-server": "rs"}[client]
		if r := authorizetest.SendTokenForm(b, path, token, client, secret); r.StatusCode != http.StatusOK || r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Pragma") != "no-cache" {
			t.Errorf("%s: %d %v", path, r.StatusCode, r.Header)
		}
	}
}

func implicitRequest(change url.Values) url.Values {
	q := authorizetest.Request(url.Values{"response_type": {"id_token"}, "nonce": {"n"}})
	maps.Copy(q, change)
	return q
}

func fragment(t *testing.T, u *url.URL) url.Values {
	t.Helper()
	_, raw, _ := strings.Cut(u.String(), "#")
	f, err := url.ParseQuery(raw)
	authorizetest.NoError(t, err)
	return f
}

// Token responses are in the fragment (docs/evidence/interface.md §2, OpenID Connect Core §3.2.2.5). They contain access_token,
// token_type, expires_in and state, but no refresh token. They contain an id_token only if openid was requested.
func TestResponsesInFragment(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, responseType, scope, want string
		configure                       func(*authorize.Config)
	}{
		{"id_token", "id_token", "openid", "id_token state iss", authorizetest.AllowAllFlows},
		{"id_token token", "id_token token", "openid", "id_token access_token token_type expires_in state iss", authorizetest.AllowAllFlows},
		{"token id_token", "token id_token", "openid", "id_token access_token token_type expires_in state iss", authorizetest.AllowAllFlows},
		{"token without openid", "token", "demo.read", "access_token token_type expires_in state iss", nil},
		{"token with openid", "token", "openid demo.read", "id_token access_token token_type expires_in state iss", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, tt.configure))
			u := b.SignInAlice(implicitRequest(url.Values{"response_type": {tt.responseType}, "scope": {tt.scope}}))
			_, raw, _ := strings.Cut(u.String(), "#")
			var names []string
			for pair := range strings.SplitSeq(raw, "&") {
				names = append(names, strings.SplitN(pair, "=", 2)[0])
			}
			if got := strings.Join(names, " "); got != tt.want || u.RawQuery != "" {
				t.Errorf("fragment %q, query %q", got, u.RawQuery)
			}
			f := fragment(t, u)
			access := f.Get("access_token")
			if access != "" && (f.Get("token_type") != "bearer" || f.Get("expires_in") != "3600") || f.Get("state") != "s" {
				t.Errorf("fragment %v", f)
			}
			if !f.Has("id_token") {
				return
			}
			claims := b.Claims(f.Get("id_token"))
			if claims["nonce"] != "n" || claims["sub"] != "alice" || (claims["at_hash"] != nil) != (access != "") {
				t.Errorf("ID token %v", claims)
			}
			if access != "" {
				authorizetest.CheckIDToken(b, f.Get("id_token"), access, "n")
			}
		})
	}
}

// If there is no access token, the ID token contains the claims of the scope. Otherwise, userinfo returns them (OpenID Connect
// Core §5.4).
func TestImplicitFlowClaims(t *testing.T) {
	t.Parallel()
	for responseType, want := range map[string]bool{"id_token": true, "id_token token": false} {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowAllFlows))
		u := b.SignInAlice(implicitRequest(url.Values{"response_type": {responseType}, "scope": {"openid profile email"}}))
		claims := b.Claims(fragment(t, u).Get("id_token"))
		if got := claims["name"] == "Alice Adams" && claims["email_verified"] == true; got != want || claims["phone_number"] != nil {
			t.Errorf("%s: %v", responseType, claims)
		}
	}
}

// Errors of response types code and token are sent in the query (docs/evidence/interface.md). A response_mode or another
// response type changes the mode.
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
			u := authorizetest.Location(t, authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowAllFlows)).Authorize(authorizetest.Request(tt.change)))
			q, other := u.Query(), fragment(t, u)
			if tt.mode == "#" {
				q, other = other, q
			}
			if q.Get("error") != tt.want || q.Get("iss") != authorizetest.Issuer || len(other) != 0 {
				t.Errorf("%s", u)
			}
		})
	}
}

var policyParts = regexp.MustCompile(`form-action (\S+); script-src 'sha256-([^']*)'$`)

// parseFormPost parses the page that submits a response by form.
func parseFormPost(t *testing.T, r *http.Response) (action string, fields url.Values) {
	t.Helper()
	page := authorizetest.Body(t, r)
	form := authorizetest.ReadForm(page)
	if r.StatusCode != http.StatusOK || form.Action == "" || r.Header.Get("Location") != "" {
		t.Fatalf("status %d: %s", r.StatusCode, page)
	}
	return form.Action, form.Fields
}

// form_post works for every response type and for errors (OAuth 2.0 Form Post Response Mode §2).
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
			b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowAllFlows))
			b.SignInAlice(authorizetest.Request(nil))
			q := authorizetest.Request(tt.change)
			q.Set("response_mode", "form_post")
			q.Set("state", state)
			r := b.Authorize(q)
			action, fields := parseFormPost(t, r)
			if action != authorizetest.Callback || !fields.Has(tt.want) || fields.Get("state") != state || fields.Get("iss") != authorizetest.Issuer {
				t.Errorf("to %s: %v", action, fields)
			}
			if fields.Has("code") && fields.Has("error") {
				t.Errorf("code and error: %v", fields)
			}
		})
	}
}

// The page may run only its own script and submit only to the client's origin.
func TestFormPostPolicy(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	b.SignInAlice(authorizetest.Request(nil))
	r := b.Authorize(authorizetest.Request(url.Values{"response_mode": {"form_post"}}))
	policy := r.Header.Get("Content-Security-Policy")
	parts := policyParts.FindStringSubmatch(policy)
	if parts == nil || parts[1] != "https://app.example.org" || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Fatalf("policy %q", policy)
	}
	page := authorizetest.Body(t, r)
	_, rest, _ := strings.Cut(page, "<script>")
	script, _, _ := strings.Cut(rest, "</script>")
	if digest(script) != parts[2] || !strings.Contains(page, "<button>") {
		t.Errorf("the script %q has the hash %s, allowed is %s", script, digest(script), parts[2])
	}
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("header %v", r.Header)
	}
}

// Browsers alter line breaks and invalid UTF-8 in submitted form values, and pages contain no control characters.
func TestFormPostState(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for _, state := range []string{"line\nbreak", "\xff", "a\u202eb"} {
		if _, fields := parseFormPost(t, b.Authorize(authorizetest.Request(url.Values{"response_mode": {"form_post"}, "state": {state}}))); fields.Get("error") != "invalid_request" {
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
		"all":       {authorizetest.AllowAllFlows, "code token id_token id_token token", "query form_post fragment"},
		"code only": {func(c *authorize.Config) { c.Clients = c.Clients[1:3] }, "code", "query form_post"},
	} {
		m := authorizetest.Decode[map[string]any](t, authorizetest.NewBrowser(t, authorizetest.New(t, tt.change)).Get("/.well-known/openid-configuration"))
		if authorizetest.JoinStrings(m["response_types_supported"]) != tt.types || authorizetest.JoinStrings(m["response_modes_supported"]) != tt.modes {
			t.Errorf("%s: %v, %v", name, m["response_types_supported"], m["response_modes_supported"])
		}
	}
}

// Success and error responses contain iss, and the discovery document announces it (RFC 9207 §2, §3).
func TestIssuerInEveryResponse(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowAllFlows))
	b.SignInAlice(authorizetest.Request(nil))
	for _, responseType := range append([]string{"", "magic"}, client.ResponseTypes...) {
		for _, prompt := range []string{"", "none login"} {
			u := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"response_type": {responseType}, "nonce": {"n"}, "prompt": {prompt}})))
			if values := u.Query(); values.Get("iss") != authorizetest.Issuer && fragment(t, u).Get("iss") != authorizetest.Issuer {
				t.Errorf("response_type %q: %s", responseType, u)
			}
		}
	}
	m := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
	if m["authorization_response_iss_parameter_supported"] != true || m["issuer"] != authorizetest.Issuer {
		t.Errorf("%v", m)
	}
}

// The token flow is disabled by default and absent from the discovery document. Its response has no refresh token and is not
// cacheable (RFC 9700 §2.1.2).
func TestTokenFlowIsOffByDefault(t *testing.T) {
	t.Parallel()
	q := authorizetest.Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}})
	for _, responseType := range []string{"token", "id_token", "id_token token", "code token", "code id_token", "none"} {
		q.Set("response_type", responseType)
		u := authorizetest.Location(t, authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Authorize(q))
		if got := u.Query().Get("error"); got != "unauthorized_client" && got != "unsupported_response_type" {
			t.Errorf("%s: %s", responseType, u)
		}
	}
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	b.SignInAlice(authorizetest.Request(nil))
	r := b.Authorize(authorizetest.Request(url.Values{"response_type": {"token"}}))
	if f := fragment(t, authorizetest.Location(t, r)); f.Get("access_token") == "" || f.Has("refresh_token") || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v, %v", f, r.Header)
	}
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// If the request object feature is disabled (OpenID Connect Core §6), clients that may send request objects get an error, and
// clients that must send them are always rejected.
func TestRequestObjectsNotSupported(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		c.Clients = append(c.Clients, client.Client{
			ID: "signing", RedirectURIs: []string{authorizetest.Callback}, JWKS: authorizetest.PublicKeys(jose.RS256),
			RequestObjects: client.RequestObjects{Allowed: true, Required: true, URIs: []string{"https://app.example.org/r"}},
		})
		c.Clients[0].RequestObjects = client.RequestObjects{Allowed: true}
	}))
	for _, id := range []string{"app", "signing"} {
		for name, tt := range map[string]struct {
			change url.Values
			want   string
		}{
			"by value":     {url.Values{"request": {"eyJ"}}, "request_not_supported"},
			"by reference": {url.Values{"request_uri": {"https://app.example.org/r"}}, "request_uri_not_supported"},
			"both":         {url.Values{"request": {"eyJ"}, "request_uri": {"https://app.example.org/r"}}, "request_not_supported"},
		} {
			tt.change.Set("client_id", id)
			authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(tt.change))), tt.want, id+" "+name)
		}
	}
	authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"client_id": {"signing"}}))), "invalid_request", "without an object")
	document := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
	if document["request_parameter_supported"] != false || document["request_uri_parameter_supported"] != false {
		t.Errorf("discovery: %v, %v", document["request_parameter_supported"], document["request_uri_parameter_supported"])
	}
}
