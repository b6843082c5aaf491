package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// checkPageLooks opens a page on a small phone and on a desktop, with light and dark color schemes. It waits for the element,
// takes a screenshot, and checks the measurements.
func checkPageLooks(t *testing.T, ctx context.Context, name, address, there string, check func(*testing.T, pageMeasurements)) {
	t.Helper()
	backgrounds := map[string]string{}
	for _, width := range []int64{320, 390, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			name := fmt.Sprintf("%s-%d-%s", name, width, scheme)
			t.Run(name, func(t *testing.T) {
				perform(t, ctx, look(width, scheme, address), chromedp.WaitVisible(there))
				screenshot(t, ctx, name)
				page := readValue(t, ctx, chromedp.Evaluate[pageMeasurements](measure))
				checkLayout(t, page, int(width))
				checkAccessible(t, ctx)
				if low := readValue(t, ctx, chromedp.Evaluate[[]string](lowLinks)); len(low) != 0 {
					t.Errorf("links less than 44 px high: %q", low)
				}
				check(t, page)
				backgrounds[scheme] = page.Background
			})
		}
	}
	if backgrounds["light"] == backgrounds["dark"] {
		t.Errorf("%s: %s in light and in dark", name, backgrounds["light"])
	}
}

// checkLabels reports inputs without a label.
func checkLabels(t *testing.T, page pageMeasurements) {
	t.Helper()
	if len(page.Unlabelled) != 0 {
		t.Errorf("without a label: %q", page.Unlabelled)
	}
}

// lowLinks is a script that returns the texts of links less than 44 px high, which are too small to tap.
const lowLinks = `[...document.querySelectorAll('a')].filter((e) => e.getBoundingClientRect().height < 44).map((e) => e.textContent)`
