package api

import (
	"slices"
	"sync"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

func TestConcurrentRequests(t *testing.T) {
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, MaxCachedEntries: 3000}) // so small that expansions make room again and again
	if err != nil {
		t.Fatal(err)
	}
	urls := []string{gender, "http://terminology.hl7.org/ValueSet/v3-ActCode", "http://hl7.org/fhir/ValueSet/marital-status", "http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype", "http://hl7.org/fhir/ValueSet/all-types"}
	want := map[string][]string{}
	for _, url := range urls {
		want[url] = expand(t, coreLibrary(t), "url", url).codes()
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 40 {
				url := urls[(i+n)%len(urls)]
				if got := expand(t, l, "url", url).codes(); !slices.Equal(got, want[url]) {
					t.Errorf("%s: got %v", url, got)
				}
			}
		})
	}
	group.Wait()
}
