// Package lastlines stores the last lines of a log, so that they can be printed if a test fails.
package lastlines

import (
	"bytes"
	"sync"
)

// maxLines is the maximum number of lines.
const maxLines = 20

// Lines stores the last lines written to it.
type Lines struct {
	mu    sync.Mutex
	lines [][]byte
}

// Write implements [io.Writer].
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, bytes.Clone(line))
	l.lines = l.lines[max(0, len(l.lines)-maxLines):]
	return len(line), nil
}

// Close implements [io.Closer].
func (*Lines) Close() error { return nil }

// String returns the stored lines.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.Join(l.lines, nil))
}
