package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// made is a small tabular list with a seventh character, a placeholder and a synonym.
const made = `<ICD10CM.tabular><version>2026</version><chapter><section>
<diag><name>I10</name><desc>Essential (primary)
 hypertension</desc><inclusionTerm><note>high blood pressure</note></inclusionTerm></diag>
<diag><name>I27</name><desc>Other heart diseases</desc>
 <diag><name>I27.2</name><desc>Pulmonary hypertension</desc></diag></diag>
<diag><name>S72</name><desc>Fracture of femur</desc>
 <sevenChrDef><extension char="A">initial encounter</extension><extension char="S">sequela</extension></sevenChrDef>
 <diag><name>S72.9</name><desc>Fracture of leg</desc></diag></diag>
</section></chapter></ICD10CM.tabular>`

// writeTestWheel writes a Python package that contains the tabular list made, and returns its path.
func writeTestWheel(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "made.whl")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	wheel := zip.NewWriter(file)
	for part, text := range map[string]string{
		"icd10c-tabular-Made.xml": made, "code-list-Made.txt": "I10\nI27\nI272\nS72\nS729\nS729XXA\n",
	} {
		w, err := wheel.Create("simple_icd_10_cm/data/" + part)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := wheel.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestConcepts(t *testing.T) {
	t.Parallel()
	list, err := readTabular(strings.NewReader(made))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list.concepts(map[string]bool{"S729XXA": true}) {
		kind := ""
		if c.header {
			kind = "header"
		}
		got = append(got, strings.Join([]string{c.code, c.display, c.parent, kind}, "|"))
	}
	want := []string{
		"I10|Essential (primary) hypertension||",
		"I27|Other heart diseases||header",
		"I27.2|Pulmonary hypertension|I27|",
		"S72|Fracture of femur||header",
		"S72.9|Fracture of leg|S72|header",
		"S72.9XXA|Fracture of leg, initial encounter|S72.9|",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The rank of a query is that of the first wanted hit, here in the tabular list made.
func TestRanks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, query, wanted string
		terms               bool
		rank, total         int
	}{
		{"the only hit", "essential", "I10", false, 1, 1},
		{"the second hit", "hypertension", "I27.2", false, 2, 2},
		{"any of several", "hypertension", "I10 I27.2", false, 1, 2},
		{"a prefix, before a header", "leg", "S72*", false, 1, 2},
		{"a header by its code", "leg", "S72.9", false, 2, 2},
		{"hits, but others", "hypertension", "S72", false, 0, 2},
		{"no hits", "migraine", "I10", false, 0, 0},
		{"a synonym that is not loaded", "blood", "I10", false, 0, 0},
		{"a synonym", "blood", "I10", true, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := open(t.Context(), "icd10cm", options{from: writeTestWheel(t), terms: tt.terms})
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.ask(t.Context(), testQuery{query: tt.query, wanted: strings.Fields(tt.wanted)})
			if err != nil || a.rank != tt.rank || a.total != tt.total {
				t.Errorf("rank %d of %d, want %d of %d; %v", a.rank, a.total, tt.rank, tt.total, err)
			}
		})
	}
}

// If the first wanted hit is beyond the page, the query is a miss, but it has a rank.
func TestRankBeyondThePage(t *testing.T) {
	t.Parallel()
	var concepts []concept
	for _, letter := range "ABCDEFGHIJKL" {
		concepts = append(concepts, concept{code: string(letter), display: "Fever"})
	}
	folder := t.TempDir()
	if err := writeCodeSystem(filepath.Join(folder, "made.json"), "1", concepts, false); err != nil {
		t.Fatal(err)
	}
	s, err := newSearcher(t.Context(), tabularValueSet, optionsFor(folder))
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.ask(t.Context(), testQuery{query: "fever", wanted: []string{"L"}})
	if err != nil || a.rank != 12 || len(a.first) != pageSize {
		t.Errorf("rank %d after a page of %d, want 12 after 10; %v", a.rank, len(a.first), err)
	}
	if s := sums([]answer{a}); s[0].ten != 0 || s[0].reciprocal != 0 {
		t.Errorf("it counts: %+v", s[0])
	}
}

// With -sums, the output does not contain the queries.
func TestRun(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "list.tsv")
	list := "#! icd10cm\nessential\tI10\tterm\tmade\nhypertension\tS72*\tterm\tmade\n"
	if err := os.WriteFile(name, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	const hit, miss = "essential  I10 Essential", "want S72*; first I10 Essential (primary) hypertension | I27.2"
	for _, tt := range []struct {
		name      string
		o         options
		hit, miss bool
	}{
		{"all", options{}, true, true},
		{"misses", options{misses: true}, false, true},
		{"sums", options{sums: true}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.from = writeTestWheel(t)
			var out strings.Builder
			if err := run(t.Context(), &out, name, tt.o); err != nil {
				t.Fatal(err)
			}
			words := strings.Join(strings.Fields(out.String()), " ")
			if !strings.HasSuffix(words, "all 2 1 50% 1 50% 1 50% 0.500 0") {
				t.Errorf("got %s", &out)
			}
			if strings.Contains(words, collapseSpaces(hit)) != tt.hit || strings.Contains(words, miss) != tt.miss {
				t.Errorf("got %s", &out)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := &searcher{codes: []string{"I10", "S72", "S72.9"}}
	for wanted, right := range map[string]bool{"I10": true, "S72*": true, "S72.*": true, "I1": false, "I11*": false, "T*": false} {
		if err := s.check([]testQuery{{wanted: []string{wanted}}}); (err == nil) != right {
			t.Errorf("%s: %v", wanted, err)
		}
	}
}

func TestSums(t *testing.T) {
	t.Parallel()
	answers := []answer{
		{testQuery: testQuery{category: "lay"}, rank: 1, total: 5},
		{testQuery: testQuery{category: "typo"}, rank: 4, total: 5},
		{testQuery: testQuery{category: "lay"}, rank: 2, total: 5},
		{testQuery: testQuery{category: "lay"}, rank: 40, total: 50},
		{testQuery: testQuery{category: "typo"}},
	}
	want := []sum{
		{category: "lay", queries: 3, first: 1, three: 2, ten: 2, reciprocal: 1.5},
		{category: "typo", queries: 2, ten: 1, no: 1, reciprocal: 0.25},
		{category: "all", queries: 5, first: 1, three: 2, ten: 3, no: 1, reciprocal: 1.75},
	}
	if got := sums(answers); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}
