// Package metrics registers the metrics caddy_fhir_* of all Caddy modules with each configuration. Metrics live as
// long as the process, so reloads do not reset them. No label has a value that a client or person can choose.
package metrics

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// collectors are the collectors that packages have added with Add.
var collectors []prometheus.Collector

// Add adds a collector. It must be called during package initialization.
func Add[C prometheus.Collector](c C) C {
	collectors = append(collectors, c)
	return c
}

// Collector reads metrics when they are collected.
type Collector struct {
	// Descs describe the metrics that Read sends.
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

// NewCounters adds a counter for each value of the labels.
func NewCounters(name, help string, labels ...string) *prometheus.CounterVec {
	return Add(prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "caddy", Subsystem: "fhir", Name: name, Help: help}, labels))
}

// durationBuckets, in seconds, range from a cached response to an unresponsive backend.
var durationBuckets = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// NewDurations adds a histogram of durations, in seconds, for each value of the labels.
func NewDurations(name, help string, labels ...string) *prometheus.HistogramVec {
	return Add(prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "fhir", Name: name, Help: help, Buckets: durationBuckets,
	}, labels))
}

// LookUpByLabel looks up the metric of each value of a label in advance.
func LookUpByLabel[L comparable, M any](labels []L, metric func(L) M) map[L]M {
	metrics := make(map[L]M, len(labels))
	for _, label := range labels {
		metrics[label] = metric(label)
	}
	return metrics
}

// Register registers the metrics of all modules with a configuration, which has its own registry. Several modules of
// a configuration may call it.
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
