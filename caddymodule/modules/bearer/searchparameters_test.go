package bearer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// One that cannot be judged is an error, in a package a warning.
func TestSearchParametersThatCannotBeJudged(t *testing.T) {
	t.Parallel()
	const odd = `{"resourceType":"SearchParameter","url":"http://x/odd","code":"odd","base":["Patient"],"type":"string","expression":"Patient.generalPractitioner.resolve().name"}`
	file := filepath.Join(t.TempDir(), "odd.json")
	gatewaytest.Put(t, file, odd)
	damaged := filepath.Join(t.TempDir(), "damaged.tgz")
	gatewaytest.Put(t, damaged, "no package")
	var log bytes.Buffer
	for name, tt := range map[string]struct {
		enforcement Enforcement
		want        string
	}{
		"file":           {Enforcement{SearchParameterFiles: []string{file}}, "http://x/odd: odd of Patient: the expression cannot be judged here: it has the function resolve()"},
		"no file":        {Enforcement{SearchParameterFiles: []string{"../../fhirapp/testdata/none*.json"}}, "search_parameters ../../fhirapp/testdata/none*.json: file does not exist"},
		"no such format": {Enforcement{SearchParameterFiles: []string{"doc.go"}}, "none of .json, .tgz"},
		"no JSON":        {Enforcement{SearchParameterFiles: []string{damaged}}, "gzip"},
		"package":        {Enforcement{SearchParameterFiles: []string{packageWith(t, "package", odd)}}, ""},
		"an example":     {Enforcement{SearchParameterFiles: []string{packageWith(t, "package/example", odd)}}, ""},
	} {
		set, err := newSearchParameters(tt.enforcement.SearchParameterFiles, slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, ok := set.Lookup("Patient", "odd"); ok {
			t.Errorf("%s: it is known", name)
		}
	}
	if got := strings.Count(log.String(), "http://x/odd: odd of Patient"); got != 1 {
		t.Errorf("%d warnings: %s", got, log.String())
	}
}

// packageWith is a FHIR package with a resource in a folder.
func packageWith(t *testing.T, folder, resource string) string {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for name, text := range map[string]string{"package.json": `{"name":"x"}`, "one.json": resource} {
		_ = archive.WriteHeader(&tar.Header{Name: folder + "/" + name, Size: int64(len(text)), Mode: 0o600, Typeflag: tar.TypeReg})
		_, _ = archive.Write([]byte(text))
	}
	_, _ = archive.Close(), zipped.Close()
	name := filepath.Join(t.TempDir(), "x.tgz")
	gatewaytest.Put(t, name, packed.String())
	return name
}

// What US Core and CARIN define is known, in the forms in which a site may give it.
func TestSearchParametersOfFile(t *testing.T) {
	t.Parallel()
	const bundle = "../../fhirapp/testdata/searchparameters.json"
	for form, file := range map[string]string{
		"file": bundle, "pattern": "../../fhirapp/testdata/search*.json", "package": packageWith(t, "package", gatewaytest.ReadFile(t, bundle)),
	} {
		set, err := newSearchParameters([]string{file}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for resourceType, name := range map[string]string{
			"CareTeam": "role", "ExplanationOfBenefit": "service-date", "Condition": "asserted-date", "Patient": "race",
			"Encounter": "discharge-disposition", "Goal": "description",
		} {
			if p, ok := set.Lookup(resourceType, name); !ok || !p.Own || len(p.Paths) == 0 {
				t.Errorf("%s: %s?%s is not known", form, resourceType, name)
			}
		}
	}
}
