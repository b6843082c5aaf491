package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// guardTest contains the data shared by the tests of the guard.
type guardTest struct {
	*guarded
	world  *guardattack.World
	oracle *guardOracle

	capabilities map[string]guardattack.Capabilities
}

// The guard protects the records of eight patients in HAPI from access by other patients' tokens.
func TestGuard(t *testing.T) {
	t.Parallel()
	g := &guardTest{world: guardattack.NewWorld("abcdefgh")}
	h := startSeparateHAPI(t, "hapi-guard")
	began := time.Now()
	h.load(t, g.world.Records)
	t.Logf("%d records in %v", len(g.world.Records), time.Since(began).Round(time.Second))
	g.guarded = startGuarded(t, "guard", h.fhirAPI)
	g.oracle, g.capabilities = newGuardOracle(t, h.fhirAPI, g.world.Types()), h.capabilities(t)
	t.Run("complete", g.testComplete)
	t.Run("reads", g.testReads)
	t.Run("pages", g.testPages)
	t.Run("Inferno", g.testInferno)
	t.Run("others", g.testReportedVulnerabilities)
	t.Run("everything", g.testEverything)
	t.Run("export", g.testExport)
	t.Run("paths", g.testPaths)
	t.Run("times", g.testTimes)
	t.Run("attacks", func(t *testing.T) { g.testAttacks(t, 7000) })
	t.Run("unmoved", g.testUnmoved)
	t.Run("devices", g.testDevices)
	t.Run("writes", g.testWrites)
}

// searchPage is a page of search results.
type searchPage struct {
	Total *int
	Link  []struct{ Relation, URL string }
	Entry []struct {
		FullURL  string
		Resource json.RawMessage
		Search   struct{ Mode string }
	}
}

// next returns the link to the next page; "" on the last page.
func (p searchPage) next() string {
	for _, l := range p.Link {
		if l.Relation == "next" {
			return l.URL
		}
	}
	return ""
}

// pages reads all pages of a search. It returns the matches in order, the included resources, and the total of each page.
func (g *guarded) pages(t *testing.T, who guardHolder, search string) (matches, included []string, totals []int) {
	t.Helper()
	for address, n := search, 0; address != ""; n++ {
		if n > 200 {
			t.Fatalf("%s has no last page", search)
		}
		var page searchPage
		g.send(t, who, http.MethodGet, address, "").is(t, http.StatusOK).decode(t, &page)
		for _, e := range page.Entry {
			if e.Search.Mode == "include" {
				included = append(included, referenceOf(e.Resource))
			} else {
				matches = append(matches, referenceOf(e.Resource))
			}
		}
		if page.Total != nil {
			totals = append(totals, *page.Total)
		}
		address = page.next()
	}
	return matches, included, totals
}

// unsearched are the types of resources that may be read but not searched for, because no search parameter of the compartment
// finds those of a patient.
var unsearched = []string{"Binary", "Bundle", "Provenance"}

// Searches return each resource that the oracle permits exactly once, with correct totals.
func (g *guardTest) testComplete(t *testing.T) {
	for _, p := range readers(g.world) {
		t.Run(p.name, func(t *testing.T) {
			allowed := g.oracle.allowed(t, p.grants, "s")
			for _, resourceType := range g.world.Types() {
				want := references{}
				for reference := range allowed {
					if strings.HasPrefix(reference, resourceType+"/") {
						want[reference] = true
					}
				}
				if slices.Contains(unsearched, resourceType) {
					continue
				}
				for _, query := range []string{"", "?_count=3"} {
					g.checkComplete(t, p, resourceType+query, want)
				}
			}
		})
	}
}

// checkComplete checks that a search finds exactly the resources in want. A search may be denied if want is empty.
func (g *guardTest) checkComplete(t *testing.T, p guardPrincipal, search string, want references) {
	t.Helper()
	if len(want) == 0 {
		a := g.send(t, p.holder, http.MethodGet, search, "")
		var page searchPage
		if a.status == http.StatusOK {
			a.decode(t, &page)
		}
		if a.status != http.StatusForbidden && (a.status != http.StatusOK || len(page.Entry) > 0) {
			t.Errorf("%s: %d with %d entries, want 403 or none: %.300s", search, a.status, len(page.Entry), a.body)
		}
		return
	}
	a := g.send(t, p.holder, http.MethodGet, search, "")
	if a.status != http.StatusOK {
		t.Errorf("%s: %d: %s", search, a.status, a.body)
		return
	}
	matches, _, totals := g.pages(t, p.holder, search)
	got := references{}
	for _, reference := range matches {
		if got[reference] {
			t.Errorf("%s: %s comes twice", search, reference)
		}
		got[reference] = true
	}
	if got.String() != want.String() {
		t.Errorf("%s: found %s\nwant %s", search, got, want)
	}
	for _, total := range totals {
		if total != len(want) {
			t.Errorf("%s: total %d, want %d", search, total, len(want))
		}
	}
}
