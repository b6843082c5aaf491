package expand

import (
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/terminology/front"
)

// Caches keeps caches of expansions over reloads, for the handlers, the metrics and the admin API.
var Caches = caddy.NewUsagePool()

// Cache is a cache of expansions as the metrics and the admin API use it.
type Cache interface {
	// End removes expansions, and returns their number.
	End(front.Ending) int

	// Statistics are counted from the start of the process.
	Statistics() front.Statistics
}

// retiredCaches sums up the counters of released caches, so that a reload does not reset the metrics.
var retiredCaches struct {
	sync.Mutex
	sum front.Statistics
}

func retire(s front.Statistics) {
	retiredCaches.Lock()
	defer retiredCaches.Unlock()
	retiredCaches.sum = retiredCaches.sum.Plus(front.Statistics{Hits: s.Hits, Misses: s.Misses, Stale: s.Stale, Evictions: s.Evictions})
}

func retired() front.Statistics {
	retiredCaches.Lock()
	defer retiredCaches.Unlock()
	return retiredCaches.sum
}

// EachCache calls do for each cache and returns their number.
func EachCache(do func(Cache)) (n int) {
	Caches.Range(func(_, value any) bool {
		if c, ok := value.(Cache); ok {
			do(c)
			n++
		}
		return true
	})
	return n
}

// cacheCollector reads the counters of the caches when metrics are collected.
type cacheCollector struct{}

var (
	cacheRequests  = prometheus.NewDesc("caddy_fhir_expansion_cache_requests_total", "Look-ups in the cache of expansions.", []string{"result"}, nil)
	cacheEvictions = prometheus.NewDesc("caddy_fhir_expansion_cache_evictions_total", "Expansions that made room for others.", nil, nil)
	cacheEntries   = prometheus.NewDesc("caddy_fhir_expansion_cache_entries", "Expansions in the cache.", nil, nil)
	pulledBytes    = prometheus.NewDesc("caddy_fhir_expansion_pulled_bytes", "Memory that expansions take which were fetched whole from terminology servers.", nil, nil)
	cacheBytes     = prometheus.NewDesc("caddy_fhir_expansion_cache_bytes", "Memory that the cache of expansions takes.", nil, nil)
)

func (cacheCollector) Describe(to chan<- *prometheus.Desc) {
	to <- cacheRequests
	to <- cacheEvictions
	to <- cacheEntries
	to <- cacheBytes
	to <- pulledBytes
}

func (cacheCollector) Collect(to chan<- prometheus.Metric) {
	all := retired()
	if EachCache(func(c Cache) { all = all.Plus(c.Statistics()) }) == 0 {
		return
	}
	for result, n := range map[string]uint64{"hit": all.Hits, "miss": all.Misses, "stale": all.Stale} {
		to <- prometheus.MustNewConstMetric(cacheRequests, prometheus.CounterValue, float64(n), result)
	}
	to <- prometheus.MustNewConstMetric(cacheEvictions, prometheus.CounterValue, float64(all.Evictions))
	to <- prometheus.MustNewConstMetric(cacheEntries, prometheus.GaugeValue, float64(all.Entries))
	to <- prometheus.MustNewConstMetric(cacheBytes, prometheus.GaugeValue, float64(all.Bytes))
	to <- prometheus.MustNewConstMetric(pulledBytes, prometheus.GaugeValue, float64(all.PulledBytes))
}

var _ = metrics.Add(cacheCollector{})
