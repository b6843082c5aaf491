package sample_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	samplemodule "github.com/caddy-fhir/caddy-fhir/caddymodule/features/sample"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sample"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard"
)

// sampleGateway starts a gateway with fhir_bearer before fhir_sample. It accepts tokens of another issuer.
func sampleGateway(t *testing.T, k *gatewaytest.Issuer) *gatewaytest.Gateway {
	t.Helper()
	return gatewaytest.New(t, `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	fhir_bearer {
		trust `+k.URL+` api://fhir
	}
	fhir_sample
}
`)
}

// sampleToken returns a token with a scope, patient and fhirUser.
func sampleToken(t *testing.T, k *gatewaytest.Issuer, scope, patient, fhirUser string) string {
	t.Helper()
	return k.Sign(t, map[string]any{
		"iss": k.URL, "sub": "u1", "aud": "api://fhir", "azp": "c1", "scope": scope, "patient": patient, "fhirUser": fhirUser,
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "typ": "Bearer",
	})
}

// pages reads all pages of a search and returns the resources.
func pages(t *testing.T, g *gatewaytest.Gateway, target, token string) (found []resource.Resource) {
	t.Helper()
	for count := 0; target != ""; count++ {
		var b struct {
			Entry []struct{ Resource json.RawMessage }
			Link  []struct{ Relation, URL string }
		}
		response := g.Get(target, token)
		text := gatewaytest.ReadBody(t, response)
		if err := json.Unmarshal([]byte(text), &b); err != nil || response.StatusCode != http.StatusOK || count > 200 {
			t.Fatalf("%s: %d %v: %.300s", target, response.StatusCode, err, text)
		}
		for _, e := range b.Entry {
			r, err := resource.Parse(e.Resource)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, r)
		}
		target = ""
		for _, l := range b.Link {
			if l.Relation == "next" {
				target = strings.TrimPrefix(l.URL, "https://localhost:8443")
			}
		}
	}
	return found
}

// Through the guard, exactly the sample records that the token's scopes, patient and fhirUser cover are found.
func TestGuardedSample(t *testing.T) {
	t.Parallel()
	k := gatewaytest.NewIssuer(t)
	g := sampleGateway(t, k)
	for _, tt := range []struct {
		name, scope, patient, fhirUser, target string
		mine                                   func(resource.Resource) bool
	}{
		{"all patients", "user/*.rs", "", "Practitioner/alice", "Patient", func(r resource.Resource) bool { return r.Type == "Patient" }},
		{"one patient", "patient/*.rs", "p01", "Practitioner/alice", "Patient", func(r resource.Resource) bool { return r.Type == "Patient" && r.ID == "p01" }},
		{"a patient's observations", "patient/*.rs", "p01", "", "Observation", ofPatient("Observation", "p01")},
		{"a patient's own observations", "user/*.rs", "", "Patient/p07", "Observation", ofPatient("Observation", "p07")},
		{"a patient's medicines", "patient/MedicationRequest.rs", "p01", "", "MedicationRequest", ofPatient("MedicationRequest", "p01")},
		{"a patient's appointments", "patient/*.rs", "p02", "", "Appointment", ofPatient("Appointment", "p02")},
		{"laboratory", "patient/Observation.rs?category=laboratory", "p01", "", "Observation", func(r resource.Resource) bool {
			return ofPatient("Observation", "p01")(r) && strings.HasPrefix(categoryOf(r), "laboratory")
		}},
		{"problems of all", "user/Condition.rs?category=problem-list-item", "", "Practitioner/alice", "Condition", func(r resource.Resource) bool {
			return r.Type == "Condition" && categoryOf(r) == "problem-list-item"
		}},
		{"everything of a patient", "patient/*.rs", "p01", "", "Patient/p01/$everything", nil},
		{"with included resources", "patient/*.rs", "p01", "", "Encounter?_include=Encounter:practitioner&_revinclude=Observation:encounter", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found := pages(t, g, "/fhir/R4/"+tt.target, sampleToken(t, k, tt.scope, tt.patient, tt.fhirUser))
			for _, r := range found {
				for patient := range compartment.Patients(r) {
					if tt.patient != "" && patient != tt.patient {
						t.Errorf("%s/%s is of %s", r.Type, r.ID, patient)
					}
				}
			}
			if want := countOf(t, tt.mine); tt.mine != nil && len(found) != want || len(found) == 0 {
				t.Errorf("%d resources, want %d", len(found), want)
			}
		})
	}
}

func ofPatient(resourceType, id string) func(resource.Resource) bool {
	return func(r resource.Resource) bool { return r.Type == resourceType && compartment.IsInPatient(r, id) }
}

func categoryOf(r resource.Resource) string {
	for code := range r.Values(resource.Path{Elements: []string{"category", "coding", "code"}}) {
		return resource.Text(code)
	}
	return ""
}

