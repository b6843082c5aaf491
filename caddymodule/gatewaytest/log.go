package gatewaytest

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest/lastlines"
)

func init() {
	caddy.RegisterModule(testLog{})
}

// testLog is a log writer that keeps the last lines and shows them if the test fails.
// Shown always, they would hide which test failed, and why.
type testLog struct {
	Number int64 `json:"number"`
}

func (testLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.test", New: func() caddy.Module { return new(testLog) }}
}

func (l testLog) String() string    { return l.WriterKey() }
func (l testLog) WriterKey() string { return fmt.Sprint("test log ", l.Number) }

func (l testLog) OpenWriter() (io.WriteCloser, error) {
	lines, _ := testLogs.Load(l.Number)
	return lines.(*lastlines.Lines), nil
}

// testLogs has the *lastlines.Lines of each configuration, by a number of its own.
var (
	testLogs       sync.Map
	testLogNumbers atomic.Int64
)

// keepLog makes a log for a test.
func keepLog(t testing.TB) testLog {
	number, lines := testLogNumbers.Add(1), new(lastlines.Lines)
	testLogs.Store(number, lines)
	t.Cleanup(func() {
		if text := lines.String(); t.Failed() && text != "" {
			t.Logf("the log ends with:\n%s", text)
		}
	})
	return testLog{number}
}
