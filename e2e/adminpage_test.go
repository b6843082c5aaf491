package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// openAdminPage opens the administration page and signs alice in with a password and a one-time code.
func openAdminPage(t *testing.T, ctx context.Context, g *gateway) {
	t.Helper()
	perform(t, ctx,
		chromedp.Navigate(g.issuer+"/oauth2/admin"),
		signInByKeyboard(),
		chromedp.WaitVisible(chromedp.ID("code")),
		chromedp.KeyEvent(totpNow()+kb.Enter),
		chromedp.WaitVisible("//h1[text()='Administration']"),
	)
}

// An administrator adds an app and a user with only the keyboard, sees each secret once, and sees why a
// redirect URI is invalid. The screenshots in out/ are for visual inspection.
func TestAdminPageInBrowser(t *testing.T) {
	ctx := newBrowser(t)
	g := startTestGateway(t, "gateway-adminpage", fhirServer.address,
		aliceLine, aliceLine+"\t\t\ttotp_secret "+totpSecret+"\n\t\t\tgroup admins\n",
		"\t\tfhir_base", "\t\tadmin_page fhir-admin\n\t\tscope_limit idp local group admins fhir-admin\n\t\tscope_limit any user/*.rs patient/*.rs\n\t\tfhir_base")
	admin := g.issuer + "/oauth2/admin"
	openAdminPage(t, ctx, g)
	look := func(name, address, there string) { checkPageLooks(t, ctx, name, address, there, checkLabels) }
	text := func() string { return readValue(t, ctx, chromedp.Evaluate[string]("document.body.innerText")) }

	perform(t, ctx, chromedp.Navigate(admin), chromedp.WaitVisible("//h1[text()='Administration']"))
	tabsTo(t, ctx, `a[href$="kind=clients"]`)
	perform(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("//h1[text()='Add an app']"), chromedp.Focus(chromedp.ID("id")),
		chromedp.KeyEvent("growth-chart"+kb.Tab+"Growth Chart"+kb.Tab+"https://growth.example.org/callback"+kb.Tab+"openid"+kb.Enter+"patient/*.rs"+kb.Tab+kb.Tab+" "))
	screenshot(t, ctx, "admin-add-typed")
	tabsTo(t, ctx, `button[value="add"]`)
	perform(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("//h1[text()='Secret for growth-chart']"))
	checkAccessible(t, ctx)
	screenshot(t, ctx, "admin-secret")
	secret := readValue(t, ctx, chromedp.Evaluate[string]("document.querySelector('.detail').innerText"))

	perform(t, ctx, chromedp.Navigate(admin+"?kind=users"), chromedp.WaitVisible(chromedp.ID("id")), chromedp.Focus(chromedp.ID("id")),
		chromedp.KeyEvent("bernadette"+kb.Tab+"Bernadette Bauer"+kb.Enter), chromedp.WaitVisible("//h1[text()='Password for bernadette']"))

	look("admin", admin, "//a[text()='Growth Chart']")
	look("admin-add-app", admin+"?kind=clients", "//h1[text()='Add an app']")
	look("admin-add-person", admin+"?kind=users", "//h1[text()='Add a person']")
	look("admin-app", admin+"?kind=clients&name=growth-chart", "//h1[text()='Growth Chart']")
	look("admin-person", admin+"?kind=users&name=bernadette", "//h1[text()='Bernadette Bauer']")
	if page := text(); secret == "" || strings.Contains(page, secret) {
		t.Errorf("the secret %q is shown again: %s", secret, page)
	}

	perform(t, ctx, chromedp.Navigate(admin+"?kind=clients&name=growth-chart"), chromedp.WaitVisible(chromedp.ID("redirect_uris")),
		chromedp.Focus(chromedp.ID("redirect_uris")), chromedp.KeyEvent("https://growth.example.org/#part"))
	tabsTo(t, ctx, `button[value="edit"]`)
	perform(t, ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`#redirect_uris[aria-invalid="true"]`))
	checkAccessible(t, ctx)
	screenshot(t, ctx, "admin-refused")
	if page := text(); !strings.Contains(page, "fragment") {
		t.Errorf("the page does not show the error: %s", page)
	}
}
