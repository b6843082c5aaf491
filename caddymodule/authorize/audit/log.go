package audit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

const (
	// eventWindowTime is the time in which anonymous events are counted together.
	eventWindowTime = time.Minute

	// maxAnonymous is how many of them are logged one by one, in that time, of a
	// kind: from one address, and from all. Each kind has a share of its own, so that
	// none hides another: refusals at the token endpoint cost next to nothing, and
	// must not hide lockouts.
	maxAnonymous    = 60
	maxAllAnonymous = 300

	// maxEventWindows is how many kinds and addresses are counted apart. Those
	// beyond are counted by kind alone.
	maxEventWindows = 1000
)

// Log writes events to a log that is not whoever's to fill. Events of people and
// clients that are known, and what succeeded, are always written. Of anonymous ones
// ([Event.Anonymous]) so many are written as a person looks at; how many were left out
// is told, by kind and address, at the end of each minute. So it is some 3,500 records
// a minute that anybody can cause, however many requests they send and from wherever:
// 300 of each kind, and a number for each of a thousand addresses.
//
// It is safe for concurrent use.
type Log struct {
	logger *slog.Logger

	mu      sync.Mutex
	windows map[eventSource]*eventWindow
}

// eventSource is what anonymous events are counted by: the network of the address,
// empty for all that are not counted apart, and the kind; or the kind alone, for all
// of it.
type eventSource struct {
	network, kind string
	all           bool
}

// eventWindow counts the events of a source for eventWindowTime, from the first.
type eventWindow struct{ written, leftOut int }

// NewLog returns a log of events that writes to a logger.
func NewLog(logger *slog.Logger) *Log {
	return &Log{logger: logger, windows: map[eventSource]*eventWindow{}}
}

// Record writes an event, or counts it among those that are left out.
func (l *Log) Record(ctx context.Context, e Event) {
	if !e.Anonymous || l.admit(eventSource{network: fairqueue.Network(e.Address), kind: e.Kind}) {
		e.Log(ctx, l.logger)
	}
}

// Flush tells now what was left out until now. It is for the end of a log.
func (l *Log) Flush() {
	l.mu.Lock()
	windows := l.windows
	l.windows = map[eventSource]*eventWindow{}
	l.mu.Unlock()
	for source, w := range windows {
		l.tell(source, w)
	}
}

// admit says whether one more event of a source is written.
func (l *Log) admit(source eventSource) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, own := l.window(eventSource{kind: source.kind, all: true}), l.window(source)
	if own.written >= maxAnonymous || all.written >= maxAllAnonymous {
		own.leftOut++
		return false
	}
	own.written++
	all.written++
	return true
}

// window is called with the lock held.
func (l *Log) window(source eventSource) *eventWindow {
	if w := l.windows[source]; w != nil {
		return w
	}
	if len(l.windows) >= maxEventWindows && source.network != "" {
		return l.window(eventSource{kind: source.kind})
	}
	w := new(eventWindow)
	l.windows[source] = w
	time.AfterFunc(eventWindowTime, func() { l.end(source, w) })
	return w
}

// end closes a window, unless Flush has.
func (l *Log) end(source eventSource, w *eventWindow) {
	l.mu.Lock()
	open := l.windows[source] == w
	if open {
		delete(l.windows, source)
	}
	l.mu.Unlock()
	if open {
		l.tell(source, w)
	}
}

// tell writes how many events of a window that is closed were left out.
func (l *Log) tell(source eventSource, w *eventWindow) {
	if w.leftOut == 0 {
		return
	}
	Event{
		Kind: source.kind, Address: source.network, LeftOut: w.leftOut,
		Reason: "refusals of requests that proved nothing, beyond those that are recorded one by one",
	}.Log(context.Background(), l.logger)
}
