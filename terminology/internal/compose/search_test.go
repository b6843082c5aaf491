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

// slow enables all random samples and long lists. The default is a tenth of them.
var slow = flag.Bool("slow", false, "try all samples, not a tenth of them")

// samples returns how many of the given number of samples to run.
func samples(all int) int {
	if *slow {
		return all
	}
	return all / 10
}

// TestSearchInCodeSystem checks searches for parts of texts in a real code system.
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

// TestWeightsByIndex checks that searching a value set with weights returns the same order by index and by scan.
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
	if err != nil || len(d.Parts) != 1 || d.Parts[0].Index == nil {
		t.Fatalf("%d parts, %v", len(d.Parts), err)
	}
	for _, filter := range []string{"f", "fever", "n1", "n", "5 fever"} {
		f := textindex.NewFilter(filter, nil)
		got, total, _ := textindex.Search(d.Parts, f, 0, math.MaxInt32, nil)
		want, n, _ := textindex.Search([]textindex.Part{{Corpus: d.Parts[0].Corpus}}, f, 0, math.MaxInt32, nil)
		if fmt.Sprint(got) != fmt.Sprint(want) || total != n || total == 0 {
			t.Errorf("filter %q: got %d, want %d in the order of the scan", filter, total, n)
		}
	}
}

// TestSearchInLanguage checks the matches in each language, both by scan and by index.
func TestSearchInLanguage(t *testing.T) {
	tests := []struct{ language, filter, want string }{
		{"", "b", "3"}, // matches the display only
		{"", "br", "1"},
		{"", "be", "2"},
		{"de", "b", "2 3 1"},
		{"de", "br", ""},
		{"de", "be", "2"},
		{"de", "arm", "1"}, // matches the code system's display
		{"de", "limb", "2"},
		{"de-ch", "ober", "1"},
		{"de-at", "berar", "1"}, // matches within the word Oberarm
		{"fr", "br", "1"},
		{"fr", "be", ""},
		{"xx", "leg", "2"},
		{"xx,fr", "br", "1"},
		{"fr,de", "b", "1 2 3"}, // displayed as Bras, Bein and Bone
		{"fr,de", "ober", "1"},
		{"fr,*;q=0", "b", "1"}, // the others have no display, so their code is displayed
		{"*", "be", "2"},
	}
	for _, concepts := range []int{3, 600} {
		l := libraryOf(t, fixture.Limbs(concepts), fixture.AllCodesOf("http://x/limbs"))
		vs, _ := l.set.ValueSets.Find("http://x/limbs-all")
		x, err := l.expanding(nil).Codes(vs)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range tests {
			page, _, _ := Search(l.set, x, textindex.NewFilter(test.filter, nil), test.language, 0, math.MaxInt, nil)
			var got []string
			for _, e := range page {
				got = append(got, string(l.set.Code(e)))
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%d concepts, language %q, filter %q: got %v, want %s", concepts, test.language, test.filter, got, test.want)
			}
		}
		for i := range 40 {
			Search(l.set, x, textindex.NewFilter("leg", nil), fmt.Sprintf("x%d", i), 0, 1, nil)
		}
		if n := len(x.searcher.divisions); n > maxLanguages {
			t.Errorf("parts for %d languages are kept", n)
		}
	}
}

// TestSearchInParts checks searches that combine runs of two code systems with enumerated codes in and out of order.
func TestSearchInParts(t *testing.T) {
	numbered := func(url string, n int) string {
		var b strings.Builder
		fmt.Fprintf(&b, `{"resourceType":"CodeSystem","url":%q,"content":"complete","concept":[{"code":"0","display":"Zero"}`, url)
		for i := 1; i < n; i++ {
			fmt.Fprintf(&b, `,{"code":"%d","display":"Item %d"}`, i, i%10)
		}
		return b.String() + `]}`
	}
	for _, size := range []int{40, 700} {
		l := libraryOf(t, numbered("http://x/a", size), numbered("http://x/b", size), fixture.ValueSet("http://x/vs", `{"include":[
			{"system":"http://x/b"},{"system":"http://x/c","concept":[{"code":"q","display":"Item"},{"code":"0","display":"Zero"}]},
			{"system":"http://x/a","concept":[{"code":"5","display":"Item 5"},{"code":"3"}]},{"system":"http://x/a"}]}`))
		x, rows := codesAndRows(t, l)
		plain := []textindex.Part{{Corpus: &entryCorpus{definitions: l.set, codes: x, rows: rows}}}
		if d, _ := DivisionOf(l.set, x, "", nil); size > MaxScanned && len(d.Parts) != 3 {
			t.Errorf("%d parts, want two runs and the rest", len(d.Parts))
		}
		for _, filter := range []string{"i", "it", "item", "item 5", "zero", "0", "5 item", "itme", "55"} {
			for _, window := range [][2]int{{0, math.MaxInt}, {0, 20}, {3, 9}, {1000, 1300}} {
				f := textindex.NewFilter(filter, nil)
				got, total, _ := Search(l.set, x, f, "", window[0], window[1], nil)
				hits, n, _ := textindex.Search(plain, f, window[0], window[1], nil)
				want := make([]definitions.Entry, len(hits))
				for i, h := range hits {
					want[i] = x.Entries[h.Doc]
				}
				if fmt.Sprint(got) != fmt.Sprint(want) || total != n {
					t.Errorf("size %d, filter %q, window %v: got %d of %d, want %d of %d", size, filter, window, len(got), total, len(want), n)
				}
			}
		}
	}
}

