package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// TestBombWhileWatched has a good package replaced by one that was made to fill the memory: what was loaded stays.
func TestBombWhileWatched(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.tgz")
	fixture.WriteFile(t, name, tgz(t, "package/a.json", fixture.Colours))
	w, err := terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{name}, MaxPackage: 1 << 20}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	before := w.Current()
	fixture.WriteFile(t, name, tgz(t, "package/a.json", fixture.Colours, "package/b.json", strings.Repeat(" ", 1<<20)))
	var large *fhirjson.TooLargeError
	if err := w.Refresh(t.Context()); !errors.As(err, &large) {
		t.Errorf("got %v", err)
	}
	if w.Current() != before || w.State().Err == nil {
		t.Error("what was loaded before is not in use, or the error is not told")
	}
}

// TestBroughtDefinitionsAreBounded brings along what takes many times as much memory, or time, as it is long.
func TestBroughtDefinitionsAreBounded(t *testing.T) {
	bundle := func(n int, resource func(i int) string) string {
		return `{"resourceType":"Bundle","entry":[` + fixture.Repeat(n, func(i int) string { return `{"resource":` + resource(i) + `}` }) + `]}`
	}
	version := func(i int) string {
		return fmt.Sprintf(`{"resourceType":"CodeSystem","url":"http://x/b","version":"%d","content":"complete"}`, i)
	}
	empty := func(int) string { return `{"resourceType":"ValueSet"}` }
	half := strings.Repeat("{},", fhirjson.MaxShort/(160-4)*6/10)
	for _, test := range []struct{ name, brought, want string }{
		{"empty elements", `{"resourceType":"ConceptMap","group":[{"element":[` + strings.Repeat("{},", fhirjson.MaxShort/(160-4)) + `{}]}]}`, "elements of a few bytes"},
		{"empty elements in two resources", `{"resourceType":"ConceptMap","group":[{"element":[` + half + `{}]}]}},{"name":"tx-resource","resource":` +
			`{"resourceType":"ConceptMap","group":[{"element":[` + half + `{}]}]}`, "elements of a few bytes"},
		{"empty elements before the type", `{"group":[{"element":[` + half + `{}]}],"group":[{"element":[` + half + `{}]}],"resourceType":"ConceptMap"}`, "elements of a few bytes"},
		{"a long url", `{"resourceType":"CodeSystem","url":"` + strings.Repeat("x", fhirjson.MaxName+1) + `"}`, "a url or version is larger than"},
		{"a long version", `{"resourceType":"CodeSystem","url":"http://x/b","version":"` + strings.Repeat("x", fhirjson.MaxName+1) + `"}`, "a url or version is larger than"},
		{"a long system", fixture.ValueSet("http://x/vs", `{"include":[{"system":"`+strings.Repeat("x", fhirjson.MaxName+1)+`"}]}`), "a url or version is larger than"},
		{"as many versions of a code system as may be", bundle(100, version), ""},
		{"versions of a code system", bundle(100+1, version), "more than 100 versions"},
		{"as many definitions as may be", bundle(10_000-1, empty), ""}, // the Bundle is one
		{"definitions", bundle(10_000, empty), "more than 10000 definitions"},
		{"contained definitions", `{"resourceType":"ValueSet","contained":[` + fixture.Repeat(10_000+1, empty) + `]}`, "more than 10000 definitions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.ColourLibrary(t)}, "POST", "/ValueSet/$expand", fixture.Posted(`{"name":"url","valueUri":"http://x/colours/vs"}`, fixture.Brings(test.brought)))
			if want := test.want; (w.Code == http.StatusBadRequest) != (want != "") || !strings.Contains(w.Body.String(), want) {
				t.Errorf("got %d %.300s", w.Code, w.Body)
			}
		})
	}
}
