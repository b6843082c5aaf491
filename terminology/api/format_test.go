package api_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// unrelated are parameters that say nothing of the form of an answer, with values that leave no code out.
var unrelated = [][2]string{
	{"displayLanguage", "de"}, {"displayLanguage", "x-none, *;q=0"}, {"includeDesignations", "true"}, {"includeDesignations", "false"},
	{"includeDefinition", "true"}, {"activeOnly", "false"}, {"excludeNotForUI", "false"}, {"excludePostCoordinated", "true"},
	{"designation", "urn:ietf:bcp:47|de"}, {"property", "hue"}, {"property", "*"}, {"useSupplement", "http://x/notes"}, {"date", "2026-01-01"},
	{"contextDirection", "incoming"}, {"exclude-system", "http://x/other"}, {"system-version", "http://x/colours|1.0.0"},
	{"check-system-version", "http://x/colours|1.0.0"}, {"force-system-version", "http://x/colours|1.0.0"}, {"versionsMatch", "false"},
	{"default-valueset-version", "http://x/other|1"}, {"cache-id", "1"}, {"_", "1700000000"}, {"_pretty", "true"}, {"_elements", "expansion"}, {"filter", " "},
}

// Whether an answer is a list or a tree, and whether it tells the offset, depends on how it is asked for and on
// excludeNested alone: a client that adds another parameter must not lose codes at the top.
func TestFormOfAnswer(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	forms := []struct {
		method, excludeNested string
		tree, offset          bool
	}{
		{"GET", "", false, true}, {"GET", "true", false, true}, {"GET", "false", true, true},
		{"POST", "", true, false}, {"POST", "true", false, false}, {"POST", "false", true, false},
	}
	ask := func(method string, query url.Values) (contains []terminologytest.Entry, offset bool) {
		t.Helper()
		path, body := "/ValueSet/$expand?"+query.Encode(), ""
		if method == "POST" {
			var sent []string
			for name, values := range query {
				value, _ := json.Marshal(values[0])
				sent = append(sent, `{"name":"`+name+`","valueString":`+string(value)+`}`)
			}
			path, body = "/ValueSet/$expand", fixture.Posted(sent...)
		}
		w, _ := terminologytest.Call(t, h, method, path, body)
		var got terminologytest.Expanded
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("%s: got %d %s", path, w.Code, w.Body)
		}
		return got.Expansion.Contains, got.Expansion.Offset != nil
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		form := forms[seed%uint64(len(forms))]
		query := url.Values{"url": {"http://x/colours/vs"}}
		if form.excludeNested != "" {
			query.Set("excludeNested", form.excludeNested)
		}
		for range r.IntN(5) {
			more := unrelated[r.IntN(len(unrelated))]
			query.Set(more[0], more[1])
		}
		contains, offset := ask(form.method, query)
		want := "any red pink blue"
		if form.tree {
			want = "any{red{pink} blue}"
		}
		if got := codesOnly(contains); got != want || offset != form.offset {
			t.Errorf("%s %s: got %s, offset told: %t", form.method, query.Encode(), got, offset)
		}
	}
}

// codesOnly writes an expansion as code{entries within}.
func codesOnly(contains []terminologytest.Entry) string {
	var list []string
	for _, c := range contains {
		code := c.Code
		if len(c.Contains) > 0 {
			code += "{" + codesOnly(c.Contains) + "}"
		}
		list = append(list, code)
	}
	return strings.Join(list, " ")
}

// A value set's own parameters do not make a tree of what is asked for by GET either.
func TestFormByValueSet(t *testing.T) {
	vs := `{"resourceType":"ValueSet","url":"http://x/own","status":"active","compose":{"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/valueset-expansion-parameter",
		"extension":[{"url":"name","valueCode":"excludeNested"},{"url":"value","valueBoolean":false}]}],"include":[{"system":"http://x/colours"}]}}`
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Colours, vs)}
	for query, want := range map[string]string{"": "any red pink blue", "&excludeNested=false": "any{red{pink} blue}"} {
		w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$expand?url=http://x/own"+query, "")
		var got terminologytest.Expanded
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || codesOnly(got.Expansion.Contains) != want {
			t.Errorf("%s: got %s", query, w.Body)
		}
	}
}

