package flow_test

import (
	"bytes"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

// allPages returns every HTML page, keyed by the request that opens it.
func allPages(t *testing.T, server http.Handler) map[string]*http.Response {
	t.Helper()
	b := authorizetest.NewBrowser(t, server)
	pages := map[string]*http.Response{
		"sign-in": b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).String()),
		"refused": b.SignIn(authorizetest.Request(nil), "alice", "wrong"),
		"error":   b.Authorize(authorizetest.Request(url.Values{"client_id": {"nobody"}})),
		"expired": b.Get("/oauth2/consent?request=x"),
	}
	b.SignInAlice(authorizetest.Request(nil))
	pages["consent"] = b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}, "scope": {"openid a<script>b"}}))).String())
	pages["select_account"] = b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(selectAccount))).String())
	pages["form_post"] = b.Authorize(authorizetest.Request(url.Values{"response_mode": {"form_post"}}))
	pages["sign-out"] = b.Get("/oauth2/logout?client_id=app")
	return pages
}

// The site's logo is served only if configured.
func TestLogo(t *testing.T) {
	t.Parallel()
	logo, err := page.NewLogo([]byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`))
	authorizetest.NoError(t, err)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Branding.Logo = logo }))
	errorPage := authorizetest.Body(t, b.Authorize(authorizetest.Request(url.Values{"client_id": {"nobody"}})))
	_, address, _ := strings.Cut(errorPage, `<img src="`)
	address, _, _ = strings.Cut(address, `"`)
	if r := b.Get(address); r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "image/svg+xml" || r.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%q: %d %v", address, r.StatusCode, r.Header)
	}
	authorizetest.WantStatus(t, authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Get("/oauth2/logo"), http.StatusNotFound, "without a logo")
}

// Pages use the language of the request, also after redirects.
func TestPagesInTheRequestsLanguage(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	b := authorizetest.NewBrowser(t, server)
	german := url.Values{"ui_locales": {"de-CH"}, "prompt": {"consent"}}
	pages := map[string]*http.Response{
		"sign-in": b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(german))).String()),
		"refused": b.SignIn(authorizetest.Request(german), "alice", "wrong"),
		"error":   b.Authorize(authorizetest.Request(url.Values{"client_id": {"nobody"}, "ui_locales": {"de"}})),
	}
	b.SignInAlice(authorizetest.Request(nil))
	pages["consent"] = b.Get(authorizetest.Location(t, b.Authorize(authorizetest.Request(german))).String())
	pages["sign-out"] = b.Get("/oauth2/logout?client_id=app&ui_locales=de")
	for name, r := range pages {
		if got := r.Header.Get("Content-Language"); got != "de" || !strings.Contains(authorizetest.Body(t, r), `<html lang="de">`) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Pages cannot be framed or cached and do not load foreign content. Markup in names is escaped (RFC 9700 §4.16).
func TestPagesWithstandMarkupAndFrames(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, func(c *authorize.Config) {
		c.Clients[0].Name = `<script>alert("client")</script>`
		c.Clients[0].Scopes = []string{"a<script>b"}
		c.Users[0].Name = `<img src=x onerror=alert("person")>`
	})
	for name, r := range allPages(t, server) {
		page := authorizetest.Body(t, r)
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

// After forms with passwords or decisions the browser continues with GET, because 307 and 308 would resend the form (RFC 9700
// §4.12).
func TestFormsAreNotSentOn(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.AuthorizePOST = true }))
	answers := map[string]*http.Response{
		"authorize": b.Post("/oauth2/authorize", authorizetest.Request(nil)),
		"sign-in":   b.SignIn(authorizetest.Request(nil), "alice", "right"),
	}
	_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}})))
	answers["consent"] = b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow"))
	answers["consent denied"] = b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "deny"))
	_, sealed = b.OpenForm(b.Authorize(authorizetest.Request(selectAccount)))
	answers["select_account"] = b.Post("/oauth2/select_account", authorizetest.DecisionForm(sealed, "other"))
	for name, r := range answers {
		if r.StatusCode != http.StatusFound && r.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
	}
}

