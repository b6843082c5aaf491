package fhirapp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// The CapabilityStatement contains the OAuth endpoints and, if the server is guarded, the permitted operations.
func TestCapabilityStatement(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, `{"resourceType":"CapabilityStatement","rest":[{"mode":"server","operation":[{"name":"reindex"},{"name":"everything"}]}]}`)
	}))
	var statement struct {
		Rest []struct {
			Security struct {
				CORS      bool
				Extension []struct {
					Extension []struct{ URL, ValueURI string }
				}
			}
			Operation []struct{ Name string }
			Resource  []struct {
				Type      string
				Operation []struct{ Name string }
			}
		}
	}
	text := gatewaytest.ReadBody(t, g.Get("/fhir/R4/metadata", ""))
	if err := json.Unmarshal([]byte(text), &statement); err != nil || len(statement.Rest) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	rest := statement.Rest[0]
	uris := map[string]string{}
	for _, e := range rest.Security.Extension {
		for _, uri := range e.Extension {
			uris[uri.URL] = uri.ValueURI
		}
	}
	if !rest.Security.CORS || uris["token"] != "https://localhost:8443/oauth2/token" || uris["authorize"] != "https://localhost:8443/oauth2/authorize" ||
		uris["manage"] != "https://localhost:8443/oauth2/account" { // equal to management_endpoint

		t.Errorf("security: %s", text)
	}
	named := func(name string) func(struct{ Name string }) bool {
		return func(o struct{ Name string }) bool { return o.Name == name }
	}
	if slices.ContainsFunc(rest.Operation, named("reindex")) {
		t.Errorf("an operation that is always denied: %s", text)
	}
	expands := false
	for _, r := range rest.Resource {
		expands = expands || r.Type == "ValueSet" && slices.ContainsFunc(r.Operation, named("expand"))
	}
	if !expands {
		t.Errorf("fhir_expand answers $expand: %s", text)
	}
}

// With `operations all`, fhir_expand handles the other terminology operations. Otherwise, it passes them to the next handler.
func TestOperations(t *testing.T) {
	t.Parallel()
	const theirs = `{"resourceType":"OperationOutcome","id":"theirs"}`
	backend := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(theirs))
	})
	plain := exampleGateway(t, backend)
	all := exampleGateway(t, backend, "fhir_expand\n", "fhir_expand {\n\t\t\toperations all\n\t\t\tdefinitions backend\n\t\t}\n")
	token, allToken := plain.Token(), all.Token()
	const system = "system=http://hl7.org/fhir/administrative-gender"
	for request, tt := range map[string]struct {
		parameter string
		want      any
	}{
		"CodeSystem/$lookup?" + system + "&code=female":                                       {"display.valueString", "Female"},
		"CodeSystem/$subsumes?" + system + "&codeA=male&codeB=female":                         {"outcome.valueCode", "not-subsumed"},
		"CodeSystem/$validate-code?url=http://hl7.org/fhir/administrative-gender&code=female": {"result.valueBoolean", true},
		"ValueSet/$validate-code?url=" + genderSet + "&" + system + "&code=nobody":            {"result.valueBoolean", false},
		"ValueSet/administrative-gender/$validate-code?" + system + "&code=female":            {"result.valueBoolean", true},
		"CodeSystem/administrative-gender/$lookup?code=female":                                {"display.valueString", "Female"},
		"CodeSystem/administrative-gender/$subsumes?codeA=male&codeB=female":                  {"outcome.valueCode", "not-subsumed"},
		"CodeSystem/administrative-gender/$validate-code?code=female":                         {"result.valueBoolean", true},
	} {
		if got := gatewaytest.ReadBody(t, plain.Get("/fhir/R4/"+request, token)); got != theirs {
			t.Errorf("%s without the option: %.200s", request, got)
		}
		if !terminologytest.HasFeature(request) {
			continue
		}
		if got := gatewaytest.ReadBody(t, all.Get("/fhir/R4/"+request, allToken)); parameterIn(t, got, tt.parameter) != tt.want {
			t.Errorf("%s: %.300s", request, got)
		}
	}
	const capabilities = "/fhir/R4/metadata?mode=terminology"
	if got := gatewaytest.ReadBody(t, plain.Get(capabilities, token)); got != theirs {
		t.Errorf("capabilities without the option: %.200s", got)
	}
	if got := gatewaytest.ReadBody(t, all.Get(capabilities, allToken)); memberOf(t, got, "resourceType") != "TerminologyCapabilities" {
		t.Errorf("capabilities: %.300s", got)
	}
	for _, request := range []string{"metadata", "CodeSystem", "CodeSystem/nowhere/$lookup?code=female", "ValueSet/x/$batch-validate-code"} {
		if got := gatewaytest.ReadBody(t, all.Get("/fhir/R4/"+request, allToken)); got != theirs {
			t.Errorf("%s: %.200s", request, got)
		}
	}
}

