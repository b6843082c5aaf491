package span

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// nestedContext returns a context that is nested as deeply as that of a request in Caddy and contains no recorded span.
func nestedContext(ctx context.Context) context.Context {
	type key int
	for i := range key(10) {
		ctx = context.WithValue(ctx, i, i)
	}
	return ctx
}

// callUntraced makes the span calls of a request that is not recorded, is inspected by the guard, and uses a store.
func callUntraced(ctx context.Context, o prometheus.Observer) {
	for _, name := range []string{Verify, Decide, Inspect} {
		_, s := Start(ctx, name)
		s.Outcome("allowed")
		s.End()
	}
	IsRecording(ctx)
	Current(ctx).Outcome("allowed")
	Record(ctx, Store, time.Millisecond, "answered")
	Observe(ctx, o, time.Millisecond)
}

// Spans that are not recorded do not allocate memory.
func TestUntracedAllocatesNothing(t *testing.T) {
	ctx, o := nestedContext(t.Context()), prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"})
	if n := testing.AllocsPerRun(100, func() { callUntraced(ctx, o) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkUntraced(b *testing.B) {
	ctx, o := nestedContext(b.Context()), prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"})
	b.ReportAllocs()
	for b.Loop() {
		callUntraced(ctx, o)
	}
}

func BenchmarkObservedAlone(b *testing.B) {
	o := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"})
	for b.Loop() {
		o.Observe(time.Millisecond.Seconds())
	}
}
