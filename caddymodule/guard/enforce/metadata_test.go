package enforce_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
)

// A token brings nobody more of the server's statement, nor does a batch.
func TestMetadataWithToken(t *testing.T) {
	t.Parallel()
	statement := `{"resourceType":"CapabilityStatement","implementation":{"url":"` + fhirtest.Address + `"}}`
	for _, holder := range []access.Holder{patientA, clinician} {
		for target, want := range map[string]string{
			"metadata": "200", "metadata?_summary=true": "200", "metadata?_getpages=1": "403", "metadata?_format=json&x=1": "403",
		} {
			for _, inBatch := range []bool{false, true} {
				g := newGateway(t)
				if !inBatch {
					g.withRules("deny true")
				}
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fhir/R4/"+target, nil)
				if inBatch {
					r = httptest.NewRequest(http.MethodPost, "/fhir/R4", strings.NewReader(`{"resourceType":"Bundle","type":"batch","entry":[`+request("GET", target)+`]}`))
					r.Header.Set("Content-Type", "application/fhir+json")
				}
				err := g.Serve(w, r, constant{http.StatusOK, "", statement}, enforce.Bearer{Rights: access.New(holder, g.Shared)})
				got := w.Result().Status[:3] + w.Body.String()
				if refused := statusOf(err); refused != nil {
					got = http.StatusText(refused.Status)
				}
				if strings.Contains(got, "backend.internal") || !inBatch && (want == "200") != strings.HasPrefix(got, "200") || inBatch && !strings.Contains(got, `"status":"`+want) {
					t.Errorf("%s, in a batch %t: %s", target, inBatch, got)
				}
			}
		}
	}
}
