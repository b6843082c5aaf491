package capability_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// server is a FHIR server that answers requests with a function.
type server http.HandlerFunc

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	s(w, r)
	return nil
}

// serverWithBody returns a server that answers every request with text.
func serverWithBody(text string) server {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, text)
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, query, accept string
		changed             bool
	}{
		{"anything", "", "", true},
		{"anything at all", "", "*/*", true},
		{"JSON", "", "application/fhir+json", true},
		{"JSON or XML", "", "application/fhir+xml;q=0.5, application/fhir+json", true},
		{"a browser", "", "text/html,*/*;q=0.8", true},
		{"XML, rather", "", "application/fhir+xml, */*;q=0.1", true},
		{"JSON by parameter", "_format=json", "application/fhir+xml", true},
		{"terminology", "mode=terminology", "", false},
		{"all of it", "mode=full", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := &capability.Metadata{Base: "/fhir/R4"}
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata?"+tt.query, nil)
			r.Header.Set("Accept", tt.accept)
			w := httptest.NewRecorder()
			var seen string
			next := server(func(w http.ResponseWriter, r *http.Request) {
				seen = r.URL.Path + "?" + r.URL.RawQuery
				serverWithBody(statement)(w, r)
			})
			if err := m.ServeHTTP(w, r, next); err != nil || seen != "/fhir/R4/metadata?"+tt.query {
				t.Fatalf("%v, the server saw %s", err, seen)
			}
			if changed := strings.Contains(w.Body.String(), "SMART-on-FHIR"); changed != tt.changed || !changed && w.Body.String() != statement {
				t.Errorf("changed: %t", changed)
			}
		})
	}
}

// A response that is neither a CapabilityStatement nor contains patient data stays unchanged.
func TestMetadataPasses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		body   string
	}{
		{"another resource", 200, `{"resourceType":"TerminologyCapabilities"}`},
		{"no resource", 200, `{"status":"up"}`},
		{"an error", 500, statement},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			next := server(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/fhir+json")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			err := new(capability.Metadata).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metadata", nil), next)
			if err != nil || w.Code != tt.status || w.Body.String() != tt.body {
				t.Errorf("%v, status %d, %s", err, w.Code, w.Body)
			}
		})
	}
}

func TestMetadataRefused(t *testing.T) {
	t.Parallel()
	m := &capability.Metadata{Base: "/fhir/R4", Limit: 100}
	for _, tt := range []struct {
		name, query string
		status      int
	}{{"too long", "", 502}, {"a page of the server's", "_getpages=1", 403}, {"an ambiguous query", "a=%zz", 400}, {"a search", "_type=Patient", 403}, {"a search, in XML", "_type=Patient&_format=xml", 403}, {"XML", "_format=xml", 406}, {"Turtle", "_format=ttl&_pretty=true", 406}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata?"+tt.query, nil)
			err := m.ServeHTTP(httptest.NewRecorder(), r, serverWithBody(statement))
			if refused, ok := errors.AsType[*guard.Error](err); !ok || refused.Status != tt.status {
				t.Errorf("%v", err)
			}
		})
	}
}

// If the FHIR server interprets metadata as a resource type, its search results are not revealed.
func TestMetadataIsNoSearch(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"resourceType":"Bundle","type":"searchset"}`, `{"resourceType":"Patient","id":"a"}`, `{"resourceType":"CapabilityStatement"`, `{"resourcetype":"Patient"}`, `{"entry":[]}`, `[{}]`} {
		err := new(capability.Metadata).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metadata", nil), serverWithBody(text))
		if refused, ok := errors.AsType[*guard.Error](err); !ok || refused.Status != http.StatusBadGateway {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The ETag identifies the changed statement and is stable while the FHIR server's statement is unchanged.
func TestMetadataETag(t *testing.T) {
	t.Parallel()
	m := &capability.Metadata{Base: "/fhir/R4"}
	get := func(name, etag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata", nil)
		r.Header.Set("If-None-Match", etag)
		w := httptest.NewRecorder()
		if err := m.ServeHTTP(w, r, server(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				t.Error("the server's ETag was sent to the server")
			}
			w.Header().Set("Etag", `W/"server"`)
			serverWithBody(strings.Replace(statement, "RestServer", name, 1))(w, r)
		})); err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := get("a", "").Header().Get("Etag")
	if first == "" || first == `W/"server"` {
		t.Fatalf("ETag %q", first)
	}
	if got := get("a", first); got.Code != http.StatusNotModified {
		t.Errorf("status %d", got.Code)
	}
	for n := range 10 {
		if got := get(strconv.Itoa(n), first); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), `"name": "`+strconv.Itoa(n)+`"`) {
			t.Errorf("another statement: status %d", got.Code)
		}
	}
	if got := get("a", first); got.Code != http.StatusNotModified {
		t.Errorf("made again: status %d", got.Code)
	}
}

// statement is a CapabilityStatement like HAPI's.
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
		{"unaffected members", capability.Changes{}, []string{
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
		{"operations answered before", capability.Changes{LocalOperations: append(capability.TerminologyOperations(true), capability.LocalOperation{Type: "Patient", Name: "everything", Definition: "again"})}, []string{
			`{"type":"ValueSet","operation":[{"definition":"http://hl7.org/fhir/OperationDefinition/ValueSet-expand","name":"expand"},{"definition":"http://hl7.org/fhir/OperationDefinition/ValueSet-validate-code","name":"validate-code"},` +
				`{"definition":"http://hl7.org/fhir/tools/OperationDefinition/ValueSet-compare","name":"related"},{"definition":"http://hl7.org/fhir/tools/OperationDefinition/ValueSet-compare","name":"compare"}]}`,
			`{"type":"CodeSystem"`, `CodeSystem-lookup`, `ConceptMap-translate`,
		}, []string{`"again"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text, err := capability.ApplyChanges([]byte(statement), tt.changes)
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

// A statement that was requested with _elements or _summary gets no additional elements.
func TestCapabilitiesInPart(t *testing.T) {
	t.Parallel()
	const part = `{"resourceType":"CapabilityStatement", "name":"a"}`
	got, err := capability.ApplyChanges([]byte(part), capability.Changes{BaseURL: "https://gateway.example", LocalOperations: capability.TerminologyOperations(true)})
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
			if got, err := capability.ApplyChanges([]byte(tt.text), capability.Changes{}); !errors.Is(err, capability.ErrInvalidStatement) {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

// A statement lists only JSON formats.
func TestCapabilityFormats(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`,"format":["application/fhir+xml"],"patchFormat":["application/xml-patch+xml"]`: `,"format":["application/fhir+json"]`,
		`,"format":["xml","application/fhir+json","ttl","html/json"]`:                    `,"format":["application/fhir+json","html/json"]`,
		`,"format":["json"]`: `,"format":["json"]`,
		``:                   ``,
	} {
		const begin = `{"resourceType":"CapabilityStatement"`
		got, err := capability.ApplyChanges([]byte(begin+in+"}"), capability.Changes{})
		if err != nil || string(got) != begin+want+"}" {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
}
