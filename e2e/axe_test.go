package e2e

import (
	"context"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

// axe returns the violations that npm axe-core finds in the open page, of WCAG 2.2 AA and of its own best
// practices.
const axe = `axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then((r) =>
	r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).join('; ')))`

// checkAccessible reports the violations. The script is injected by the browser's debugger, which is exempt
// from the page's content security policy.
func checkAccessible(t *testing.T, ctx context.Context) {
	t.Helper()
	script, err := os.ReadFile("node/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("was npm ci run in e2e/node? %v", err)
	}
	found := readValue(t, ctx, chromedp.Evaluate[[]string](string(script)+";\n"+axe, chromedp.EvalAwaitPromise))
	for _, violation := range found {
		t.Error(violation)
	}
}