// countOf returns the number of records for which a predicate is true.
func countOf(t *testing.T, is func(resource.Resource) bool) (count int) {
	t.Helper()
	records, err := sample.Records()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range records {
		r, err := resource.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if is != nil && is(r) {
			count++
		}
	}
	return count
}

// Requests outside the scopes are rejected or return 404.
func TestGuardedSampleRefuses(t *testing.T) {
	t.Parallel()
	k := gatewaytest.NewIssuer(t)
	g := sampleGateway(t, k)
	for _, tt := range []struct {
		name, scope, patient, method, target, body string
		status                                     int
	}{
		{"no token", "", "", "GET", "Patient/p01", "", 401},
		{"one's own record", "patient/*.rs", "p01", "GET", "Patient/p01", "", 200},
		{"another's", "patient/*.rs", "p01", "GET", "Patient/p02", "", 404},
		{"another's observation", "patient/*.rs", "p01", "GET", "Observation/p02-observation-1", "", 404},
		{"one's own document", "patient/*.rs", "p01", "GET", "Binary/p01-binary-1", "", 200},
		{"another's document", "patient/*.rs", "p01", "GET", "Binary/p02-binary-1", "", 404},
		{"the doctor", "patient/*.rs", "p01", "GET", "Practitioner/alice", "", 200},
		{"a problem, with a scope for the laboratory", "patient/Observation.rs?category=laboratory", "p01", "GET", "Condition/p01-condition-1", "", 403},
		{"a version", "patient/*.rs", "p01", "GET", "Patient/p01/_history/1", "", 200},
		{"a create with a scope to read", "patient/*.rs", "p01", "POST", "Observation", `{"resourceType":"Observation","subject":{"reference":"Patient/p01"}}`, 403},
		{"a create", "patient/*.cruds", "p01", "POST", "Observation", `{"resourceType":"Observation","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/p29"}}`, 403},
		{"another's create", "patient/*.cruds", "p30", "POST", "Observation", `{"resourceType":"Observation","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/p30"}}`, 201},
		{"the CapabilityStatement", "", "", "GET", "metadata", "", 200},
		{"path that is not FHIR", "user/*.rs", "", "GET", "admin", "", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(tt.method, "/fhir/R4/"+tt.target, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "application/fhir+json")
			if tt.scope != "" {
				r.Header.Set("Authorization", "Bearer "+sampleToken(t, k, tt.scope, tt.patient, ""))
			}
			if response := g.Send(r); response.StatusCode != tt.status {
				t.Errorf("status %d, want %d: %.300s", response.StatusCode, tt.status, gatewaytest.ReadBody(t, response))
			}
		})
	}
}

// The example serves sample records if FHIR_BACKEND is not set.
func TestExampleHasSampleRecords(t *testing.T) {
	t.Setenv("FHIR_BACKEND", "")
	g := gatewaytest.New(t, gatewaytest.ExampleText(t))
	if got := gatewaytest.ReadBody(t, g.Get("/fhir/R4/metadata", "")); !strings.Contains(got, sample.Description) {
		t.Errorf("CapabilityStatement: %.300s", got)
	}
	token := g.Token()
	if found := pages(t, g, "/fhir/R4/Patient?general-practitioner=Practitioner/alice", token); len(found) != 10 {
		t.Errorf("alice looks after %d patients", len(found))
	}
	fullURL := gatewaytest.ReadBody(t, g.Get("/fhir/R4/Patient?_id=p01", token))
	if !strings.Contains(fullURL, `"fullUrl":"https://localhost:8443/fhir/R4/Patient/p01"`) {
		t.Errorf("%.300s", fullURL)
	}
}

// Changes to the sample records survive a reload.
func TestSampleOutlivesReload(t *testing.T) {
	t.Parallel()
	const caddyfile = "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\tfhir_sample {\n\t\tfhir_base /kept\n\t}\n}\n"
	r := httptest.NewRequest(http.MethodPut, "/kept/Group/1", strings.NewReader(`{"resourceType":"Group","id":"1"}`))
	r.Header.Set("Content-Type", "application/fhir+json")
	if response := gatewaytest.New(t, caddyfile).Send(r); response.StatusCode != http.StatusCreated {
		t.Errorf("PUT: %d", response.StatusCode)
	}
	if response := gatewaytest.New(t, caddyfile).Get("/kept/Group/1", ""); response.StatusCode != http.StatusOK {
		t.Errorf("after a reload: %d", response.StatusCode)
	}
}

// If FHIR_BACKEND is set, the example serves no sample records.
func TestExampleUsesBackend(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Example(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, `{"resourceType":"Patient","id":"p01"}`)
	}))
	if response := g.Get("/fhir/R4/Patient/p01", g.Token()); strings.Contains(gatewaytest.ReadBody(t, response), "Ashby") || response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
}

