package e2e

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/oauth2"
)

// A user who is signed in chooses an account, and gives consent after deselecting one permission and limiting another, with
// only the keyboard. The response is a self-submitting form. The screenshots in out/ are for visual inspection.
func TestQuestionPages(t *testing.T) {
	ctx, landed := newBrowser(t), appServer(t)
	app, verifier := example.demoApp(t, "openid", "email", "user/Observation.rs", "user/*.r", "user/Condition.rs", "offline_access", "demo.read"), oauth2.GenerateVerifier()
	app.RedirectURL = callback
	address := func(prompt string) string {
		return app.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("prompt", prompt), oauth2.SetAuthURLParam("response_mode", "form_post"))
	}
	perform(t, ctx,
		chromedp.Navigate(address("login")),
		chromedp.WaitVisible(chromedp.CSS("form")),
		chromedp.SendKeys(chromedp.ID("username"), userName),
		chromedp.SendKeys(chromedp.ID("password"), userPassword+"\r"),
		chromedp.WaitVisible("//h1[text()='Back in the app']"),
	)
	if r := <-landed; r.Method != http.MethodPost || r.PostForm.Get("code") == "" || r.URL.RawQuery != "" {
		t.Errorf("landed by %s with %v", r.Method, r.URL)
	}

	forms := func(t *testing.T, page pageMeasurements) {
		if page.Forms != 1 || len(page.Unlabelled) != 0 {
			t.Errorf("%d forms, without a label: %q", page.Forms, page.Unlabelled)
		}
	}
	checkPageLooks(t, ctx, "select-account", address("select_account"), "//h1[text()='Choose an account']", forms)
	checkPageLooks(t, ctx, "consent", address("consent"), "//h1[text()='Give Demo App access?']", forms)
	checkPageLooks(t, ctx, "consent-german", address("consent")+"&ui_locales=de", "//h1[text()='Demo App Zugriff geben?']", forms)
	checkPageLooks(t, ctx, "consent-limited", address("consent"), "//h1[text()='Give Demo App access?']", func(t *testing.T, _ pageMeasurements) {
		perform(t, ctx, chromedp.Click("//div[@class='item'][contains(., 'of all kinds')]/details/summary"))
		screenshot(t, ctx, t.Name()[len("TestQuestionPages/"):])
		forms(t, readValue(t, ctx, chromedp.Evaluate[pageMeasurements](measure)))
		checkAccessible(t, ctx)
	})

	perform(t, withShortTimeout(t, ctx),
		tabTo("Uncheck all"), chromedp.KeyEvent(" "), tabTo("Allergies"), chromedp.KeyEvent(" "),
		tabTo("demo.read"), chromedp.KeyEvent(" "), tabTo("Allow"), chromedp.KeyEvent(kb.Enter),
		chromedp.WaitVisible("//h1[text()='Back in the app']"),
	)
	token, err := app.Exchange(example.context(t), (<-landed).PostForm.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	if got := token.Extra("scope"); got != "openid email user/Observation.rs user/AllergyIntolerance.r user/Condition.rs offline_access" {
		t.Errorf("scope %q", got)
	}
}
