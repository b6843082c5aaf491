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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// linkServer is an app's, with its logo and links; asked counts requests.
func linkServer(t *testing.T) (app *httptest.Server, asked *atomic.Int64) {
	var logo bytes.Buffer
	servertest.NoError(t, png.Encode(&logo, image.NewGray(image.Rect(0, 0, 2, 2))))
	asked = new(atomic.Int64)
	app = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
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
	return app, asked
}

// RFC 7591 §2: people see the logo and the links of an app that registered itself. Their browser
// asks the app for nothing: the logo is fetched here, once, and only if it is an image.
func TestRegisteredLinksAreShown(t *testing.T) {
	t.Parallel()
	app, asked := linkServer(t)
	with := func(id, logo string) client.Client {
		return servertest.Newcomer(func(c *client.Client) {
			c.ID, c.PKCE, c.Transport = id, client.PKCEOptional, app.Client().Transport
			c.Links = client.Links{Logo: app.URL + logo, Policy: app.URL + "/policy?a=b&c", Terms: app.URL + "/terms#new"}
		})
	}
	logos := map[string]int{"/logo.png": http.StatusOK, "/page": http.StatusNotFound, "/elsewhere": http.StatusNotFound, "/none": http.StatusNotFound}
	newcomers := []client.Client{with(servertest.NewcomerID, "/logo.png")}
	for path := range logos {
		newcomers = append(newcomers, with("registered-"+path[1:], path))
	}
	b := servertest.NewBrowser(t, servertest.New(t, servertest.WithNewcomers(newcomers...)))
	shows := func(page string) {
		t.Helper()
		servertest.WantText(t, page,
			`<img class="app" src="/oauth2/client_logo?client_id=`+servertest.NewcomerID+`"`, `href="`+app.URL+`/policy?a=b&amp;c" target="_blank" rel="noopener noreferrer"`,
			`href="`+app.URL+`/terms#new"`, "Privacy policy of Newcomer", "Terms of use of Newcomer",
		)
		if strings.Contains(page, `src="`+app.URL) {
			t.Error("the browser would ask the app")
		}
	}
	q := servertest.Request(url.Values{"client_id": {servertest.NewcomerID}})
	signIn := b.Get(servertest.Location(t, b.Authorize(q)).String())
	servertest.WantText(t, signIn.Header.Get("Content-Security-Policy"), "img-src 'self';")
	shows(servertest.Body(t, signIn))
	consent, _ := b.OpenForm(b.SignIn(q, "alice", "right"))
	shows(consent)
	if asked.Load() != 0 {
		t.Error("the app was asked before anybody wanted its logo")
	}
	for path, want := range logos {
		asked.Store(0)
		for range 3 {
			r := b.Get("/oauth2/client_logo?client_id=registered-" + path[1:])
			if kind := r.Header.Get("Content-Type"); r.StatusCode != want || want == http.StatusOK && (kind != "image/png" || r.Header.Get("X-Content-Type-Options") != "nosniff") {
				t.Errorf("%s: %d %s", path, r.StatusCode, kind)
			}
		}
		if asked.Load() > 1 {
			t.Errorf("%s was fetched %d times", path, asked.Load())
		}
	}
	servertest.WantStatus(t, b.Get("/oauth2/client_logo?client_id=app"), http.StatusNotFound, "of a client without one")
}
