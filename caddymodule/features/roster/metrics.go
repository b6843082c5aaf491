package roster

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster/entry"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
)

// collector reports how many clients and users are in the store.
type collector struct{}

var (
	entriesMetric = prometheus.NewDesc("caddy_fhir_roster_entries", "Clients and users in the store, as this gateway last read them.", []string{"kind"}, nil)
	limitMetric   = prometheus.NewDesc("caddy_fhir_roster_max_entries", "Clients or users at which the store refuses more of them.", []string{"kind"}, nil)
	_             = metrics.Add(collector{})
)

// Describe implements [prometheus.Collector].
func (collector) Describe(to chan<- *prometheus.Desc) {
	to <- entriesMetric
	to <- limitMetric
}

// Collect implements [prometheus.Collector].
func (collector) Collect(to chan<- prometheus.Metric) {
	for _, kind := range []entry.Kind{entry.Clients, entry.Users} {
		entries := 0
		fhirapp.EachStarted(func(app *fhirapp.App) {
			if r, ok := fhirapp.FeatureOf[*Roster](app); ok {
				entries = max(entries, r.updater.Len(kind))
			}
		})
		to <- prometheus.MustNewConstMetric(entriesMetric, prometheus.GaugeValue, float64(entries), string(kind))
		to <- prometheus.MustNewConstMetric(limitMetric, prometheus.GaugeValue, entry.MaxEntries, string(kind))
	}
}

var _ prometheus.Collector = collector{}
