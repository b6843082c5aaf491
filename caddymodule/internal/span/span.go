// Package span creates child spans of the span that Caddy's tracing directive starts. If no span is recorded, each call only
// looks up the context once. The values of span attributes are from fixed lists of this project and FHIR; they contain no
// identities, ids or queries.
package span

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Names of spans.
const (
	Verify  = "fhir.verify" // verification of an access token
	Decide  = "fhir.decide" // authorization of a request by the scopes of its token
	Inspect = "fhir.judge"  // call to the FHIR server and inspection of its response
	Forward = "fhir.ask"    // call to the next handler or a terminology server
	Expand  = "fhir.expand" // terminology operation
	Store   = "fhir.store"  // operation of a shared store
)

// IsRecording reports whether the spans of a request are recorded.
func IsRecording(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Start starts a span. The caller must call End.
func Start(ctx context.Context, name string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	ctx, started := newTracer(parent).Start(ctx, name)
	return ctx, Span{started}
}

// Request is like Start but for a request. It returns the request with the span in its context.
func Request(r *http.Request, name string) (*http.Request, Span) {
	ctx, s := Start(r.Context(), name)
	if s.span == nil {
		return r, s
	}
	return r.WithContext(ctx), s
}

// Record adds a span that has already ended.
func Record(ctx context.Context, name string, duration time.Duration, outcome string) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return
	}
	now := time.Now()
	_, s := newTracer(parent).Start(ctx, name, trace.WithTimestamp(now.Add(-duration)))
	s.SetAttributes(attribute.String("outcome", outcome))
	s.End(trace.WithTimestamp(now))
}

// Current returns the span in a context.
func Current(ctx context.Context) Span {
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		return Span{s}
	}
	return Span{}
}

func newTracer(parent trace.Span) trace.Tracer {
	return parent.TracerProvider().Tracer("github.com/caddy-fhir/caddy-fhir")
}

// Span is a span that has been started. The zero Span is not recorded.
type Span struct{ span trace.Span }

// Outcome sets the outcome of the operation.
func (s Span) Outcome(word string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String("outcome", word))
	}
}

// Interaction sets the kind of interaction and, if FHIR defines the resource type, the type.
func (s Span) Interaction(i interaction.Interaction) {
	if s.span == nil || i.Kind == 0 {
		return
	}
	s.span.SetAttributes(attribute.String("interaction", i.Kind.String()))
	if interaction.IsType(i.Type) {
		s.span.SetAttributes(attribute.String("resource_type", i.Type))
	}
}

// End ends the span.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Observe records a duration in a histogram. If the trace is recorded, its ID is added as an exemplar.
func Observe(ctx context.Context, o prometheus.Observer, duration time.Duration) {
	if s := trace.SpanFromContext(ctx); s.IsRecording() && s.SpanContext().IsSampled() {
		if e, ok := o.(prometheus.ExemplarObserver); ok {
			e.ObserveWithExemplar(duration.Seconds(), prometheus.Labels{"trace_id": s.SpanContext().TraceID().String()})
			return
		}
	}
	o.Observe(duration.Seconds())
}
