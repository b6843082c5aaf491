package loinc

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/loinc/loinctest"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/offheap"
)

// realSize is a release of the size of LOINC 2.82.
var realSize = loinctest.Release{Terms: 100_000, Parts: 60_000, Languages: strings.Fields("deDE deAT elGR esES frFR itIT koKR nlNL ptBR ruRU trTR zhCN")}

// BenchmarkLoad loads a synthetic release of the size of LOINC, until the search index is built. It reports the CPU time and the
// memory in use.
func BenchmarkLoad(b *testing.B) {
	archive := filepath.Join(b.TempDir(), "Loinc_2.99.zip")
	if err := realSize.WriteZip(archive); err != nil {
		b.Fatal(err)
	}
	debug.FreeOSMemory()
	for b.Loop() {
		before := cpuSeconds()
		l, err := definitions.Load(b.Context(), definitions.Options{Definitions: []string{archive}})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(cpuSeconds()-before, "cpu-s/read")
		l.IndexLarge(b.Context(), definitions.DiscardLogger)
		b.ReportMetric(cpuSeconds()-before, "cpu-s/ready")
		before = cpuSeconds()
		l.Systems.CodeSystems[0].Concepts.Searchable.SearchIndex("de")
		b.ReportMetric(cpuSeconds()-before, "cpu-s/language")
		debug.FreeOSMemory()
		b.ReportMetric(residentMegabytes(b), "MB-resident")
		b.ReportMetric(float64(offheap.BytesInUse())/1e6, "MB-offheap")
		l.Use(func() {})
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
