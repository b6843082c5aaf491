package caddymodule

import "github.com/prometheus/client_golang/prometheus"

// definitionsCollector says how much the loaded definitions hold.
type definitionsCollector struct{}

var definitionsHeld = prometheus.NewDesc("caddy_fhir_definitions", "Definitions in memory.", []string{"content"}, nil)

// Describe implements prometheus.Collector.
func (definitionsCollector) Describe(to chan<- *prometheus.Desc) { to <- definitionsHeld }

// Collect implements prometheus.Collector.
func (definitionsCollector) Collect(to chan<- prometheus.Metric) {
	var concepts, codeSystems, valueSets int
	for _, held := range loadedDefinitions() {
		concepts += held.Concepts
		codeSystems += held.CodeSystems
		valueSets += held.ValueSets
	}
	for content, n := range map[string]int{"concepts": concepts, "code_systems": codeSystems, "value_sets": valueSets} {
		to <- prometheus.MustNewConstMetric(definitionsHeld, prometheus.GaugeValue, float64(n), content)
	}
}

var _ prometheus.Collector = definitionsCollector{}
