package caddymodule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/terminology/front"
)

// metrics live as long as the process, so that reloads do not reset them. Each configuration registers them in its own
// registry.
var metrics = newMetricSet()

// metricSet are the metrics caddy_fhir_*. No label has a value that a client or person can choose.
type metricSet struct {
	events    *prometheus.CounterVec
	endpoints map[string]prometheus.Observer
	decisions map[decision]prometheus.Counter
	expanded  map[front.Outcome]prometheus.Counter
	next      prometheus.Histogram
	upstream  prometheus.Histogram

	stored         *prometheus.CounterVec
	storeDurations *prometheus.HistogramVec

	collectors []prometheus.Collector
}

// durationBuckets, in seconds, range from an answer from memory to a hanging backend.
var durationBuckets = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newMetricSet() *metricSet {
	m := &metricSet{
		events:   prometheus.NewCounterVec(counterOpts("authorization_events_total", "Events of the audit trail."), []string{"kind", "outcome", "grant"}),
		next:     prometheus.NewHistogram(histogramOpts("expand_next_duration_seconds", "How long the next handler took to answer a $expand that was passed on.")),
		upstream: prometheus.NewHistogram(histogramOpts("expand_upstream_duration_seconds", "How long upstream terminology servers took to answer.")),

		stored:         prometheus.NewCounterVec(counterOpts("store_operations_total", "Operations of stores that several gateways share."), []string{"store", "operation", "outcome"}),
		storeDurations: prometheus.NewHistogramVec(histogramOpts("store_operation_duration_seconds", "How long a store took that several gateways share, if it was asked."), []string{"store", "operation"}),
	}
	endpoints := prometheus.NewHistogramVec(histogramOpts("endpoint_duration_seconds", "How long the authorization server's endpoints took to answer."), []string{"endpoint"})
	m.endpoints = curried(endpoint.Names, func(name string) prometheus.Observer { return endpoints.WithLabelValues(name) })
	guarded := prometheus.NewCounterVec(counterOpts("bearer_decisions_total", "Requests that fhir_bearer decided about."), []string{"outcome"})
	m.decisions = curried(decisions, func(d decision) prometheus.Counter { return guarded.WithLabelValues(string(d)) })
	expanded := prometheus.NewCounterVec(counterOpts("expand_requests_total", "Requests for an operation that fhir_expand answers."), []string{"result"})
	m.expanded = curried(front.Outcomes, func(r front.Outcome) prometheus.Counter { return expanded.WithLabelValues(string(r)) })
	m.collectors = []prometheus.Collector{m.events, m.next, m.upstream, endpoints, guarded, expanded, definitionsCollector{}, cacheCollector{}, m.stored, m.storeDurations, storeCollector{}}
	return m
}

func counterOpts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: "caddy", Subsystem: "fhir", Name: name, Help: help}
}

func histogramOpts(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: "caddy", Subsystem: "fhir", Name: name, Help: help, Buckets: durationBuckets}
}

// curried looks up the metric of each label value in advance.
func curried[L comparable, M any](labels []L, metric func(L) M) map[L]M {
	metrics := make(map[L]M, len(labels))
	for _, label := range labels {
		metrics[label] = metric(label)
	}
	return metrics
}

// register registers the metrics with a configuration. Several of its handlers may do so.
func (m *metricSet) register(ctx caddy.Context) error {
	registry := ctx.GetMetricsRegistry()
	for _, c := range m.collectors {
		err := registry.Register(c)
		if _, registered := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !registered {
			return err
		}
	}
	return nil
}

// knownGrants are the grant types and response types that become labels.
var knownGrants = append(token.GrantTypes().AtTokenEndpoint(),
	"", "code", "token", "id_token", "id_token token", "code token", "code id_token", "code id_token token")

// event counts an event of the audit trail. A grant, which a client chooses, becomes a label only if it is known.
func (m *metricSet) event(_ context.Context, e audit.Event) {
	grant := e.Grant
	if !slices.Contains(knownGrants, grant) {
		grant = "other"
	}
	m.events.WithLabelValues(e.Kind, e.Outcome(), grant).Inc()
}

// served measures an answer of the authorization server.
func (m *metricSet) served(path string, since time.Time) {
	if endpoint, ok := m.endpoints[endpoint.Name(path)]; ok {
		endpoint.Observe(time.Since(since).Seconds())
	}
}

func (m *metricSet) decided(d decision) { m.decisions[d].Inc() }
