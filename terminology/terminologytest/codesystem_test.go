package terminologytest_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestWrite(t *testing.T) {
	cs := terminologytest.CodeSystem{URL: "http://x/synthetic", Concepts: 300, Designations: 4}
	var one, two bytes.Buffer
	if err := cs.Write(&one); err != nil {
		t.Fatal(err)
	}
	if err := cs.Write(&two); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("not the same again: %v", err)
	}
	var got struct {
		Concept []struct {
			Code, Display string
			Designation   []struct{ Language, Value string }
		}
	}
	if err := json.Unmarshal(one.Bytes(), &got); err != nil || len(got.Concept) != 300 {
		t.Fatalf("%v, %d concepts", err, len(got.Concept))
	}
	codes := map[string]bool{}
	for i, c := range got.Concept {
		codes[c.Code] = true
		if c.Code != cs.Code(i) || c.Display == "" || len(c.Designation) != 4 || c.Designation[3].Language != "de" {
			t.Errorf("concept %d: %+v", i, c)
		}
	}
	if len(codes) != 300 {
		t.Errorf("%d different codes", len(codes))
	}
}

// TestExpand checks that a synthetic code system is loaded and has the expected content.
func TestExpand(t *testing.T) {
	cs := terminologytest.CodeSystem{URL: "http://x/synthetic", Concepts: 300, Designations: 1}
	var text bytes.Buffer
	if err := cs.Write(&text); err != nil {
		t.Fatal(err)
	}
	all, tree := cs.ValueSets()
	l := terminologytest.Library(t, text.String(), all+tree)
	h := &api.Handler{Library: l}
	for query, want := range map[string]int{
		"url=http://x/synthetic/all&count=0": 300, "url=http://x/synthetic/tree&count=0": 300,
		"url=http://x/synthetic/all&count=0&filter=" + cs.Code(7): 1,
	} {
		w := httptest.NewRecorder()
		if err := h.Expand(w, httptest.NewRequest(http.MethodGet, "/ValueSet/$expand?"+query, nil)); err != nil {
			t.Fatal(err)
		}
		var got struct{ Expansion struct{ Total int } }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Expansion.Total != want {
			t.Errorf("%s: got %d (%v), want %d", query, got.Expansion.Total, err, want)
		}
	}
	if typed := cs.SearchTexts(8); len(typed) != 8 || typed[0] == "" {
		t.Errorf("got %q", typed)
	}
}
