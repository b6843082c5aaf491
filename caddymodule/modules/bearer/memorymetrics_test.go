package bearer

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
)

// The metrics are those of the handler that uses the most of its memory, until it is cleaned up.
func TestMemoryMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(memoryCollector{})
	check := func(wants ...float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
		}
		if len(wants) == 0 && len(got) > 0 || len(wants) > 0 && (got["caddy_fhir_bearer_memory_bytes"] != wants[0] || got["caddy_fhir_bearer_max_memory_bytes"] != wants[1]) {
			t.Errorf("%v, want %v", got, wants)
		}
	}
	check()
	var handlers []*Bearer
	for _, used := range []int64{30 << 20, 50 << 20, 10 << 20} {
		memory, err := enforce.NewMemory(256<<20, enforce.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		share := memory.Share()
		if err := share.Grow(t.Context(), used, used); err != nil {
			t.Fatal(err)
		}
		defer share.Release()
		h := &Bearer{gate: &gate{enforced: &enforcement{&enforce.Enforcer{Memory: memory}}}}
		bearersInUse.Store(h, nil)
		defer bearersInUse.Delete(h)
		handlers = append(handlers, h)
	}
	check(50<<20, 256<<20)
	bearersInUse.Delete(handlers[1])
	check(30<<20, 256<<20)
}