// members returns the names of the members of an answer, in alphabetical order, and the answer itself.
func members(t *testing.T, h *api.Handler, pairs ...string) (names string, answer map[string]json.RawMessage) {
	t.Helper()
	w, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query(pairs...))
	if err != nil {
		t.Fatalf("%q: %v", pairs, err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%q: %v", pairs, err)
	}
	return strings.Join(slices.Sorted(maps.Keys(answer)), " "), answer
}

const described = `{"resourceType":"ValueSet","id":"v","url":"http://x/v","version":"1","name":"V","title":"A v","status":"active",
	"experimental":false,"description":"all of it","immutable":true,"compose":{"include":[{"system":"http://x/s","concept":[{"code":"a"},{"code":"b"}]}]}}`

func TestSubset(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, described)}
	for _, test := range []struct {
		name  string
		query []string
		want  string
	}{
		{"everything", nil, "expansion experimental name resourceType status title url version"},
		{"everything, said so", []string{"_summary", "false"}, "expansion experimental name resourceType status title url version"},
		{"summary", []string{"_summary", "true"}, "experimental meta name resourceType status title url version"},
		{"summary of the definition", []string{"_summary", "true", "includeDefinition", "true"}, "experimental id immutable meta name resourceType status title url version"},
		{"without narrative", []string{"_summary", "data"}, "expansion experimental meta name resourceType status title url version"},
		{"narrative", []string{"_summary", "text"}, "meta resourceType status"},
		{"count", []string{"_summary", "count"}, "expansion meta resourceType status"},
		{"one element", []string{"_elements", "url"}, "meta resourceType status url"},
		{"several", []string{"_elements", "url, title", "_elements", "ValueSet.expansion.contains"}, "expansion meta resourceType status title url"},
		{"unknown ones", []string{"_elements", "nothing"}, "meta resourceType status"},
		{"none", []string{"_elements", ""}, "expansion experimental name resourceType status title url version"},
		{"of the definition", []string{"_elements", "description,compose", "includeDefinition", "true"}, "compose description id meta resourceType status"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, answer := members(t, h, append([]string{"url", "http://x/v"}, test.query...)...)
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if meta, ok := answer["meta"]; ok {
				fixture.WantText(t, string(meta), `"code":"SUBSETTED"`, `"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationValue"`)
			}
		})
	}
}

// How many codes there are can be asked even where there are too many to be had.
func TestSubsetCount(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, described), Limits: expansion.Limits{Entries: 1}}
	_, answer := members(t, h, "url", "http://x/v", "_summary", "count")
	var expansion map[string]any
	if err := json.Unmarshal(answer["expansion"], &expansion); err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(expansion)); !slices.Equal(names, []string{"identifier", "timestamp", "total"}) || expansion["total"] != 2.0 {
		t.Errorf("got %v", expansion)
	}
}

func TestSubsetRefused(t *testing.T) {
	l := terminologytest.Library(t, described)
	for _, pairs := range [][]string{{"_summary", "some"}, {"_summary", ""}, {"_summary", "true", "_elements", "url"}, {"_summary", "true", "_summary", "text"}} {
		if e := terminologytest.Refused(t, l, append([]string{"url", "http://x/v"}, pairs...)...); e.Status != http.StatusBadRequest {
			t.Errorf("%q: got %d %s", pairs, e.Status, e.Text)
		}
	}
}

// Each part of an answer has an entity tag of its own.
func TestSubsetTags(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, described)}
	seen := make(map[string]string)
	for _, part := range []string{"", "&_summary=true", "&_summary=data", "&_summary=count", "&_elements=url", "&_elements=url,expansion"} {
		w, err := terminologytest.Request(h, http.MethodGet, "url=http://x/v"+part)
		if err != nil {
			t.Fatal(err)
		}
		tag := w.Header().Get("ETag")
		if other, ok := seen[tag]; ok || tag == "" {
			t.Errorf("%q and %q have the same tag %s", part, other, tag)
		}
		seen[tag] = part
	}
}
