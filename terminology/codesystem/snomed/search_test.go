package snomed_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/snomedtest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// BenchmarkSearch searches in all concepts and below one of them as a user types.
func BenchmarkSearch(b *testing.B) {
	h := &api.Handler{Library: libraryOf(b, snomedtest.Edition{Concepts: 350_000})}
	for name, address := range map[string]string{"all": sct + "?fhir_vs", "isa": sct + "?fhir_vs=isa/404684003", "refset": sct + "?fhir_vs=refset/" + snomedtest.SimpleRefset, "ecl": sct + "?fhir_vs=ecl/<404684003:363698007=*"} {
		var typed []string
		for _, word := range []string{"Barzo", "osishyp", "gaslo ul", "perco", "emfi", "stator dysal", "coneu", "kar", "meal"} {
			for end := 1; end <= len(word); end++ {
				typed = append(typed, "/ValueSet/$expand?count=10&url="+url.QueryEscape(address)+"&filter="+url.QueryEscape(word[:end]))
			}
		}
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				w, _ := terminologytest.Call(b, h, "GET", typed[i%len(typed)], "")
				times = append(times, time.Since(start))
				if !strings.Contains(w.Body.String(), `"expansion"`) {
					b.Fatal(w.Body)
				}
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "µs-p99")
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "µs-p50")
		})
	}
}

// BenchmarkLookup looks up concepts with all properties.
func BenchmarkLookup(b *testing.B) {
	h := &api.Handler{Library: libraryOf(b, snomedtest.Edition{Concepts: 100_000})}
	for i := 0; b.Loop(); i++ {
		path := "/CodeSystem/$lookup?property=*&system=" + sct + "&code=" + snomedtest.Concept(i*37%90_000)
		if w, _ := terminologytest.Call(b, h, "GET", path, ""); !strings.Contains(w.Body.String(), "moduleId") {
			b.Fatal(w.Body)
		}
	}
}
