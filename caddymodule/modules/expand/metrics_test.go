package expand

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// What is counted with every request allocates nothing.
func TestCountingAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { expandMetrics{}.Count(t.Context(), dispatch.Here) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkExpansionCounted(b *testing.B) {
	for b.Loop() {
		expandMetrics{}.Count(b.Context(), dispatch.Here)
	}
}
