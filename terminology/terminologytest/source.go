package terminologytest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// The following functions test a registered code system. They skip checks of operations that the build lacks.

// ResultTrue and ResultFalse are the results of $validate-code.
const (
	ResultTrue  = `{"name":"result","valueBoolean":true}`
	ResultFalse = `{"name":"result","valueBoolean":false}`
)

// WantSource checks that a code system can be read by ID, and that the resource has the given member compositional.
func WantSource(t *testing.T, id, system string, compositional bool) {
	t.Helper()
	w, got := Call(t, &api.Handler{Library: Core(t)}, "GET", "/CodeSystem/"+id, "")
	if w.Code != http.StatusOK || got["url"] != system || (got["compositional"] == true) != compositional {
		t.Errorf("%s: got %d %.200s", id, w.Code, w.Body)
	}
}

// WantCode checks that a code system has a code with the given display, but not the code unknown. An empty version means any
// version. An empty unknown skips that check.
func WantCode(t *testing.T, system, version, code, display, unknown string) {
	t.Helper()
	h := &api.Handler{Library: Core(t)}
	if !HasFeature("/CodeSystem/$validate-code") {
		return
	}
	validate := "/CodeSystem/$validate-code?" + Query("url", system) + "&"
	w, _ := Call(t, h, "GET", validate+Query("code", code), "")
	want := []string{ResultTrue, `"display","valueString":"` + display + `"`}
	if version != "" {
		want = append(want, `"version","valueString":"`+version+`"`)
	}
	fixture.WantContains(t, w.Body.String(), want...)
	if unknown != "" {
		w, _ = Call(t, h, "GET", validate+Query("code", unknown), "")
		fixture.WantContains(t, w.Body.String(), ResultFalse)
	}
}

// WantResponses sends GET requests and checks that each response contains the given texts.
func WantResponses(t *testing.T, want map[string][]string) {
	t.Helper()
	h := &api.Handler{Library: Core(t)}
	for path, texts := range want {
		if HasFeature(path) {
			w, _ := Call(t, h, "GET", path, "")
			fixture.WantContains(t, w.Body.String(), texts...)
		}
	}
}

// WantMissing sends GET requests and checks which of them have missing definitions, so that other servers are called.
func WantMissing(t *testing.T, want map[string]bool) {
	t.Helper()
	h := &api.Handler{Library: Core(t), HasOtherServers: true}
	for path, hasMissing := range want {
		if !HasFeature(path) {
			continue
		}
		err := ServeError(h, httptest.NewRecorder(), httptest.NewRequest("GET", "/fhir/R4"+path, nil))
		if failed, ok := errors.AsType[*outcome.Error](err); ok && len(failed.Missing) > 0 != hasMissing || !ok && hasMissing {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// WantPartialSystem checks that an incomplete code system does not hide a code of the registered one, regardless of its
// version. It is loaded or sent with a request. content is its CodeSystem.content.
func WantPartialSystem(t *testing.T, system, content, code string) {
	t.Helper()
	RequireFeatures(t, "/CodeSystem/$validate-code")
	for _, version := range []string{"2.2", "9999"} {
		part := `{"resourceType":"CodeSystem","url":"` + system + `","version":"` + version + `","content":"` + content + `","concept":[{"code":"no-code"}]}`
		loaded, core := &api.Handler{Library: CoreWith(t, part)}, &api.Handler{Library: Core(t)}
		for where, asked := range map[string]func(code string) string{
			"loaded": func(code string) string { return ValidateIn(t, loaded, system, code, "") },
			"sent":   func(code string) string { return ValidateIn(t, core, system, code, part) },
		} {
			if got := asked(code); !strings.Contains(got, ResultTrue) || strings.Contains(got, `"issues"`) {
				t.Errorf("%s %s, %s: %s: got %s", content, version, where, code, got)
			}
			if got := asked("no-code"); strings.Contains(got, ResultTrue) && !strings.Contains(got, "IN_FRAGMENT") {
				t.Errorf("%s %s, %s: no-code: got %s", content, version, where, got)
			}
		}
	}
}

// ValidateIn validates a code in a code system and returns the response. If resource is not empty, it is sent with the request.
func ValidateIn(t *testing.T, h *api.Handler, system, code, resource string) string {
	t.Helper()
	list := []string{fixture.URI("url", system), `{"name":"code","valueCode":"` + code + `"}`}
	if resource != "" {
		list = append(list, fixture.TxResource(resource))
	}
	w, _ := Call(t, h, "POST", "/CodeSystem/$validate-code", fixture.ParametersOf(list...))
	return w.Body.String()
}

// CoreWith returns a library of the built-in definitions and a resource that is loaded after them.
func CoreWith(t *testing.T, resource string) *terminology.Library {
	t.Helper()
	file := filepath.Join(t.TempDir(), "own.json")
	fixture.WriteFile(t, file, []byte(resource))
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
