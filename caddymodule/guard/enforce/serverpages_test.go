package enforce_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
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
			g.Limits = fhirserver.Limits{Answer: tt.limit}
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

// TestJudgedPages checks that pages are as long as was asked for, whatever is withheld between, and are the token's own.
func TestJudgedPages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, query, want string }{
		{"as the server does", "", "Observation/a1 Observation/a2 Patient/a"},
		{"one by one", "?_count=1", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"two at once", "?_count=2", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"two at once, of a type", "?_count=2&_type=Observation", "Observation/a1 Observation/a2 Patient/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t)
			pages := []string{searchset("Patient/a", "Observation/b1"), searchset("Observation/b1", "Device/b1"), searchset("Observation/a1", "Observation/b1", "Observation/a2")}
			g.server.Answers["Patient/a/$everything"] = func(w http.ResponseWriter, r *http.Request) {
				answering(linkedTo(pages[0], "/Patient/a/$everything", fhirtest.Address+"?_getpages=1"))(w, r)
			}
			g.server.Answers[""] = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("_getpages") == "1" {
					answering(linkedTo(pages[1], "?_getpages=1", fhirtest.Address+"?_getpages=2"))(w, r)
					return
				}
				answering(pages[2])(w, r)
			}
			got := g.entriesOf(access.Holder{Scope: "patient/*.rs", Patient: "a"}, requestOf("GET Patient/a/$everything"+tt.query, ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
	g := operating(t)
	g.server.Answers["Patient/a/$everything"] = answering(searchset("Patient/a", "Observation/b1", "Observation/a1"))
	h := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	var b bundle
	if err := json.NewDecoder(g.get(h, "Patient/a/$everything?_count=1").Body).Decode(&b); err != nil || len(b.Entry) != 1 || b.Total != nil {
		t.Fatalf("%v, %+v", err, b)
	}
	if got := g.get(access.Holder{Scope: "patient/*.rs", Patient: "b"}, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("another's page: status %d", got.StatusCode)
	}
	g.server.Put(`{"resourceType":"Patient","id":"a","active":true}`)
	g.server.Answers["Patient/a"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }
	if got := g.get(h, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("a page of a patient who is gone: status %d", got.StatusCode)
	}
}

// TestJudgedBesidePages checks that what belongs to no patient comes along by what names it on any page of the server's,
// and not where what names it may be on a page that is not seen.
func TestJudgedBesidePages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, query, first, second, want string }{
		{"named on another page", "", searchset("Practitioner/alice", "Observation/b1"), searchset("Observation/a1"), "Observation/a1 Practitioner/alice"},
		{"named by what is hidden on another page", "", searchset("Patient/a", "Practitioner/alice"), searchset("Observation/b1"), "Patient/a"},
		{"nothing is hidden", "", searchset("Practitioner/alice"), searchset("Patient/a"), "Patient/a Practitioner/alice"},
		{"named by what could be hidden on the next page", "?_count=2", searchset("Patient/a", "Practitioner/alice"), searchset("Observation/b1"), "Patient/a"},
		{"named by what could be hidden on the page before", "?_count=2", searchset("Observation/b1"), searchset("Patient/a", "Practitioner/alice"), "Patient/a"},
		{"an own device, which is not beside", "?_count=2", searchset("Patient/a"), searchset("Device/a1", "Device/free", "Observation/b1"), "Device/a1 Patient/a"},
		{"named on the page before", "?_count=2", searchset("Observation/a1", "Patient/a"), searchset("Practitioner/alice", "Observation/a2"), "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"named on the page after", "?_count=2", searchset("Practitioner/alice", "Patient/a"), searchset("Observation/a1"), "Observation/a1 Patient/a Practitioner/alice"},
		{"named on the page", "?_count=2", searchset("Observation/a1", "Practitioner/alice"), searchset("Observation/b1"), "Observation/a1 Practitioner/alice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t)
			g.server.Answers["Patient/a/$everything"] = answering(linkedTo(tt.first, "/Patient/a/$everything", fhirtest.Address+"?_getpages=1"))
			g.server.Answers[""] = answering(tt.second)
			g.server.Seen = func(r *http.Request) {
				if asked := r.URL.Query(); strings.HasSuffix(r.URL.Path, "/$everything") && asked.Get("_count") != cmp.Or(strings.TrimPrefix(tt.query, "?_count="), "50") {
					t.Errorf("asked for %s", r.URL)
				}
			}
			got := g.entriesOf(access.Holder{Scope: "patient/*.rs", Patient: "a"}, requestOf("GET Patient/a/$everything"+tt.query, ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestJudgedBesideRest checks that what names a resource may be hidden on a page that has not been judged yet.
func TestJudgedBesideRest(t *testing.T) {
	t.Parallel()
	g, asked := operating(t), 0
	further := func(self string) http.HandlerFunc {
		asked++
		return answering(linkedTo(searchset("Patient/a", "Practitioner/alice"), self, fhirtest.Address+"?_getpages="+strconv.Itoa(asked)))
	}
	g.server.Answers["Patient/a/$everything"] = further("/Patient/a/$everything")
	g.server.Answers[""] = func(w http.ResponseWriter, r *http.Request) { further("?"+r.URL.RawQuery)(w, r) }
	var b bundle
	h := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	if err := json.NewDecoder(g.get(h, "Patient/a/$everything").Body).Decode(&b); err != nil || b.next() == "" || len(b.Entry) == 0 {
		t.Fatalf("%v: %+v", err, b)
	}
	for _, e := range b.Entry {
		if e.Resource.ResourceType != "Patient" {
			t.Errorf("shows %s/%s", e.Resource.ResourceType, e.Resource.ID)
		}
	}
}

// TestJudgedPagesEnd checks that nobody waits for ever for what may be seen, nor for more than may be held.
func TestJudgedPagesEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, page string
		limit      int64
		most       int
	}{
		{"nothing to be seen", searchset("Observation/b1"), 0, 10},
		{"much to be seen", searchset("Observation/a1"), int64(len(searchset("Observation/a1")) + 300), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, asked := operating(t), 0
			g.Limits.Answer = tt.limit
			g.server.Answers["Patient/a/$everything"] = answering(linkedTo(tt.page, "/Patient/a/$everything", fhirtest.Address+"?_getpages=0"))
			g.server.Answers[""] = func(w http.ResponseWriter, r *http.Request) {
				asked++
				answering(linkedTo(tt.page, "?"+r.URL.RawQuery, fhirtest.Address+"?_getpages="+strconv.Itoa(asked)))(w, r)
			}
			var b bundle
			if err := json.NewDecoder(g.get(access.Holder{Scope: "patient/*.rs", Patient: "a"}, "Patient/a/$everything").Body).Decode(&b); err != nil || b.next() == "" || asked > tt.most {
				t.Errorf("%v, %d pages", err, asked)
			}
		})
	}
}

// crossing are two observations that each name both patients: one is about b, one about a.
var crossing = append(slices.Clip(records),
	`{"resourceType":"Observation","id":"b-focus-a","status":"final","subject":{"reference":"Patient/b"},"focus":[{"reference":"Patient/a"}]}`,
	`{"resourceType":"Observation","id":"a-focus-b","status":"final","subject":{"reference":"Patient/a"},"focus":[{"reference":"Patient/b"}]}`,
	`{"resourceType":"Device","id":"of-b","patient":{"reference":"Patient/b"}}`,
)

// Leaks of Microsoft's FHIR server that were fixed in 2026, each as its pull request describes it.
func TestMicrosoftFHIRServer(t *testing.T) {
	t.Parallel()
	holder := func(scope string) access.Holder {
		return access.Holder{Scope: scope, Patient: "a", User: clinician.User}
	}
	unknown, leaderless := holder("patient/*.rs"), holder("user/*.rs")
	unknown.Patient, leaderless.User = "", access.Holder{}.User
	split := access.Holder{Scope: "system/Patient.s system/Observation.r"}
	testSearches(t, crossing, []searchCase{
		{"5661: another patient's device", patientA, "Device", "Device/a1 Device/free"},
		{"5683: _include of another patient", patientA, "Observation?_id=a-focus-b&_include=Observation:focus", "Observation/a-focus-b"},
		{"5683: _revinclude of another's record", patientA, "Patient?_revinclude=Observation:focus", "Patient/a"},
		{"5683: $includes", patientA, "Patient/$includes?includesCt=1", "403"},
		{"5688: patient scopes without a patient", unknown, "Observation", "403"},
		{"5688: user scopes without fhirUser", leaderless, "Observation", "403"},
		{"5688: user scopes without fhirUser, by _type", leaderless, "?_type=Observation", "403"},
		{"5788: search of a type that may be read", split, "Observation", "403"},
		{"5788: search by _type of a type that may be read", split, "?_type=Observation", "403"},
		{"5788: search of all types", split, "", "Patient/a Patient/b"},
		{"5788: _revinclude of a type that may be read", split, "Patient?_revinclude=Observation:subject", "Patient/a Patient/b"},
		{"5817: a constraint by an unknown parameter", holder("patient/Observation.rs?shoe-size=9"), "Observation", "403"},
		{"5817: the same, for all types", holder("patient/*.rs?shoe-size=9"), "Observation", ""},
	})
	for _, tt := range []struct {
		name, scope, target string
	}{
		{"5674: $export by patient scopes", "patient/*.rs", "$export"},
		{"5674: $export by user scopes", "user/*.rs", "Patient/$export"},
		{"5674: $export by constrained scopes", "system/*.rs?_security=n", "$export"},
		{"5674: patients' records without the scope for Patient", "system/Observation.rs", "Patient/$export?_type=Observation"},
		{"5674: a group's records without the scope for Group", "system/Patient.rs", "Group/g1/$export?_type=Patient"},
		{"5674: types beyond the scopes", "system/Patient.rs", "$export?_type=Patient,Observation"},
		{"5788: read of a type that may be searched", split.Scope, "Patient/a"},
		{"5817: read under a constraint by an unknown parameter", "patient/Observation.rs?shoe-size=9", "Observation/a1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var asked string
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+tt.target, nil)
			r.Header.Set("Prefer", "respond-async, handling=lenient")
			if got := exporting(t, &asked).send(holder(tt.scope), r); got.StatusCode != http.StatusForbidden || asked != "" {
				t.Errorf("status %d, exported %q", got.StatusCode, asked)
			}
		})
	}
}

// 5817 in front of a server whose search parameter is disabled, so that it ignores the parameter: the constraint of the scope
// still holds.
func TestMicrosoftDisabledParameter(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	g.server.Answers = map[string]http.HandlerFunc{"Observation": answering(`{"resourceType":"Bundle","type":"searchset","entry":[` +
		`{"fullUrl":"http://backend.internal:8080/fhir/Observation/a1","resource":` + records[3] + `,"search":{"mode":"match"}},` +
		`{"fullUrl":"http://backend.internal:8080/fhir/Observation/a2","resource":` + records[4] + `,"search":{"mode":"match"}}]}`)}
	h := access.Holder{Scope: "patient/Observation.rs?category=laboratory", Patient: "a"}
	if got := strings.Join(g.found(h, "Observation"), " "); got != "Observation/a1" {
		t.Errorf("found %s", got)
	}
}
