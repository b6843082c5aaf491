package enforce_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// ward are observations of patient a, found by subject, by performer, or by both, and some of patient b between them.
func ward() []string {
	all := slices.Clone(records[:2])
	for n := range 60 {
		subject, performer := "Patient/a", "Patient/b"
		switch {
		case n%3 == 0:
			subject, performer = "Patient/b", "Patient/a"
		case n%5 == 0:
			performer = "Patient/a"
		case n%7 == 0:
			subject = "Patient/b"
		}
		date := fmt.Sprintf(`"effectiveDateTime":"2024-%02d-%02d",`, 1+n*7%12, 1+n*11%28)
		if n%10 == 9 {
			date = ""
		}
		all = append(all, fmt.Sprintf(`{"resourceType":"Observation","id":"o%02d","status":"%s",%s"subject":{"reference":"%s"},"performer":[{"reference":"%s"}]}`,
			n, []string{"final", "amended"}[n%2], date, subject, performer))
	}
	return all
}

// read are the ids on all pages, in their order.
func (g *gateway) read(h access.Holder, target string, size int) []string {
	g.t.Helper()
	var all []string
	for pages := 0; target != ""; pages++ {
		var b bundle
		if err := json.NewDecoder(g.get(h, target).Body).Decode(&b); err != nil || pages > 200 {
			g.t.Fatalf("%s: %v, page %d", target, err, pages)
		}
		target = b.next()
		if size > 0 && len(b.Entry) > size || target != "" && len(b.Entry) < size {
			g.t.Errorf("a page of %d, of %d", len(b.Entry), size)
		}
		for _, e := range b.Entry {
			all = append(all, e.Resource.ID)
		}
	}
	return all
}

func TestMergedPages(t *testing.T) {
	t.Parallel()
	whole := access.Holder{Scope: "user/Observation.s?status=final user/Observation.s?status=amended,final user/Observation.s?date=2024", User: clinician.User}
	for _, order := range []string{"", "_sort=date", "_sort=status,-date,_id", "_sort=-_id"} {
		for _, size := range []int{3, 7, 50} {
			for name, h := range map[string]access.Holder{"patient": patientA, "constraints": whole} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, order, size), func(t *testing.T) {
					t.Parallel()
					g := newGateway(t, ward()...)
					got := g.read(h, fmt.Sprintf("Observation?_count=%d&%s", size, order), size)
					g.CompartmentSearch = true // one branch, so the server's own order
					want := g.read(h, "Observation?_count=100&"+order, 0)
					if order == "" || !strings.Contains(order, "_id") {
						slices.Sort(got)
						slices.Sort(want)
					}
					if !slices.Equal(got, want) {
						t.Errorf("got %v, want %v", got, want)
					}
				})
			}
		}
	}
}

// TestMergedOrder checks that pages go on where the one before ended, whatever the branch.
func TestMergedOrder(t *testing.T) {
	t.Parallel()
	g := newGateway(t, ward()...)
	dates := map[string]string{}
	for _, text := range ward() {
		var o struct{ ID, EffectiveDateTime string }
		_ = json.Unmarshal([]byte(text), &o)
		dates[o.ID] = o.EffectiveDateTime
	}
	for _, descending := range []bool{false, true} {
		target := "Observation?_count=4&_sort=date"
		if descending {
			target = "Observation?_count=4&_sort=-date"
		}
		ids := g.read(patientA, target, 4)
		ordered := slices.IsSortedFunc(ids, func(a, b string) int {
			x, y := dates[a], dates[b]
			switch {
			case x == "" || y == "":
				return strings.Compare(y, x) // without a date: last
			case descending:
				return strings.Compare(y, x)
			}
			return strings.Compare(x, y)
		})
		if !ordered {
			t.Errorf("%s: %v", target, ids)
		}
	}
}

