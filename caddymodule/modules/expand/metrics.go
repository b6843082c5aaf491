package expand

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/terminology/front"
)

var (
	expandRequests = metrics.NewCounters("expand_requests_total", "Requests for an operation that fhir_expand answers.", "result")
	expanded       = metrics.ByLabel(front.Outcomes, func(o front.Outcome) prometheus.Counter { return expandRequests.WithLabelValues(string(o)) })

	nextDurations     = metrics.NewDurations("expand_next_duration_seconds", "How long the next handler took to answer a $expand that was passed on.").WithLabelValues()
	upstreamDurations = metrics.NewDurations("expand_upstream_duration_seconds", "How long upstream terminology servers took to answer.").WithLabelValues()
)

// expandMetrics counts for package front.
type expandMetrics struct{}

func (expandMetrics) Count(o front.Outcome) { expanded[o].Inc() }

func (expandMetrics) NextTook(d time.Duration) { nextDurations.Observe(d.Seconds()) }

func (expandMetrics) UpstreamTook(d time.Duration) { upstreamDurations.Observe(d.Seconds()) }

var _ front.Metrics = expandMetrics{}
