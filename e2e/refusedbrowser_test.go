package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/oauth2"
)

// On a shared workstation, a user who may not sign in can sign out at the provider, so that the next user can sign in.
func TestRefusedAtSharedWorkstation(t *testing.T) {
	ctx, landed := newBrowser(t), appServer(t)
	address := mustFreeAddress(t)
	provider := startOIDCProvider(t, "oidc-provider-refused", address)
	g := federatedGateway(t, "gateway-refused", address, []string{provider.idp("rs256", "name \"General Hospital\"", "allow email ada@hospital.example")})
	app, verifier := g.demoApp(t, "openid"), oauth2.GenerateVerifier()
	app.RedirectURL = callback
	perform(t, ctx,
		chromedp.Navigate(app.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier), withIDP("node-rs256"))),
		chromedp.WaitVisible("//h1[text()='Sign in at the provider']"),
		chromedp.KeyEvent("bob"+kb.Tab+"bob-at-the-provider"+kb.Enter),
		chromedp.WaitVisible("//h1[text()='You don’t have access']"),
	)
	checkPageLooks(t, ctx, "refused", readValue(t, ctx, chromedp.Location()), "//strong[text()='Bob Brown']", func(t *testing.T, page pageMeasurements) {
		if page.Forms != 1 {
			t.Errorf("%d forms", page.Forms)
		}
	})
	perform(t, withShortTimeout(t, ctx),
		chromedp.Click("//button[text()='Sign out of General Hospital and use another account']"),
		chromedp.WaitVisible("//h1[text()='Sign out of the provider?']"),
		chromedp.Click("//button[text()='Sign out']"),
		chromedp.WaitVisible("//h1[text()='Sign in at the provider']"),
		chromedp.KeyEvent("ada"+kb.Tab+"ada-at-the-provider"+kb.Enter),
		chromedp.WaitVisible("//h1[text()='Give Demo App access?' or text()='Continue to Demo App?']"),
		chromedp.Click("//button[text()='Allow' or text()='Continue']"),
		chromedp.WaitVisible("//h1[text()='Back in the app']"),
	)
	if query := (<-landed).URL.Query(); query.Get("code") == "" {
		t.Errorf("landed with %s", query.Encode())
	}
}
