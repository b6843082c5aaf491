package capability_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// statement is a CapabilityStatement such as HAPI's.
const statement = `{ "resourceType" : "CapabilityStatement", "name": "RestServer", "date":"2026-01-01",
  "implementation": {"description":"HAPI FHIR", "url": "http://backend.internal:8080/fhir"},
  "messaging":[{"documentation":"messages"}], "format": ["application/fhir+xml", "json"], "patchFormat": ["application/json-patch+json", "application/xml-patch+xml"],
  "rest": [ {"mode":"client","operation":[{"name":"member-match"}]}, { "mode": "server", "security":{"description":"none"},
    "resource": [
      {"type":"Patient","profile":"http://hl7.org/fhir/StructureDefinition/Patient","interaction":[{"code":"read"},  {"code":"history-type"}],
       "searchInclude":["*"],
       "operation":[{"name":"everything","definition":"http://backend.internal:8080/fhir/OperationDefinition/Patient-it-everything"},
        {"name":"member-match","definition":"http://hl7.org/x"}, {"name" : "$merge"}]},
      {"type":"Group",  "operation":[{"name":"mdm-submit","definition":"x"}]},
      {"type":"Basic",  "versioning":"versioned" }
    ],
    "interaction":[{"code":"transaction"}, {"code":"history-system"}],
    "operation":[{"name":"export","definition":"http://other.example/OperationDefinition/export"},{"name":"reindex","definition":"http://backend.internal:8080/fhirx"},{"name":"graphql","definition":"z"}] }]}`

func TestCapabilities(t *testing.T) {
	t.Parallel()
	op, _ := operation.ParseOperation("$reindex", "whole", "u")
	message, _ := operation.ParseOperation("$process-message", "whole", "c")
	for _, tt := range []struct {
		name    string
		changes capability.Changes
		has     []string
		lacks   []string
	}{
		{"what nobody concerns", capability.Changes{}, []string{
			`{ "resourceType" : "CapabilityStatement", "name": "RestServer", "date":"2026-01-01",`, `{"type":"Basic",  "versioning":"versioned" }`,
			`"interaction":[{"code":"read"},  {"code":"history-type"}]`, `"searchInclude":["*"]`, `"interaction":[{"code":"transaction"}, {"code":"history-system"}]`,
			`{"mode":"client","operation":[{"name":"member-match"}]}`, `"format": ["json"]`, `"patchFormat": ["application/json-patch+json"]`, `"url": "http://backend.internal:8080/fhir"`,
		}, nil},
		{"operations that may not be called", capability.Changes{}, []string{`"everything"`, `"export"`, `{"type":"Group"}`},
			[]string{`"http://hl7.org/x"`, `merge`, `mdm-submit`, `reindex`, `graphql`, `messaging`}},
		{"operations that a site allows", capability.Changes{Operations: operation.NewOperations(op, message)}, []string{`"reindex"`, `messaging`}, []string{`graphql`}},
		{"the server's own security", capability.Changes{}, []string{`"code":"SMART-on-FHIR"`, `http://terminology.hl7.org/CodeSystem/restful-security-service`, `"cors":false`,
			`{"code":"IUA","system":"http://profiles.ihe.net/fhir/ihe.securityTypes/CodeSystem/securityTypes"}`},
			[]string{`"description":"none"`, "oauth-uris"}},
		{"endpoints", capability.Changes{CORS: true, OAuth: smart.OAuthURIs{Authorize: "https://a.example/authorize", Token: "https://a.example/token", Revoke: "https://a.example/revoke"}}, []string{
			`"cors":true`, `{"url":"http://fhir-registry.smarthealthit.org/StructureDefinition/oauth-uris","extension":[{"url":"authorize","valueUri":"https://a.example/authorize"},{"url":"token","valueUri":"https://a.example/token"},{"url":"revoke","valueUri":"https://a.example/revoke"}]}`,
		}, []string{`"introspect"`, `"register"`}},
		{"the server's address", capability.Changes{BaseURL: "https://gateway.example/fhir/R4"}, []string{
			`"url": "https://gateway.example/fhir/R4"`, `"definition":"https://gateway.example/fhir/R4/OperationDefinition/Patient-it-everything"`, `http://other.example/OperationDefinition/export`,
		}, []string{"backend.internal"}},
		{"an address that begins like the server's", capability.Changes{BaseURL: "https://gateway.example", Operations: operation.NewOperations(op)}, []string{`"http://backend.internal:8080/fhirx"`}, nil},
		{"operations answered before", capability.Changes{Answered: append(capability.TerminologyOperations(true), capability.AnsweredOperation{Type: "Patient", Name: "everything", Definition: "again"})}, []string{
			`{"type":"ValueSet","operation":[{"definition":"http://hl7.org/fhir/OperationDefinition/ValueSet-expand","name":"expand"},{"definition":"http://hl7.org/fhir/OperationDefinition/ValueSet-validate-code","name":"validate-code"}]}`,
			`{"type":"CodeSystem"`, `CodeSystem-lookup`, `ConceptMap-translate`,
		}, []string{`"again"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text, err := capability.Capabilities([]byte(statement), tt.changes)
			if err != nil || !json.Valid(text) {
				t.Fatalf("%v: %s", err, text)
			}
			for _, part := range tt.has {
				if !strings.Contains(string(text), part) {
					t.Errorf("lacks %s: %s", part, text)
				}
			}
			for _, part := range tt.lacks {
				if strings.Contains(string(text), part) {
					t.Errorf("has %s: %s", part, text)
				}
			}
		})
	}
}

// TestCapabilitiesInPart checks that a statement that was asked for in part gets nothing that was not.
func TestCapabilitiesInPart(t *testing.T) {
	t.Parallel()
	const part = `{"resourceType":"CapabilityStatement", "name":"a"}`
	got, err := capability.Capabilities([]byte(part), capability.Changes{BaseURL: "https://gateway.example", Answered: capability.TerminologyOperations(true)})
	if err != nil || string(got) != part {
		t.Errorf("%s, %v", got, err)
	}
}

func TestCapabilitiesRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text string }{
		{"another resource", `{"resourceType":"Patient"}`},
		{"no resource", `{}`},
		{"no JSON", `<CapabilityStatement/>`},
		{"a name twice", `{"resourceType":"CapabilityStatement","rest":[],"rest":[]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, err := capability.Capabilities([]byte(tt.text), capability.Changes{}); !errors.Is(err, capability.ErrCapabilities) {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

// TestCapabilityFormats checks that a statement says of no format but those of JSON.
func TestCapabilityFormats(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`,"format":["application/fhir+xml"],"patchFormat":["application/xml-patch+xml"]`: `,"format":["application/fhir+json"]`,
		`,"format":["xml","application/fhir+json","ttl","html/json"]`:                    `,"format":["application/fhir+json","html/json"]`,
		`,"format":["json"]`: `,"format":["json"]`,
		``:                   ``,
	} {
		const begin = `{"resourceType":"CapabilityStatement"`
		got, err := capability.Capabilities([]byte(begin+in+"}"), capability.Changes{})
		if err != nil || string(got) != begin+want+"}" {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
}
