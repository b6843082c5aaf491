// Package metrics registers the caddy_fhir_* metrics of all Caddy modules with each configuration. Metrics exist as long as the
// process, so reloads do not reset them. Clients and people cannot choose the values of labels.
package metrics

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// collectors are the collectors that packages have registered with Add.
var collectors []prometheus.Collector

// Add registers a collector and returns it. It must be called during package initialization.
func Add[C prometheus.Collector](c C) C {
	collectors = append(collectors, c)
	return c
}

// Collector is a [prometheus.Collector] that reads metrics only when they are collected.
type Collector struct {
	// Descs describes the metrics that Read sends.
	Descs []*prometheus.Desc
	// Read sends the current metrics.
	Read func(to chan<- prometheus.Metric)
}

// Describe implements [prometheus.Collector].
func (c Collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.Descs {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c Collector) Collect(to chan<- prometheus.Metric) { c.Read(to) }

// NewCounters registers a counter for each combination of label values.
func NewCounters(name, help string, labels ...string) *prometheus.CounterVec {
	return Add(prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "caddy", Subsystem: "fhir", Name: name, Help: help}, labels))
}

// durationBuckets, in seconds, cover the range from a cached response to an unresponsive backend.
var durationBuckets = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// NewDurations registers a histogram of durations, in seconds, for each combination of label values.
func NewDurations(name, help string, labels ...string) *prometheus.HistogramVec {
	return Add(prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "fhir", Name: name, Help: help, Buckets: durationBuckets,
	}, labels))
}

// LookUpByLabel returns the metric of each label value, so that the metrics need not be looked up on each use.
func LookUpByLabel[L comparable, M any](labels []L, metric func(L) M) map[L]M {
	metrics := make(map[L]M, len(labels))
	for _, label := range labels {
		metrics[label] = metric(label)
	}
	return metrics
}

// Register registers the metrics of all modules with a configuration's registry. Several modules of a configuration may call
// it.
func Register(ctx caddy.Context) error {
	registry := ctx.GetMetricsRegistry()
	for _, c := range collectors {
		err := registry.Register(c)
		if _, registered := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !registered {
			return err
		}
	}
	return nil
}
