package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
)

// members returns the names of the members of an answer, in alphabetical order, and the answer itself.
func members(t *testing.T, h *Handler, pairs ...string) (names string, answer map[string]json.RawMessage) {
	t.Helper()
	w, err := request(h, http.MethodGet, query(pairs...))
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
	h := &Handler{Library: libraryOf(t, described)}
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
				wantText(t, string(meta), `"code":"SUBSETTED"`, `"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationValue"`)
			}
		})
	}
}

// How many codes there are can be asked even where there are too many to be had.
func TestSubsetCount(t *testing.T) {
	h := &Handler{Library: libraryOf(t, described), Limits: expansion.Limits{Entries: 1}}
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
	l := libraryOf(t, described)
	for _, pairs := range [][]string{{"_summary", "some"}, {"_summary", ""}, {"_summary", "true", "_elements", "url"}, {"_summary", "true", "_summary", "text"}} {
		if e := refused(t, l, append([]string{"url", "http://x/v"}, pairs...)...); e.Status != http.StatusBadRequest {
			t.Errorf("%q: got %d %s", pairs, e.Status, e.Text)
		}
	}
}

// Each part of an answer has an entity tag of its own.
func TestSubsetTags(t *testing.T) {
	h := &Handler{Library: libraryOf(t, described)}
	seen := make(map[string]string)
	for _, part := range []string{"", "&_summary=true", "&_summary=data", "&_summary=count", "&_elements=url", "&_elements=url,expansion"} {
		w, err := request(h, http.MethodGet, "url=http://x/v"+part)
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
