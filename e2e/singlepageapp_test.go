package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// singlePageApp serves node/spa.html at the app's redirect URIs. It uses https and the gateway's domain, so that browsers treat
// the app and the gateway as the same site and send cookies in a hidden frame.
func singlePageApp(t *testing.T) *httptest.Server {
	t.Helper()
	app := httptest.NewTLSServer(nil)
	t.Cleanup(app.Close)
	app.URL = strings.Replace(app.URL, "127.0.0.1", "app"+localDomain, 1)
	return app
}

// serve serves the page with the issuer and the scope inserted.
func serve(t *testing.T, app *httptest.Server, issuer, scope string) {
	t.Helper()
	page, err := os.ReadFile("node/spa.html")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("ISSUER", issuer, "SCOPE", scope).Replace(string(page))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oidc-client-ts.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "node/node_modules/oidc-client-ts/dist/browser/oidc-client-ts.min.js")
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(text))
	})
	app.Config.Handler = mux
}

// npm oidc-client-ts works in Chromium: sign-in, userinfo and $expand from another origin, renewal in a hidden frame with
// prompt=none and with a refresh token, and sign-out.
func TestSinglePageApp(t *testing.T) {
	for _, test := range []struct{ name, scope, refreshes string }{
		{"renewed in a hidden frame", "openid profile user/*.rs", "false"},
		{"renewed by a refresh token", "openid profile user/*.rs offline_access", "true"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, app := newBrowser(t), singlePageApp(t)
			uri := app.URL + "/callback"
			g := startTestGatewayAt(t, "gateway-spa", strings.Replace(mustFreeAddress(t), "localhost", "login"+localDomain, 1), fhirServer.address,
				"redirect_uri http://localhost:3000/callback", "post_logout_redirect_uri "+uri+"\n\t\t\tredirect_uri "+uri+" "+app.URL+"/silent")
			serve(t, app, g.issuer, test.scope)
			perform(t, ctx, chromedp.Navigate(app.URL), chromedp.Click(chromedp.ID("sign-in")), chromedp.WaitVisible(chromedp.ID("username")))
			perform(t, withShortTimeout(t, ctx), chromedp.KeyEvent(userName+kb.Tab+userPassword+kb.Enter), chromedp.WaitVisible("//p[text()='Alice Adams']"))
			first := appToken(t, ctx)
			if got := readValue(t, ctx, chromedp.Evaluate[string]("document.getElementById('who').dataset.refreshes")); got != test.refreshes {
				t.Errorf("there is a refresh token: %s, want %s", got, test.refreshes)
			}
			expandInApp(t, ctx)
			perform(t, withShortTimeout(t, ctx),
				chromedp.Click(chromedp.ID("renew")),
				chromedp.WaitVisible("//p[text()='Alice Adams' and @data-token!='"+first+"']"),
			)
			expandInApp(t, ctx)
			signOutOfApp(t, ctx, uri)
			t.Run("once signed out, nothing is renewed", func(t *testing.T) {
				perform(t, withShortTimeout(t, ctx), chromedp.Click(chromedp.ID("renew")), chromedp.WaitVisible("//p[@id='failure' and text()!='']"))
				if failure := readValue(t, ctx, chromedp.Text(chromedp.ID("failure"))); failure != "login_required" {
					t.Errorf("failure message %q", failure)
				}
			})
		})
	}
}

// script runs a script and ignores its result.
func script(text string) step {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Run(ctx, chromedp.Evaluate[string](text))
		return err
	})
}

func appToken(t *testing.T, ctx context.Context) string {
	t.Helper()
	return readValue(t, ctx, chromedp.Evaluate[string]("document.getElementById('who').dataset.token"))
}

func expandInApp(t *testing.T, ctx context.Context) {
	t.Helper()
	perform(t, withShortTimeout(t, ctx),
		script("document.getElementById('answer').textContent = ''"),
		chromedp.Click(chromedp.ID("ask")), chromedp.WaitVisible("//pre[text()='4']"))
}

// signOutOfApp signs out and returns to the app. The ID token in the request makes a confirmation unnecessary.
func signOutOfApp(t *testing.T, ctx context.Context, uri string) {
	t.Helper()
	perform(t, withShortTimeout(t, ctx), chromedp.Click(chromedp.ID("sign-out")), chromedp.WaitVisible("//p[text()='nobody']"))
	at, err := url.Parse(readValue(t, ctx, chromedp.Evaluate[string]("location.href")))
	if err != nil || at.Scheme+"://"+at.Host+at.Path != uri {
		t.Errorf("signed out at %v %v, want %s", at, err, uri)
	}
}
