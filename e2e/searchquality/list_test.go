package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// optionsFor returns options that load the definitions in a folder.
func optionsFor(folder string) definitions.Options {
	return definitions.Options{Definitions: []string{folder}}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, list string
		want       int
		wrong      bool
	}{
		{"two", "#! icd10cm\n# a comment\n\nhtn\tI10\tabbreviation\tissue\nflu\tJ11.1 J11*\tlay\tissue\n", 2, false},
		{"no terminology", "htn\tI10\tabbreviation\tissue\n", 0, true},
		{"no query", "#! icd10cm\n", 0, true},
		{"a column too few", "#! icd10cm\nhtn\tI10\tabbreviation\n", 0, true},
		{"nothing wanted", "#! icd10cm\nhtn\t \tabbreviation\tissue\n", 0, true},
		{"a query twice", "#! icd10cm\nhtn\tI10\ta\tb\nhtn\tI10\ta\tb\n", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := parse(tt.list)
			if err != nil != tt.wrong || err == nil && len(l.questions) != tt.want {
				t.Errorf("got %v, %v", l, err)
			}
		})
	}
}

// Each list is valid, and all its wanted codes exist.
func TestLists(t *testing.T) {
	t.Parallel()
	lists, err := filepath.Glob("testdata/*.tsv")
	if err != nil || len(lists) == 0 {
		t.Fatalf("lists %v, %v", lists, err)
	}
	for _, name := range lists {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			l, err := readList(name)
			if err != nil {
				t.Fatal(err)
			}
			c := catalogues[l.terminology]
			from := filepath.Join("..", c.from)
			if _, err := os.Stat(from); err != nil {
				t.Skipf("%v; to fetch it: %s", err, c.fetch)
			}
			s, err := open(t.Context(), l.terminology, options{from: from})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.check(l.questions); err != nil {
				t.Error(err)
			}
		})
	}
}
