package api_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// gcWriter runs the garbage collector during each of the first five writes of a response.
type gcWriter struct {
	*httptest.ResponseRecorder
	t      *testing.T
	before int64
	parts  int
}

func (w *gcWriter) Write(part []byte) (int, error) {
	if w.parts++; w.parts <= 5 {
		fixture.WantOffHeapInUse(w.t, w.before)
	}
	return w.ResponseRecorder.Write(part)
}

// TestResponseRetainsLibrary checks that a library replaced during a request stays reachable until the response is written.
func TestResponseRetainsLibrary(t *testing.T) {
	l := terminologytest.Library(t, fixture.LargeCodeSystem(), fixture.AllCodesOf("s"))
	before := fixture.OffHeapBytes()
	h := &api.Handler{Limits: expansion.Limits{Entries: 10_000}, CurrentLibrary: func() *terminology.Library {
		current := l
		l = nil
		return current
	}}
	w := &gcWriter{ResponseRecorder: httptest.NewRecorder(), t: t, before: before}
	if err := h.Expand(w, httptest.NewRequest("GET", "/ValueSet/$expand?url=s-all", nil)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(w.Body.String(), `"code":`); n != 6000 {
		t.Errorf("%d codes", n)
	}
	fixture.WantOffHeapReleased(t, before)
}

// TestExpansionRetainsLibrary checks that an expansion keeps its library reachable.
func TestExpansionRetainsLibrary(t *testing.T) {
	l := terminologytest.Library(t, fixture.LargeCodeSystem(), fixture.AllCodesOf("s"))
	before := fixture.OffHeapBytes()
	x, err := l.Expand(t.Context(), expansion.Query{ValueSetRef: compose.ValueSetRef{URL: "s-all"}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for code := range x.Codes() {
		if n++; n == 6000 {
			x = nil
			fixture.WantOffHeapInUse(t, before)
			if code.Code != "c5999" {
				t.Errorf("got %+v", code)
			}
		}
	}
	fixture.WantOffHeapReleased(t, before)
}

func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, MaxCachedEntries: 3000}) // small enough to cause frequent evictions
	if err != nil {
		t.Fatal(err)
	}
	urls := []string{gender, "http://terminology.hl7.org/ValueSet/v3-ActCode", "http://hl7.org/fhir/ValueSet/marital-status", "http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype", "http://hl7.org/fhir/ValueSet/all-types"}
	want := map[string][]string{}
	for _, url := range urls {
		want[url] = terminologytest.Expand(t, terminologytest.Core(t), "url", url).Codes()
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 40 {
				url := urls[(i+n)%len(urls)]
				if got := terminologytest.Expand(t, l, "url", url).Codes(); !slices.Equal(got, want[url]) {
					t.Errorf("%s: got %v", url, got)
				}
			}
		})
	}
	group.Wait()
}
