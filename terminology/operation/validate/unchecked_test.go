package validate_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// Codes that a value set lists of a code system, or of a version of it, that is not here are in the value set: the
// expansion has them and says that they are not checked, and $validate-code says the same.
func TestListedUnchecked(t *testing.T) {
	list := func(members string) string {
		return `{"include":[{` + members + `,"concept":[{"code":"a","display":"Alpha","designation":[{"language":"de","value":"Anton"}]},{"code":"b"}]}]}`
	}
	h := &api.Handler{Library: terminologytest.Library(t,
		fixture.VersionedSystem("http://x/here", "1", "complete", "a"), fixture.VersionedSystem("http://x/bare", "1", "not-present", ""), fixture.VersionedSystem("http://x/part", "1", "fragment", "z"),
		fixture.ValueSet("http://x/gone", list(`"system":"http://x/none"`)), fixture.ValueSet("http://x/version", list(`"system":"http://x/here","version":"7"`)),
		fixture.ValueSet("http://x/not-present", list(`"system":"http://x/bare"`)), fixture.ValueSet("http://x/fragment", list(`"system":"http://x/part"`)),
		fixture.ValueSet("http://x/known", list(`"system":"http://x/here"`)), fixture.ValueSet("http://x/imports", `{"include":[{"valueSet":["http://x/gone","http://x/gone"]}]}`),
		fixture.ValueSet("http://x/whole", `{"include":[{"system":"http://x/here"}],"exclude":[{"system":"http://x/none","concept":[{"code":"a"}]}]}`))}
	const unknown = "warning not-found UNKNOWN_CODESYSTEM@Coding.system"
	tests := []struct {
		name, system string
		warning      string // warning-unknown-system
		codes        string
		issues       []string
	}{
		{"gone", "http://x/none", "http://x/none", "a b", []string{unknown}},
		{"version", "http://x/here", "http://x/here|7", "a b", []string{unknown}},
		{"not-present", "http://x/bare", "http://x/bare", "a b", []string{unknown}},
		{"imports", "http://x/none", "http://x/none", "a b", []string{unknown}},
		{"fragment", "http://x/part", "", "a b", []string{"warning invalid-code UNKNOWN_CODE_IN_FRAGMENT@Coding.code"}},
		{"known", "http://x/here", "", "a", nil},
		{"whole", "http://x/here", "http://x/none", "a", nil},
	}
	validate := func(url, system, code, more string) validated {
		coding := `{"name":"coding","valueCoding":{"system":"` + system + `","code":"` + code + `"` + more + `}}`
		w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$validate-code", fixture.Posted(fixture.URI("url", url), coding))
		return readValidated(t, w.Body.Bytes())
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			url := "http://x/" + test.name
			got := terminologytest.ExpandWith(t, h, "url", url)
			terminologytest.WantCodes(t, got, test.codes)
			var warnings []string
			for _, p := range got.Parameters() {
				if warning, ok := strings.CutPrefix(p, "warning-unknown-system="); ok {
					warnings = append(warnings, warning)
				}
			}
			if strings.Join(warnings, " ") != test.warning {
				t.Errorf("got warnings %q", warnings)
			}
			for _, code := range []string{"a", "b", "c"} {
				listed := slices.Contains(strings.Fields(test.codes), code)
				if got := validate(url, test.system, code, ""); got.result != listed || listed && !slices.Equal(got.issues, test.issues) {
					t.Errorf("%s: got %+v", code, got)
				}
			}
		})
	}
	for display, want := range map[string]bool{"Alpha": true, "alpha": true, "Anton": true, "Beta": false} {
		if got := validate("http://x/gone", "http://x/none", "a", `,"display":"`+display+`"`); got.result != want {
			t.Errorf("display %s: got %+v", display, got)
		}
	}
	w, _ := terminologytest.Call(t, h, "GET", "/ValueSet/$validate-code?url=http://x/gone&system=http://x/none&code=a", "")
	fixture.WantText(t, w.Body.String(), `{"name":"display","valueString":"Alpha"}`,
		`"A definition for CodeSystem http://x/none could not be found, so the code, which the value set lists, cannot be checked"`)
}

// Others may have the code system that a listed code could not be checked against: they are asked, and the answer
// stands where they do not.
func TestListedUncheckedOthers(t *testing.T) {
	h := &api.Handler{Others: true, Library: terminologytest.Library(t, fixture.ComposedOf("http://x/lists", "1", `{"system":"http://x/gone","version":"2","concept":[{"code":"a"}]}`))}
	w := httptest.NewRecorder()
	err := terminologytest.Answer(h, w, httptest.NewRequest(http.MethodGet, "/ValueSet/$validate-code?url=http://x/lists&system=http://x/gone&code=a", nil))
	var e *outcome.Error
	if !errors.As(err, &e) || !slices.Contains(e.Missing, outcome.MissingOf("CodeSystem", "http://x/gone", "2")[0]) {
		t.Fatalf("got %v", err)
	}
	if err := terminologytest.WriteProvisional(w, e); err != nil || !readValidated(t, w.Body.Bytes()).result {
		t.Errorf("got %v, %s", err, w.Body)
	}
}

// That a fragment of a code system has not all of its codes leaves open whether the whole has a code, not whether a value
// set of other codes does.
func TestFragmentElsewhere(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.VersionedSystem("http://x/part", "1", "fragment", "a b"), fixture.VersionedSystem("http://x/here", "1", "complete", "a"),
		fixture.AllOf("http://x/part"), fixture.AllOf("http://x/here"), fixture.ValueSet("http://x/filtered", `{"include":[{"system":"http://x/part","filter":[{"property":"code","op":"regex","value":"."}]}]}`),
		fixture.ValueSet("http://x/listed", `{"include":[{"system":"http://x/part","concept":[{"code":"a"}]}]}`),
		fixture.ValueSet("http://x/but", `{"include":[{"system":"http://x/part"}],"exclude":[{"system":"http://x/part","concept":[{"code":"other"}]}]}`))}
	for url, want := range map[string]bool{"part-all": true, "here-all": false, "filtered": false, "listed": false, "but": false} {
		w, _ := terminologytest.Call(t, h, "GET", fmt.Sprintf("/ValueSet/$validate-code?url=http://x/%s&system=http://x/part&code=other", url), "")
		if got := readValidated(t, w.Body.Bytes()); got.result != want {
			t.Errorf("%s: got %s", url, w.Body)
		}
	}
}
