package api_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestContained(t *testing.T) {
	l := terminologytest.Library(t, fixture.Colours, fixture.ContainedShapes, fixture.BoundShape,
		fixture.ValueSet("http://x/by-url", `{"include":[{"valueSet":["http://x/v"]}]}`),
		fixture.ValueSet("http://x/by-fragment", `{"include":[{"valueSet":["http://x/v|2#round"]}],"exclude":[{"valueSet":["http://x/v#nothing","http://x/v"]}]}`),
		fixture.ValueSet("http://x/part", `{"include":[{"valueSet":["http://x/v#round"]}]}`),
		strings.Replace(strings.Replace(fixture.ContainedShapes, `"url":"http://x/v"`, `"url":"http://x/without"`, 1), `{"code":"square"}]}]`, `{"code":"square"}]}],"exclude":[{"valueSet":["#round"]}]`, 1),
		fixture.ValueSet("http://x/outside", `{"include":[{"system":"http://x/shapes"}]}`),
		fixture.ValueSet("http://x/outside-set", `{"include":[{"valueSet":["http://x/round"]}]}`))
	for _, test := range []struct {
		name  string
		pairs []string
		want  string
	}{
		{"code systems and value sets", []string{"url", "http://x/v"}, "round[Round] oval[Oval] flat[Flat] square[Square]"},
		{"of an imported value set", []string{"url", "http://x/by-url"}, "round[Round] oval[Oval] flat[Flat] square[Square]"},
		{"by fragment", []string{"url", "http://x/v#both"}, "round[Round] oval[Oval] flat[Flat]"},
		{"by version and fragment", []string{"url", "http://x/v|2#round"}, "round[Round] oval[Oval]"},
		{"imported by fragment", []string{"url", "http://x/part"}, "round[Round] oval[Oval]"},
		{"excluded", []string{"url", "http://x/without"}, "flat[Flat] square[Square]"},
		{"of a profile", []string{"context", "http://x/Shape#Shape.colour"}, "blue[Blue]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := terminologytest.Expand(t, l, append(test.pairs, "excludeNested", "true")...)
			if o := terminologytest.Outline(got.Expansion.Contains); o != test.want {
				t.Errorf("got %s\nwant %s", o, test.want)
			}
		})
	}
	for _, url := range []string{"http://x/outside", "http://x/outside-set", "http://x/by-fragment", "http://x/v#cs"} {
		if e := terminologytest.Refused(t, l, "url", url); e.Code != "not-found" {
			t.Errorf("%s: got %d %s %s", url, e.Status, e.Code, e.Text)
		}
	}
	systems := make(map[string]string)
	for _, c := range terminologytest.Expand(t, l, "url", "http://x/v").Expansion.Contains {
		systems[c.Code] = c.System
	}
	if systems["round"] != "http://x/shapes" || systems["flat"] != "http://x/v#nameless" {
		t.Errorf("got systems %v", systems)
	}
}

// HL7's package of terminology goes before the copies of it that R4 has, though their versions, of R4 or of HL7 V2, are
// higher. R4's own definitions have no newer ones elsewhere, and a stub is no definition.
func TestPackageBeforeFrozenCopies(t *testing.T) {
	system := func(url, version, content, code string) string {
		concept := `,"concept":[{"code":"` + code + `"}]`
		if code == "" {
			concept = ""
		}
		return `{"resourceType":"CodeSystem","url":"` + url + `","version":"` + version + `","status":"active","content":"` + content + `"` + concept + `}`
	}
	const tho, r4 = "http://terminology.hl7.org/", "http://hl7.org/fhir/"
	folder := t.TempDir()
	for name, definition := range map[string]string{
		"v2":       system(tho+"CodeSystem/v2-0001", "2.0.0", "complete", "new"),
		"v3":       system(tho+"CodeSystem/v3-ActMood", "3.0.0", "complete", "new"),
		"category": system(tho+"CodeSystem/observation-category", "1.0.1", "complete", "new"),
		"stub":     system(tho+"CodeSystem/v2-0002", "3.0.0", "not-present", ""),
		"r4":       system(r4+"administrative-gender", "1.0.0", "complete", "new"),
	} {
		fixture.WriteFile(t, filepath.Join(folder, name+".json"), []byte(definition))
	}
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]bool{
		tho + "ValueSet/v2-0001":              true,
		tho + "CodeSystem/v3-ActMood?fhir_vs": true,
		r4 + "ValueSet/observation-category":  true,
		tho + "ValueSet/v2-0002":              false,
		r4 + "ValueSet/administrative-gender": false,
	} {
		got := terminologytest.Expand(t, l, "url", url).Codes()
		if isNew := len(got) == 1 && got[0] == "new"; isNew != want || len(got) == 0 {
			t.Errorf("%s: got %q, the package's is %t", url, got, want)
		}
	}
	if cs := l.Definitions().Systems.CodeSystems[l.Definitions().Systems.CodeSystem(tho+"CodeSystem/v2-0001", "2.x")]; cs.Version != "2.0.0" {
		t.Errorf("2.x is %s", cs.Version)
	}
	if l.Definitions().Systems.CodeSystem(tho+"CodeSystem/v2-0001", "2.9") == definitions.None {
		t.Error("R4's version is gone")
	}
}

// What a request's own value set contains is of use as well, and to its answer alone.
func TestContainedInRequest(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours)}
	for range 2 {
		w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand?excludeNested=true", fixture.ContainedShapes)
		var got terminologytest.Expanded
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		if o := terminologytest.Outline(got.Expansion.Contains); o != "round[Round] oval[Oval] flat[Flat] square[Square]" {
			t.Errorf("got %s", o)
		}
	}
	if w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/shapes?fhir_vs", ""); w.Code != 404 {
		t.Errorf("later: got %d %s", w.Code, w.Body)
	}
}
