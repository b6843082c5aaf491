package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// pageMeasurements contains what the script measure reports about a page.
type pageMeasurements struct {
	ScrollWidth, InnerWidth  int
	Background               string
	Language, Title          string
	Forms, Scripts, H1, Main int      // number of elements; Scripts excludes the passkey script
	Unlabelled               []string // names of inputs without a label
	Autocomplete             map[string]string
	Small                    []string // texts of elements that are too small for touch
	Contrast                 float64  // lowest contrast ratio of all texts
}

// measure is the script that takes the measurements. It calculates the contrast ratio as defined in WCAG 2.2 §1.4.3.
const measure = `(() => {
	const channel = (c) => (c /= 255, c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
	const rgba = (s) => s.match(/[\d.]+/g).map(Number);
	const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = rgba(getComputedStyle(e).backgroundColor);
			if (c.length < 4 || c[3] > 0) return c;
		}
		return [255, 255, 255];
	};
	const contrast = (e) => {
		const [a, b] = [luminance(rgba(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
		return (a + 0.05) / (b + 0.05);
	};
	const inputs = [...document.querySelectorAll('input:not([type=hidden])')].filter((e) => e.checkVisibility());
	const texts = [...document.querySelectorAll('body *')].filter((e) =>
		e.matches('input:not([type=hidden])') || [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
	return {
		ScrollWidth: document.documentElement.scrollWidth,
		InnerWidth: innerWidth,
		Background: getComputedStyle(document.body).backgroundColor,
		Language: document.documentElement.lang,
		Title: document.title,
		Forms: document.querySelectorAll('form:not([hidden])').length,
		Scripts: [...document.scripts].filter((e) => e.src || !document.getElementById("passkey")).length,
		H1: document.querySelectorAll('h1').length,
		Main: document.querySelectorAll('main').length,
		Unlabelled: inputs.filter((e) => !e.labels.length || !e.labels[0].textContent.trim()).map((e) => e.name),
		Autocomplete: Object.fromEntries(inputs.map((e) => [e.name, e.autocomplete])),
		Small: [...inputs, ...document.querySelectorAll('button:not([hidden]), summary')]
			.filter((e) => e.checkVisibility())
			.map((e) => ['checkbox', 'radio'].includes(e.type) ? e.labels[0] : e) // the whole label is for the finger
			.filter((e) => e.getBoundingClientRect().height < 44).map((e) => e.name || e.textContent),
		Contrast: Math.min(...texts.map(contrast)),
	};
})()`

// The pages meet the requirements in Chromium on two phones and a desktop, with light and dark color schemes. The screenshots
// in out/ are for visual inspection.
func TestPages(t *testing.T) {
	ctx := newBrowser(t)
	signIn := example.demoApp(t, "openid").AuthCodeURL("state")
	tests := []struct {
		name, address string
		then          step
		check         func(*testing.T, pageMeasurements)
	}{
		{"signin", signIn, chromedp.WaitVisible(chromedp.CSS("form")), checkSignInPage},
		{"signin-wrong", signIn, mistype(), checkSignInPage},
		{"signin-german", signIn + "&ui_locales=de", chromedp.WaitVisible("//h1[text()='Anmelden']"), checkSignInPage},
		{"start", example.issuer + "/", chromedp.WaitVisible(chromedp.CSS("h1")), checkStartPage},
		{"error", example.issuer + "/oauth2/authorize?client_id=nobody", chromedp.WaitVisible(chromedp.CSS("h1")), checkErrorPage},
	}
	for _, test := range tests {
		backgrounds := map[string]string{}
		for _, width := range []int64{320, 390, 1280} {
			for _, scheme := range []string{"light", "dark"} {
				name := fmt.Sprintf("%s-%d-%s", test.name, width, scheme)
				t.Run(name, func(t *testing.T) {
					perform(t, ctx, look(width, scheme, test.address), test.then)
					screenshot(t, ctx, name)
					page := readValue(t, ctx, chromedp.Evaluate[pageMeasurements](measure))
					checkLayout(t, page, int(width))
					checkAccessible(t, ctx)
					test.check(t, page)
					backgrounds[scheme] = page.Background
				})
			}
		}
		if backgrounds["light"] == backgrounds["dark"] {
			t.Errorf("%s: %s in light and in dark", test.name, backgrounds["light"])
		}
	}
}

func mistype() step {
	return chromedp.Steps(
		chromedp.WaitVisible(chromedp.CSS("form")),
		chromedp.SendKeys(chromedp.ID("username"), userName),
		chromedp.SendKeys(chromedp.ID("password"), "wrong\r"),
		chromedp.WaitVisible(chromedp.CSS("[role=alert]")),
	)
}

func checkLayout(t *testing.T, page pageMeasurements, width int) {
	t.Helper()
	if page.InnerWidth != width {
		t.Errorf("innerWidth %d, want %d: the page is not laid out for its screen", page.InnerWidth, width)
	}
	if page.ScrollWidth > page.InnerWidth {
		t.Errorf("scrolls sideways: %d wide in %d", page.ScrollWidth, page.InnerWidth)
	}
	if page.Language == "" || page.Title == "" || page.H1 != 1 || page.Main != 1 {
		t.Errorf("lang %q, title %q, %d h1, %d main", page.Language, page.Title, page.H1, page.Main)
	}
	if page.Scripts > 1 { // a page has at most one script besides that of passkeys
		t.Errorf("%d scripts", page.Scripts)
	}
	if len(page.Small) != 0 {
		t.Errorf("less than 44 px high: %q", page.Small)
	}
	if page.Contrast < 4.5 {
		t.Errorf("contrast %.2f, want 4.5", page.Contrast)
	}
}

func checkSignInPage(t *testing.T, page pageMeasurements) {
	t.Helper()
	if page.Forms != 1 || len(page.Unlabelled) != 0 {
		t.Errorf("%d forms, without a label: %q", page.Forms, page.Unlabelled)
	}
	for name, want := range map[string]string{"username": "username", "password": "current-password"} {
		if got := page.Autocomplete[name]; got != want {
			t.Errorf("autocomplete of %s is %q, want %q", name, got, want)
		}
	}
}

// checkStartPage checks the start page of Caddyfile.example.
func checkStartPage(t *testing.T, page pageMeasurements) {
	t.Helper()
	if page.Title != "caddy-fhir runs" || page.Forms != 0 {
		t.Errorf("title %q, %d forms", page.Title, page.Forms)
	}
}

func checkErrorPage(t *testing.T, page pageMeasurements) {
	t.Helper()
	if page.Forms != 0 {
		t.Errorf("%d forms", page.Forms)
	}
}