// Redirects, pages and tokens use the configured URL, never the request's Host header.
func TestForgedHost(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.AuthorizePOST = true }))
	b.SignInAlice(authorizetest.Request(nil))
	for _, path := range []string{
		"/oauth2/authorize?" + authorizetest.Request(nil).Encode(),
		"/oauth2/authorize?" + authorizetest.Request(url.Values{"prompt": {"login"}}).Encode(),
		"/oauth2/authorize?" + authorizetest.Request(url.Values{"prompt": {"consent"}}).Encode(),
		"/oauth2/authorize?" + authorizetest.Request(selectAccount).Encode(),
		"/oauth2/authorize?" + authorizetest.Request(url.Values{"response_mode": {"form_post"}}).Encode(),
		"/oauth2/authorize", "/oauth2/logout", "/.well-known/openid-configuration", "/fhir/R4/.well-known/smart-configuration",
	} {
		r := httptest.NewRequest(http.MethodGet, "https://evil.example"+path, nil)
		for _, name := range []string{"X-Forwarded-Host", "X-Original-Host", "Forwarded", "Referer", "Origin", "X-Forwarded-Proto", "X-Original-URL"} {
			r.Header.Set(name, "https://evil.example/")
		}
		got := b.Send(r)
		if page := authorizetest.Body(t, got); strings.Contains(page, "evil.example") || strings.Contains(got.Header.Get("Location"), "evil.example") {
			t.Errorf("%s: Location %q, %s", path, got.Header.Get("Location"), page)
		}
	}
}

// A page's link back to the app leads to the redirect URI, without a code, and invalidates the page's request.
func TestBackToTheApp(t *testing.T) {
	t.Parallel()
	state := url.Values{"state": {"back"}}
	deny := func(b *authorizetest.Browser, path, field, value string) *http.Response {
		return b.Post(path, url.Values{field: {value}, "decision": {"deny"}, "redirect_uri": {"https://evil.example/"}, "username": {"alice"}, "password": {"right"}})
	}
	tests := map[string]func(b *authorizetest.Browser) (page string, response *http.Response){
		"sign-in": func(b *authorizetest.Browser) (string, *http.Response) {
			page, sealed := b.OpenForm(b.Authorize(authorizetest.Request(state)))
			return page, deny(b, "/oauth2/login", "request", sealed)
		},
		"second factor": func(b *authorizetest.Browser) (string, *http.Response) {
			b.Server = authorizetest.New(t, authorizetest.WithTOTP)
			signedIn := b.SignIn(authorizetest.Request(state), "alice", "right")
			page, factor := authorizetest.Body(t, b.Get(signedIn.Header.Get("Location"))), b.OpenSecondFactor(signedIn)
			back := deny(b, "/oauth2/login", "factor", factor)
			authorizetest.WantStatus(t, b.Get("/oauth2/login?factor="+url.QueryEscape(factor)), http.StatusBadRequest, "the second factor page after cancellation")
			return page, back
		},
		"account": func(b *authorizetest.Browser) (string, *http.Response) {
			b.SignInAlice(authorizetest.Request(nil))
			page, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"state": {"back"}, "prompt": {"select_account"}})))
			return page, deny(b, "/oauth2/select_account", "request", sealed)
		},
	}
	for name, open := range tests {
		page, response := open(authorizetest.NewBrowser(t, authorizetest.New(t, nil)))
		u := authorizetest.Location(t, response)
		q := u.Query()
		if !strings.HasPrefix(u.String(), authorizetest.Callback+"?") || q.Get("error") != "access_denied" || q.Get("state") != "back" || q.Has("code") {
			t.Errorf("%s: %s", name, u)
		}
		authorizetest.WantText(t, page, `&amp;decision=deny">Back to The App</a>`)
	}
}