// fhir_sample works without fhir_bearer and at a configured base, and ignores requests for other paths.
func TestSampleBase(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\troute {\n\t\tfhir_sample {\n\t\t\tfhir_base /r4\n\t\t}\n\t\trespond elsewhere\n\t}\n}\n")
	for target, want := range map[string]string{"/r4/Patient/p01": "Ashby", "/r4x/Patient/p01": "elsewhere", "/fhir/R4/Patient/p01": "elsewhere"} {
		if got := gatewaytest.ReadBody(t, g.Get(target, "")); !strings.Contains(got, want) {
			t.Errorf("%s: %.200s", target, got)
		}
	}
	for _, text := range []string{"fhir_sample x", "fhir_sample {\n\tfhir_base r4\n}", "fhir_sample {\n\tpatients 7\n}"} {
		if err := new(samplemodule.Sample).UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}

// A service can export through the guard, from kick-off to download. The links of the export point to the guard and require the
// token.
func TestGuardedExport(t *testing.T) {
	t.Setenv("FHIR_BACKEND", "")
	g := gatewaytest.New(t, gatewaytest.ExampleText(t))
	service := g.RequestToken(url.Values{"grant_type": {"client_credentials"}, "client_id": {"demo-service"}, "client_secret": {"demo-service-secret"}, "scope": {"system/*.rs"}})
	ask := func(method, address, token string) *http.Response {
		r := httptest.NewRequest(method, strings.TrimPrefix(address, "https://localhost:8443"), nil)
		r.Header.Set("Prefer", "respond-async")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return g.Send(r)
	}
	if r := ask(http.MethodGet, "/fhir/R4/$export", g.Token()); r.StatusCode != http.StatusForbidden {
		t.Errorf("by a person: %d", r.StatusCode)
	}
	for target, want := range map[string]string{"$export?_type=Patient": "Patient:30", "Group/alice/$export?_type=Patient,Condition": "Patient:10", "Patient/$export?_type=Coverage": "Coverage:30"} {
		begun := ask(http.MethodGet, "/fhir/R4/"+target, service)
		status := begun.Header.Get("Content-Location")
		if begun.StatusCode != http.StatusAccepted || status == "" {
			t.Fatalf("%s: %d %s", target, begun.StatusCode, gatewaytest.ReadBody(t, begun))
		}
		if r := ask(http.MethodGet, status, service); r.StatusCode != http.StatusAccepted || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s, at work: %d", target, r.StatusCode)
		}
		var m struct{ Output []struct{ Type, URL string } }
		if text := gatewaytest.ReadBody(t, ask(http.MethodGet, status, service)); json.Unmarshal([]byte(text), &m) != nil || len(m.Output) == 0 {
			t.Fatalf("%s: %s", target, text)
		}
		file := m.Output[len(m.Output)-1]
		lines := strings.Count(gatewaytest.ReadBody(t, ask(http.MethodGet, file.URL, service)), "\n")
		if got := fmt.Sprintf("%s:%d", file.Type, lines); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
		if r := ask(http.MethodGet, file.URL, ""); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a token: %d", r.StatusCode)
		}
		if r := ask(http.MethodDelete, status, service); r.StatusCode != http.StatusAccepted {
			t.Errorf("deleting: %d", r.StatusCode)
		}
		for _, deleted := range []string{status, file.URL} {
			if r := ask(http.MethodGet, deleted, service); r.StatusCode != http.StatusNotFound {
				t.Errorf("afterwards: %d", r.StatusCode)
			}
		}
	}
}

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// The users of Caddyfile.example see exactly the documented records.
func TestDemoPeople(t *testing.T) {
	t.Setenv("FHIR_BACKEND", "")
	g := gatewaytest.New(t, gatewaytest.ExampleText(t))
	for user, want := range map[string]map[string]int{
		"alice": {"Patient": 30, "Condition?patient=p02": 1},
		"nora":  {"Patient": 1, "Patient/p01": http.StatusOK, "Patient/p02": http.StatusNotFound},
		"robin": {"Patient": 1, "Patient/p23": http.StatusOK, "Patient/p24": http.StatusNotFound},
	} {
		request := gatewaytest.DemoRequest()
		request.Set("prompt", "login")
		token := g.TokenForUser(user, request)
		for target, count := range want {
			if strings.Contains(target, "/") {
				if r := g.Get("/fhir/R4/"+target, token); r.StatusCode != count {
					t.Errorf("%s: %s: %d, want %d", user, target, r.StatusCode, count)
				}
			} else if found := pages(t, g, "/fhir/R4/"+target, token); len(found) != count && (count != 1 || target == "Patient" || len(found) == 0) {
				t.Errorf("%s: %s: %d, want %d", user, target, len(found), count)
			}
		}
	}
}
