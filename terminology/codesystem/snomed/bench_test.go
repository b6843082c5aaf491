package snomed

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
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
				debug.FreeOSMemory()
				b.ReportMetric(residentMegabytes(b), "MB-resident")
				b.ReportMetric(float64(offheap.BytesInUse())/1e6, "MB-offheap")
				l.Use(func() {})
			}
		})
	}
}

// residentMegabytes returns the resident memory of the process (proc_pid_status).
func residentMegabytes(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kilobytes, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kilobytes * 1024 / 1e6
}

// cpuSeconds returns the CPU time that the process has used.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
