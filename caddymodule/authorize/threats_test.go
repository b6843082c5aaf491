package authorize_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
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

// threatPages are all pages that a person sees, by what opens them.
func threatPages(t *testing.T, server http.Handler) map[string]*http.Response {
	t.Helper()
	b := servertest.NewBrowser(t, server)
	pages := map[string]*http.Response{
		"sign-in": b.Get(servertest.Location(t, b.Authorize(servertest.Request(nil))).String()),
		"refused": b.SignIn(servertest.Request(nil), "alice", "wrong"),
		"error":   b.Authorize(servertest.Request(url.Values{"client_id": {"nobody"}})),
		"expired": b.Get("/oauth2/consent?request=x"),
	}
	b.Answer(servertest.Request(nil))
	pages["consent"] = b.Get(servertest.Location(t, b.Authorize(servertest.Request(url.Values{"prompt": {"consent"}, "scope": {"openid a<script>b"}}))).String())
	pages["select_account"] = b.Get(servertest.Location(t, b.Authorize(servertest.Request(selectAccount))).String())
	pages["form_post"] = b.Authorize(servertest.Request(url.Values{"response_mode": {"form_post"}}))
	pages["sign-out"] = b.Get("/oauth2/logout?client_id=app")
	return pages
}

// No page can be framed, kept, or made to run or load what is not its own; names
// that hold markup are shown as text (RFC 9700 §4.16).
func TestPagesWithstandMarkupAndFrames(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, func(c *authorize.Config) {
		c.Clients[0].Name = `<script>alert("client")</script>`
		c.Clients[0].Scopes = []string{"a<script>b"}
		c.Users[0].Name = `<img src=x onerror=alert("person")>`
	})
	for name, r := range threatPages(t, server) {
		page := servertest.Body(t, r)
		scripts := 0
		if name == "form_post" {
			scripts = 1
		}
		if !strings.Contains(page, "<main>") || strings.Count(page, "<script") != scripts || strings.Contains(page, "<img") || strings.Contains(page, "src=") && !strings.Contains(page, "&lt;img src=") {
			t.Errorf("%s: %s", name, page)
		}
		for header, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; ",
			"X-Frame-Options":         "DENY", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if got := r.Header.Get(header); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s %q", name, header, got)
			}
		}
		if strings.Contains(r.Header.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: %s", name, r.Header.Get("Content-Security-Policy"))
		}
	}
}

// After a form with a password or a decision the browser goes on by GET: 307 and
// 308 would send the form on (RFC 9700 §4.12).
func TestFormsAreNotSentOn(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.AuthorizePOST = true }))
	answers := map[string]*http.Response{
		"authorize": b.Post("/oauth2/authorize", servertest.Request(nil)),
		"sign-in":   b.SignIn(servertest.Request(nil), "alice", "right"),
	}
	_, sealed := b.OpenForm(b.Authorize(servertest.Request(selectAccount)))
	answers["select_account"] = b.Post("/oauth2/select_account", servertest.Decision(sealed, "other"))
	_, sealed = b.OpenForm(b.Authorize(servertest.Request(url.Values{"prompt": {"consent"}})))
	answers["consent"] = b.Post("/oauth2/consent", servertest.Decision(sealed, "allow"))
	answers["consent denied"] = b.Post("/oauth2/consent", servertest.Decision(sealed, "deny"))
	for name, r := range answers {
		if r.StatusCode != http.StatusFound && r.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: %d", name, r.StatusCode)
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

// Where the browser is sent, and what pages and tokens say, comes from the
// configuration and never from the request's host.
func TestForgedHost(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.AuthorizePOST = true }))
	b.Answer(servertest.Request(nil))
	for _, path := range []string{
		"/oauth2/authorize?" + servertest.Request(nil).Encode(),
		"/oauth2/authorize?" + servertest.Request(url.Values{"prompt": {"login"}}).Encode(),
		"/oauth2/authorize?" + servertest.Request(url.Values{"prompt": {"consent"}}).Encode(),
		"/oauth2/authorize?" + servertest.Request(selectAccount).Encode(),
		"/oauth2/authorize?" + servertest.Request(url.Values{"response_mode": {"form_post"}}).Encode(),
		"/oauth2/authorize", "/oauth2/logout", "/.well-known/openid-configuration", "/fhir/R4/.well-known/smart-configuration",
	} {
		r := httptest.NewRequest(http.MethodGet, "https://evil.example"+path, nil)
		for _, name := range []string{"X-Forwarded-Host", "X-Original-Host", "Forwarded", "Referer", "Origin", "X-Forwarded-Proto", "X-Original-URL"} {
			r.Header.Set(name, "https://evil.example/")
		}
		got := b.Send(r)
		if page := servertest.Body(t, got); strings.Contains(page, "evil.example") || strings.Contains(got.Header.Get("Location"), "evil.example") {
			t.Errorf("%s: Location %q, %s", path, got.Header.Get("Location"), page)
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

// RFC 9207 §2, §3: success and error say who answers, and discovery announces it.
func TestIssuerInEveryAnswer(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, everyFlow))
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
