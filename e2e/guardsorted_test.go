package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// The pages of a search contain each record exactly once, although HAPI orders ties differently for each search. The 40 records
// have two dates and the patient as subject, performer or both.
func TestGuardSorted(t *testing.T) {
	t.Parallel()
	h := startSeparateHAPI(t, "hapi-sorted")
	records := []guardattack.Record{
		{Type: "Patient", ID: "p", JSON: `{"resourceType":"Patient","id":"p"}`}, {Type: "Patient", ID: "q", JSON: `{"resourceType":"Patient","id":"q"}`},
	}
	second := []string{`,{"coding":[{"system":"http://c","code":"c2"}]}`, "", ""} // HAPI lists a record with two categories twice when it sorts by category
	var own, subject []string
	for i := range 50 {
		of := [][2]string{{"p", "q"}, {"p", "p"}, {"p", "q"}, {"q", "p"}, {"q", "q"}}[i%5]
		id := fmt.Sprintf("sorted-%02d", i)
		records = append(records, guardattack.Record{Type: "Observation", ID: id, JSON: fmt.Sprintf(`{"resourceType":"Observation","id":%q,`+
			`"status":%q,"effectiveDateTime":"2024-0%d-01","category":[{"coding":[{"system":"http://c","code":"c%d"}]}%s],`+
			`"code":{"coding":[{"system":"http://c","code":"k%d"}]},"subject":{"reference":"Patient/%s"},"performer":[{"reference":"Patient/%s"}]}`,
			id, []string{"final", "amended"}[i%2], 1+i/3%2, i%2, second[i%3], i/7%2, of[0], of[1])})
		if of != [2]string{"q", "q"} {
			own = append(own, "Observation/"+id)
		}
		if of[0] == "p" {
			subject = append(subject, "Observation/"+id)
		}
	}
	h.load(t, records)
	g := startGuarded(t, "sorted", h.fhirAPI)
	for _, size := range []int{14, 15, 30} { // page sizes for which HAPI sends no next link
		search := fmt.Sprintf("Observation?patient=p&_sort=-category,_id&_count=%d", size)
		if got, _, _ := g.pages(t, guardHolder{"patient/*.rs", "p", ""}, search); len(got) != len(subject) {
			t.Errorf("%s: %d records, want %d: %v", search, len(got), len(subject), got)
		}
	}
	for _, scope := range []string{"patient/*.rs", "patient/Observation.rs?category=http://c|c0 patient/Observation.rs?category=http://c|c1",
		"patient/Observation.rs?category=http://c|c0 patient/Observation.rs?status=amended patient/Observation.rs?date=gt2024-01-15"} {
		for _, order := range []string{"", "&_sort=-date", "&_sort=date", "&_sort=status", "&_sort=code", "&_sort=_lastUpdated", "&_sort=-_lastUpdated"} {
			for search, want := range map[string][]string{"Observation?_count=7": own, "Observation?patient=p&_count=7": subject} {
				got, _, totals := g.pages(t, guardHolder{scope, "p", ""}, search+order)
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("%s%s under %s: %d records, want %d, each once: %v", search, order, scope, len(got), len(want), got)
				}
				if n := len(totals); n == 0 || totals[n-1] != len(want) {
					t.Errorf("%s%s: total %v on the last page, want %d", search, order, totals, len(want))
				}
			}
		}
	}
}
