package fhirapp

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// The CapabilityStatement tells how to sign in, and which operations there are once the server is guarded.
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
	text := gatewaytest.Read(t, g.Get("/fhir/R4/metadata", ""))
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
		uris["manage"] != "https://localhost:8443/oauth2/account" { // as management_endpoint

		t.Errorf("security: %s", text)
	}
	named := func(name string) func(struct{ Name string }) bool {
		return func(o struct{ Name string }) bool { return o.Name == name }
	}
	if slices.ContainsFunc(rest.Operation, named("reindex")) {
		t.Errorf("an operation that nobody may call: %s", text)
	}
	expands := false
	for _, r := range rest.Resource {
		expands = expands || r.Type == "ValueSet" && slices.ContainsFunc(r.Operation, named("expand"))
	}
	if !expands {
		t.Errorf("fhir_expand answers $expand: %s", text)
	}
}
