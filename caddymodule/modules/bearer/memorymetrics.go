package bearer

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
)

// bearersInUse are the handlers that the metrics of memory cover.
var bearersInUse sync.Map

// memoryCollector reports how much memory for bodies and answers is in use, of the handler that uses the most of its limit.
type memoryCollector struct{}

var (
	memoryUsed  = prometheus.NewDesc("caddy_fhir_bearer_memory_bytes", "Memory for bodies and answers that are being checked, of the fhir_bearer that uses the most of its max_memory.", nil, nil)
	memoryLimit = prometheus.NewDesc("caddy_fhir_bearer_max_memory_bytes", "The max_memory of this fhir_bearer.", nil, nil)
	_           = metrics.Add(memoryCollector{})
)

// Describe implements [prometheus.Collector].
func (memoryCollector) Describe(to chan<- *prometheus.Desc) {
	to <- memoryUsed
	to <- memoryLimit
}

// Collect implements [prometheus.Collector].
func (memoryCollector) Collect(to chan<- prometheus.Metric) {
	var used, limit int64
	bearersInUse.Range(func(handler, _ any) bool {
		memory := handler.(*Bearer).gate.enforced.enforcer.Memory
		if held, size := memory.Held(), memory.Size(); limit == 0 || float64(held)/float64(size) > float64(used)/float64(limit) {
			used, limit = held, size
		}
		return true
	})
	if limit > 0 {
		to <- prometheus.MustNewConstMetric(memoryUsed, prometheus.GaugeValue, float64(used))
		to <- prometheus.MustNewConstMetric(memoryLimit, prometheus.GaugeValue, float64(limit))
	}
}

var _ prometheus.Collector = memoryCollector{}
