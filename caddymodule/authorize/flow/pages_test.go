package flow_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// allPages are all pages that a person sees, by what opens them.
func allPages(t *testing.T, server http.Handler) map[string]*http.Response {
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

// A site's logo is at its own address, and only where there is one.
func TestLogo(t *testing.T) {
	t.Parallel()
	logo, err := page.NewLogo([]byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`))
	servertest.NoError(t, err)
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Branding.Logo = logo }))
	shown := servertest.Body(t, b.Authorize(servertest.Request(url.Values{"client_id": {"nobody"}})))
	_, address, _ := strings.Cut(shown, `<img src="`)
	address, _, _ = strings.Cut(address, `"`)
	if r := b.Get(address); r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "image/svg+xml" || r.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%q: %d %v", address, r.StatusCode, r.Header)
	}
	servertest.WantStatus(t, servertest.NewBrowser(t, servertest.New(t, nil)).Get("/oauth2/logo"), http.StatusNotFound, "without a logo")
}

// The pages are in the request's language, and keep it after the redirect to them.
func TestPagesInTheRequestsLanguage(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, nil)
	b := servertest.NewBrowser(t, server)
	german := url.Values{"ui_locales": {"de-CH"}, "prompt": {"consent"}}
	pages := map[string]*http.Response{
		"sign-in": b.Get(servertest.Location(t, b.Authorize(servertest.Request(german))).String()),
		"refused": b.SignIn(servertest.Request(german), "alice", "wrong"),
		"error":   b.Authorize(servertest.Request(url.Values{"client_id": {"nobody"}, "ui_locales": {"de"}})),
	}
	b.Answer(servertest.Request(nil))
	pages["consent"] = b.Get(servertest.Location(t, b.Authorize(servertest.Request(german))).String())
	pages["sign-out"] = b.Get("/oauth2/logout?client_id=app&ui_locales=de")
	for name, r := range pages {
		if got := r.Header.Get("Content-Language"); got != "de" || !strings.Contains(servertest.Body(t, r), `<html lang="de">`) {
			t.Errorf("%s: %q", name, got)
		}
	}
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
	for name, r := range allPages(t, server) {
		page := servertest.Body(t, r)
		scripts := 0
		if strings.Contains(r.Header.Get("Content-Security-Policy"), "; script-src 'sha256-") {
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

// A page's way back leads to the redirect URI of its own request, without a code, and ends
// what the page was for.
func TestBackToTheApp(t *testing.T) {
	t.Parallel()
	state := url.Values{"state": {"back"}}
	deny := func(b *servertest.Browser, path, field, value string) *http.Response {
		return b.Post(path, url.Values{field: {value}, "decision": {"deny"}, "redirect_uri": {"https://evil.example/"}, "username": {"alice"}, "password": {"right"}})
	}
	tests := map[string]func(b *servertest.Browser) (page string, response *http.Response){
		"sign-in": func(b *servertest.Browser) (string, *http.Response) {
			page, sealed := b.OpenForm(b.Authorize(servertest.Request(state)))
			return page, deny(b, "/oauth2/login", "request", sealed)
		},
		"second factor": func(b *servertest.Browser) (string, *http.Response) {
			b.Server = servertest.New(t, servertest.WithTOTP)
			shown := b.SignIn(servertest.Request(state), "alice", "right")
			page, factor := servertest.Body(t, b.Get(shown.Header.Get("Location"))), b.OpenSecondFactor(shown)
			back := deny(b, "/oauth2/login", "factor", factor)
			servertest.WantStatus(t, b.Get("/oauth2/login?factor="+url.QueryEscape(factor)), http.StatusBadRequest, "the sign-in goes on")
			return page, back
		},
		"account": func(b *servertest.Browser) (string, *http.Response) {
			b.Answer(servertest.Request(nil))
			page, sealed := b.OpenForm(b.Authorize(servertest.Request(url.Values{"state": {"back"}, "prompt": {"select_account"}})))
			return page, deny(b, "/oauth2/select_account", "request", sealed)
		},
	}
	for name, open := range tests {
		page, response := open(servertest.NewBrowser(t, servertest.New(t, nil)))
		u := servertest.Location(t, response)
		q := u.Query()
		if !strings.HasPrefix(u.String(), servertest.Callback+"?") || q.Get("error") != "access_denied" || q.Get("state") != "back" || q.Has("code") {
			t.Errorf("%s: %s", name, u)
		}
		servertest.WantText(t, page, `&amp;decision=deny">Back to The App</a>`)
	}
}

func TestSignedOutLeadsSomewhere(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	servertest.WantText(t, servertest.Body(t, b.Get("/oauth2/logout?ui_locales=de")), `<a class="button" href="/">Weiter zu fhir.example.org</a>`)
}
