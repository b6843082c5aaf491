package fhirapp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

// A base that is neither a path nor a URL that clients may use is refused, and so is a second one beside the issuer's.
func TestFHIRBaseOfBearer(t *testing.T) {
	t.Parallel()
	for base, ok := range map[string]bool{
		"/fhir/R4": true, "https://fhir.example/fhir/R4": true, "http://localhost:8080/r4": true,
		"http://fhir.example/r4": false, "https://fhir.example": false, "https://fhir.example/": false, "https://a@fhir.example/r4": false,
		"https:///r4": false, "https://fhir.example/r4?a": false, "https://fhir.example/r4#a": false, "fhir/R4": false, "ftp://fhir.example/r4": false,
	} {
		if err := fhirbase.CheckBaseOrURL(base); (err == nil) != ok {
			t.Errorf("%q: %v", base, err)
		}
	}
	_, err := gatewaytest.Provision(t, gatewaytest.Adapt(t, siteWith("https://localhost", "https://localhost", "fhir_bearer {\n\tfhir_base https://fhir.example/fhir/R4\n}")))
	if err == nil || !strings.Contains(err.Error(), "fhir_base must be a path here") {
		t.Errorf("%v", err)
	}
}

// What no handler answers below the FHIR base is 404, not the empty 200 of Caddy, which would look like the success of a
// transaction that never happened.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	g := newGateway(t, siteWith("https://localhost:8443", "https://localhost:8443", `fhir_authorize
handle /fhir/R4/Patient/* {
	respond ok
}
handle /fhir/R4/empty {
	respond 204
}
handle /other {
	header X-Other yes
}`))
	for _, tt := range []struct {
		name, method, path string
		status             int
	}{
		{"a transaction beside the matcher", http.MethodPost, "/fhir/R4", http.StatusNotFound},
		{"a read beside it", http.MethodGet, "/fhir/R4/Observation/1", http.StatusNotFound},
		{"what is answered", http.MethodGet, "/fhir/R4/Patient/1", http.StatusOK},
		{"with an empty body", http.MethodGet, "/fhir/R4/empty", http.StatusNoContent},
		{"what is not the API", http.MethodGet, "/other", http.StatusOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response := g.Send(httptest.NewRequest(tt.method, tt.path, strings.NewReader(`{"resourceType":"Bundle","type":"transaction"}`)))
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != tt.status {
				t.Errorf("%d %q, %v, want %d", response.StatusCode, body, err, tt.status)
			}
			if tt.status == http.StatusNotFound && !strings.Contains(string(body), `"not-found"`) {
				t.Errorf("body %q", body)
			}
		})
	}
}

// Behind the guard, too: where the answer is passed on, and where it is judged.
func TestNobodyAnswersBehindGuard(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"user/*.rs", "user/Patient.rs?gender=female"} {
		g := exampleGateway(t, nil, "\t\tfhir_sample\n", "", `!= ""`, `== "not this"`)
		request := gatewaytest.DemoRequest()
		request.Set("scope", scope)
		if response := g.Get("/fhir/R4/Patient/p01", g.TokenOf(request)); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d %s", scope, response.StatusCode, gatewaytest.Read(t, response))
		}
	}
}
