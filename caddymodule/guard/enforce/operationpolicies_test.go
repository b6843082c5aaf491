package enforce_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
)

// TestPoliciesOperation checks that a site's rules hold for what operations answer with, too.
func TestPoliciesOperation(t *testing.T) {
	t.Parallel()
	whole, _ := operation.ParseOperation("$own", "whole", "r")
	writer := access.Holder{Scope: "user/*.cruds", User: clinician.User}
	const observation = `{"resourceType":"Observation","id":"a1","status":"final","subject":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name   string
		holder access.Holder
		rules  string
		target string
		body   string
		status int
	}{
		{"called at all", writer, "deny request.operation == '$everything'", "GET Patient/a/$everything", "", 403},
		{"another", writer, "deny request.operation == '$lastn'", "GET Patient/a/$everything", "", 200},
		{"on what is withheld", writer, "deny resource.id == 'a'", "GET Patient/a/$everything", "", 404},
		{"metadata of what is withheld", writer, "deny resource.id == 'a1'", "GET Observation/a1/$meta", "", 404},
		{"metadata of what is not", writer, "deny resource.id == 'a2'", "GET Observation/a1/$meta", "", 200},
		{"metadata of a type", writer, "deny resource.id == 'a2'", "GET Observation/$meta", "", 403},
		{"metadata of the system", writer, "deny resource.id == 'a2'", "GET $meta", "", 403},
		{"metadata of a type, where no resource is denied", writer, "deny request.operation == '$lastn'", "GET Observation/$meta", "", 200},
		{"validation of what is denied", writer, "deny resource.id == 'a1'", "POST Observation/$validate", observation, 403},
		{"validation of what is not", writer, "deny resource.id == 'a2'", "POST Observation/$validate", observation, 200},
		{"an unknown one, allowed", nobody, "allow true", "GET Patient/$unknown", "", 403},
		{"an export, allowed", nobody, "allow true", "GET $export", "", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t, whole).withRules(tt.rules)
			r := requestOf(tt.target, tt.body)
			r.Header.Set("Prefer", "respond-async")
			if got := g.send(tt.holder, r); got.StatusCode != tt.status {
				text, _ := io.ReadAll(got.Body)
				t.Errorf("status %d, want %d: %s", got.StatusCode, tt.status, text)
			}
		})
	}
	for _, target := range []string{"GET Patient/a/$everything", "GET Patient/$own"} {
		got := operating(t, whole).withRules("deny resource.id == 'a1'").entriesOf(writer, requestOf(target, ""))
		if text := strings.Join(got, " "); strings.Contains(text, "Observation/a1") || !strings.Contains(text, "Observation/a2") {
			t.Errorf("%s: %s", target, text)
		}
	}
}

// TestPoliciesExport checks that of an export no resource comes out that a rule withholds.
func TestPoliciesExport(t *testing.T) {
	t.Parallel()
	var query string
	g, h := exporting(t, &query).withRules("deny resource.id == 'a'"), access.Holder{Scope: "system/*.rs"}
	var m struct{ Output []struct{ URL string } }
	if err := json.NewDecoder(g.send(h, asked("GET", g.export(h, "$export"))).Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	got := g.send(h, asked("GET", m.Output[0].URL))
	if text, _ := io.ReadAll(got.Body); got.StatusCode != http.StatusOK || string(text) != "{\"resourceType\":\"Patient\",\"id\":\"b\"}\n" {
		t.Errorf("status %d, %s", got.StatusCode, text)
	}
	for name, link := range map[string]string{"the job": g.export(h, "$export"), "the file": m.Output[0].URL} {
		if got := g.withRules("deny request.operation == '$export'").send(h, asked("GET", link)); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s, denied since: status %d", name, got.StatusCode)
		}
		g.withRules("deny resource.id == 'a'")
	}
}
