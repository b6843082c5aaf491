package flow_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// Parameters that change nothing here, and ones that nobody knows (RFC 6749 §3.1,
// OpenID Connect Core §3.1.2.1, §15.1).
func TestHarmlessParameters(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"ui_locales": "fr-CA fr en", "claims_locales": "de", "display": "popup", "acr_values": "gold silver",
		"login_hint": "somebody@example.org", "registration": "{}", "unknown": "x", "redirect_uri2": "https://evil.example/",
	} {
		b := servertest.NewBrowser(t, servertest.New(t, nil))
		u := b.Answer(servertest.Request(url.Values{name: {value}}))
		if u.Query().Get("code") == "" || !strings.HasPrefix(u.String(), servertest.Callback+"?") {
			t.Errorf("%s: %s", name, u)
		}
	}
}

// One address in two parameters, encodings or cases: either the registered one
// counts, or nobody is sent anywhere.
func TestParameterPollution(t *testing.T) {
	t.Parallel()
	good, evil := url.QueryEscape(servertest.Callback), url.QueryEscape("https://evil.example/")
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
		r := servertest.NewBrowser(t, servertest.New(t, nil)).Get("/oauth2/authorize?" + query)
		to := r.Header.Get("Location")
		if to != "" && !strings.HasPrefix(to, servertest.Callback+"?error=invalid_") || to == "" && r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s\nstatus %d, sent to %q", query, r.StatusCode, to)
		}
		if strings.Contains(servertest.Body(t, r)+to, "evil") {
			t.Errorf("%s: the answer repeats it", query)
		}
	}
}

// A request_uri is not fetched: it would be a way into the network behind us
// (RFC 9700 §4.10).
func TestRequestURIIsNotFetched(t *testing.T) {
	t.Parallel()
	fetched := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fetched = true }))
	defer inside.Close()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	for _, uri := range []string{inside.URL, "urn:ietf:params:oauth:request_uri:" + inside.URL} {
		b.Authorize(servertest.Request(url.Values{"request_uri": {uri}}))
		b.Post("/oauth2/par", servertest.Request(url.Values{"request_uri": {uri}}))
	}
	if fetched {
		t.Error("the request_uri was fetched")
	}
}

// A query that is read as forms are has one separator, & (URL Standard §5.1), and a
// semicolon is a character like others (RFC 3986 §2.2).
func TestSemicolonSeparatesNothing(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	b.Answer(servertest.Request(nil))
	u := servertest.Location(t, b.Get("/oauth2/authorize?"+servertest.Request(url.Values{"state": {""}}).Encode()+"&state=a;nonce=b"))
	if q := u.Query(); q.Get("state") != "a;nonce=b" {
		t.Fatalf("%s", u)
	}
	r := servertest.PostRequest("/oauth2/token", nil)
	r.Body = io.NopCloser(strings.NewReader(servertest.CodeForm(u.Query().Get("code"), nil).Encode() + "&x=a;code=b"))
	if got := servertest.Decode[servertest.TokenResponse](t, b.Send(r)); got.AccessToken == "" {
		t.Errorf("%+v", got)
	}
}

// A query that cannot be read is the sender's fault, not a failure here that wakes
// the operator (RFC 9110 §15.5.1).
func TestMalformedQuery(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/oauth2/authorize", "/oauth2/login", "/oauth2/select_account", "/oauth2/consent", "/oauth2/logout"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.URL.RawQuery = "request=%%%"
		servertest.WantStatus(t, servertest.NewBrowser(t, servertest.New(t, nil)).Send(r), http.StatusBadRequest, path)
	}
}

// RFC 9126 §2.3: "the authorization server responds with an HTTP 413", and so do
// the other endpoints (RFC 9110 §15.5.14).
func TestOversizedForm(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	for name, tt := range map[string]struct {
		form   url.Values
		status int
	}{
		"a field over 8 KiB": {url.Values{"username": {strings.Repeat("a", 8<<10+1)}}, http.StatusBadRequest},
		"over 64 KiB":        {url.Values{"request": {strings.Repeat("a", 64<<10)}}, http.StatusRequestEntityTooLarge},
	} {
		for _, path := range []string{"/oauth2/login", "/oauth2/par", "/oauth2/token", "/oauth2/revoke", "/oauth2/introspect"} {
			servertest.WantStatus(t, b.Post(path, tt.form), tt.status, path, name)
		}
	}
}

// What takes tokens takes them from the body of a POST alone, and no answer is
// kept by a cache, refusals included.
func TestFormsAlone(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, servertest.ResourceServer))
	token := b.Tokens(nil).AccessToken
	for _, path := range []string{"/oauth2/token", "/oauth2/revoke", "/oauth2/introspect"} {
		query := url.Values{"token": {token}, "client_id": {"app"}, "grant_type": {"refresh_token"}}.Encode()
		asJSON := servertest.PostRequest(path, nil)
		asJSON.Header.Set("Content-Type", "application/json")
		tests := map[string]*http.Response{
			"the query":   b.Send(servertest.PostRequest(path+"?"+query, nil)),
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
	if !b.TokenWorks(token) {
		t.Error("one of them revoked the token")
	}
	for path, client := range map[string]string{"/oauth2/revoke": "app", "/oauth2/introspect": "fhir-server"} {
		secret := map[string]string{"fhir-server": "rs"}[client]
		if r := servertest.AskAboutToken(b, path, token, client, secret); r.StatusCode != http.StatusOK || r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Pragma") != "no-cache" {
			t.Errorf("%s: %d %v", path, r.StatusCode, r.Header)
		}
	}
}
