package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// signInByKeyboard enters the user name and password on the open sign-in page.
func signInByKeyboard() step {
	return chromedp.Steps(
		chromedp.WaitVisible(chromedp.ID("username")),
		chromedp.Focus(chromedp.ID("username")),
		chromedp.KeyEvent(userName+kb.Tab+userPassword+kb.Enter),
	)
}

// tabsTo presses Tab until the element that matches the selector has the focus.
func tabsTo(t *testing.T, ctx context.Context, selector string) {
	t.Helper()
	for range 60 {
		perform(t, ctx, chromedp.KeyEvent(kb.Tab))
		if readValue(t, ctx, chromedp.Evaluate[bool]("document.activeElement.matches('"+selector+"')")) {
			return
		}
	}
	t.Fatalf("no %s can be reached by the tab key", selector)
}

// withAuthenticator adds a virtual authenticator with user verification to the browser.
func withAuthenticator() step {
	options := webauthn.VirtualAuthenticatorOptions{
		Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
		HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
	}
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		if _, err := cdp.Call(ctx, tab, webauthn.Enable, webauthn.EnableParams{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, tab, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &options})
		return err
	})
}

// A user sets up a passkey with only the keyboard, signs in with it when the browser offers it, and uses it as a second factor.
// The screenshots in out/ are for visual inspection.
func TestAccountInBrowser(t *testing.T) {
	ctx := newBrowser(t)
	g := startTestGateway(t, "gateway-account", fhirServer.address)
	account := g.issuer + "/oauth2/account"
	perform(t, ctx, withAuthenticator(), chromedp.Navigate(account), signInByKeyboard(), chromedp.WaitVisible("//h1[text()='Your account']"))

	look := func(name, address, there string) { checkPageLooks(t, ctx, name, address, there, checkLabels) }
	look("app-setup", account+"?part=app", "//h1[text()='Set up an authenticator app']")
	perform(t, ctx, chromedp.Navigate(account), chromedp.WaitVisible("//h1[text()='Your account']"))
	tabsTo(t, ctx, `a[href$="part=passkey"]`)
	perform(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.ID("name")))
	look("passkey-setup", account+"?part=passkey", "//h1[text()='Set up a passkey']")
	tabsTo(t, ctx, "#passkey button")
	perform(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("//h1[text()='Your recovery codes']"))
	codes := strings.Fields(readValue(t, ctx, chromedp.Evaluate[string]("document.querySelector('.codes').innerText")))
	if len(codes) != 10 {
		t.Errorf("recovery codes %q", codes)
	}
	checkAccessible(t, ctx)
	screenshot(t, ctx, "recovery-codes")
	look("account", account, "//h1[text()='Your account']")

	perform(t, ctx,
		chromedp.Navigate(g.issuer+"/oauth2/logout"),
		chromedp.Click("//button[text()='Sign out']"),
		chromedp.WaitVisible("//h1[text()='You’re signed out']"),
		chromedp.Navigate(account), // the authenticator immediately answers the browser's request
		chromedp.WaitVisible("//h1[text()='Your account']"),
	)
	if page := readValue(t, ctx, chromedp.Evaluate[string]("document.body.innerText")); !strings.Contains(page, "Last used less than an hour ago") {
		t.Errorf("the passkey was not used: %s", page)
	}
}