func TestSignedOutPageHasLink(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	authorizetest.WantText(t, authorizetest.Body(t, b.Get("/oauth2/logout?ui_locales=de")), `<a class="button" href="/">Weiter zu fhir.example.org</a>`)
}

// linkServer starts an app's server with a logo and links. asked is the number of requests that it has received.
func linkServer(t *testing.T) (app *httptest.Server, requests *atomic.Int64) {
	var logo bytes.Buffer
	authorizetest.NoError(t, png.Encode(&logo, image.NewGray(image.Rect(0, 0, 2, 2))))
	requests = new(atomic.Int64)
	app = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		switch r.URL.Path {
		case "/logo.png":
			if len(r.Cookies()) > 0 || r.Header.Get("Referer") != "" {
				t.Errorf("the app learns %v", r.Header)
			}
			_, _ = w.Write(logo.Bytes())
		case "/page":
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write([]byte("<html><script>alert(1)</script></html>"))
		case "/elsewhere":
			http.Redirect(w, r, "/logo.png", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(app.Close)
	return app, requests
}

// Pages show the logo and links of a registered app (RFC 7591 §2). The gateway fetches the logo once and serves only images, so
// that the browser sends no request to the app.
func TestRegisteredLinksAreShown(t *testing.T) {
	t.Parallel()
	app, requests := linkServer(t)
	with := func(id, logo string) client.Client {
		return authorizetest.SelfRegisteredClient(func(c *client.Client) {
			c.ID, c.PKCE, c.Transport = id, client.PKCEOptional, app.Client().Transport
			c.Links = client.Links{Logo: app.URL + logo, Policy: app.URL + "/policy?a=b&c", Terms: app.URL + "/terms#new"}
		})
	}
	logos := map[string]int{"/logo.png": http.StatusOK, "/page": http.StatusNotFound, "/elsewhere": http.StatusNotFound, "/none": http.StatusNotFound}
	newcomers := []client.Client{with(authorizetest.SelfRegisteredID, "/logo.png")}
	for path := range logos {
		newcomers = append(newcomers, with("registered-"+path[1:], path))
	}
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithSelfRegistered(newcomers...)))
	shows := func(page string) {
		t.Helper()
		authorizetest.WantText(t, page,
			`<img class="app" src="/oauth2/client_logo?client_id=`+authorizetest.SelfRegisteredID+`"`, `href="`+app.URL+`/policy?a=b&amp;c" target="_blank" rel="noopener noreferrer"`,
			`href="`+app.URL+`/terms#new"`, "Privacy policy of Newcomer", "Terms of use of Newcomer",
		)
		if strings.Contains(page, `src="`+app.URL) {
			t.Error("the browser would ask the app")
		}
	}
	q := authorizetest.Request(url.Values{"client_id": {authorizetest.SelfRegisteredID}})
	signIn := b.Get(authorizetest.Location(t, b.Authorize(q)).String())
	authorizetest.WantText(t, signIn.Header.Get("Content-Security-Policy"), "img-src 'self';")
	shows(authorizetest.Body(t, signIn))
	consent, _ := b.OpenForm(b.SignIn(q, "alice", "right"))
	shows(consent)
	if requests.Load() != 0 {
		t.Error("the app was called before its logo was requested")
	}
	for path, want := range logos {
		requests.Store(0)
		for range 3 {
			r := b.Get("/oauth2/client_logo?client_id=registered-" + path[1:])
			if kind := r.Header.Get("Content-Type"); r.StatusCode != want || want == http.StatusOK && (kind != "image/png" || r.Header.Get("X-Content-Type-Options") != "nosniff") {
				t.Errorf("%s: %d %s", path, r.StatusCode, kind)
			}
		}
		if requests.Load() > 1 {
			t.Errorf("%s was fetched %d times", path, requests.Load())
		}
	}
	authorizetest.WantStatus(t, b.Get("/oauth2/client_logo?client_id=app"), http.StatusNotFound, "of a client without one")
}
