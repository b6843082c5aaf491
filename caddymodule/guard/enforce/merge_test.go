package enforce_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
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
			b := decoded[bundle](t, response)
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
		b := decoded[bundle](t, g.get(patientA, target))
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

// modelTypes are types with one to four membership parameters, with an element that each of them is by.
var modelTypes = []struct{ name, members string }{
	{"Observation", `"subject":%s`}, {"Condition", `"subject":%s`}, {"Coverage", `"beneficiary":%s,"policyHolder":%s`},
	{"CommunicationRequest", `"recipient":[%s]`}, {"AllergyIntolerance", `"patient":%s,"asserter":%s`},
	{"Communication", `"sender":%s`}, {"Composition", `"author":[%s]`}, {"DocumentManifest", `"subject":%s`},
	{"Procedure", `"subject":%s`}, {"MedicationDispense", `"subject":%s,"receiver":[%s]`}, {"MedicationAdministration", `"subject":%s`},
	{"DiagnosticReport", `"subject":%s`}, {"ServiceRequest", `"subject":%s`}, {"DocumentReference", `"subject":%s`},
	{"Encounter", `"subject":%s`}, {"Immunization", `"patient":%s`},
}

// modelRecord is a resource as the model knows it.
type modelRecord struct {
	text, id, updated string
	isOwn, isHidden   bool // it is patient a's; it contains a record of another patient, and a label that a rule denies
}

// modelRecords are records of some types, with UUIDs. Many of the last type, few of the others; most have a time of update
// in common with others.
func modelRecords(seed uint64, types, few, many int) (all []modelRecord) {
	random := rand.New(rand.NewPCG(seed, uint64(types)))
	for n, of := range modelTypes[:types] {
		count := random.IntN(few)
		if n == types-1 {
			count = many
		}
		for range count {
			r := modelRecord{
				id:      fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint32(), random.Uint32()>>16, random.Uint32()>>20, random.Uint32()>>20, random.Uint64()>>16),
				updated: fmt.Sprintf("2024-01-%02dT00:00:00Z", 1+random.IntN(9)),
				isOwn:   random.IntN(5) > 0, isHidden: random.IntN(5) == 0,
			}
			reference, more := `{"reference":"Patient/b"}`, ""
			if r.isOwn {
				reference = `{"reference":"Patient/a"}`
			}
			if r.isHidden {
				more = `,"contained":[{"resourceType":"Observation","id":"c","subject":{"reference":"Patient/c"}}]`
			}
			r.text = fmt.Sprintf(`{"resourceType":%q,"id":%q,"meta":{"lastUpdated":%q,"security":[{"code":"%v"}]}%s,%s}`,
				of.name, r.id, r.updated, r.isHidden, more, strings.ReplaceAll(of.members, "%s", reference))
			all = append(all, r)
		}
	}
	return all
}

// compareBy compares two records by a key of _sort.
func compareBy(key string, a, b modelRecord) int {
	switch key {
	case "_lastUpdated":
		return cmp.Compare(a.updated, b.updated)
	case "-_lastUpdated":
		return cmp.Compare(b.updated, a.updated)
	case "_id":
		return cmp.Compare(a.id, b.id)
	}
	return 0
}

// TestSearchOfTypes compares the pages of searches over several types with a model: nothing is lost, repeated or out of
// order, pages are full, none is empty while there are more matches, and none costs more than 48 requests.
func TestSearchOfTypes(t *testing.T) {
	t.Parallel()
	for _, types := range []int{1, 2, 9, 16} {
		for at, order := range []string{"", "_lastUpdated", "-_lastUpdated", "_id"} {
			for _, who := range []struct {
				name   string
				holder access.Holder
				rules  bool
				finds  func(modelRecord) bool
			}{
				{"patient", access.Holder{Scope: "patient/*.rs", Patient: "a"}, false, func(r modelRecord) bool { return r.isOwn && !r.isHidden }},
				{"user", access.Holder{Scope: "user/*.rs", User: clinician.User}, false, func(modelRecord) bool { return true }},
				{"system with a rule", access.Holder{Scope: "system/*.rs"}, true, func(r modelRecord) bool { return !r.isHidden }},
				{"patient with a rule", access.Holder{Scope: "patient/*.rs", Patient: "a"}, true, func(r modelRecord) bool { return r.isOwn && !r.isHidden }},
			} {
				t.Run(fmt.Sprintf("%d types by %s, %s", types, order, who.name), func(t *testing.T) {
					t.Parallel()
					records := modelRecords(uint64(at), types, 7, 80)
					for _, of := range []struct{ size, longest int }{{1, 0}, {10, 0}, {10, 7}, {50, 0}, {1000, 7}} {
						m := searchModel{newGateway(t), records, who.holder, who.finds, order, types, of.size, of.longest, 0}
						if who.rules {
							m.withRules(`deny resource.meta.security.code == 'true'`)
						}
						m.run()
					}
				})
			}
		}
	}
}

