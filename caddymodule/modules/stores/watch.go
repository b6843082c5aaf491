package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/breaker"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemirror"
)

const (
	watchInterval       = 10 * time.Second       // interval between checks of a healthy store
	troubleInterval     = 2 * time.Second        // interval between checks of a failing store
	resultLifetime      = 500 * time.Millisecond // maximum age of a reused result
	recoveryPeriod      = 5 * time.Second        // time without failures after which a problem ends
	dataLossWarningTime = time.Hour              // duration of the warning after data loss
)

// CheckTimeout is the timeout of a store check.
const CheckTimeout = 3 * time.Second

// HealthMonitor checks a store ([store.Probe]) periodically and on each readiness probe. It logs a problem once when it begins and once
// when it ends. A monitor lives as long as its store, across reloads.
type HealthMonitor struct {
	name        string // name of the module, for metrics
	probe       func(context.Context) error
	logsOutages bool // whether to log outages, because no breaker logs them
	sized       sizedStore
	logger      latestLogger

	startOnce sync.Once
	ctx       context.Context // context for all checks
	cancel    context.CancelFunc

	mu           sync.Mutex
	runningCheck chan struct{} // closed when the current check ends; nil if no check is running
	checkedAt    time.Time     // time when the last check ended
	state        monitorState
}

// monitorState is the state of a store as determined by the checks.
type monitorState struct {
	problem          error     // current problem; nil if the store is healthy
	problemSince     time.Time // time when the problem began
	healthySince     time.Time // time of the first success since the last failure
	dataLostAt       time.Time // time when data loss was detected
	volatilityReason string    // why the store loses data when it is restarted
	mark             string    // most recent mark of the store's issuer
}

// monitors contains all monitors, for the metrics.
var monitors sync.Map

