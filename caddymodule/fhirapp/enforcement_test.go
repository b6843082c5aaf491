package fhirapp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
)

// guarding are the arguments that give fhir_bearer of the example an option.
func guarding(option string) []string {
	if option == "" {
		return nil
	}
	return []string{"fhir_bearer\n", "fhir_bearer {\n\t\t\t" + option + "\n\t\t}\n"}
}

// What a token may do depends on its scopes, unless the FHIR server sees to that.
func TestScopesAreEnforced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, options, method, path string
		status                      int
	}{
		{"what the scope allows", "", http.MethodGet, "Patient/1", http.StatusOK},
		{"what it does not allow", "", http.MethodDelete, "Patient/1", http.StatusForbidden},
		{"an operation that is not listed", "", http.MethodGet, "Patient/1/$secrets", http.StatusForbidden},
		{"one that is", "operation $secrets whole rs", http.MethodGet, "Patient/1/$secrets", http.StatusOK},
		{"what a policy denies", "test_deny type Patient", http.MethodGet, "Patient/1", http.StatusForbidden},
		{"no scopes", "scopes off", http.MethodDelete, "Patient/1", http.StatusOK},
		{"definitions", "", http.MethodGet, "ValueSet/1", http.StatusOK},
		{"terminology", "", http.MethodGet, "ConceptMap/$translate?url=http://x.example", http.StatusOK},
		{"terminology by a scope", "expand_scope demo.read", http.MethodGet, "ConceptMap/$translate?url=http://x.example", http.StatusForbidden},
		{"what is no path of FHIR's", "", http.MethodGet, "admin", http.StatusNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := exampleGateway(t, echo, guarding(tt.options)...)
			if response := g.Ask(tt.method, "/fhir/R4/"+tt.path, "", "Authorization", "Bearer "+g.Token()); response.StatusCode != tt.status {
				t.Errorf("status %d, want %d: %.300s", response.StatusCode, tt.status, gatewaytest.Read(t, response))
			}
		})
	}
}

// The audit trail says what was asked, by whom, and what allowed or refused it.
func TestAccessIsAudited(t *testing.T) {
	t.Parallel()
	g, _, trail := loggingGateway(t)
	token := g.Token()
	for _, path := range []string{"Patient/1", "Patient/1/$secrets"} {
		g.Get("/fhir/R4/"+path, token)
	}
	var accesses []map[string]any
	for _, line := range logLines(t, trail) {
		if line["kind"] == "access" {
			delete(line, "ts")
			accesses = append(accesses, line)
		}
	}
	if len(accesses) != 1 {
		t.Fatalf("reads are on the trail too, or refusals are not: %v", accesses)
	}
	for field, want := range map[string]string{
		"level": "warn", "outcome": "insufficient_scope", "user": "alice", "client_id": "demo-app", "interaction": "operation Patient/1 $secrets",
	} {
		if accesses[0][field] != want {
			t.Errorf("%s: %v, want %s", field, accesses[0][field], want)
		}
	}
}

func TestBearerOptionErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ option, want string }{
		"no type":                {"shared Gadget everyone", `"Gadget" is no resource type of FHIR R4`},
		"no rule":                {"shared Device sometimes", `"sometimes" is no rule`},
		"a type without patient": {"shared Location patient", "Location cannot have the rule patient"},
		"a rule twice":           {"shared Device everyone\nshared Device closed", "duplicate rule for Device"},
		"no rule at all":         {"shared Device", "wrong argument count"},
		"no operation":           {"operation everything whole r", "operation: "},
		"no reach":               {"operation $everything sometimes r", "operation: "},
		"two classes in one":     {`acr "a b"`, "characters that no challenge can have"},
		"no age":                 {"max_age never", "invalid duration"},
		"scopes on":              {"scopes on", "the only value is off"},
	} {
		err := new(bearer.Bearer).UnmarshalCaddyfile(caddyfile.NewTestDispenser("fhir_bearer {\n" + tt.option + "\n}"))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "Testfile:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A rule that could have no effect is an error: somebody relies on it.
func TestScopesOffWithRules(t *testing.T) {
	t.Parallel()
	config := gatewaytest.Adapt(t, gatewaytest.ExampleText(t, guarding("scopes off\n\t\t\ttest_deny type Patient")...))
	if _, err := gatewaytest.Provision(t, config); err == nil || !strings.Contains(err.Error(), "scopes off leaves allow, deny, operation, shared, search_parameters and expand_scope without effect") {
		t.Errorf("got %v", err)
	}
}

// Memory that is too small for one answer would refuse it for ever.
func TestMemoryOptions(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		"max_memory 64MiB": "",
		"max_memory 63MiB": "it must be at least 67108864 bytes",
		"max_memory 1GiB":  "",
	} {
		_, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, gatewaytest.ExampleText(t, guarding(options)...)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", options, err, want)
		}
	}
}
