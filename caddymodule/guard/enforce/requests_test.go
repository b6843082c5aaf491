package enforce_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// resourcesFor are resources of patient a that a search finds: they have what its parameters say.
func resourcesFor(t *testing.T, search string, n int) (all []string) {
	t.Helper()
	resourceType, query, _ := strings.Cut(search, "?")
	parameters, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		res := map[string]any{"resourceType": resourceType, "id": fmt.Sprintf("m%d", i)}
		if _, ok := searchparam.Lookup(resourceType, "patient"); ok && parameters.Get("patient") == "" {
			parameters.Set("patient", "a")
		}
		for name := range parameters {
			p, ok := searchparam.Lookup(resourceType, name)
			if !ok || len(p.Paths) == 0 || strings.HasPrefix(name, "_") {
				continue
			}
			value := parameters.Get(name)
			set(res, p.Paths[0].Elements, map[string]string{
				"Reference": `{"reference":"Patient/a"}`, "CodeableConcept": `{"coding":[{"code":"` + value + `"}]}`,
				"dateTime": `"2024-05-05"`, "instant": `"2024-05-05T00:00:00Z"`, "Period": `{"start":"2024-05-05"}`,
				"code": `"` + value + `"`, "Coding": `{"code":"` + value + `"}`,
			}[p.Paths[0].Type])
		}
		text, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// costRow is a line of the table: a search, and the requests that it takes on one page and on three, before and now.
var costRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9]+) \\| ([0-9]+) \\| ([0-9]+) \\| ([0-9]+) \\|$")

// TestRequestsOfApps measures what docs/evidence/guard.md says of the searches of SMART apps: the columns "now".
func TestRequestsOfApps(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/evidence/guard.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := costRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Errorf("%d rows, want 20 at least", len(rows))
	}
	for _, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			t.Parallel()
			if one, three := requestsOf(t, row[1]); one != row[3] || three != row[5] {
				t.Errorf("takes %s and %s requests, the table has %s and %s", one, three, row[3], row[5])
			}
		})
	}
}

// requestsOf counts the requests of a search of seven resources on one page, and on three.
func requestsOf(t *testing.T, search string) (one, three string) {
	t.Helper()
	g := newGateway(t, resourcesFor(t, search, 7)...)
	g.server.Put(`{"resourceType":"Patient","id":"a"}`)
	g.server.Answers = map[string]http.HandlerFunc{"Patient/a/$everything": answering(searchset("Patient/a"))}
	requests := 0
	g.server.Seen = func(*http.Request) { requests++ }
	walk := func(size int) string {
		requests = 0
		target := search
		if !strings.Contains(search, "$") {
			target += map[bool]string{true: "&", false: "?"}[strings.Contains(search, "?")] + "_count=" + strconv.Itoa(size)
		}
		if found := g.read(access.Holder{Scope: "patient/*.rs", Patient: "a"}, target, 0); len(found) == 0 {
			t.Errorf("%s finds nothing", target)
		}
		return strconv.Itoa(requests)
	}
	return walk(10), walk(3)
}

// TestConfinedByApp checks which parameters of an app's confine a search, so that one is enough, and that no others do.
func TestConfinedByApp(t *testing.T) {
	t.Parallel()
	for search, want := range map[string]int{
		"Observation?patient=a": 1, "Observation?patient=Patient/a": 1, "Observation?subject:Patient=a": 1, "Observation?performer=Patient/a": 1,
		"Observation?subject=a": 2, "Observation?focus=Patient/a": 2, "Observation?patient=b": 2, "Observation?patient=a,b": 2,
		"Observation?patient:missing=false": 2, "Observation?subject:identifier=a": 2, "Observation?subject:Patient.name=adams": 3,
		"AllergyIntolerance?patient=a": 1, "AllergyIntolerance?onset=2020": 3, "DeviceUseStatement?patient=a": 1,
		"Device?patient=a": 1, "Device?patient=b": 2, "Device?status=active": 2, "Patient/a/Observation?patient=a": 1,
	} {
		t.Run(search, func(t *testing.T) {
			t.Parallel()
			g, asked := newGateway(t, chart...), 0
			g.server.Seen = func(*http.Request) { asked++ }
			for _, found := range g.found(patientA, search) {
				if found == "Observation/b1" {
					t.Errorf("finds %s", found)
				}
			}
			if asked != want {
				t.Errorf("%d requests, want %d", asked, want)
			}
		})
	}
}
