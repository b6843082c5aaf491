package snomed

import (
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/snomedtest"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// BenchmarkLoad loads synthetic editions of the size of the International Edition and of the UK Edition, until the search index
// is built. It reports the CPU time and the memory in use.
func BenchmarkLoad(b *testing.B) {
	for name, concepts := range map[string]int{"international": 350_000, "uk": 831_000} {
		b.Run(name, func(b *testing.B) {
			archive := filepath.Join(b.TempDir(), "edition.zip")
			if err := (snomedtest.Edition{Concepts: concepts}).WriteZip(archive); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				before := cpuSeconds()
				l, err := definitions.Load(b.Context(), definitions.Options{Definitions: []string{archive}})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(cpuSeconds()-before, "cpu-s/read")
				l.IndexLarge(b.Context(), definitions.DiscardLogger)
				b.ReportMetric(cpuSeconds()-before, "cpu-s/ready")
				runtime.GC()
				var memory runtime.MemStats
				runtime.ReadMemStats(&memory)
				b.ReportMetric(float64(memory.HeapInuse)/1e6, "MB-heap")
				b.ReportMetric(float64(offheap.BytesInUse())/1e6, "MB-offheap")
				l.Use(func() {})
			}
		})
	}
}

// cpuSeconds returns the CPU time that the process has used.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
