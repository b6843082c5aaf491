package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// catalogue is a terminology that lists can use.
type catalogue struct {
	// valueSet is the URL of the searched value set.
	valueSet string

	// from is the source file; empty for a built-in terminology. fetch is the command that downloads it.
	from, fetch string

	// write writes the definitions as a JSON file. If terms is true, it includes synonyms as designations.
	write func(definitions, from string, terms bool) error
}

// catalogues contains the terminologies by the names that lists use.
var catalogues = map[string]catalogue{
	"icd10cm": {
		valueSet: tabularValueSet,
		from:     "searchquality/packages/simple_icd_10_cm-1.5.0-py3-none-any.whl",
		fetch:    "pip download --no-deps -d searchquality/packages simple-icd-10-cm==1.5.0",
		write:    writeICD10CM,
	},
	"snomed": {
		valueSet: "http://terminology.hl7.org/ValueSet/snomed-intl-gps",
		from:     "node/packages/hl7.terminology.r4-7.0.1.tgz",
		fetch:    "npm pack hl7.terminology.r4@7.0.1 --pack-destination node/packages",
		write:    writeSNOMED,
	},
	"loinc": {valueSet: "http://hl7.org/fhir/ValueSet/c80-doc-typecodes"},
}

// open loads the terminology with the given name.
func open(ctx context.Context, name string, o options) (*searcher, error) {
	c, ok := catalogues[name]
	if !ok {
		return nil, fmt.Errorf("no terminology is called %q", name)
	}
	if c.write == nil {
		return newSearcher(ctx, c.valueSet, o.load())
	}
	c.from = cmp.Or(o.from, c.from)
	if _, err := os.Stat(c.from); err != nil {
		return nil, fmt.Errorf("%w; to fetch it: %s", err, c.fetch)
	}
	folder, err := os.MkdirTemp("", "searchquality")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder) // the files are not needed after loading
	definitions := filepath.Join(folder, name+".json")
	if err := c.write(definitions, c.from, o.terms); err != nil {
		return nil, fmt.Errorf("%s: %w", c.from, err)
	}
	return newSearcher(ctx, c.valueSet, o.load(definitions))
}
