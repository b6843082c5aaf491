package stores

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	watchEvery   = 10 * time.Second       // how often a store is tried that is well
	watchTrouble = 2 * time.Second        // and one that is not
	watchFresh   = 500 * time.Millisecond // for how long a trial answers for the next who asks
	watchSteady  = 5 * time.Second        // how long a store must have been well before its problem is over
	emptiedFor   = time.Hour              // how long it is told that a store came back empty
)

// CheckTimeout is how long the question whether a store works waits for it.
const CheckTimeout = 3 * time.Second

// Watch tries a store ([store.Try]) from time to time, and whenever somebody asks whether the gateway is ready. It logs
// once when a problem begins, and once when it is over. It lives as long as the store, across reloads.
type Watch struct {
	name    string // of the module, in metrics
	try     func(context.Context) error
	outages bool // log of them too: there is no breaker that does
	sized   sizedStore
	logger  latestLogger

	running sync.Once
	ctx     context.Context // of trials
	end     context.CancelFunc

	mu    sync.Mutex
	trial chan struct{} // closed when the trial under way ends; nil: there is none
	tried time.Time     // when the last one ended
	state watchState
}

// watchState is what is known of a store.
type watchState struct {
	problem  error     // nil: it is well
	began    time.Time // when the problem did
	well     time.Time // since when trials have succeeded again
	emptied  time.Time // when it was noticed that it had lost what it held
	volatile string    // why it keeps nothing over its own restart
	mark     string    // of its issuer, as last seen
}

// watches are the stores that are watched, for metrics.
var watches sync.Map

func newStoreWatch(name string, try func(context.Context) error) *Watch {
	w := &Watch{name: name, try: try}
	w.logger.Store(slog.Default())
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// NewLocalWatch watches a store of this process alone.
func NewLocalWatch(name string, s store.Store) *Watch {
	w := newStoreWatch(name, func(ctx context.Context) error { return store.Try(ctx, s) })
	w.outages = true
	w.sized, _ = s.(sizedStore)
	return w
}

// start begins to watch, unless that was done before. The store must have been opened.
func (w *Watch) start() {
	w.running.Do(func() {
		watches.Store(w, nil)
		go w.run()
	})
}

// Stop ends watching.
func (w *Watch) Stop() {
	w.end()
	watches.Delete(w)
}

func (w *Watch) run() {
	for w.ctx.Err() == nil {
		pause := watchEvery
		if w.check(w.ctx) != nil {
			pause = watchTrouble
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// check says what keeps the store from working; nil if nothing does. It tries the store, unless that was done just now, and
// waits no longer than CheckTimeout.
func (w *Watch) check(ctx context.Context) error {
	select {
	case <-w.begin():
	case <-time.After(CheckTimeout):
		w.note(fmt.Errorf("%w: no answer in %v", store.ErrUnavailable, CheckTimeout))
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.problem
}

var noTrial = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// begin begins a trial, unless one is under way or has just ended.
func (w *Watch) begin() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.trial != nil:
		return w.trial
	case !w.tried.IsZero() && time.Since(w.tried) < watchFresh:
		return noTrial
	}
	done := make(chan struct{})
	w.trial = done
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(w.ctx, CheckTimeout)
		err := w.try(ctx)
		cancel()
		if w.ctx.Err() == nil {
			w.note(err)
		}
		w.mu.Lock()
		w.trial, w.tried = nil, time.Now()
		w.mu.Unlock()
	}()
	return done
}

// note takes the outcome of a trial. A problem counts at once, and until the store has been well for a while: who asks must
// not get another answer each time.
func (w *Watch) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, now := &w.state, time.Now()
	switch {
	case err != nil:
		before := s.problem
		s.problem, s.well = err, time.Time{}
		if before == nil {
			s.began = now
		}
		if before == nil || store.CauseOf(before) != store.CauseOf(err) {
			w.tell(err)
		}
	case s.problem == nil:
	case s.well.IsZero():
		s.well = now
	case now.Sub(s.well) >= watchSteady:
		if w.logs(s.problem) {
			w.log().Info("the store works again", "store", w.name, "after", now.Sub(s.began).Round(time.Second))
		}
		s.problem = nil
	}
}

func (w *Watch) log() *slog.Logger { return slog.New(&w.logger) }

// logs reports whether a problem is logged here. Of a store elsewhere that does not answer, its breaker logs.
func (w *Watch) logs(err error) bool {
	return w.outages || store.CauseOf(err) != store.CauseUnavailable
}

func (w *Watch) tell(err error) {
	if !w.logs(err) {
		return
	}
	message := map[store.Cause]string{
		store.CauseFull:     "the store is full: new sign-ins, codes and tokens are answered 503 until it has room",
		store.CauseRights:   "the store refuses what gateways need: what needs it is answered 503 until that is set right",
		store.CauseEviction: "the store may drop what is in use: sessions would end, and revoked tokens be valid again",
		store.CauseGone:     "the store takes no changes: what needs it is answered 503 until that is set right",
	}[store.CauseOf(err)]
	w.log().Error(cmp.Or(message, "the store fails: what needs it is not served"), "store", w.name, "cause", string(store.CauseOf(err)), "error", err)
}

// Claimed takes the mark of the store ([store.Claim]), and reports whether it is as before. One that has another, or lost it,
// has lost what it held.
func (w *Watch) Claimed(mark []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if mark == nil { // it is full
		return true
	}
	before := w.state.mark
	w.state.mark = string(mark)
	if before == "" || before == string(mark) {
		return true
	}
	w.lost()
	return false
}

// lost notes that the store has lost what it held. It requires the lock.
func (w *Watch) lost() {
	w.state.emptied = time.Now()
	w.log().Error("the store has lost what it held: people sign in again, and tokens that were revoked may be valid until they expire; restore a backup, or end all tokens (docs/operation.md)", "store", w.name, "cause", string(store.CauseEmptied))
}

// beganEmpty notes at a start that the store has lost what it held before that.
func (w *Watch) beganEmpty() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost()
}

// keepsNothing notes at a start why the store keeps nothing over its own restart; empty if it does.
func (w *Watch) keepsNothing(why string) (isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isNew = why != "" && w.state.volatile != why
	w.state.volatile = why
	return isNew
}

func (w *Watch) warnOfVolatile(logger *slog.Logger, why string) {
	logger.Warn("the store does not keep everything over its own restart: people then sign in again, and tokens that were revoked may be valid until they expire", "store", w.name, "cause", string(store.CauseVolatile), "why", why)
}

// warnings say what the gateway works in spite of.
func (w *Watch) warnings() (warnings []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isEmptied() {
		warnings = append(warnings, fmt.Sprintf("it came back empty at %s", w.state.emptied.UTC().Format(time.RFC3339)))
	}
	if w.state.volatile != "" {
		warnings = append(warnings, w.state.volatile)
	}
	return warnings
}

// isEmptied requires the lock.
func (w *Watch) isEmptied() bool {
	return !w.state.emptied.IsZero() && time.Since(w.state.emptied) < emptiedFor
}

// causes are those of what is wrong now.
func (w *Watch) causes() map[store.Cause]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	causes := map[store.Cause]bool{store.CauseEmptied: w.isEmptied(), store.CauseVolatile: w.state.volatile != ""}
	if w.state.problem != nil {
		causes[store.CauseOf(w.state.problem)] = true
	}
	return causes
}

// settle lets the store have been well for as long as a problem needs to be over, and be tried by who asks next.
func (w *Watch) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tried = time.Time{}
	if !w.state.well.IsZero() {
		w.state.well = time.Now().Add(-watchSteady)
	}
}