func newStoreMonitor(name string, try func(context.Context) error) *HealthMonitor {
	w := &HealthMonitor{name: name, probe: try}
	w.logger.Store(slog.Default())
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// NewLocalMonitor returns a monitor for a store that only this process uses.
func NewLocalMonitor(name string, s store.Store) *HealthMonitor {
	w := newStoreMonitor(name, func(ctx context.Context) error { return store.Probe(ctx, s) })
	w.logsOutages = true
	w.sized, _ = s.(sizedStore)
	return w
}

// start starts the periodic checks unless they have already been started. The store must be open.
func (w *HealthMonitor) start() {
	w.startOnce.Do(func() {
		monitors.Store(w, nil)
		go w.run()
	})
}

// Stop ends the periodic checks.
func (w *HealthMonitor) Stop() {
	w.cancel()
	monitors.Delete(w)
}

func (w *HealthMonitor) run() {
	for w.ctx.Err() == nil {
		pause := watchInterval
		if w.check(w.ctx) != nil {
			pause = troubleInterval
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// check returns the current problem of the store, or nil if it is healthy. It checks the store unless the last check was
// recent. It waits at most CheckTimeout.
func (w *HealthMonitor) check(ctx context.Context) error {
	select {
	case <-w.startCheck():
	case <-time.After(CheckTimeout):
		w.recordResult(fmt.Errorf("%w: no response within %v", store.ErrUnavailable, CheckTimeout))
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.problem
}

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// startCheck starts a check unless one is running or recent. The returned channel is closed when the check has ended.
func (w *HealthMonitor) startCheck() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.runningCheck != nil:
		return w.runningCheck
	case !w.checkedAt.IsZero() && time.Since(w.checkedAt) < resultLifetime:
		return closedChannel
	}
	done := make(chan struct{})
	w.runningCheck = done
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(w.ctx, CheckTimeout)
		err := w.probe(ctx)
		cancel()
		if w.ctx.Err() == nil {
			w.recordResult(err)
		}
		w.mu.Lock()
		w.runningCheck, w.checkedAt = nil, time.Now()
		w.mu.Unlock()
	}()
	return done
}

// recordResult records the result of a check. A problem begins immediately but ends only after recoveryPeriod without failures,
// so that consecutive readiness checks agree.
func (w *HealthMonitor) recordResult(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, now := &w.state, time.Now()
	switch {
	case err != nil:
		before := s.problem
		s.problem, s.healthySince = err, time.Time{}
		if before == nil {
			s.problemSince = now
		}
		if before == nil || store.CauseOf(before) != store.CauseOf(err) {
			w.logProblem(err)
		}
	case s.problem == nil:
	case s.healthySince.IsZero():
		s.healthySince = now
	case now.Sub(s.healthySince) >= recoveryPeriod:
		if w.isLogged(s.problem) {
			w.newLogger().Info("store works again", "store", w.name, "after", now.Sub(s.problemSince).Round(time.Second))
		}
		s.problem = nil
	}
}

func (w *HealthMonitor) newLogger() *slog.Logger { return slog.New(&w.logger) }

// isLogged reports whether the monitor logs a problem. It does not log outages of a shared store, which the breaker logs.
func (w *HealthMonitor) isLogged(err error) bool {
	return w.logsOutages || store.CauseOf(err) != store.CauseUnavailable
}

func (w *HealthMonitor) logProblem(err error) {
	if !w.isLogged(err) {
		return
	}
	message := map[store.Cause]string{
		store.CauseFull:        "store is full: new sign-ins, codes and tokens get 503 until entries expire or its limit is raised",
		store.CausePermissions: "store denies required operations: requests that need it get 503; fix the permissions of its user",
		store.CauseEviction:    "store may evict entries in use: sessions could be lost and revoked tokens accepted again; disable eviction",
		store.CauseFileLost:    "store rejects writes: requests that need it get 503 until the store is writable again",
	}[store.CauseOf(err)]
	w.newLogger().Error(cmp.Or(message, "store unavailable; requests that need it get 503"), "store", w.name, "cause", string(store.CauseOf(err)), "error", err)
}

// RecordMark records the mark of the store ([store.AssignIssuer]) and reports whether it is unchanged. If the mark is different
// or missing, the store has lost its data.
func (w *HealthMonitor) RecordMark(mark []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if mark == nil { // the store is full and cannot contain a mark
		return true
	}
	before := w.state.mark
	w.state.mark = string(mark)
	if before == "" || before == string(mark) {
		return true
	}
	w.recordLoss()
	return false
}

// recordLoss records that the store has lost its data. The caller must hold the lock.
func (w *HealthMonitor) recordLoss() {
	w.state.dataLostAt = time.Now()
	w.newLogger().Error("store has lost its data: people must sign in again, and revoked tokens may be valid until they expire; restore a backup, or revoke all tokens (docs/operate/troubleshooting.md)", "store", w.name, "cause", string(store.CauseDataLost))
}

// recordLossAtStart records on startup that the store has lost its earlier data.
func (w *HealthMonitor) recordLossAtStart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recordLoss()
}

// recordVolatility records on startup why the store loses data when it is restarted, or "" if it does not.
func (w *HealthMonitor) recordVolatility(why string) (isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isNew = why != "" && w.state.volatilityReason != why
	w.state.volatilityReason = why
	return isNew
}

func (w *HealthMonitor) warnVolatile(logger *slog.Logger, why string) {
	logger.Warn("store is not fully durable: after a restart of the store, people must sign in again, and revoked tokens may be valid until they expire", "store", w.name, "cause", string(store.CauseVolatile), "why", why)
}

// warnings returns descriptions of problems that do not prevent the gateway from working.
func (w *HealthMonitor) warnings() (warnings []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hasRecentLoss() {
		warnings = append(warnings, fmt.Sprintf("the store lost its data at %s", w.state.dataLostAt.UTC().Format(time.RFC3339)))
	}
	if w.state.volatilityReason != "" {
		warnings = append(warnings, w.state.volatilityReason)
	}
	return warnings
}

// hasRecentLoss reports whether data loss was detected recently. The caller must hold the lock.
func (w *HealthMonitor) hasRecentLoss() bool {
	return !w.state.dataLostAt.IsZero() && time.Since(w.state.dataLostAt) < dataLossWarningTime
}

// causes returns the causes of store problems that currently apply.
func (w *HealthMonitor) causes() map[store.Cause]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	causes := map[store.Cause]bool{store.CauseDataLost: w.hasRecentLoss(), store.CauseVolatile: w.state.volatilityReason != ""}
	if w.state.problem != nil {
		causes[store.CauseOf(w.state.problem)] = true
	}
	return causes
}

// forceRecheck skips the recovery period of a problem and makes the next call to check perform a new check.
func (w *HealthMonitor) forceRecheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkedAt = time.Time{}
	if !w.state.healthySince.IsZero() {
		w.state.healthySince = time.Now().Add(-recoveryPeriod)
	}
}

