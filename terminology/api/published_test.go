package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestRead(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	w, got := terminologytest.Call(t, h, "GET", "/CodeSystem/colours", "")
	var want map[string]any
	if err := json.Unmarshal([]byte(fixture.Colours), &want); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusOK || jsonOf(got["concept"]) != jsonOf(want["concept"]) {
		t.Errorf("got %s\nwant %s", jsonOf(got["concept"]), jsonOf(want["concept"]))
	}
	if w, got = terminologytest.Call(t, h, "GET", "/CodeSystem/colours?_summary=true", ""); got["concept"] != nil || got["content"] != "complete" {
		t.Errorf("summary: got %s", w.Body)
	}
	for path, status := range map[string]int{"/CodeSystem/none": 404, "/ValueSet/none": 404, "/CodeSystem/colours?_summary=x": 400} {
		if w, _ := terminologytest.Call(t, h, "GET", path, ""); w.Code != status {
			t.Errorf("%s: got %d", path, w.Code)
		}
	}
}

// TestReadCore reads all built-in definitions and compares them with their input. Resources that are read have the tag
// SUBSETTED and lack stored expansions and the extensions of concepts.
func TestReadCore(t *testing.T) {
	t.Parallel()
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	packed, err := os.ReadFile(filepath.Join("..", "definitions", "core", "r4.ndjson.zst"))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := decoder.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]map[string]any)
	for line := range bytes.Lines(lines) {
		var resource map[string]any
		if err := json.Unmarshal(line, &resource); err != nil {
			t.Fatal(err)
		}
		version, _ := resource["version"].(string)
		want[resource["resourceType"].(string)+resource["url"].(string)+"|"+version] = resource
	}
	for _, kind := range []string{"CodeSystem", "ValueSet"} {
		for _, p := range api.PublishedIn(terminologytest.Core(t).Definitions(), kind) {
			var got map[string]any
			if err := json.Unmarshal(p.Append(nil, new(expansion.Subset)), &got); err != nil {
				t.Fatalf("%s: %v", p.URL, err)
			}
			of, ok := want[kind+p.URL+"|"+p.Version]
			if !ok {
				continue // from a registered source, not from the input
			}
			delete(got, "meta")
			delete(of, "expansion")
			withoutExtensions(of["concept"])
			if !reflect.DeepEqual(got, of) {
				t.Fatalf("%s: got %.2000s\nwant %.2000s", p.URL, jsonOf(got), jsonOf(of))
			}
		}
	}
}

func withoutExtensions(concepts any) {
	list, _ := concepts.([]any)
	for _, concept := range list {
		delete(concept.(map[string]any), "extension")
		withoutExtensions(concept.(map[string]any)["concept"])
	}
}

func TestSearchset(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t,
		fixture.SingleConceptCodeSystem("http://x/a", "1", "a"), fixture.SingleConceptCodeSystem("http://x/a", "2", "a"),
		`{"resourceType":"ValueSet","id":"one","url":"http://x/one","version":"1","name":"EinÄpfel","title":"Green apples","status":"active","compose":{"include":[{"system":"http://x/a"}]}}`,
		`{"resourceType":"ValueSet","id":"two","url":"http://x/two","name":"Two","title":"Apples","status":"draft"}`,
		`{"resourceType":"ValueSet","id":"three","url":"http://x/two","version":"3","name":"Three","status":"draft","contained":[{"resourceType":"CodeSystem","id":"c","content":"complete"}]}`)}
	for query, want := range map[string]string{
		"ValueSet":                                  "one two three",
		"ValueSet?url=http://x/two":                 "two three",
		"ValueSet?url=http://x/two&version=3":       "three",
		"ValueSet?url=http://x/one,http://x/two":    "one two three",
		"ValueSet?url=http://x/none":                "",
		"ValueSet?name=einapfel":                    "one",
		"ValueSet?name:exact=two":                   "",
		"ValueSet?title=apples":                     "two",
		"ValueSet?title:contains=apple":             "one two",
		"ValueSet?status=draft":                     "two three",
		"ValueSet?status=http://x|draft&_id=two":    "two",
		"ValueSet?_id=one,three":                    "one three",
		"ValueSet?publisher=nobody&_count=2":        "one two",
		"ValueSet?_count=2&_offset=2":               "three",
		"ValueSet?_count=0":                         "",
		"ValueSet?_summary=count":                   "",
		"ValueSet?_summary=true&_elements=":         "one two three",
		"CodeSystem?url=http://x/a&_elements=url":   "? ?",
		"CodeSystem?url=http://x/a&version=2":       "?",
		"CodeSystem?status=active&_count=1":         "?",
		"CodeSystem?url=http://x/v%23c&status=none": "",
	} {
		w, got := terminologytest.Call(t, h, "GET", "/"+query, "")
		ids := []string{}
		entries, _ := got["entry"].([]any)
		for _, entry := range entries {
			id, ok := entry.(map[string]any)["resource"].(map[string]any)["id"].(string)
			if !ok {
				id = "?"
			}
			ids = append(ids, id)
		}
		if w.Code != http.StatusOK || got["type"] != "searchset" || !slices.Equal(ids, strings.Fields(want)) {
			t.Errorf("%s: got %d %q, want %q", query, w.Code, ids, want)
		}
	}
	for _, query := range []string{"ValueSet?url:below=http://x", "ValueSet?_count=-1", "ValueSet?_summary=x", "ValueSet?_format=turtle"} {
		if w, _ := terminologytest.Call(t, h, "GET", "/"+query, ""); w.Code < 400 {
			t.Errorf("%s: got %d", query, w.Code)
		}
	}
}

