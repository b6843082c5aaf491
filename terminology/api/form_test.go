package api

import (
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
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
	h := &Handler{Library: colourLibrary(t)}
	forms := []struct {
		method, excludeNested string
		tree, offset          bool
	}{
		{"GET", "", false, true}, {"GET", "true", false, true}, {"GET", "false", true, true},
		{"POST", "", true, false}, {"POST", "true", false, false}, {"POST", "false", true, false},
	}
	ask := func(method string, query url.Values) (contains []containsEntry, offset bool) {
		t.Helper()
		path, body := "/ValueSet/$expand?"+query.Encode(), ""
		if method == "POST" {
			var sent []string
			for name, values := range query {
				value, _ := json.Marshal(values[0])
				sent = append(sent, `{"name":"`+name+`","valueString":`+string(value)+`}`)
			}
			path, body = "/ValueSet/$expand", parametersOf(sent...)
		}
		w, _ := call(t, h, method, path, body)
		var got expanded
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
func codesOnly(contains []containsEntry) string {
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
	h := &Handler{Library: libraryOf(t, colours, vs)}
	for query, want := range map[string]string{"": "any red pink blue", "&excludeNested=false": "any{red{pink} blue}"} {
		w, _ := call(t, h, "GET", "/ValueSet/$expand?url=http://x/own"+query, "")
		var got expanded
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || codesOnly(got.Expansion.Contains) != want {
			t.Errorf("%s: got %s", query, w.Body)
		}
	}
}
