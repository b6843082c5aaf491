package caddymodule

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What US Core and CARIN define can be searched by, in the forms in which a site may give it.
func TestSearchParameters(t *testing.T) {
	t.Parallel()
	const file = "testdata/searchparameters.json"
	for name, option := range map[string]string{
		"file":    "search_parameters " + file,
		"pattern": "search_parameters testdata/search*.json",
		"package": "search_parameters " + packageOf(t, "package", file),
		"line":    "search_parameter CareTeam role token CareTeam.participant.role",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := exampleGateway(t, echo, guarding(option)...)
			request := demoRequest()
			request.Set("scope", "user/CareTeam.rs")
			token := g.tokenOf(request)
			for path, want := range map[string]int{"CareTeam?role=doctor": http.StatusOK, "CareTeam?rule=doctor": http.StatusBadRequest} {
				r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+path, nil)
				r.Header.Set("Authorization", "Bearer "+token)
				if response := g.Send(r); response.StatusCode != want {
					t.Errorf("%s: status %d, want %d", path, response.StatusCode, want)
				}
			}
		})
	}
	e := Enforcement{SearchParameterFiles: []string{file}}
	set, err := e.newSearchParameters(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for resourceType, name := range map[string]string{
		"CareTeam": "role", "ExplanationOfBenefit": "service-date", "Condition": "asserted-date", "Patient": "race",
		"Encounter": "discharge-disposition", "Goal": "description",
	} {
		if p, ok := set.Lookup(resourceType, name); !ok || !p.Own || len(p.Paths) == 0 {
			t.Errorf("%s?%s is not known", resourceType, name)
		}
	}
}

// One that cannot be judged is an error, in a package a warning.
func TestSearchParametersThatCannotBeJudged(t *testing.T) {
	t.Parallel()
	const odd = `{"resourceType":"SearchParameter","url":"http://x/odd","code":"odd","base":["Patient"],"type":"string","expression":"Patient.generalPractitioner.resolve().name"}`
	file := filepath.Join(t.TempDir(), "odd.json")
	if err := os.WriteFile(file, []byte(odd), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.tgz")
	if err := os.WriteFile(damaged, []byte("no package"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for name, tt := range map[string]struct {
		enforcement Enforcement
		want        string
	}{
		"file":           {Enforcement{SearchParameterFiles: []string{file}}, "http://x/odd: odd of Patient: the expression cannot be judged here: it has the function resolve()"},
		"line":           {Enforcement{SearchParameters: [][]string{{"Patient", "odd", "string", "Patient.name.first()"}}}, "it has the function first()"},
		"R4's own":       {Enforcement{SearchParameters: [][]string{{"Patient", "family", "string", "Patient.name.given"}}}, "FHIR R4 has this search parameter itself"},
		"too few words":  {Enforcement{SearchParameters: [][]string{{"Patient", "odd", "string"}}}, "search_parameter takes"},
		"no file":        {Enforcement{SearchParameterFiles: []string{"testdata/none*.json"}}, "search_parameters testdata/none*.json: file does not exist"},
		"no such format": {Enforcement{SearchParameterFiles: []string{"testdata/rooms.txt"}}, "none of .json, .tgz"},
		"no JSON":        {Enforcement{SearchParameterFiles: []string{damaged}}, "gzip"},
		"package":        {Enforcement{SearchParameterFiles: []string{packageOf(t, "package", file)}}, ""},
		"an example":     {Enforcement{SearchParameterFiles: []string{packageOf(t, "package/example", file)}}, ""},
	} {
		set, err := tt.enforcement.newSearchParameters(slog.New(slog.NewTextHandler(&log, nil)))
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

// packageOf is a FHIR package with the resources of a Bundle, or one, in a folder.
func packageOf(t *testing.T, folder, file string) string {
	t.Helper()
	var bundle struct {
		Entry []struct{ Resource json.RawMessage }
	}
	text := []byte(fileText(t, file))
	if err := json.Unmarshal(text, &bundle); err != nil {
		t.Fatal(err)
	}
	resources := map[string][]byte{"package.json": []byte(`{"name":"x"}`), "one.json": text}
	for i, e := range bundle.Entry {
		resources[string(rune('a'+i))+".json"] = e.Resource
	}
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for name, text := range resources {
		_ = archive.WriteHeader(&tar.Header{Name: folder + "/" + name, Size: int64(len(text)), Mode: 0o600, Typeflag: tar.TypeReg})
		_, _ = archive.Write(text)
	}
	_, _ = archive.Close(), zipped.Close()
	name := filepath.Join(t.TempDir(), "x.tgz")
	if err := os.WriteFile(name, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
