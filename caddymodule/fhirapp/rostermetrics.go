package fhirapp

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

// rosterCollector reports how many clients and users are in the store.
type rosterCollector struct{}

var (
	rosterEntries = prometheus.NewDesc("caddy_fhir_roster_entries", "Clients and users in the store, as this gateway last read them.", []string{"kind"}, nil)
	rosterLimit   = prometheus.NewDesc("caddy_fhir_roster_max_entries", "Clients or users at which the store refuses more of them.", []string{"kind"}, nil)
	_             = metrics.Add(rosterCollector{})
)

// Describe implements [prometheus.Collector].
func (rosterCollector) Describe(to chan<- *prometheus.Desc) {
	to <- rosterEntries
	to <- rosterLimit
}

// Collect implements [prometheus.Collector].
func (rosterCollector) Collect(to chan<- prometheus.Metric) {
	for _, kind := range []roster.Kind{roster.Clients, roster.Users} {
		entries := 0
		appsInUse.Range(func(app, _ any) bool {
			entries = max(entries, app.(*App).server.Len(kind))
			return true
		})
		to <- prometheus.MustNewConstMetric(rosterEntries, prometheus.GaugeValue, float64(entries), string(kind))
		to <- prometheus.MustNewConstMetric(rosterLimit, prometheus.GaugeValue, roster.MaxEntries, string(kind))
	}
}

var _ prometheus.Collector = rosterCollector{}
