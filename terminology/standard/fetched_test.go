package standard_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestFetchedForValidation(t *testing.T) {
	terminologytest.Needs(t, "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	source := &terminologytest.Shelf{Resources: []string{
		fixture.ComposedOf("http://x/vs", "1", `{"valueSet":["http://x/part"]}`), fixture.ComposedOf("http://x/part", "1", `{"system":"http://x/cs"}`), fixture.VersionedSystem("http://x/cs", "1", "complete", "a"),
	}}
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Gone), Fetched: &terminology.Fetched{Source: source}}
	const query = `/ValueSet/$validate-code?url=http://x/vs&system=http://x/cs&code=`
	for code, want := range map[string]string{"a": `{"name":"result","valueBoolean":true}`, "b": `{"name":"result","valueBoolean":false}`} {
		w := httptest.NewRecorder()
		if err := terminologytest.Answer(h, w, httptest.NewRequest("GET", query+code, nil)); err != nil || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %v, %s", code, err, w.Body)
		}
	}
	if len(source.Asked) != 3 {
		t.Errorf("asked for %q", source.Asked)
	}
	h.Fetched = &terminology.Fetched{Source: source}
	batch := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/vs"},{"name":"validation","resource":{"resourceType":"Parameters","parameter":[
		{"name":"coding","valueCoding":{"system":"http://x/cs","code":"a"}}]}}]}`
	w := httptest.NewRecorder()
	if err := terminologytest.Answer(h, w, httptest.NewRequest("POST", "/ValueSet/$batch-validate-code", strings.NewReader(batch))); err != nil || !strings.Contains(w.Body.String(), `{"name":"result","valueBoolean":true}`) {
		t.Errorf("batch: got %v, %s", err, w.Body)
	}
	source.Set(nil)
	h.Fetched = &terminology.Fetched{Source: source}
	w = httptest.NewRecorder()
	if err := terminologytest.Answer(h, w, httptest.NewRequest("GET", "/CodeSystem/$validate-code?url=http://x/cs&code=a", nil)); err != nil || !strings.Contains(w.Body.String(), "x-unknown-system") {
		t.Errorf("not there: got %v, %s", err, w.Body)
	}
}

func TestFetchedCodeSystems(t *testing.T) {
	terminologytest.Needs(t, "/CodeSystem/$validate-code", "/CodeSystem/$lookup")
	source := &terminologytest.Shelf{Resources: []string{fixture.VersionedSystem("http://x/cs", "1", "complete", "a")}}
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Gone), Fetched: &terminology.Fetched{Source: source}}
	for _, name := range []string{"$validate-code", "$lookup"} {
		w := httptest.NewRecorder()
		err := terminologytest.Answer(h, w, httptest.NewRequest("GET", "/CodeSystem/"+name+"?code=a&url=http://x/cs&system=http://x/cs", nil))
		if err != nil || !strings.Contains(w.Body.String(), "Display a") || strings.Contains(w.Body.String(), `"valueBoolean":false},{"name":"issues"`) {
			t.Errorf("%s: got %v, %s", name, err, w.Body)
		}
	}
	source.WantAsked(t, "CodeSystem http://x/cs")
}