// checkedStore is a store that is used only after it has passed its check and does not belong to another issuer. This may be
// after the start of the gateway. The store is checked again whenever the subscription is restarted, because the server may
// have been replaced.
type checkedStore struct {
	store.CallRunner
	remote  *Remote
	logger  *slog.Logger
	monitor *HealthMonitor

	rejection atomic.Pointer[error] // returned instead of the store's results; nil if the store is used

	mu         sync.Mutex
	issuer     string // guarded by mu; "" before the first start
	isAccepted bool   // guarded by mu; whether the store has passed the check for the issuer
}

func newCheckedStore(remote *Remote, logger *slog.Logger) *checkedStore {
	s := &checkedStore{remote: remote, logger: logger, monitor: newStoreMonitor("", nil)}
	s.CallRunner = s.Do
	return s
}

// checkAtStart checks the store when a configuration starts. An unavailable store is not used until it is checked by the
// subscription. If the running configuration uses the store, a configuration with another issuer is rejected.
func (s *checkedStore) checkAtStart(ctx context.Context, issuer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.issuer != "" && s.issuer != issuer {
		return s.remote.addRemedy(&store.IssuerMismatchError{StoredIssuer: s.issuer, RequestedIssuer: issuer})
	}
	err := s.checkFor(ctx, issuer)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	switch {
	case err == nil:
		s.accept(issuer)
	case errors.Is(err, store.ErrUnavailable) && !s.isAccepted:
		s.issuer = issuer
		s.rejection.Store(&err)
	}
	return err
}

// accept permits use of the store. The caller must hold the lock.
func (s *checkedStore) accept(issuer string) {
	s.issuer, s.isAccepted = issuer, true
	s.rejection.Store(nil)
}

// checkFor checks and probes a store for an issuer. A full store passes, because its content can still be used.
func (s *checkedStore) checkFor(ctx context.Context, issuer string) error {
	if err := s.remote.Check(ctx); err != nil {
		return err
	}
	switch err := store.Probe(ctx, s.remote.SharedStore); {
	case err == nil || errors.Is(err, store.ErrFull):
	case store.CauseOf(err) == store.CausePermissions:
		return errors.New(err.Error()) // without ErrUnavailable, because the error is permanent
	default:
		return err
	}
	if s.remote.VolatilityReason != nil {
		if why := s.remote.VolatilityReason(ctx); s.monitor.recordVolatility(why) {
			s.monitor.warnVolatile(s.monitor.newLogger(), why)
		}
	}
	return s.assignIssuer(ctx, issuer)
}

// assignIssuer assigns the store to an issuer. The caller must hold the lock.
func (s *checkedStore) assignIssuer(ctx context.Context, issuer string) error {
	mark, err := store.AssignIssuer(ctx, s.remote.SharedStore, issuer)
	if err == nil {
		s.monitor.RecordMark(mark)
	}
	return s.remote.addRemedy(err)
}

// addRemedy adds SeparateStoreHint to the error for another issuer's store.
func (r *Remote) addRemedy(err error) error {
	if _, isOtherIssuer := errors.AsType[*store.IssuerMismatchError](err); isOtherIssuer {
		return fmt.Errorf("%w: configure a separate store for each issuer (%s)", err, r.SeparateStoreHint)
	}
	return err
}

// recheck checks the store before the subscription is started. After the first success, only the issuer is checked: other
// problems were reported on startup, and a server that is about to become a replica must not cause an outage.
func (s *checkedStore) recheck(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.issuer == "" { // the app has not been started
		return s.remote.Check(ctx)
	}
	check := s.checkFor
	if s.isAccepted {
		check = s.assignIssuer
	}
	err := check(ctx, s.issuer)
	switch {
	case err == nil:
		s.accept(s.issuer)
	case errors.As(err, new(*store.IssuerMismatchError)), !s.isAccepted && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable):
		s.reject(ctx, err)
	}
	return err
}

// reject prevents use of the store and logs the cause once. The caller must hold the lock.
func (s *checkedStore) reject(ctx context.Context, err error) {
	rejection := fmt.Errorf("%w: %s", store.ErrUnavailable, err.Error())
	if before := s.rejection.Swap(&rejection); before == nil || (*before).Error() != rejection.Error() {
		s.logger.ErrorContext(ctx, "store check failed; requests that need the store get 503", "error", err)
	}
	s.isAccepted = false
}

// Subscribe implements [store.SharedStore].
func (s *checkedStore) Subscribe(ctx context.Context, notify func(store.Update)) error {
	if err := s.recheck(ctx); err != nil {
		return err
	}
	return s.remote.Subscribe(ctx, notify)
}

