package e2e

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/oauth2"
)

// A person chooses a provider on the gateway's page, signs in at the provider, returns to the app, and signs out. The
// screenshots in out/ are for visual inspection.
func TestFederatedBrowser(t *testing.T) {
	ctx, landed := newBrowser(t), appServer(t)
	address := mustFreeAddress(t)
	provider := startOIDCProvider(t, "oidc-provider-browser", address)
	g := federatedGateway(t, "gateway-browser", address, []string{
		provider.idp("rs256", "name \"General Hospital\"", "domains hospital.example"),
		provider.idp("es256", "name \"St. Elsewhere University Teaching Hospital\""),
	})
	app, verifier := g.demoApp(t, "openid", "profile"), oauth2.GenerateVerifier()
	app.RedirectURL = callback
	signIn := app.AuthCodeURL("from the browser", oauth2.S256ChallengeOption(verifier))

	checkPageLooks(t, ctx, "signin-idp", signIn, "//a[text()='General Hospital']", checkSignInPage)
	perform(t, ctx,
		chromedp.Navigate(signIn),
		chromedp.Click("//a[text()='General Hospital']"),
		chromedp.WaitVisible("//h1[text()='Sign in at the provider']"),
	)
	screenshot(t, ctx, "signin-at-the-provider")
	perform(t, ctx,
		chromedp.KeyEvent("ada"+kb.Tab+"ada-at-the-provider"+kb.Enter),                                 // the user name field has the focus
		chromedp.WaitVisible("//h1[text()='Give Demo App access?' or text()='Continue to Demo App?']"), // the provider may not have shown a page
		chromedp.Click("//button[text()='Allow' or text()='Continue']"),
		chromedp.WaitVisible("//h1[text()='Back in the app']"),
	)
	query := (<-landed).URL.Query()
	if query.Get("state") != "from the browser" || query.Get("iss") != g.issuer {
		t.Errorf("landed with %s", query.Encode())
	}
	if _, err := app.Exchange(g.context(t), query.Get("code"), oauth2.VerifierOption(verifier)); err != nil {
		t.Errorf("the browser's code: %v", err)
	}

	logout := g.issuer + "/oauth2/logout?" + url.Values{"client_id": {"demo-app"}, "post_logout_redirect_uri": {callback}}.Encode()
	checkPageLooks(t, ctx, "signout", logout, "//h1[text()='Sign out?']", func(t *testing.T, page pageMeasurements) {
		if page.Forms != 1 {
			t.Errorf("%d forms", page.Forms)
		}
	})
	t.Run("signing out leads by the provider back to the app", func(t *testing.T) {
		ctx := withShortTimeout(t, ctx)
		perform(t, ctx,
			chromedp.Navigate(logout),
			chromedp.Click("//button[text()='Sign out']"),
			chromedp.WaitVisible("//h1[text()='Sign out of the provider?']"),
			chromedp.Click("//button[text()='Sign out']"),
			chromedp.WaitVisible("//h1[text()='Back in the app']"),
		)
		if query := (<-landed).URL.Query(); len(query) != 0 {
			t.Errorf("landed with %s", query.Encode())
		}
		perform(t, ctx, chromedp.Navigate(signIn), chromedp.WaitVisible("//h1[text()='Sign in']")) // no user is signed in
	})
	t.Run("an e-mail address leads to its domain's provider", func(t *testing.T) {
		ctx := withShortTimeout(t, newBrowser(t))
		perform(t, ctx,
			chromedp.Navigate(signIn),
			chromedp.WaitVisible("//h1[text()='Sign in']"),
			chromedp.KeyEvent("ada@hospital.example"+kb.Enter), // no password was entered
			chromedp.WaitVisible("//h1[text()='Sign in at the provider']"),
		)
	})
}

// withShortTimeout limits the wait for a page. A page that does not appear soon never appears.
func withShortTimeout(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