func TestTotal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		want   int // -1: absent; -403: refused
	}{
		{"all on the page", patientA, "Observation?status=final&_count=100", 27},
		{"more pages", patientA, "Observation?status=final&_count=2", -1},
		{"accurate", patientA, "Observation?status=final&_count=2&_total=accurate", 27},
		{"estimate", patientA, "Observation?status=final&_count=2&_total=estimate", -1},
		{"count alone", patientA, "Observation?status=final&_summary=count", 27},
		{"a page of nothing", patientA, "Observation?status=final&_count=0", 27},
		{"of overlapping constraints", access.Holder{Scope: "user/Observation.s?status=final user/Observation.s?date=lt2024-04 patient/Observation.s", Patient: "a", User: clinician.User}, "Observation?_summary=count", 59},
		{"of too many constraints", access.Holder{Scope: "user/Observation.s?status=final user/Observation.s?date=lt2024-04 user/Observation.s?code=x patient/Observation.s", Patient: "a", User: clinician.User}, "Observation?_summary=count", -403},
		{"of two constraints", access.Holder{Scope: "user/Observation.s?status=final user/Observation.s?date=lt2024-04", User: clinician.User}, "Observation?_summary=count", 34},
		{"of several types", patientA, "?_type=Observation,Patient&_summary=count", 56},
		{"where the server finds more", patientA, "Group?_summary=count", -403},
		{"where the server finds more, on a page", patientA, "Group?_count=1", 0},
		{"of what a chain does not find", patientA, "Observation?subject:Patient.name=brown&_summary=count", 0},
		{"of nothing that a chain finds", patientA, "Observation?subject:Patient.name=nobody&_summary=count", 0},
		{"nothing that a chain finds", patientA, "Observation?subject:Patient.name=nobody", 0},
		{"whole", clinician, "Observation?_count=2", 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, ward()...)
			response := g.get(tt.holder, tt.target)
			if response.StatusCode != http.StatusOK {
				if response.StatusCode != -tt.want {
					t.Errorf("status %d", response.StatusCode)
				}
				return
			}
			var b bundle
			if err := json.NewDecoder(response.Body).Decode(&b); err != nil {
				t.Fatal(err)
			}
			if got := b.total(); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func (b bundle) total() int {
	if b.Total == nil {
		return -1
	}
	return *b.Total
}

// TestUnion checks that constraints of several scopes are a union, and how many searches it takes.
func TestUnion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		holder   access.Holder
		want     string
		requests int
	}{
		{"the same parameter", access.Holder{Scope: "patient/Observation.s?category=http://c|laboratory patient/Observation.s?category=http://c|vital-signs", Patient: "a"}, "a1 a2", 1},
		{"different parameters", access.Holder{Scope: "patient/Observation.s?category=http://c|laboratory patient/Observation.s?status=final", Patient: "a"}, "a1 a2", 2},
		{"one within the other", access.Holder{Scope: "patient/Observation.s?category=http://c|laboratory patient/Observation.s", Patient: "a"}, "a1 a2", 1},
		{"a patient's and a constraint", access.Holder{Scope: "patient/Observation.s user/Observation.s?category=http://c|laboratory", Patient: "a", User: clinician.User}, "a1 a2 b1", 2},
		{"a patient's and all", access.Holder{Scope: "patient/Observation.s user/Observation.s", Patient: "a", User: clinician.User}, "a1 a2 b1", 1},
		{"never the context of one with the constraint of another", access.Holder{Scope: "patient/Observation.s?category=http://c|vital-signs user/Observation.s?status=draft", Patient: "a", User: clinician.User}, "a2", 2},
		{"twice the same", access.Holder{Scope: "patient/Observation.rs patient/Observation.read", Patient: "a"}, "a1 a2", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			g.CompartmentSearch = true
			requests := 0
			g.server.Seen = func(*http.Request) { requests++ }
			if got := strings.Join(g.read(tt.holder, "Observation", 0), " "); got != tt.want || requests != tt.requests {
				t.Errorf("got %q by %d requests, want %q by %d", got, requests, tt.want, tt.requests)
			}
		})
	}
}

// TestIncludedOnItsPage checks that what comes along comes with a match that names it, though the pages of the server
// that ours are made of hold more.
func TestIncludedOnItsPage(t *testing.T) {
	t.Parallel()
	g := newGateway(t, chart...)
	for target := "Observation?_count=1&_sort=_id&_include=Observation:encounter&_include=Observation:performer"; target != ""; {
		var b bundle
		if err := json.NewDecoder(g.get(patientA, target).Body).Decode(&b); err != nil {
			t.Fatal(err)
		}
		target = b.next()
		var with []string
		for _, e := range b.Entry[1:] {
			with = append(with, e.Resource.ResourceType+"/"+e.Resource.ID)
		}
		// The subject may come along too, because a match on another page brings it.
		with = slices.DeleteFunc(with, func(of string) bool { return of == "Patient/a" && strings.HasPrefix(b.Entry[0].Resource.ID, "a") })
		want := map[string]string{"a1": "Practitioner/alice", "a2": "", "a3": "Encounter/ea", "a4": "Practitioner/bob", "b2": "Patient/a"}[b.Entry[0].Resource.ID]
		slices.Sort(with)
		if got := strings.Join(with, " "); got != want {
			t.Errorf("%s with %q, want %q", b.Entry[0].Resource.ID, got, want)
		}
	}
}

