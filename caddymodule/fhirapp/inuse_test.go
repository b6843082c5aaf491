package fhirapp

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// After a reload the keys in use stay, and with them the tokens, whatever happened to
// their file, which is left as it is.
func TestReloadKeepsKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, content string }{{"damaged", "[{"}, {"missing", ""}} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			before := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
			token := before.Token()
			file := filepath.Join(folder, "fhir", "keys", "localhost-8443.json")
			err := os.Remove(file)
			if test.content != "" {
				err = os.WriteFile(file, []byte(test.content), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			after := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
			app, err := fhirbase.Find[*App](after.Context)
			if err != nil {
				t.Fatal(err)
			}
			if err := app.keys.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
			if r := after.Get("/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", token); r.StatusCode != http.StatusOK {
				t.Errorf("the token of before: %d", r.StatusCode)
			}
			if content, _ := os.ReadFile(file); string(content) != test.content {
				t.Errorf("the file is %q", content)
			}
		})
	}
}
