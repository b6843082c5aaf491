package enforce_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// TestBaseOfClients checks that an address that a client has put into a resource is not taken for the FHIR server's own,
// which would rewrite references in the records of others.
func TestBaseOfClients(t *testing.T) {
	t.Parallel()
	const foreign = "https://client.example/r4"
	nested := map[string]string{
		"a nested Bundle": `{"resourceType":"Bundle","id":"1","type":"document","entry":[{"fullUrl":"` + foreign + `/Patient/1","response":{"location":"` + foreign + `/Patient/1"}}]}`,
		"a list of texts": `{"resourceType":"Patient","id":"a","name":[{"given":["fullUrl","` + foreign + `/Patient/1"]}]}`,
	}
	pages := map[string]string{
		"no fullUrl":              `{"resource":@}`,
		"fullUrl behind":          `{"resource":@,"fullUrl":"http://backend.internal/fhir/Patient/a"}`,
		"fullUrl in another form": `{"fullUrl":"urn:uuid:9f2f0f0e-0000-4000-8000-000000000000","resource":@}`,
	}
	for _, h := range []access.Holder{{Scope: "system/*.cruds"}, patientA} {
		for what, resource := range nested {
			for where, entry := range pages {
				s := newSite(t, h, false, func(w http.ResponseWriter, r *http.Request) {
					text := `{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"},"performer":[{"reference":"` + foreign + `/Practitioner/1"}]}`
					if !strings.HasSuffix(r.URL.Path, "/Observation/a1") {
						text = `{"resourceType":"Bundle","type":"searchset","entry":[` + strings.Replace(entry, "@", resource, 1) + `]}`
					}
					w.Header().Set("Content-Type", "application/fhir+json")
					_, _ = w.Write([]byte(text))
				})
				for _, search := range []string{"Bundle", "Patient?family=x", "Patient/a/_history", "Patient/a/$everything"} {
					if _, _, err := s.send(t, http.MethodGet, search, ""); err != nil {
						t.Fatal(err)
					}
				}
				if _, text, err := s.send(t, http.MethodGet, "Observation/a1", ""); err != nil || !strings.Contains(string(text), foreign) {
					t.Errorf("%s: %s, %s: %v, %s", h.Scope, what, where, err, text)
				}
			}
		}
	}
}

// TestBaseOfOperations checks that the fullUrls in the response to an operation, which may be a client's, are not taken for
// addresses of the FHIR server.
func TestBaseOfOperations(t *testing.T) {
	t.Parallel()
	const foreign = "https://client.example/r4"
	s := newSite(t, access.Holder{Scope: "system/*.cruds"}, false, func(w http.ResponseWriter, r *http.Request) {
		text := `{"resourceType":"Observation","id":"a1","performer":[{"reference":"` + foreign + `/Practitioner/1"}]}`
		if strings.Contains(r.URL.Path, "$") {
			text = `{"resourceType":"Bundle","type":"searchset","entry":[{"fullUrl":"` + foreign + `/Patient/1","resource":{"resourceType":"Patient","id":"1"}}]}`
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = w.Write([]byte(text))
	})
	for _, path := range []string{"Patient/a/$everything", "Observation/$lastn", "Observation/a1"} {
		response, text, err := s.send(t, http.MethodGet, path, "")
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", path, response, err)
		}
		if strings.HasSuffix(path, "a1") && !strings.Contains(string(text), foreign) {
			t.Errorf("rewritten: %s", text)
		}
	}
}

// TestErrorsNameNoBackend checks that the FHIR server's errors show none of its addresses, also where content of any type
// passes.
func TestErrorsNameNoBackend(t *testing.T) {
	t.Parallel()
	const at = "http://backend.internal:8080/fhir/Binary/1"
	for _, h := range []access.Holder{{Scope: "system/*.cruds"}, clinician, patientA} {
		for _, path := range []string{"Binary/1", "Binary/1/_history/1", "Binary/1?_format=image/png", "Patient/a", "Patient?family=x", "Patient/a/$everything", "Observation/$lastn", "Observation/a1/$meta"} {
			for media, text := range map[string]string{
				"text/html": "<p>" + at, "text/plain": at, "application/octet-stream": at,
				"application/json":     `{"error":"x","path":"x ` + at + `"}`,
				"application/fhir+xml": `<OperationOutcome><issue><diagnostics value="x ` + at + `"/></issue></OperationOutcome>`,
			} {
				for _, status := range []int{400, 404, 500, 503} {
					s := newSite(t, h, false, func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", media)
						w.Header().Set("Content-Location", at+"/_history/1")
						w.WriteHeader(status)
						_, _ = w.Write([]byte(text))
					})
					if response, got, err := s.send(t, http.MethodGet, path, ""); err != nil || strings.Contains(string(got), "backend.internal") || response.StatusCode < 400 {
						t.Errorf("%s: %s: %d %s: %v, %s", h.Scope, path, status, media, err, got)
					}
				}
			}
		}
	}
}
