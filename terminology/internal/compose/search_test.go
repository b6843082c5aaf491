package compose

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// slow tries all that the tests draw at random or take from a long list. Otherwise they
// try a tenth of it.
var slow = flag.Bool("slow", false, "try all samples, not a tenth of them")

// samples is how many of all are tried.
func samples(all int) int {
	if *slow {
		return all
	}
	return all / 10
}

// TestSearchInCodeSystem asks for pieces of what a real code system has.
func TestSearchInCodeSystem(t *testing.T) {
	l := coreLibrary(t)
	vs, _ := l.set.ValueSets.Find("http://terminology.hl7.org/ValueSet/v3-ActCode")
	x, err := l.expanding(nil).Codes(vs)
	if err != nil {
		t.Fatal(err)
	}
	var rows []uint32
	for row := range x.Entries {
		rows = append(rows, uint32(row))
	}
	c := newEntryCorpus(l.set, x, rows, codesystem.Languages{})
	r := rand.New(rand.NewPCG(3, 3))
	for range samples(100) {
		source := uint32(r.IntN(c.Len()))
		words := strings.Fields(textindex.Fold(string(c.Display(source)) + " " + string(c.Code(source))))
		var typed []string
		for range 1 + r.IntN(3) {
			word := words[r.IntN(len(words))]
			typed = append(typed, word[:1+r.IntN(len(word))])
		}
		filter := strings.Join(typed, " ")
		want, n, _ := textindex.Search([]textindex.Part{{Corpus: c}}, textindex.NewFilter(filter, nil), 0, math.MaxInt, nil)
		got, total, _ := Search(l.set, x, textindex.NewFilter(filter, nil), "", 0, math.MaxInt, nil)
		if total != n || len(got) != n {
			t.Fatalf("filter %q: got %d of %d, want %d", filter, len(got), total, n)
		}
		for i, e := range got {
			if e != x.Entries[want[i].Doc] {
				t.Fatalf("filter %q: entry %d: got %q, want %q", filter, i, l.set.Display(e), c.Display(want[i].Doc))
			}
		}
	}
}

// TestWeightsByIndex has a value set with weights find the same in the same order by its index as by a scan.
func TestWeightsByIndex(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	file.WriteString("#! http://x/own\n")
	for i := range 600 {
		fmt.Fprintf(&file, "%d,%d\n", i, i*7919%13)
	}
	var concepts []string
	for i := range 600 {
		concepts = append(concepts, fmt.Sprintf(`{"code":"%d","display":"Fever n%d"}`, i, i))
	}
	resources := fixture.Files(t, `{"resourceType":"CodeSystem","url":"http://x/cs","content":"complete","concept":[`+strings.Join(concepts, ",")+`]}`,
		fixture.ValueSet("http://x/own", `{"include":[{"system":"http://x/cs"}]}`))
	l := load(t, definitions.Options{Definitions: resources, Weights: fixture.Files(t, file.String())})
	vs, _ := l.set.ValueSets.Find("http://x/own")
	x, err := l.expanding(nil).Codes(vs)
	if err != nil {
		t.Fatal(err)
	}
	d, err := DivisionOf(l.set, x, "", nil)
	if err != nil || len(d.Searched) != 1 || d.Searched[0].Index == nil {
		t.Fatalf("%d parts, %v", len(d.Searched), err)
	}
	for _, filter := range []string{"f", "fever", "n1", "n", "5 fever"} {
		f := textindex.NewFilter(filter, nil)
		got, total, _ := textindex.Search(d.Searched, f, 0, math.MaxInt32, nil)
		want, n, _ := textindex.Search([]textindex.Part{{Corpus: d.Searched[0].Corpus}}, f, 0, math.MaxInt32, nil)
		if fmt.Sprint(got) != fmt.Sprint(want) || total != n || total == 0 {
			t.Errorf("filter %q: got %d, want %d in the order of the scan", filter, total, n)
		}
	}
}
