package expand

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/span"
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

// Count counts a request, and tells its span.
func (expandMetrics) Count(ctx context.Context, o front.Outcome) {
	expanded[o].Inc()
	span.Current(ctx).Outcome(string(o))
}

func (expandMetrics) NextTook(ctx context.Context, d time.Duration, err error) {
	asked(ctx, nextDurations, d, err)
}

func (expandMetrics) UpstreamTook(ctx context.Context, d time.Duration, err error) {
	asked(ctx, upstreamDurations, d, err)
}

func asked(ctx context.Context, by prometheus.Observer, took time.Duration, err error) {
	span.Observe(ctx, by, took)
	if err != nil {
		span.Record(ctx, span.Ask, took, "failed")
		return
	}
	span.Record(ctx, span.Ask, took, "answered")
}

var _ front.Metrics = expandMetrics{}