// arms returns an English code system in which some concepts match "arm" in German and some only in English, padded to the
// given number of concepts.
func arms(concepts int) string {
	var b strings.Builder
	b.WriteString(`{"resourceType":"CodeSystem","url":"http://x/arms","language":"en","content":"complete","concept":[
		{"code":"1","display":"Arm prosthesis","designation":[{"language":"de","value":"Prothese"}]},
		{"code":"2","display":"Right arm","designation":[{"language":"de-CH","value":"Rechter Arm"}]},
		{"code":"3","display":"Arm sling"},
		{"code":"4","display":"Leg","designation":[{"language":"de","value":"Bein"},{"language":"en","value":"Arm below"}]},
		{"code":"5","display":"Foot","designation":[{"language":"en","value":"Arm of no use"}]},
		{"code":"6","display":"Header arm","property":[{"code":"notSelectable","valueBoolean":true}],"designation":[{"language":"de","value":"Arm"}]}`)
	for i := 7; i <= concepts; i++ {
		fmt.Fprintf(&b, `,{"code":"%d","display":"Filler"}`, i)
	}
	b.WriteString(`]}`)
	return b.String()
}

// TestOrderByLanguage checks that displays in the requested language rank before others, across and within tiers. It searches
// by index and by scan, for runs of concepts and for enumerated concepts.
func TestOrderByLanguage(t *testing.T) {
	for _, test := range []struct{ language, want string }{
		{"", "4 5 1 2 3 6"},
		{"de", "2 3 6 1"},
		{"de-AT", "2 3 6 1"},
		{"fr,de", "2 3 6 1"},
		{"de,en", "2 5 3 6 4 1"}, // 4 is displayed in German but matches in English; 5 and 3 are displayed in English
		{"en,de", "4 5 1 2 3 6"},
		{"en", "4 5 1 2 3 6"},
		{"fr", "1 2 3 6"}, // the code system has no French texts
		{"*,de", "4 5 1 2 3 6"},
	} {
		t.Run(test.language, func(t *testing.T) {
			for _, concepts := range []int{6, 600} {
				for _, include := range []string{`{"system":"http://x/arms"}`, `{"system":"http://x/arms","filter":[{"property":"code","op":"regex","value":".*"}]},
					{"system":"http://x/none","concept":[{"code":"q","display":"Q"}]}`} {
					l := libraryOf(t, arms(concepts), fixture.ValueSet("http://x/vs", `{"include":[`+include+`]}`))
					x, rows := codesAndRows(t, l)
					scan := newEntryCorpus(l.set, x, rows, codesystem.ParseLanguages(test.language))
					found, _, _ := textindex.Search([]textindex.Part{{Corpus: scan}}, textindex.NewFilter("arm", nil), 0, math.MaxInt, nil)
					page, _, _ := Search(l.set, x, textindex.NewFilter("arm", nil), test.language, 0, math.MaxInt, nil)
					var scanned, searched []string
					for _, h := range found {
						scanned = append(scanned, string(scan.Code(h.Doc)))
					}
					for _, e := range page {
						searched = append(searched, string(l.set.Code(e)))
					}
					if got := strings.Join(searched, " "); got != test.want || got != strings.Join(scanned, " ") {
						t.Errorf("%d concepts: got %s, by scan %v, want %s", concepts, got, scanned, test.want)
					}
				}
			}
		})
	}
}

// codesAndRows returns the codes of http://x/vs and the positions of all entries.
func codesAndRows(t *testing.T, l *library) (x *CodeList, rows []uint32) {
	t.Helper()
	vs, _ := l.set.ValueSets.Find("http://x/vs")
	x, err := l.expanding(nil).Codes(vs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Entries {
		rows = append(rows, uint32(i))
	}
	return x, rows
}