// TestIncludeByRead checks that a scope to read brings what a match names, and not what names it.
func TestIncludeByRead(t *testing.T) {
	t.Parallel()
	h := access.Holder{Scope: "patient/Encounter.rs patient/Observation.r patient/Practitioner.r", Patient: "a"}
	for target, want := range map[string]string{
		"Encounter?_include=Encounter:practitioner":     "Encounter/ea Practitioner/alice",
		"Encounter?_revinclude=Observation:encounter":   "Encounter/ea",
		"Encounter?_include=Encounter:service-provider": "Encounter/ea",
	} {
		if got := strings.Join(newGateway(t, chart...).found(h, target), " "); got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
}

func TestCompartmentSearch(t *testing.T) {
	t.Parallel()
	testSearches(t, chart, []searchCase{
		{"own", patientA, "Patient/a/Observation", "Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2"},
		{"own, with a parameter", patientA, "Patient/a/Observation?status=final", "Observation/a1 Observation/a2"},
		{"own patient", patientA, "Patient/a/Patient", "Patient/a"},
		{"another's", patientA, "Patient/b/Observation", "Observation/b2"},
		{"another's patient", patientA, "Patient/b/Patient", ""},
		{"nobody's", patientA, "Patient/c/Observation", ""},
		{"a practitioner's", patientA, "Practitioner/bob/Observation", "Observation/a4"},
		{"an encounter's", patientA, "Encounter/eb/Observation", "Observation/a4 Observation/b2"},
		{"an encounter", patientA, "Encounter/ea/Encounter", "Encounter/ea"},
		{"another's encounter", patientA, "Encounter/eb/Encounter", ""},
		{"a type in no compartment", patientA, "Patient/a/Organization", ""},
		{"all types", access.Holder{Scope: "patient/Observation.rs patient/Encounter.rs", Patient: "a"}, "Patient/a/*", "Encounter/ea Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2"},
		{"named types", patientA, "Patient/a/*?_type=Encounter,Patient", "Encounter/ea Patient/a"},
		{"all types under all scopes", patientA, "Patient/a/*", "Encounter/ea Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2 Patient/a"},
		{"no scope", access.Holder{Scope: "patient/Patient.rs", Patient: "a"}, "Patient/a/Observation", "403"},
		{"a clinician", clinician, "Patient/b/Observation", "Observation/b1 Observation/b2"},
		{"a clinician, by practitioner", clinician, "Practitioner/bob/Encounter", "Encounter/eb"},
		{"a clinician, named types", clinician, "Patient/b/*?_type=Encounter", "Encounter/eb"},
		{"a clinician of one type", access.Holder{Scope: "user/Observation.rs", User: clinician.User}, "Patient/b/Observation", "Observation/b1 Observation/b2"},
	})
}

// TestPostedSearch checks that what came in a body goes on in a body, on every page.
func TestPostedSearch(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"Observation/_search", "Patient/a/Observation/_search"} {
		for _, byCompartment := range []bool{false, true} {
			g := newGateway(t, ward()...)
			g.CompartmentSearch = byCompartment
			g.server.Seen = func(r *http.Request) {
				if strings.Contains(r.URL.RawQuery, "status") || !strings.Contains(r.URL.RawQuery, "_getpages") && !strings.Contains(r.URL.RawQuery, "_id=") && r.Method != http.MethodPost {
					t.Errorf("%s %s", r.Method, r.URL)
				}
			}
			r := httptest.NewRequest(http.MethodPost, "/fhir/R4/"+path, strings.NewReader("status=final&_count=3"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			var b bundle
			if err := json.NewDecoder(g.send(patientA, r).Body).Decode(&b); err != nil || len(b.Entry) != 3 || b.next() == "" {
				t.Fatalf("%s: %+v, %v", path, b, err)
			}
			if rest := g.read(patientA, b.next(), 3); len(rest) != 24 {
				t.Errorf("%s: %d more", path, len(rest))
			}
		}
	}
}
