package sample

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/sample/records"
)

func BenchmarkNewStore(b *testing.B) {
	for b.Loop() {
		s, err := NewStore(records.All()...)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.bytes), "bytes")
	}
}