// TestSearchsetPages checks that the pages of a search are linked and together contain all matches.
func TestSearchsetPages(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	path, seen, total := "/ValueSet?status=draft&unknown=1&_elements=url&_count=200", 0, 0.0
	for path != "" {
		_, got := terminologytest.Call(t, h, "GET", path, "")
		entries, _ := got["entry"].([]any)
		seen, total = seen+len(entries), got["total"].(float64)
		links := map[string]string{}
		for _, link := range got["link"].([]any) {
			l := link.(map[string]any)
			links[l["relation"].(string)] = l["url"].(string)
		}
		if !strings.HasPrefix(links["self"], "http://example.com/fhir/R4/ValueSet?") || strings.Contains(links["self"], "unknown") {
			t.Errorf("self is %s", links["self"])
		}
		path = strings.TrimPrefix(links["next"], "http://example.com/fhir/R4")
	}
	if seen != int(total) || seen < 500 {
		t.Errorf("got %d of %v", seen, total)
	}
}

// TestSearchBombs checks that searches are rejected if performing them or writing their results is too costly.
func TestSearchBombs(t *testing.T) {
	var resources []string
	for i := range 20 {
		resources = append(resources, fmt.Sprintf(`{"resourceType":"ValueSet","url":"http://x/%d","name":"n","description":%q}`, i, strings.Repeat("d", 5000)))
	}
	l := terminologytest.Library(t, resources...)
	l.Definitions().Bounds.VisitedCodes = 5000
	for _, test := range []struct {
		name, query string
		want        int
	}{
		{"cheap", "/ValueSet?name:contains=x", http.StatusOK},
		{"many alternatives, and no definition", "/CodeSystem?name:contains=" + strings.Repeat("x,", 2000) + "x", http.StatusUnprocessableEntity},
		{"alternatives for each definition", "/ValueSet?name:contains=" + strings.Repeat("x,", 600) + "x", http.StatusUnprocessableEntity},
		{"one page", "/ValueSet?_count=1", http.StatusOK},
		{"all", "/ValueSet?_count=100", http.StatusUnprocessableEntity},
	} {
		t.Run(test.name, func(t *testing.T) {
			if w, _ := terminologytest.Call(t, &api.Handler{Library: l}, http.MethodGet, test.query, ""); w.Code != test.want {
				t.Errorf("got %d %.200s", w.Code, w.Body)
			}
		})
	}
}

// TestSearchByIdentifier checks that definitions are found by their identifiers.
func TestSearchByIdentifier(t *testing.T) {
	named := func(url, oid string) string {
		return fmt.Sprintf(`{"resourceType":"ValueSet","id":"v","url":%q,"identifier":[{"system":"urn:ietf:rfc:3986","value":%q}],"compose":{"include":[]}}`, url, oid)
	}
	h := &api.Handler{Library: terminologytest.Library(t, named("http://x/1", "urn:oid:1.1"), named("http://x/2", "urn:oid:1.2"))}
	for query, want := range map[string]float64{
		"identifier=urn:oid:1.1": 1, "identifier=urn:oid:1.1,urn:oid:1.2": 2, "identifier=urn:oid:1": 0, "identifier=": 0,
		"identifier=urn:ietf:rfc:3986|urn:oid:1.2": 1, "identifier=urn:ietf:rfc:3986|": 2, "identifier=|urn:oid:1.2": 0, "identifier=|": 0,
		"identifier=urn:oid:1.1&identifier=urn:oid:1.2": 0, "unknown=1": 2,
	} {
		if w, got := terminologytest.Call(t, h, "GET", "/ValueSet?"+query, ""); w.Code != http.StatusOK || got["total"] != want {
			t.Errorf("%s: got %d, %v, want %v", query, w.Code, got["total"], want)
		}
	}
}

// TestStrictSearch checks that unknown parameters are rejected if the client prefers strict handling.
func TestStrictSearch(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	for _, tt := range []struct {
		query, prefer string
		status        int
	}{
		{"unknown=1", "handling=strict", 400},
		{"unknown=1", `respond-async, Handling="strict"; x=1`, 400},
		{"identifier:of-type=1", "handling=strict", 400},
		{"identifier:of-type=1", "", 400},
		{"unknown=1", "handling=lenient", 200},
		{"unknown=1", "", 200},
		{"url=http://x/1&_count=2&_format=json&_summary=true&identifier=1", "handling=strict", 200},
	} {
		if w, _ := terminologytest.Call(t, h, "GET", "/ValueSet?"+tt.query, "", "Prefer", tt.prefer); w.Code != tt.status {
			t.Errorf("%s with %q: got %d, want %d: %s", tt.query, tt.prefer, w.Code, tt.status, w.Body)
		}
	}
}

// TestEmptyDesignation checks that designations that are empty or have an empty value, which FHIR forbids, are ignored.
func TestEmptyDesignation(t *testing.T) {
	const empty = `"designation":[{"value":""},{},{"value":"","use":{"code":""}},{"language":"de","value":"Rot"}]`
	h := &api.Handler{Library: terminologytest.Library(t, `{"resourceType":"CodeSystem","id":"c","url":"http://x/c","status":"active","content":"complete","concept":[{"code":"1",`+empty+`}]}`,
		fixture.ValueSet("http://x/v", `{"include":[{"system":"http://x/c","concept":[{"code":"1",`+empty+`}]}]}`))}
	for _, path := range []string{"/CodeSystem/c", "/ValueSet/$expand?includeDesignations=true&url=http://x/c?fhir_vs", "/ValueSet/$expand?includeDesignations=true&url=http://x/v"} {
		w, _ := terminologytest.Call(t, h, "GET", path, "")
		fixture.WantContains(t, w.Body.String(), `"designation":[{"language":"de","value":"Rot"}`)
	}
}