// The FHIR server's own metadata and definitions take precedence over those of fhir_expand.
func TestBackendMetadataTakesPrecedence(t *testing.T) {
	t.Parallel()
	g := newGateway(t, `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	fhir_expand {
		operations all
	}
	respond /fhir/R4/ValueSet/theirs "theirs"
}
`)
	for path, tt := range map[string]struct {
		member string
		want   any
	}{
		"metadata":                                      {"resourceType", "CapabilityStatement"},
		"metadata?mode=full":                            {"fhirVersion", "4.0.1"},
		"$versions":                                     {"parameter.0.valueString", "4.0"},
		"ValueSet/administrative-gender":                {"compose.include.0.system", "http://hl7.org/fhir/administrative-gender"},
		"CodeSystem/administrative-gender":              {"concept.1.code", "female"},
		"ValueSet?url=" + genderSet + "&_summary=count": {"total", 1.0},
		"CodeSystem?url=http://hl7.org/fhir/administrative-gender": {"entry.0.resource.concept.1.code", "female"},
	} {
		response := g.Get("/fhir/R4/"+path, "")
		if got := gatewaytest.ReadBody(t, response); response.StatusCode != http.StatusOK || memberOf(t, got, tt.member) != tt.want {
			t.Errorf("%s: %d %.300s", path, response.StatusCode, got)
		}
	}
	if got := gatewaytest.ReadBody(t, g.Get("/fhir/R4/ValueSet/theirs", "")); got != "theirs" {
		t.Errorf("the server's own: %.300s", got)
	}
	if response := g.Get("/fhir/R4/ValueSet/nowhere", ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("nowhere: %d", response.StatusCode)
	}
}

// If fhir_expand is the last handler, an unhandled request gets 404 instead of an empty 200 response.
func TestUnhandledRequestWithExpand(t *testing.T) {
	caddyfile := func(option string) string {
		return "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\tfhir_expand {\n\t\t" + option + `
	}
	respond /fhir/R4/Patient/theirs "theirs"
	respond /fhir/R4/Patient/nothing 204
	handle_errors {
		fhir_outcome
	}
}
`
	}
	all, expansions := newGateway(t, caddyfile("operations all")), newGateway(t, caddyfile("core off"))
	ask := func(g *gateway, method, path string) *http.Response {
		return g.Send(httptest.NewRequest(method, "https://localhost:8443"+path, nil))
	}
	for path, want := range map[string]int{
		"Patient": 404, "ConceptMap/$closure": 404, "ValueSet/$unknown": 404, "CodeSystem/x/$find-matches": 404, "$convert": 404, "ValueSet/administrative-gender/_history": 404,
		"Patient/theirs": 200, "Patient/nothing": 204,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			response := ask(all, method, "/fhir/R4/"+path)
			if response.StatusCode != want {
				t.Errorf("%s %s: %d", method, path, response.StatusCode)
			}
			if want == http.StatusNotFound {
				all.DecodeOutcome(response)
			}
		}
	}
	if response := ask(all, http.MethodPut, "/fhir/R4/ValueSet/x"); response.StatusCode != http.StatusNotFound {
		t.Errorf("a write: %d", response.StatusCode)
	}
	if response := ask(all, http.MethodGet, "/elsewhere"); response.StatusCode != http.StatusOK {
		t.Errorf("beside the FHIR base: %d", response.StatusCode)
	}
	if response := ask(expansions, http.MethodGet, "/fhir/R4/Patient"); response.StatusCode != http.StatusOK {
		t.Errorf("without the option: %d", response.StatusCode)
	}
}

// The CapabilityStatement contains the OAuth endpoints only if this gateway is the authorization server.
func TestSecurityInMetadata(t *testing.T) {
	t.Parallel()
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_expand\n",
		"fhir_expand {\n\t\t\toperations all\n\t\t}\n", "reverse_proxy @backend {env.FHIR_BACKEND}", "reverse_proxy /elsewhere localhost", "\n\t\tfhir_sample", ""))
	got := gatewaytest.ReadBody(t, g.Get("/fhir/R4/metadata", ""))
	if service := memberOf(t, got, "rest.0.security.service.0.coding.0.code"); service != "SMART-on-FHIR" {
		t.Errorf("security service %v: %s", service, got)
	}
}

// Apps can use search parameters that a site defines in addition to those of R4.
func TestSearchParameters(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, echo, withBearerOption("search_parameters testdata/search*.json")...)
	request := gatewaytest.DemoRequest()
	request.Set("scope", "user/CareTeam.rs")
	token := g.TokenFor(request)
	for path, want := range map[string]int{"CareTeam?role=doctor": http.StatusOK, "CareTeam?rule=doctor": http.StatusBadRequest} {
		if response := g.Get("/fhir/R4/"+path, token); response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, response.StatusCode, want)
		}
	}
}