// Probe checks the store for [store.Probe]. It also checks that the store still contains this gateway's state.
func (s *checkedStore) Probe(ctx context.Context) error {
	if rejection := s.rejection.Load(); rejection != nil {
		return *rejection
	}
	if err := store.Probe(ctx, s.remote.SharedStore); err != nil {
		return err
	}
	mark, err := s.remote.Get(ctx, store.IssuerKey)
	if errors.Is(err, store.ErrNotFound) || err == nil && !s.monitor.RecordMark(mark) {
		return s.recheck(ctx)
	}
	return err
}

// Do implements [store.Store].
func (s *checkedStore) Do(ctx context.Context, calls ...*store.Call) error {
	if rejection := s.rejection.Load(); rejection != nil {
		return *rejection
	}
	return s.remote.Do(ctx, calls...)
}

// List implements [store.Store].
func (s *checkedStore) List(ctx context.Context, prefix string) ([]string, error) {
	if rejection := s.rejection.Load(); rejection != nil {
		return nil, *rejection
	}
	return s.remote.List(ctx, prefix)
}

// Now implements [store.SharedStore].
func (s *checkedStore) Now() time.Time { return s.remote.Now() }

var _ store.SharedStore = (*checkedStore)(nil)

// Status is the status of a store. For a shared store, Entries is the number of entries that this gateway mirrors.
type Status struct {
	Name       string   `json:"name"`                  // name of the module
	Entries    int      `json:"entries"`               // number of entries, including expired ones
	MaxEntries int      `json:"max_entries"`           // maximum number of entries
	Lag        *float64 `json:"lag_seconds,omitempty"` // time since the last message from the store, in seconds
}

type sizedStore interface {
	// Size returns the number of entries, including expired ones, and the maximum number, or 0 if there is no maximum. It does
	// not wait for a remote store.
	Size() (entries, limit int)
}

// Status returns the status of the durable store.
func (s *Set) Status() *Status {
	status := new(Status)
	if sized, ok := s.Durable.(sizedStore); ok {
		status.Entries, status.MaxEntries = sized.Size()
	}
	if module, ok := s.Durable.(caddy.Module); ok {
		status.Name = module.CaddyModule().ID.Name()
	}
	for _, shared := range s.sharedStores {
		if shared.replica == s.Durable {
			status.Name, status.Lag = shared.name, new(shared.replica.Lag().Seconds())
		}
	}
	return status
}

// Health is the health of one part of the stores.
type Health struct {
	Part     string      // name of the part
	Cause    store.Cause // cause of the problem
	Problem  error       // nil if the part is healthy
	Warnings []string    // problems that do not prevent the part from working
}

// Health returns the health of the stores. It checks each store with a short timeout.
func (s *Set) Health(ctx context.Context) (parts []Health) {
	for i, one := range []store.Store{s.Durable, s.Store} {
		part := []string{"store", "memory"}[i]
		if i > 0 && one == s.Durable {
			break
		}
		problem := s.monitors[one].check(ctx)
		parts = append(parts, Health{part, store.CauseOf(problem), problem, s.monitors[one].warnings()})
	}
	for _, one := range s.sharedStores {
		var problem error
		if !one.replica.IsCurrent() {
			problem = fmt.Errorf("no revocations received from other gateways for %v", one.replica.Lag().Round(time.Millisecond))
		}
		parts = append(parts, Health{Part: "revocations", Cause: store.CauseUnavailable, Problem: problem})
	}
	return parts
}

var _ sizedStore = (*storemirror.Replica)(nil)

var (
	storeOperations = metrics.NewCounters("store_operations_total", "Operations of shared stores, by outcome.", "store", "operation", "outcome")
	storeDurations  = metrics.NewDurations("store_operation_duration_seconds", "Duration of operations of shared stores, without rejected operations.", "store", "operation")
)

// observeStore returns a function that records the operations of a remote store in the metrics.
func observeStore(name string) breaker.Observe {
	counters := map[string]map[breaker.Outcome]prometheus.Counter{}
	for _, operation := range breaker.Operations {
		counters[operation] = metrics.LookUpByLabel(breaker.Outcomes, func(o breaker.Outcome) prometheus.Counter {
			return storeOperations.WithLabelValues(name, operation, string(o))
		})
	}
	durations := metrics.LookUpByLabel(breaker.Operations, func(operation string) prometheus.Observer {
		return storeDurations.WithLabelValues(name, operation)
	})
	return func(ctx context.Context, operation string, outcome breaker.Outcome, duration time.Duration) {
		counters[operation][outcome].Inc()
		span.Record(ctx, span.Store, duration, string(outcome))
		if outcome != breaker.Rejected {
			span.Observe(ctx, durations[operation], duration)
		}
	}
}

