package enforce_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

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
