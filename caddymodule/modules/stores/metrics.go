package stores

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/breaker"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
)

var (
	storeOperations = metrics.NewCounters("store_operations_total", "Operations of stores that several gateways share.", "store", "operation", "outcome")
	storeDurations  = metrics.NewDurations("store_operation_duration_seconds", "How long a store took that several gateways share, if it was asked.", "store", "operation")
	_               = metrics.Add(storeCollector{})
)

// observeStore returns how to measure the operations of a store elsewhere.
func observeStore(name string) breaker.Observe {
	counters := map[string]map[breaker.Outcome]prometheus.Counter{}
	for _, operation := range breaker.Operations {
		counters[operation] = metrics.ByLabel(breaker.Outcomes, func(o breaker.Outcome) prometheus.Counter {
			return storeOperations.WithLabelValues(name, operation, string(o))
		})
	}
	durations := metrics.ByLabel(breaker.Operations, func(operation string) prometheus.Observer {
		return storeDurations.WithLabelValues(name, operation)
	})
	return func(ctx context.Context, operation string, outcome breaker.Outcome, took time.Duration) {
		counters[operation][outcome].Inc()
		span.Record(ctx, span.Store, took, string(outcome))
		if outcome != breaker.Rejected {
			span.Observe(ctx, durations[operation], took)
		}
	}
}

// storeCollector reports on the stores that are in use.
type storeCollector struct{}

var (
	revocationLag = prometheus.NewDesc("caddy_fhir_revocation_lag_seconds", "How long ago the store was last heard: what was revoked at other gateways since then is not known here.", []string{"store"}, nil)
	mirrored      = prometheus.NewDesc("caddy_fhir_store_mirrored_entries", "Entries of the store of which this process has a copy.", []string{"store"}, nil)
	storeProblem  = prometheus.NewDesc("caddy_fhir_store_problem", "1 while a store has a problem of this cause.", []string{"store", "cause"}, nil)
	storeEntries  = prometheus.NewDesc("caddy_fhir_store_entries", "Entries of the store, with expired ones.", []string{"store"}, nil)
	storeLimit    = prometheus.NewDesc("caddy_fhir_store_max_entries", "Entries at which the store refuses new ones.", []string{"store"}, nil)
	connections   = prometheus.NewDesc("caddy_fhir_store_connections", "Connections to the store.", []string{"store", "state"}, nil)
)

// Describe implements [prometheus.Collector].
func (storeCollector) Describe(to chan<- *prometheus.Desc) {
	to <- revocationLag
	to <- mirrored
	to <- connections
	to <- storeProblem
	to <- storeEntries
	to <- storeLimit
}

// storeGauges are the sums, and the longest lag, of the stores of a module.
type storeGauges struct {
	lag                  time.Duration
	mirrored, idle, used int
}

// Collect implements [prometheus.Collector].
func (storeCollector) Collect(to chan<- prometheus.Metric) {
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
		to <- prometheus.MustNewConstMetric(mirrored, prometheus.GaugeValue, float64(g.mirrored), name)
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(g.idle), name, "idle")
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(g.used), name, "used")
	}
}

// collectProblems tells of all causes, so that an alert can be written before one occurs.
func collectProblems(to chan<- prometheus.Metric) {
	byName := map[string]map[store.Cause]float64{}
	watches.Range(func(key, _ any) bool {
		w := key.(*Watch)
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

// collectSizes reports how full the stores are: of several of a module, the fullest.
func collectSizes(to chan<- prometheus.Metric) {
	byName := map[string]fill{}
	watches.Range(func(key, _ any) bool {
		if w := key.(*Watch); w.sized != nil {
			entries, bound := w.sized.Size()
			byName[w.name] = byName[w.name].fuller(fill{entries, bound})
		}
		return true
	})
	for name, f := range byName {
		to <- prometheus.MustNewConstMetric(storeEntries, prometheus.GaugeValue, float64(f.entries), name)
		if f.bound > 0 {
			to <- prometheus.MustNewConstMetric(storeLimit, prometheus.GaugeValue, float64(f.bound), name)
		}
	}
}

// fill is how full a store is; bound is 0 for none.
type fill struct{ entries, bound int }

func (f fill) fuller(other fill) fill {
	if f.share() > other.share() || f.share() == other.share() && f.entries > other.entries {
		return f
	}
	return other
}

func (f fill) share() float64 {
	if f.bound == 0 {
		return 0
	}
	return float64(f.entries) / float64(f.bound)
}

func (g *storeGauges) add(s *pooledShared) {
	entries, _ := s.replica.Size()
	open, used := s.remote.Connections()
	g.lag = max(g.lag, s.replica.Lag())
	g.mirrored += entries
	g.idle += open - used
	g.used += used
}

var _ prometheus.Collector = storeCollector{}
