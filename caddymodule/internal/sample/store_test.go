package sample

import (
	"testing"
)

func BenchmarkNewStore(b *testing.B) {
	for b.Loop() {
		s, err := NewStore(recordsOf(b)...)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.bytes), "bytes")
	}
}
