package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// A user opens the example's start page, signs in, picks a patient, and sees which records the sandbox app may read. The user
// then repeats this with fewer scopes and without an EHR. The screenshots in out/ are for visual inspection.
func TestSandbox(t *testing.T) {
	ctx, g := newBrowser(t), startTestGateway(t, "gateway-sandbox", "") // with the sample records of the example
	perform(t, ctx,
		chromedp.Navigate(g.issuer+"/"),
		chromedp.Click("//a[text()='Launch an app']"),
		chromedp.WaitVisible(chromedp.ID("username")),
		chromedp.SendKeys(chromedp.ID("username"), userName),
		chromedp.SendKeys(chromedp.ID("password"), userPassword+"\r"),
		chromedp.WaitVisible("//h1[text()='Launch an app']"),
		chromedp.Click(chromedp.CSS("input[value=p01]")),
		chromedp.Click(chromedp.CSS("input[name=encounter]")),
		chromedp.SendKeys(chromedp.ID("intent"), "reconcile-medications"),
	)
	checkSandboxLooks(t, ctx, "launch-page", 0)
	perform(t, ctx,
		chromedp.Click("//button[text()='Open the app']"),
		chromedp.WaitVisible(chromedp.CSS("button[value=allow]")), // consent is required, because any app on the machine could listen on localhost
		chromedp.Click(chromedp.CSS("button[value=allow]")),
	)
	t.Run("app's view of the user", func(t *testing.T) {
		for _, section := range []string{"record", "refused"} { // the sections appear in any order
			perform(t, ctx, chromedp.WaitVisible(chromedp.CSS("#"+section+" .answers li")))
		}
		checkStatuses(t, ctx, "record", "200", "200", "200", "200")
		checkStatuses(t, ctx, "refused", "404", "403")
		for member, want := range map[string]string{"patient": "p01", "intent": "reconcile-medications", "need_patient_banner": "true", "token_type": "Bearer"} {
			if got := readValue(t, ctx, chromedp.Evaluate[string](explanationScript("token", member))); got != want {
				t.Errorf("%s is %q, want %q", member, got, want)
			}
		}
		if got := readValue(t, ctx, chromedp.Evaluate[string](explanationScript("identity", "fhirUser"))); got != g.issuer+"/fhir/R4/Practitioner/alice" {
			t.Errorf("fhirUser is %q", got)
		}
		if state := readValue(t, ctx, chromedp.Evaluate[string]("location.search + Object.keys(sessionStorage)")); state != "" {
			t.Errorf("the browser keeps %q", state)
		}
		checkSandboxLooks(t, ctx, "sandbox-app", 1)
	})
	t.Run("another patient", func(t *testing.T) {
		perform(t, ctx,
			chromedp.SetValue(chromedp.ID("other"), "p07"),
			chromedp.Click("//button[text()='Request this record']"),
			chromedp.WaitVisible("//code[text()='GET Patient/p07']"),
		)
		checkStatuses(t, ctx, "refused", "404", "403")
	})
	t.Run("with fewer scopes", func(t *testing.T) {
		perform(t, ctx, chromedp.Click(chromedp.ID("fewer")), chromedp.WaitVisible(chromedp.ID("all")), chromedp.WaitNotVisible(chromedp.ID("progress")))
		checkStatuses(t, ctx, "record", "200", "200", "403", "403")
		perform(t, ctx, chromedp.Click(chromedp.ID("all")), chromedp.WaitVisible(chromedp.ID("fewer")), chromedp.WaitNotVisible(chromedp.ID("progress")))
		checkStatuses(t, ctx, "record", "200", "200", "200", "200")
	})
	t.Run("without an EHR", func(t *testing.T) {
		perform(t, ctx,
			chromedp.Click(chromedp.ID("standalone")),
			chromedp.WaitVisible("//h1[text()='Choose a patient']"),
			chromedp.Click(chromedp.CSS("button[value=p02]")),
			confirmPatient(),
			chromedp.WaitVisible(chromedp.CSS("#record .answers li")),
		)
		checkStatuses(t, ctx, "record", "200", "200", "200", "200")
		if got := readValue(t, ctx, chromedp.Evaluate[string](explanationScript("token", "patient"))); got != "p02" {
			t.Errorf("patient %q", got)
		}
	})
}

// checkStatuses checks the response statuses that the app shows in a section.
func checkStatuses(t *testing.T, ctx context.Context, section string, want ...string) {
	t.Helper()
	got := readValue(t, ctx, chromedp.Evaluate[[]string](fmt.Sprintf("[...document.querySelectorAll('#%s .answers p strong')].map((e) => e.textContent)", section)))
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", section, got, want)
	}
}

// explanationScript returns a script that reads the value that the app shows for a member of a section.
func explanationScript(section, member string) string {
	return fmt.Sprintf("[...document.querySelectorAll('#%s dl div')].find((row) => row.querySelector('dt').textContent === '%s')?.querySelector('dd').textContent ?? ''", section, member)
}

// checkSandboxLooks checks the open page in each screen size and color scheme.
func checkSandboxLooks(t *testing.T, ctx context.Context, name string, scripts int) {
	t.Helper()
	for _, width := range []int64{320, 390, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			name := fmt.Sprintf("%s-%d-%s", name, width, scheme)
			t.Run(name, func(t *testing.T) {
				perform(t, ctx, screen(width, scheme))
				screenshot(t, ctx, name)
				page := readValue(t, ctx, chromedp.Evaluate[pageMeasurements](measure))
				page.Scripts -= scripts
				checkLayout(t, page, int(width))
				checkAccessible(t, ctx)
			})
		}
	}
}
