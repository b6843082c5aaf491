package e2e

import (
	"context"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

// axe is a script that runs npm axe-core in the open page and returns the violations of WCAG 2.2 AA and of axe's best
// practices.
const axe = `axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then((r) =>
	r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).join('; ')))`

// checkAccessible reports the violations that axe finds. The debugger injects the script, because the page's content security
// policy does not apply to it.
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
