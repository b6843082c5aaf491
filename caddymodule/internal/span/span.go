// Package span makes spans below the one that Caddy's directive tracing began. Where nobody records one, it looks once
// into the context and does nothing. What a span says is words from lists of ours and FHIR's: no identity, id or query.
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

// The names of spans.
const (
	Verify = "fhir.verify" // an access token
	Decide = "fhir.decide" // what of a request its scopes allow
	Judge  = "fhir.judge"  // a call whose answer the guard sees
	Ask    = "fhir.ask"    // the next handler, or a terminology server
	Expand = "fhir.expand" // an operation of terminology
	Store  = "fhir.store"  // a store that gateways share
)

// Recording reports whether somebody records spans of a request.
func Recording(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Start begins a span. Its End is called in any case.
func Start(ctx context.Context, name string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	ctx, began := tracerOf(parent).Start(ctx, name)
	return ctx, Span{began}
}

// Request is Start for a request, which goes on in the span.
func Request(r *http.Request, name string) (*http.Request, Span) {
	ctx, s := Start(r.Context(), name)
	if s.span == nil {
		return r, s
	}
	return r.WithContext(ctx), s
}

// Record adds a span that just ended.
func Record(ctx context.Context, name string, took time.Duration, outcome string) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return
	}
	now := time.Now()
	_, s := tracerOf(parent).Start(ctx, name, trace.WithTimestamp(now.Add(-took)))
	s.SetAttributes(attribute.String("outcome", outcome))
	s.End(trace.WithTimestamp(now))
}

// Current is the span under way.
func Current(ctx context.Context) Span {
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		return Span{s}
	}
	return Span{}
}

func tracerOf(parent trace.Span) trace.Tracer {
	return parent.TracerProvider().Tracer("github.com/caddy-fhir/caddy-fhir")
}

// Span is a span under way; nothing if nobody records it.
type Span struct{ span trace.Span }

// Outcome says how it ended.
func (s Span) Outcome(word string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String("outcome", word))
	}
}

// Interaction says what is asked for: its kind, and its type if FHIR has that.
func (s Span) Interaction(i interaction.Interaction) {
	if s.span == nil || i.Kind == 0 {
		return
	}
	s.span.SetAttributes(attribute.String("interaction", i.Kind.String()))
	if interaction.IsType(i.Type) {
		s.span.SetAttributes(attribute.String("resource_type", i.Type))
	}
}

// End ends it.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Observe measures a duration, with the trace as its exemplar if it is recorded.
func Observe(ctx context.Context, o prometheus.Observer, took time.Duration) {
	if s := trace.SpanFromContext(ctx); s.IsRecording() && s.SpanContext().IsSampled() {
		if e, ok := o.(prometheus.ExemplarObserver); ok {
			e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": s.SpanContext().TraceID().String()})
			return
		}
	}
	o.Observe(took.Seconds())
}