var (
	revocationLag   = prometheus.NewDesc("caddy_fhir_revocation_lag_seconds", "Time since the last message from the store: later revocations at other gateways may be missing here.", []string{"store"}, nil)
	mirroredEntries = prometheus.NewDesc("caddy_fhir_store_mirrored_entries", "Store entries mirrored in this process.", []string{"store"}, nil)
	storeProblem    = prometheus.NewDesc("caddy_fhir_store_problem", "1 while a store has a problem with this cause, otherwise 0.", []string{"store", "cause"}, nil)
	storeEntries    = prometheus.NewDesc("caddy_fhir_store_entries", "Number of store entries, including expired ones.", []string{"store"}, nil)
	storeLimit      = prometheus.NewDesc("caddy_fhir_store_max_entries", "Maximum number of store entries.", []string{"store"}, nil)
	connections     = prometheus.NewDesc("caddy_fhir_store_connections", "Number of connections to the store.", []string{"store", "state"}, nil)

	_ = metrics.Add(metrics.Collector{
		Descs: []*prometheus.Desc{revocationLag, mirroredEntries, connections, storeProblem, storeEntries, storeLimit}, Read: collectStores,
	})
)

// storeGauges contains the totals, and the maximum lag, of all stores of a module.
type storeGauges struct {
	lag                                        time.Duration
	mirrored, idleConnections, usedConnections int
}

// collectStores reports the metrics of all stores in use.
func collectStores(to chan<- prometheus.Metric) {
	collectProblems(to)
	collectSizes(to)
	byName := map[string]*storeGauges{}
	sharedStores.Range(func(_, value any) bool {
		s := value.(*pooledShared)
		g := byName[s.name]
		if g == nil {
			g = new(storeGauges)
			byName[s.name] = g
		}
		g.add(s)
		return true
	})
	for name, g := range byName {
		to <- prometheus.MustNewConstMetric(revocationLag, prometheus.GaugeValue, g.lag.Seconds(), name)
		to <- prometheus.MustNewConstMetric(mirroredEntries, prometheus.GaugeValue, float64(g.mirrored), name)
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(g.idleConnections), name, "idle")
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(g.usedConnections), name, "used")
	}
}

// collectProblems reports every possible cause, so that alerts can be defined before one applies.
func collectProblems(to chan<- prometheus.Metric) {
	byName := map[string]map[store.Cause]float64{}
	monitors.Range(func(key, _ any) bool {
		w := key.(*HealthMonitor)
		if byName[w.name] == nil {
			byName[w.name] = map[store.Cause]float64{}
		}
		for cause, is := range w.causes() {
			if is {
				byName[w.name][cause] = 1
			}
		}
		return true
	})
	for name, causes := range byName {
		for _, cause := range store.Causes {
			to <- prometheus.MustNewConstMetric(storeProblem, prometheus.GaugeValue, causes[cause], name, string(cause))
		}
	}
}

// collectSizes reports the sizes of stores. If a module has several stores, it reports the one with the highest fill level.
func collectSizes(to chan<- prometheus.Metric) {
	byName := map[string]fillLevel{}
	monitors.Range(func(key, _ any) bool {
		if w := key.(*HealthMonitor); w.sized != nil {
			entries, limit := w.sized.Size()
			byName[w.name] = byName[w.name].max(fillLevel{entries, limit})
		}
		return true
	})
	for name, f := range byName {
		to <- prometheus.MustNewConstMetric(storeEntries, prometheus.GaugeValue, float64(f.entries), name)
		if f.limit > 0 {
			to <- prometheus.MustNewConstMetric(storeLimit, prometheus.GaugeValue, float64(f.limit), name)
		}
	}
}

// fillLevel is the fill level of a store. If there is no maximum, limit is 0.
type fillLevel struct{ entries, limit int }

func (f fillLevel) max(other fillLevel) fillLevel {
	if f.ratio() > other.ratio() || f.ratio() == other.ratio() && f.entries > other.entries {
		return f
	}
	return other
}

func (f fillLevel) ratio() float64 {
	if f.limit == 0 {
		return 0
	}
	return float64(f.entries) / float64(f.limit)
}

func (g *storeGauges) add(s *pooledShared) {
	entries, _ := s.replica.Size()
	open, used := s.remote.CountConnections()
	g.lag = max(g.lag, s.replica.Lag())
	g.mirrored += entries
	g.idleConnections += open - used
	g.usedConnections += used
}
