package gatewaytest

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
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
	return lines.(*lastLines), nil
}

// testLogs has the *lastLines of each configuration, by a number of its own.
var (
	testLogs       sync.Map
	testLogNumbers atomic.Int64
)

// maxLastLines is how much of its log a test that fails shows.
const maxLastLines = 20

// lastLines keeps the last lines written to it.
type lastLines struct {
	mu    sync.Mutex
	lines [][]byte
}

func (l *lastLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, bytes.Clone(line))
	l.lines = l.lines[max(0, len(l.lines)-maxLastLines):]
	return len(line), nil
}

func (*lastLines) Close() error { return nil }

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.Join(l.lines, nil))
}

// keepLog makes a log for a test.
func keepLog(t testing.TB) testLog {
	number, lines := testLogNumbers.Add(1), new(lastLines)
	testLogs.Store(number, lines)
	t.Cleanup(func() {
		if text := lines.String(); t.Failed() && text != "" {
			t.Logf("the log ends with:\n%s", text)
		}
	})
	return testLog{number}
}
