package terminology

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex/textindextest"
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
	vs, _ := l.set.valueSet("http://terminology.hl7.org/ValueSet/v3-ActCode")
	x, err := l.expanding(nil).codes(vs)
	if err != nil {
		t.Fatal(err)
	}
	c := &entryCorpus{library: l.set, codes: x}
	var d textindextest.Documents
	for row := range x.entries {
		c.rows = append(c.rows, uint32(row))
		doc := textindextest.Document{Code: string(c.Code(uint32(row))), Display: string(c.Display(uint32(row))), Place: c.Rank(uint32(row)) &^ (1 << 31), Header: c.Rank(uint32(row))>>31 == 1}
		others, _ := c.AppendOthers(nil, uint32(row))
		for _, other := range others {
			doc.Others = append(doc.Others, string(other))
		}
		d = append(d, doc)
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range samples(100) {
		source := d[r.IntN(len(d))]
		words := textindextest.Words(source.Display + " " + source.Code)
		var typed []string
		for range 1 + r.IntN(3) {
			word := words[r.IntN(len(words))]
			typed = append(typed, word[:1+r.IntN(len(word))])
		}
		filter := strings.Join(typed, " ")
		want := textindextest.Search(d, filter)
		got, total, _ := search(l.set, x, textindex.NewFilter(filter), "", 0, math.MaxInt, nil)
		if total != len(want) || len(got) != len(want) {
			t.Fatalf("filter %q: got %d of %d, want %d", filter, len(got), total, len(want))
		}
		for i, e := range got {
			if e != x.entries[want[i].Doc] {
				t.Fatalf("filter %q: entry %d: got %q, want %q", filter, i, l.set.display(e), d[want[i].Doc].Display)
			}
		}
	}
}

// TestSearchResourceTypes has what FHIR itself writes without spaces: every display with such a part is found.
func TestSearchResourceTypes(t *testing.T) {
	const types = "http://hl7.org/fhir/ValueSet/resource-types"
	l := coreLibrary(t)
	for _, part := range []string{"Definition", "Request", "Response"} {
		found := expand(t, l, "url", types, "filter", strings.ToLower(part)).codes()
		for _, code := range expand(t, l, "url", types).codes() {
			if strings.Contains(code, part) && !slices.Contains(found, code) {
				t.Errorf("%s does not find %s: %q", part, code, found)
			}
		}
		inside := func(code string) bool { return !strings.HasPrefix(code, part) }
		if first := slices.IndexFunc(found, inside); first >= 0 && slices.ContainsFunc(found[first:], func(code string) bool { return !inside(code) }) {
			t.Errorf("%s: not first what begins so: %q", part, found)
		}
	}
}
