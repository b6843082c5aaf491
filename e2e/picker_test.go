package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// pickerState is the state of the patient picker page.
type pickerState struct {
	Names []string // names on the buttons
	Focus string   // name attribute of the focused element
	Typed string
}

const readPicker = `({
	Names: [...document.querySelectorAll('#results strong')].map((e) => e.textContent),
	Focus: document.activeElement.name ?? '',
	Typed: document.getElementById('name').value,
})`

// openPicker signs alice in to the app on a phone and waits for the patient picker.
func openPicker(t *testing.T, ctx context.Context, g *gateway, app *smartApp) {
	t.Helper()
	app.launchWith(t, appOptions(g, "smart-app", false, nil))
	perform(t, withShortTimeout(t, ctx),
		look(390, "light", app.URL+"/launch.html"),
		chromedp.WaitVisible(chromedp.ID("username")),
		chromedp.KeyEvent(userName+kb.Tab+userPassword+kb.Enter),
		chromedp.WaitVisible("//h1[text()='Choose a patient']"),
	)
}

// With only the keyboard, a user can search for a patient and choose the patient.
func TestPickerByKeyboard(t *testing.T) {
	app := newSMARTApp(t)
	g := app.gateway(t, "gateway-picker", "", app.client("smart-app"))
	ctx := newBrowser(t)
	openPicker(t, ctx, g, app)
	address := readValue(t, ctx, chromedp.Location())
	if before := readValue(t, ctx, chromedp.Evaluate[pickerState](readPicker)); len(before.Names) != 20 || before.Focus != "name" {
		t.Errorf("at first: %+v", before)
	}
	perform(t, withShortTimeout(t, ctx), chromedp.KeyEvent("till"), chromedp.WaitNotPresent("//strong[text()='Nora Ashby']"))
	found := readValue(t, ctx, chromedp.Evaluate[pickerState](readPicker))
	if strings.Join(found.Names, ", ") != "Felix Tillman, Maya Tillman" || found.Focus != "name" || found.Typed != "till" {
		t.Errorf("after typing: %+v", found)
	}
	checkAccessible(t, ctx)
	screenshot(t, ctx, "picker-typed-390")
	perform(t, withShortTimeout(t, ctx), tabTo("Maya Tillman"), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("//h1[text()='Is this the right patient?']"))
	checkAccessible(t, ctx)
	screenshot(t, ctx, "picker-confirm-390")
	perform(t, withShortTimeout(t, ctx), tabTo("Continue"), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.ID("ready")))
	if patient := (&launchedApp{ctx, g}).evaluate(t, "client.patient.id"); patient != "p23" {
		t.Errorf("launched for %s", patient)
	}
	checkPageLooks(t, ctx, "picker", address, "//h2[text()='Recent patients']", checkLabels)
}

// The browser's Back button does not show the patients after a sign-out, although Chromium caches pages for it.
func TestPickerAfterSignOut(t *testing.T) {
	app := newSMARTApp(t)
	g := app.gateway(t, "gateway-picker-out", "", app.client("smart-app"))
	ctx := newBrowser(t)
	openPicker(t, ctx, g, app)
	perform(t, withShortTimeout(t, ctx),
		chromedp.Navigate(g.issuer+"/oauth2/logout"),
		chromedp.Click("//button[text()='Sign out']"),
		chromedp.WaitVisible("//h1[text()='You’re signed out']"),
		chromedp.NavigateBack(), // does not return if Chromium restores a cached page
		chromedp.NavigateBack(),
		chromedp.WaitVisible("//p[text()='You’re signed out. Sign in to continue.']"),
	)
}

// tabTo presses Tab until the text or the label of the focused element contains text.
func tabTo(text string) step {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		for range 60 {
			focused, err := chromedp.Evaluate[bool](`document.activeElement !== document.body && (document.activeElement.labels?.[0] ?? document.activeElement).textContent.includes('`+text+`')`)(ctx, tab)
			if err != nil || focused {
				return err
			}
			if _, err := chromedp.KeyEvent(kb.Tab)(ctx, tab); err != nil {
				return err
			}
		}
		return context.DeadlineExceeded
	})
}

// confirmPatient presses the button that confirms the chosen patient.
func confirmPatient() step { return chromedp.Click(chromedp.CSS("button[value=confirm]")) }

// until returns a script that waits for a JavaScript condition. The page's content security policy blocks chromedp's Poll.
func until(condition string) string {
	return "new Promise((done) => { const look = () => (" + condition + ") ? done(true) : setTimeout(look, 20); look(); })"
}

// Late responses to an earlier search text are ignored. If there is no response, the list is empty, and the button loads the
// page as it does without scripts.
func TestPickerKeepsUpWithTyping(t *testing.T) {
	app := newSMARTApp(t)
	g := app.gateway(t, "gateway-picker-typing", "", app.client("smart-app"))
	ctx := newBrowser(t)
	openPicker(t, ctx, g, app)
	run := func(script string) bool {
		return readValue(t, withShortTimeout(t, ctx), chromedp.Evaluate[bool](script, chromedp.EvalAwaitPromise))
	}
	run(`window.asked = [];
		window.answered = fetch;
		window.fetch = (address, { signal }) => {
			const first = new Promise((answer) => (window.release = () => answer(new Response('<p id=results>Late</p>'))));
			return asked.push(signal) === 1 ? (window.late = first) : answered(address);
		}; true`)
	perform(t, withShortTimeout(t, ctx), chromedp.KeyEvent("till"))
	run(until("asked.length === 1"))
	run("window.releaseFirst = release; true")
	perform(t, withShortTimeout(t, ctx), chromedp.KeyEvent("x"), chromedp.WaitVisible("//p[text()='No patients match your search. Check what you entered.']"))
	if !run("releaseFirst(); late.then(() => new Promise((done) => setTimeout(() => done(asked[0].aborted), 50)))") {
		t.Error("the first request was not aborted")
	}
	if text := readValue(t, ctx, chromedp.Text(chromedp.ID("results"))); strings.Contains(text, "Late") {
		t.Errorf("the first answer is shown: %s", text)
	}
	run("window.fetch = () => Promise.reject(new TypeError('offline')); true")
	perform(t, withShortTimeout(t, ctx), chromedp.KeyEvent(kb.Backspace))
	run(until("document.getElementById('results').childElementCount === 0"))
	perform(t, withShortTimeout(t, ctx), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("//strong[text()='Maya Tillman']"))
}
