package enforce_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
)

// observationsOf are observations of patient a, some of them hidden, with UUIDs and a text of a length each.
func observationsOf(n, length int) (all, own []string) {
	for i := range n {
		id, subject := fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), "Patient/a"
		if i%10 == 3 {
			subject = "Patient/b"
		} else {
			own = append(own, id)
		}
		all = append(all, fmt.Sprintf(`{"resourceType":"Observation","id":%q,"status":"final","subject":{"reference":%q},"note":[{"text":%q}]}`,
			id, subject, strings.Repeat("x", length)))
	}
	return all, own
}

// TestPagesOfServers checks that pages are as long as was asked for, and cost few requests, before servers whose pages have
// other lengths than they are asked for.
func TestPagesOfServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name               string
		matches            int
		fewest, longest    int // matches of a page of the server
		requests, searches int // at most for a page, and for all pages
	}{
		{"one page of all, whatever _count says", 300, 1000, 0, 1, 9},
		{"one page of more", 400, 1000, 0, 1, 11},
		{"one page of very many", 1500, 10000, 0, 1, 40},
		{"more than was asked for, with next links", 300, 120, 0, 2, 12},
		{"a greatest page of its own", 300, 0, 20, 4, 22},
	} {
		for _, holder := range []access.Holder{patientA, {Scope: "system/Observation.rs"}} {
			t.Run(tt.name+" under "+holder.Scope, func(t *testing.T) {
				t.Parallel()
				all, own := observationsOf(tt.matches, 0)
				g := newGateway(t, all...)
				if holder.Patient == "" {
					g.withRules(`deny resource.subject.reference == 'Patient/b'`)
				}
				g.server.Shuffles, g.server.MinCount, g.server.MaxCount = true, tt.fewest, tt.longest
				asked, pages, found := 0, 0, map[string]bool{}
				g.server.Seen = func(*http.Request) { asked++ }
				for at := "Observation?_count=50&subject=Patient/a"; at != ""; pages++ {
					if holder.Patient == "" {
						at = strings.TrimSuffix(at, "&subject=Patient/a")
					}
					var b bundle
					before := asked
					response := g.get(holder, at)
					if err := json.NewDecoder(response.Body).Decode(&b); err != nil || response.StatusCode != http.StatusOK {
						t.Fatalf("page %d: status %d, %v", pages, response.StatusCode, err)
					}
					at = b.next()
					if asked-before > tt.requests || at != "" && len(b.Entry) != 50 {
						t.Errorf("page %d: %d matches by %d requests", pages, len(b.Entry), asked-before)
					}
					for _, e := range b.Entry {
						if found[e.Resource.ID] {
							t.Errorf("%s comes twice", e.Resource.ID)
						}
						found[e.Resource.ID] = true
					}
				}
				if len(found) != len(own) || asked > tt.searches {
					t.Errorf("%d of %d matches by %d requests", len(found), len(own), asked)
				}
			})
		}
	}
}

// TestLargeMatches checks that matches that are too large for one answer are asked for in smaller pages, whether the first
// page or one behind a link is too large, and that one match that is too large by itself is an error.
func TestLargeMatches(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit   int64
		lengths func(i int) int
		status  int
	}{
		"all are large":    {60_000, func(int) int { return 5000 }, http.StatusOK},
		"later ones are":   {60_000, func(i int) int { return max(10, (i-30)*400) }, http.StatusOK},
		"one is too large": {20_000, func(i int) int { return max(10, (i-38)*30000) }, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []string
			for i := range 40 {
				of, _ := observationsOf(1, tt.lengths(i))
				all = append(all, strings.Replace(of[0], "00000000-", fmt.Sprintf("%08d-", i), 1))
			}
			g := newGateway(t)
			g.next = offsetPages(all)
			g.Limits = server.Limits{Answer: tt.limit}
			status, found := http.StatusOK, 0
			for at := "Observation?subject=Patient/a&_sort=_id&_count=20"; at != "" && status == http.StatusOK && found <= len(all); {
				var b bundle
				response := g.get(patientA, at)
				if status = response.StatusCode; status == http.StatusOK {
					if err := json.NewDecoder(response.Body).Decode(&b); err != nil || len(b.Entry) == 0 {
						t.Fatalf("%v, %d matches", err, len(b.Entry))
					}
				}
				found += len(b.Entry)
				at = b.next()
			}
			if status != tt.status || status == http.StatusOK && found != len(all) {
				t.Errorf("status %d, %d of %d matches", status, found, len(all))
			}
		})
	}
}

// offsetPages answers searches with pages of resources, whose links have the place of the first match and the number of matches
// as HAPI's have. A page is written in parts, and the rest of it once the guard refuses more is not.
func offsetPages(all []string) handling {
	return func(w http.ResponseWriter, r *http.Request) error {
		from, _ := strconv.Atoi(r.URL.Query().Get("_getpagesoffset"))
		count, _ := strconv.Atoi(r.URL.Query().Get("_count"))
		to := min(from+count, len(all))
		text := `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":` + strings.Join(all[from:to], `},{"resource":`) + `}]}`
		if to < len(all) {
			text = linkedTo(text, strings.TrimPrefix(r.URL.Path, "/fhir/R4")+"?"+r.URL.RawQuery, fmt.Sprintf("%s?_getpages=1&_getpagesoffset=%d&_count=%d", fhirtest.Address, to, count))
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, text) // fails if the guard rejects a response as too long
		return nil
	}
}

// TestMatchesThatDepend checks that a search for resources that depend on others ends a page before it needs too many requests
// to judge them, and loses none.
func TestMatchesThatDepend(t *testing.T) {
	t.Parallel()
	var all, own []string
	for i := range 120 {
		all = append(all, fmt.Sprintf(`{"resourceType":"Observation","id":"o%03d","status":"final","subject":{"reference":"Patient/a"}}`, i),
			fmt.Sprintf(`{"resourceType":"Provenance","id":"p%03d","target":[{"reference":"Patient/a"},{"reference":"Observation/o%03d"}]}`, i, i))
		own = append(own, fmt.Sprintf("p%03d", i))
	}
	g := newGateway(t, all...)
	g.walk(patientA, "Provenance?_count=50", own)
}
