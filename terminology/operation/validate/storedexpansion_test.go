package validate_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// storedSet is a value set without compose, with the members of its expansion.
func storedSet(url, expansion string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","id":"stored","url":%q,"status":"active","expansion":{"identifier":"urn:oid:1.2.3","timestamp":"2020-01-02T03:04:05Z",%s}}`, url, expansion)
}

// pills are entries of a code system that is not here and of one that is here without one of the codes.
const pills = `"contains":[{"system":"http://x/pills","version":"7","code":"1","display":"Aspirin","designation":[{"language":"de","value":"Kopfwehmittel"}]},
	{"display":"Others","abstract":true,"contains":[{"system":"http://x/pills","version":"7","code":"2","display":"Ibuprofen","inactive":true},
		{"system":"http://x/colours","code":"red"},{"system":"http://x/colours","code":"mauve","display":"Mauve"}]}]`

// TestStoredExpansion has value sets that only have an expansion, in files and in requests.
func TestStoredExpansion(t *testing.T) {
	const url = "http://x/stored"
	importing := `{"resourceType":"ValueSet","url":"http://x/importing","compose":{"include":[{"valueSet":["http://x/stored"]}]}}`
	loaded := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, storedSet(url, pills), importing)}
	none := &api.Handler{Library: terminologytest.Library(t, fixture.Colours)}
	parameters := func(more string) string {
		return `{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":` + storedSet(url, pills) + `}` + more + `]}`
	}
	for name, tt := range map[string]struct {
		h            *api.Handler
		method, path string
		body         string
		want         []string
	}{
		"loaded":     {loaded, "GET", "/ValueSet/$expand?url=" + url, "", []string{"1", "2", "red", "mauve"}},
		"by id":      {loaded, "GET", "/ValueSet/stored/$expand", "", []string{"1", "2", "red", "mauve"}},
		"filtered":   {loaded, "GET", "/ValueSet/$expand?filter=kopfweh&url=" + url, "", []string{"1"}},
		"activeOnly": {loaded, "GET", "/ValueSet/$expand?activeOnly=true&url=" + url, "", []string{"1", "red", "mauve"}},
		"page":       {loaded, "GET", "/ValueSet/$expand?offset=1&count=2&url=" + url, "", []string{"2", "red"}},
		"imported":   {loaded, "GET", "/ValueSet/$expand?url=http://x/importing", "", []string{"1", "2", "red", "mauve"}},
		"posted":     {none, "POST", "/ValueSet/$expand", parameters(""), []string{"1", "2", "red", "mauve"}},
	} {
		w, got := terminologytest.Call(t, tt.h, tt.method, tt.path, tt.body)
		codes, expanded := codesIn(got)
		if w.Code != http.StatusOK || !slices.Equal(codes, tt.want) {
			t.Errorf("%s: got %d %v, want %v: %s", name, w.Code, codes, tt.want, w.Body)
		}
		if name != "imported" && expanded["timestamp"] != "2020-01-02T03:04:05Z" || !strings.Contains(w.Body.String(), `{"name":"used-expansion","valueUri":"urn:oid:1.2.3"}`) {
			t.Errorf("%s: its origin is not in the answer: %s", name, w.Body)
		}
	}
	for name, tt := range map[string]struct {
		h      *api.Handler
		coding string
		want   string
	}{
		"in it":                  {loaded, "system=http://x/pills&code=1", "true"},
		"not in it":              {loaded, "system=http://x/pills&code=3", "false"},
		"of a code system here":  {loaded, "system=http://x/colours&code=red", "true"},
		"another of it":          {loaded, "system=http://x/colours&code=pink", "false"},
		"imported":               {loaded, "system=http://x/pills&code=1&url=http://x/importing", "true"},
		"imported and not in it": {loaded, "system=http://x/colours&code=pink&url=http://x/importing", "false"},
	} {
		path := "/ValueSet/$validate-code?" + tt.coding
		if !strings.Contains(path, "url=") {
			path += "&url=" + url
		}
		if w, _ := terminologytest.Call(t, tt.h, "GET", path, ""); !strings.Contains(w.Body.String(), `{"name":"result","valueBoolean":`+tt.want+`}`) {
			t.Errorf("%s: want %s: %s", name, tt.want, w.Body)
		}
	}
	coding := `,{"name":"coding","valueCoding":{"system":"http://x/pills","code":"1"}}`
	if w, _ := terminologytest.Call(t, none, "POST", "/ValueSet/$validate-code", parameters(coding)); !strings.Contains(w.Body.String(), `{"name":"result","valueBoolean":true}`) {
		t.Errorf("posted: %s", w.Body)
	}
}

// codesIn returns the codes of an answer, and its expansion.
func codesIn(answer map[string]any) (codes []string, expanded map[string]any) {
	expanded, _ = answer["expansion"].(map[string]any)
	list, _ := expanded["contains"].([]any)
	for _, entry := range list {
		codes = append(codes, fmt.Sprint(entry.(map[string]any)["code"]))
	}
	return codes, expanded
}

// TestPartialExpansion has stored expansions that may lack codes: they are no content, and the answer says why.
func TestPartialExpansion(t *testing.T) {
	for name, expansion := range map[string]string{
		"it has 4 of 5 codes":                           `"total":5,` + pills,
		"it begins at an offset":                        `"offset":4,` + pills,
		"it was made with the parameter filter":         `"parameter":[{"name":"filter","valueString":"a"}],` + pills,
		"the parameter count and has no total":          `"parameter":[{"name":"count","valueInteger":4}],` + pills,
		"it has the extension valueset-toocostly":       `"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/valueset-toocostly","valueBoolean":true}],` + pills,
		"it has the extension valueset-unclosed":        `"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/valueset-unclosed","valueBoolean":true}],` + pills,
		"an entry has no system":                        `"contains":[{"code":"1"}]`,
		"has no compose, and its stored expansion is n": `"total":9,` + pills,
	} {
		h := &api.Handler{Library: terminologytest.Library(t, storedSet("http://x/stored", expansion))}
		if w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/stored", ""); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), name) {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/stored&system=http://x/pills&code=1", "")
		if !strings.Contains(w.Body.String(), name) || strings.Contains(w.Body.String(), "could not be found") {
			t.Errorf("%s: $validate-code: got %d %s", name, w.Code, w.Body)
		}
	}
	complete := &api.Handler{Library: terminologytest.Library(t, storedSet("http://x/stored", `"total":4,"offset":0,"parameter":[{"name":"count","valueInteger":1000}],`+pills))}
	if w, _ := terminologytest.Call(t, complete, "GET", "/ValueSet/$expand?url=http://x/stored", ""); w.Code != http.StatusOK {
		t.Errorf("a complete one: got %d %s", w.Code, w.Body)
	}
}
