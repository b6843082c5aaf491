package terminology

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// limbs is a code system in two languages, with one designation that says no language.
func limbs(concepts int) string {
	var b strings.Builder
	b.WriteString(`{"resourceType":"CodeSystem","url":"http://x/limbs","language":"en","content":"complete","concept":[
		{"code":"1","display":"Arm","designation":[{"language":"de","value":"Oberarm"},{"language":"fr","value":"Bras"}]},
		{"code":"2","display":"Leg","designation":[{"language":"de-CH","value":"Bein"},{"value":"limb"}]},
		{"code":"3","display":"Bone"}`)
	for i := 4; i <= concepts; i++ {
		fmt.Fprintf(&b, `,{"code":"%d","display":"Filler"}`, i)
	}
	b.WriteString(`]}`)
	return b.String()
}

// TestSearchInLanguage has what is found in each language, by scan and by index.
func TestSearchInLanguage(t *testing.T) {
	tests := []struct{ language, filter, want string }{
		{"", "b", "3"}, // in the display alone
		{"", "br", "1"},
		{"", "be", "2"},
		{"de", "b", "2 3 1"},
		{"de", "br", ""},
		{"de", "be", "2"},
		{"de", "arm", "1"}, // the display of the code system
		{"de", "limb", "2"},
		{"de-ch", "ober", "1"},
		{"de-at", "berar", "1"}, // Oberarm, in the middle
		{"fr", "br", "1"},
		{"fr", "be", ""},
		{"xx", "leg", "2"},
		{"xx,fr", "br", "1"},
		{"fr,de", "b", "1 2 3"}, // what is shown: Bras, Bein, Bone
		{"fr,de", "ober", "1"},
		{"fr,*;q=0", "b", "1"}, // where nothing is shown, the code is
		{"*", "be", "2"},
	}
	for _, concepts := range []int{3, 600} {
		l := libraryOf(t, limbs(concepts), allOf("http://x/limbs"))
		vs, _ := l.set.valueSet("http://x/limbs-all")
		x, err := l.expanding(nil).codes(vs)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range tests {
			page, _, _ := search(l.set, x, textindex.NewFilter(test.filter), test.language, 0, math.MaxInt, nil)
			var got []string
			for _, e := range page {
				got = append(got, string(l.set.code(e)))
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%d concepts, language %q, filter %q: got %v, want %s", concepts, test.language, test.filter, got, test.want)
			}
		}
		for i := range 40 {
			search(l.set, x, textindex.NewFilter("leg"), fmt.Sprintf("x%d", i), 0, 1, nil)
		}
		if n := len(x.searcher.divisions); n > maxLanguages {
			t.Errorf("parts for %d languages are kept", n)
		}
	}
}

// TestSearchInParts mixes runs of two code systems, in and out of order, with listed codes.
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
		l := libraryOf(t, numbered("http://x/a", size), numbered("http://x/b", size), valueSetOf("http://x/vs", `{"include":[
			{"system":"http://x/b"},{"system":"http://x/c","concept":[{"code":"q","display":"Item"},{"code":"0","display":"Zero"}]},
			{"system":"http://x/a","concept":[{"code":"5","display":"Item 5"},{"code":"3"}]},{"system":"http://x/a"}]}`))
		x, rows := codesAndRows(t, l)
		plain := []textindex.Part{{Corpus: &entryCorpus{library: l.set, codes: x, rows: rows}}}
		if d, _ := divisionOf(l.set, x, "", nil); size > scanned && len(d.searched) != 3 {
			t.Errorf("%d parts, want two runs and the rest", len(d.searched))
		}
		for _, filter := range []string{"i", "it", "item", "item 5", "zero", "0", "5 item", "itme", "55"} {
			for _, window := range [][2]int{{0, math.MaxInt}, {0, 20}, {3, 9}, {1000, 1300}} {
				f := textindex.NewFilter(filter)
				got, total, _ := search(l.set, x, f, "", window[0], window[1], nil)
				hits, n, _ := textindex.Search(plain, f, window[0], window[1], nil)
				want := make([]entry, len(hits))
				for i, h := range hits {
					want[i] = x.entries[h.Doc]
				}
				if fmt.Sprint(got) != fmt.Sprint(want) || total != n {
					t.Errorf("size %d, filter %q, window %v: got %d of %d, want %d of %d", size, filter, window, len(got), total, len(want), n)
				}
			}
		}
	}
}

