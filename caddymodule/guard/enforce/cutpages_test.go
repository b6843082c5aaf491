package enforce_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
)

// TestPagesThatAreCut checks that a full page without a total is not taken for the last one, before a server that loses
// what is behind it if pages have one size.
func TestPagesThatAreCut(t *testing.T) {
	t.Parallel()
	all, own := tiedObservations(70)
	var bySubject []string
	for i, id := range idsOf(all) {
		if strings.Contains(all[i], `"subject":{"reference":"Patient/a"}`) {
			bySubject = append(bySubject, id)
		}
	}
	for _, size := range []int{1, 5, 20, 21} {
		g := newGateway(t, all...)
		g.server.Cuts = max(size, 20)
		g.walk(patientA, fmt.Sprintf("Observation?_sort=category,_id&_count=%d", size), own)
		g.server.Cuts = size
		g.walk(patientA, fmt.Sprintf("Observation?patient=a&_count=%d", size), bySubject)
	}
}

// TestTotalsOfCutSearches checks that a search that may not ask again tells no total, whatever is left for further pages.
func TestTotalsOfCutSearches(t *testing.T) {
	t.Parallel()
	all, _ := tiedObservations(70)
	g := newGateway(t, all...)
	g.server.Cuts, g.Limits.Requests = 20, 2
	pages := 0
	for at := "Observation?_count=5"; at != "" && pages < 100; pages++ {
		var b bundle
		if err := json.NewDecoder(g.get(patientA, at).Body).Decode(&b); err != nil || len(b.Entry) == 0 || b.Total != nil {
			t.Fatalf("page %d: %v, %+v", pages, err, b)
		}
		at = b.next()
	}
	if pages < 4 {
		t.Errorf("%d pages", pages)
	}
}

// TestTotalsOfCutPages checks that no total is told where the last page may not have been the last.
func TestTotalsOfCutPages(t *testing.T) {
	t.Parallel()
	page := func(total string, ids ...string) string {
		for i, id := range ids {
			ids[i] = `{"resource":{"resourceType":"Observation","id":"` + id + `","status":"final","subject":{"reference":"Patient/a"}}}`
		}
		return `{"resourceType":"Bundle","type":"searchset"` + total + `,"entry":[` + strings.Join(ids, ",") + `]}`
	}
	for _, tt := range []struct {
		name, last string
		count      string
		total      int // -1: none
	}{
		{"full, of unknown length", page("", "c", "d"), "", -1},
		{"full, with a total", page(`,"total":4`, "c", "d"), "", 4},
		{"not full", page("", "c"), "", 3},
		{"full, by its link", page("", "c"), "&_count=1", -1},
		{"not full, by its link", page("", "c", "d"), "&_count=3", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.server.Answers = map[string]http.HandlerFunc{
				"Observation": answering(linkedTo(page("", "a", "b"), "/Observation", fhirtest.Address+"?_getpages=1"+tt.count)),
				"":            answering(tt.last),
			}
			var first, last bundle
			if err := json.NewDecoder(g.get(patientA, "Observation?patient=a&_count=2").Body).Decode(&first); err != nil || first.Total != nil {
				t.Fatalf("%v, %+v", err, first)
			}
			if err := json.NewDecoder(g.get(patientA, first.next()).Body).Decode(&last); err != nil || last.next() != "" {
				t.Fatalf("%v, %+v", err, last)
			}
			if got := last.Total; tt.total < 0 && got != nil || tt.total >= 0 && (got == nil || *got != tt.total) {
				t.Errorf("total %v, want %d", got, tt.total)
			}
		})
	}
}

// TestChainsOfCutPages checks that a chain is refused rather than followed by a part of what is in between.
func TestChainsOfCutPages(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	asked := 0
	g.server.Answers = map[string]http.HandlerFunc{"Observation": func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("_count"))
		entries := strings.Repeat(`{"resource":{"resourceType":"Observation","id":"a1","status":"final","subject":{"reference":"Patient/a"}}},`, n)
		answering(`{"resourceType":"Bundle","type":"searchset","entry":[`+strings.TrimSuffix(entries, ",")+`]}`)(w, r)
		asked++
	}}
	if got := g.get(patientA, "Patient?_has:Observation:subject:status=final"); got.StatusCode != http.StatusForbidden || asked < 2 {
		t.Errorf("status %d after %d searches", got.StatusCode, asked)
	}
}

// TestTotalsOfHiddenMatches checks that no page repeats a total that was told before a match was found which is hidden.
func TestTotalsOfHiddenMatches(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 6 {
		contained := map[bool]string{true: `,"contained":[{"resourceType":"Observation","id":"c","subject":{"reference":"Patient/b"}}]`}[i == 2]
		all = append(all, fmt.Sprintf(`{"resourceType":"Observation","id":"h%d","status":"final","subject":{"reference":"Patient/a"}%s}`, i, contained))
	}
	for parameter, want := range map[string]string{"": "[6 -1 5]", "&_total=accurate": "[6 -1 5]"} {
		g := newGateway(t, all...)
		var totals []int
		for at := "Observation?patient=a&_count=2" + parameter; at != "" && len(totals) < 9; {
			b := bundle{}
			if err := json.NewDecoder(g.get(patientA, at).Body).Decode(&b); err != nil {
				t.Fatal(err)
			}
			if at = b.next(); b.Total == nil {
				totals = append(totals, -1)
			} else {
				totals = append(totals, *b.Total)
			}
		}
		if got := fmt.Sprint(totals); got != want {
			t.Errorf("%q: totals %s, want %s", parameter, got, want)
		}
	}
}
