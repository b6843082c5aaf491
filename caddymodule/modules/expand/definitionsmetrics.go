package expand

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
)

// definitionsCollector reports how much the loaded definitions hold, and whether they are up to date.
type definitionsCollector struct{}

var _ = metrics.Add(definitionsCollector{})

var definitionsHeld = prometheus.NewDesc("caddy_fhir_definitions", "Definitions in memory.", []string{"content"}, nil)

var definitionsFailed = prometheus.NewDesc("caddy_fhir_definitions_load_failed", "How many sets of definitions have changed, and could not be loaded anew.", nil, nil)

var definitionsLoaded = prometheus.NewDesc("caddy_fhir_definitions_loaded_timestamp_seconds", "When definitions were last loaded.", nil, nil)

func (definitionsCollector) Describe(to chan<- *prometheus.Desc) {
	to <- definitionsHeld
	to <- definitionsFailed
	to <- definitionsLoaded
}

func (definitionsCollector) Collect(to chan<- prometheus.Metric) {
	var concepts, codeSystems, valueSets, failed int
	var loaded time.Time
	for _, held := range LoadedDefinitions() {
		concepts += held.Concepts
		codeSystems += held.CodeSystems
		valueSets += held.ValueSets
		if held.Error != "" {
			failed++
		}
		if held.Loaded.After(loaded) {
			loaded = held.Loaded
		}
	}
	to <- prometheus.MustNewConstMetric(definitionsFailed, prometheus.GaugeValue, float64(failed))
	if !loaded.IsZero() {
		to <- prometheus.MustNewConstMetric(definitionsLoaded, prometheus.GaugeValue, float64(loaded.Unix()))
	}
	for content, n := range map[string]int{"concepts": concepts, "code_systems": codeSystems, "value_sets": valueSets} {
		to <- prometheus.MustNewConstMetric(definitionsHeld, prometheus.GaugeValue, float64(n), content)
	}
}

var _ prometheus.Collector = definitionsCollector{}
