package file

import (
	"log/slog"
	"os"
	"sync/atomic"
)

// runningMark is an empty file beside a durable store, from the start of a gateway until it begins to stop. A process that
// finds the store locked reads from it whether waiting helps. A mark that a killed process left behind does no harm, because
// its lock is gone.
//
// The ports cannot tell: Caddy opens them with SO_REUSEPORT, so that two gateways share them without an error.
type runningMark struct {
	path    string
	written atomic.Bool // by this process
}

func (m *runningMark) write(logger *slog.Logger) {
	if err := os.WriteFile(m.path, nil, 0o600); err != nil {
		logger.Warn("a second gateway would wait for this one instead of failing at once", "error", err)
		return
	}
	m.written.Store(true)
}

func (m *runningMark) exists() bool {
	_, err := os.Stat(m.path)
	return err == nil
}

// remove leaves the mark of another process alone.
func (m *runningMark) remove() {
	if m.written.Swap(false) {
		_ = os.Remove(m.path)
	}
}