// TestSearchOfManyRecords is over searches whose pages of the FHIR server leave much for later pages of ours.
func TestSearchOfManyRecords(t *testing.T) {
	t.Parallel()
	h := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	finds := func(r modelRecord) bool { return r.isOwn && !r.isHidden }
	for types, many := range map[int]int{2: 400, 9: 60} {
		m := searchModel{newGateway(t), modelRecords(1, types, many, many), h, finds, "-_lastUpdated", types, 50, 0, 0}
		m.run()
	}
}

// searchModel is a search of several types, and what it finds.
type searchModel struct {
	*gateway
	records []modelRecord
	holder  access.Holder
	finds   func(modelRecord) bool
	order   string
	types   int
	size    int // _count
	longest int // page of the FHIR server; 0: as _count says
	asked   int // requests for a page
}

func (m *searchModel) run() {
	m.t.Helper()
	want := map[string]modelRecord{}
	for _, r := range m.records {
		m.server.Put(r.text)
		if m.finds(r) {
			want[r.id] = r
		}
	}
	m.server.Shuffles, m.server.MaxCount = true, m.longest
	m.server.Seen = func(r *http.Request) {
		if m.asked++; len(r.URL.String()) > 2000 {
			m.t.Errorf("asked by a URL of %d characters", len(r.URL.String()))
		}
	}
	var names []string
	for _, of := range modelTypes[:m.types] {
		names = append(names, of.name)
	}
	target := fmt.Sprintf("?_count=%d&_type=%s", m.size, strings.Join(names, ","))
	if m.order != "" {
		target += "&_sort=" + m.order
	}
	var last *modelRecord
	for pages := 0; target != "" && (pages < 5 || m.size > 1); pages++ {
		var b bundle
		m.asked = 0
		response := m.get(m.holder, target)
		if err := json.NewDecoder(response.Body).Decode(&b); err != nil || response.StatusCode != http.StatusOK || pages > 300 {
			m.t.Fatalf("_count=%d, page %d: status %d, %v", m.size, pages, response.StatusCode, err)
		}
		target = b.next()
		if m.asked > 48 || len(target) > 3000 || len(b.Entry) > m.size {
			m.t.Errorf("_count=%d, page %d: %d requests, a link of %d bytes, %d matches", m.size, pages, m.asked, len(target), len(b.Entry))
		}
		// A page that passes has the server's length, and one of many requests may end before the next would be too many.
		if isFull := len(b.Entry) == m.size || m.asked == 1 && m.longest > 0 || m.asked > 40; target != "" && (len(b.Entry) == 0 || !isFull) {
			m.t.Errorf("_count=%d, page %d: %d of %d matches by %d requests, and a link to the next", m.size, pages, len(b.Entry), m.size, m.asked)
		}
		for _, e := range b.Entry {
			r, ok := want[e.Resource.ID]
			if delete(want, e.Resource.ID); !ok || last != nil && compareBy(m.order, *last, r) > 0 {
				m.t.Fatalf("_count=%d, page %d: %s is repeated, or out of order", m.size, pages, e.Resource.ID)
			}
			last = &r
		}
	}
	if target == "" && len(want) > 0 {
		m.t.Errorf("_count=%d, pages of %d: %d matches are lost", m.size, m.longest, len(want))
	}
}