// TestSearchSupplement has the texts of supplements, and where they count: found as any text is, and in its tier.
func TestSearchSupplement(t *testing.T) {
	more := `{"resourceType":"CodeSystem","url":"http://x/more","content":"supplement","supplements":"http://x/limbs","concept":[
		{"code":"1","designation":[{"language":"de","value":"Arm, aus Knochen"}]},
		{"code":"3","designation":[{"language":"de","value":"Knochen, hart"},{"value":"os"}]}]}`
	spanish := `{"resourceType":"CodeSystem","url":"http://x/es","language":"es","content":"supplement","supplements":"http://x/limbs",
		"concept":[{"code":"3","display":"Hueso"}]}`
	pack := `{"resourceType":"CodeSystem","url":"http://x/nl","language":"nl","content":"supplement","supplements":"http://x/limbs",
		"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-supplement-type","valueCode":"lang-pack"}],
		"concept":[{"code":"3","designation":[{"language":"nl","value":"Bot"}]}]}`
	named := func(url, compose string) string {
		return `{"resourceType":"ValueSet","url":"` + url + `","status":"active","extension":[
			{"url":"http://hl7.org/fhir/StructureDefinition/valueset-supplement","valueCanonical":"http://x/more"}],"compose":` + compose + `}`
	}
	const all, of, importing = "http://x/limbs-all", "http://x/vs", "http://x/importing"
	for _, test := range []struct{ name, url, filter, supplement, language, want string }{
		{"not used", all, "knoch", "", "", ""},
		{"used by the request", all, "knoch", "http://x/more", "", "3 1"},
		{"used by the value set", of, "knoch", "", "", "3 1"},
		{"used by a value set that is imported", importing, "knoch", "", "", "3 1"},
		{"in the language asked for", all, "knoch", "http://x/more", "de", "3 1"},
		{"not in another", all, "knoch", "http://x/more", "fr", ""},
		{"in no language", all, "os", "http://x/more", "fr", "3"},
		{"the head of a text", all, "hart knochen", "http://x/more", "de", "3"},
		{"what is shown, one letter", all, "k", "http://x/more", "de", "3"},
		{"with a word of the code system", all, "bone knoch", "http://x/more", "", "3"},
		{"a display", all, "hueso", "http://x/es", "", "3"},
		{"a display in its language", all, "hueso", "http://x/es", "es", "3"},
		{"a display in another, as that of the code system", all, "hueso", "http://x/es", "fr", "3"},
		{"a language pack, which needs no name", all, "bot", "", "nl", "3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, concepts := range []int{3, 600} {
				l := libraryOf(t, limbs(concepts), allOf("http://x/limbs"), more, spanish, pack, named(of, `{"include":[{"system":"http://x/limbs"}]}`),
					valueSetOf(importing, `{"include":[{"valueSet":["http://x/vs"]}]}`))
				pairs := []string{"url", test.url, "filter", test.filter}
				if test.supplement != "" {
					pairs = append(pairs, "useSupplement", test.supplement)
				}
				if test.language != "" {
					pairs = append(pairs, "displayLanguage", test.language)
				}
				wantCodes(t, expand(t, l, pairs...), test.want)
			}
		})
	}
}

// TestSearchBackwards has a long list in another order than that of the code system: equals keep it.
func TestSearchBackwards(t *testing.T) {
	var list, want []string
	for i := 600; i > 3; i-- {
		list = append(list, fmt.Sprintf(`{"code":"%d"}`, i))
		want = append(want, fmt.Sprint(i))
	}
	l := libraryOf(t, limbs(600), valueSetOf("http://x/vs", `{"include":[{"system":"http://x/limbs","concept":[`+strings.Join(list, ",")+`]}]}`))
	wantCodes(t, expand(t, l, "url", "http://x/vs", "filter", "fill"), strings.Join(want, " "))
}

// TestSearchTwoRuns has the later concepts of a code system first, and then the others.
func TestSearchTwoRuns(t *testing.T) {
	var want []string
	for i := 300; i < 600; i++ {
		want = append(want, fmt.Sprint(i))
	}
	for i := 4; i < 300; i++ {
		want = append(want, fmt.Sprint(i))
	}
	l := libraryOf(t, limbs(600), valueSetOf("http://x/vs", `{"include":[
		{"system":"http://x/limbs","filter":[{"property":"code","op":"regex","value":"[345].."}]},{"system":"http://x/limbs"}]}`))
	wantCodes(t, expand(t, l, "url", "http://x/vs", "filter", "fill"), strings.Join(append(want, "600"), " "))
}

// arms is a code system in English with some German, and concepts that are found by neither.
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

// TestOrderByLanguage has what is in the language that is asked for before what is in another, in tiers and within them;
// the same by index and by scan, of a run of concepts and of listed ones.
func TestOrderByLanguage(t *testing.T) {
	for _, test := range []struct{ language, want string }{
		{"", "4 5 1 2 3 6"},
		{"de", "2 3 6 1"},
		{"de-AT", "2 3 6 1"},
		{"fr,de", "2 3 6 1"},
		{"de,en", "2 5 3 6 4 1"}, // 4 is shown in German, and found in English; 5 and 3 are shown in English
		{"en,de", "4 5 1 2 3 6"},
		{"en", "4 5 1 2 3 6"},
		{"fr", "1 2 3 6"}, // the code system has none
		{"*,de", "4 5 1 2 3 6"},
	} {
		t.Run(test.language, func(t *testing.T) {
			for _, concepts := range []int{6, 600} {
				for _, include := range []string{`{"system":"http://x/arms"}`, `{"system":"http://x/arms","filter":[{"property":"code","op":"regex","value":".*"}]},
					{"system":"http://x/none","concept":[{"code":"q","display":"Q"}]}`} {
					l := libraryOf(t, arms(concepts), valueSetOf("http://x/vs", `{"include":[`+include+`]}`))
					x, rows := codesAndRows(t, l)
					scan := newEntryCorpus(l.set, x, rows, codesystem.ParseLanguages(test.language))
					found, _, _ := textindex.Search([]textindex.Part{{Corpus: scan}}, textindex.NewFilter("arm"), 0, math.MaxInt, nil)
					page, _, _ := search(l.set, x, textindex.NewFilter("arm"), test.language, 0, math.MaxInt, nil)
					var scanned, searched []string
					for _, h := range found {
						scanned = append(scanned, string(scan.Code(h.Doc)))
					}
					for _, e := range page {
						searched = append(searched, string(l.set.code(e)))
					}
					if got := strings.Join(searched, " "); got != test.want || got != strings.Join(scanned, " ") {
						t.Errorf("%d concepts: got %s, by scan %v, want %s", concepts, got, scanned, test.want)
					}
				}
			}
		})
	}
}

// codesAndRows are the codes of http://x/vs, and the rows of all of them.
func codesAndRows(t *testing.T, l *Library) (x *codeList, rows []uint32) {
	t.Helper()
	vs, _ := l.set.valueSet("http://x/vs")
	x, err := l.expanding(nil).codes(vs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.entries {
		rows = append(rows, uint32(i))
	}
	return x, rows
}
