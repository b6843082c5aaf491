package audit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

const (
	logInterval = time.Minute

	// Limits for anonymous events of one kind per logInterval, per address and in total. Kinds are counted separately, so that
	// rejections at the token endpoint, which cost a sender almost nothing, cannot suppress lockouts.
	maxEventsPerAddress = 60
	maxEventsPerKind    = 300

	// maxWindows is the maximum number of kind-address pairs counted separately; others are counted by kind alone.
	maxWindows = 1000
)

// Log writes events to a log that senders cannot flood. Successes, and events of authenticated users and clients, are always
// written. Of the anonymous events ([Event].Anonymous), a limited number per minute is written. The rest is counted by kind and
// address. The total is at most about 3,500 records per minute: 300 of each kind, and one summary for each of a thousand
// addresses.
//
// Safe for concurrent use.
type Log struct {
	logger *slog.Logger

	mu      sync.Mutex
	windows map[eventSource]*eventWindow
}

// eventSource identifies a counter of anonymous events, by kind and network. Without a network, it counts by kind alone.
type eventSource struct {
	network, kind string
	allNetworks   bool
}

// eventWindow counts the events of a source for logInterval after the first event.
type eventWindow struct{ written, suppressed int }

// NewLog returns a [Log] that writes to logger.
func NewLog(logger *slog.Logger) *Log {
	return &Log{logger: logger, windows: map[eventSource]*eventWindow{}}
}

// Record writes an event, or counts it as suppressed.
func (l *Log) Record(ctx context.Context, e Event) {
	if !e.Anonymous || l.allow(eventSource{network: fairqueue.Network(e.Address), kind: e.Kind}) {
		e.Log(ctx, l.logger)
	}
}

// Flush writes summaries of the events suppressed so far. It must be called before the process exits.
func (l *Log) Flush() {
	l.mu.Lock()
	windows := l.windows
	l.windows = map[eventSource]*eventWindow{}
	l.mu.Unlock()
	for source, w := range windows {
		l.writeSummary(source, w)
	}
}

func (l *Log) allow(source eventSource) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, own := l.openWindow(eventSource{kind: source.kind, allNetworks: true}), l.openWindow(source)
	if own.written >= maxEventsPerAddress || all.written >= maxEventsPerKind {
		own.suppressed++
		return false
	}
	own.written++
	all.written++
	return true
}

// openWindow returns the current window of a source, or opens one. The caller must hold mu.
func (l *Log) openWindow(source eventSource) *eventWindow {
	if w := l.windows[source]; w != nil {
		return w
	}
	if len(l.windows) >= maxWindows && source.network != "" {
		return l.openWindow(eventSource{kind: source.kind})
	}
	w := new(eventWindow)
	l.windows[source] = w
	time.AfterFunc(logInterval, func() { l.closeWindow(source, w) })
	return w
}

// closeWindow closes a window and writes its summary, unless Flush has already done so.
func (l *Log) closeWindow(source eventSource, w *eventWindow) {
	l.mu.Lock()
	isOpen := l.windows[source] == w
	if isOpen {
		delete(l.windows, source)
	}
	l.mu.Unlock()
	if isOpen {
		l.writeSummary(source, w)
	}
}

func (l *Log) writeSummary(source eventSource, w *eventWindow) {
	if w.suppressed == 0 {
		return
	}
	Event{
		Kind: source.kind, Address: source.network, SuppressedCount: w.suppressed,
		Reason: "further rejections of unauthenticated requests, not recorded individually",
	}.Log(context.Background(), l.logger)
}
