package e2e

import (
	"context"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

// axe is what npm axe-core finds wrong with the page that is open, by WCAG 2.2 AA and what
// its authors take for good practice.
const axe = `axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then((r) =>
	r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).join('; ')))`

// checkAccessible reports what axe-core finds. The script comes in by the browser's
// debugger, which a page's policy does not bind.
func checkAccessible(t *testing.T, ctx context.Context) {
	t.Helper()
	script, err := os.ReadFile("node/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("was npm ci run in e2e/node? %v", err)
	}
	found := read(t, ctx, chromedp.Evaluate[[]string](string(script)+";\n"+axe, chromedp.EvalAwaitPromise))
	for _, violation := range found {
		t.Error(violation)
	}
}
