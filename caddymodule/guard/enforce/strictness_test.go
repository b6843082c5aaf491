package enforce_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

const ofA = `{"resourceType":"Observation","id":"a1","status":"final","subject":{"reference":"Patient/a"}}`

// TestServedAnother checks that a server which answers with something else is not believed.
func TestServedAnother(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	media := "application/fhir+json"
	g.server.Answers = map[string]http.HandlerFunc{"Observation/a1": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", media)
		w.Header().Set("Etag", `W/"1"`)
		text := ofA
		if r.Method != http.MethodGet {
			text = strings.Replace(ofA, "a1", "a2", 1)
		}
		_, _ = io.WriteString(w, text)
	}}
	put := writing{holder: patientA, request: "PUT Observation/a1", body: ofA}
	if response := g.written(put); response.StatusCode != http.StatusOK || bodyOf(t, response) != "" {
		t.Errorf("another resource was shown: status %d", response.StatusCode)
	}
	media = "text/plain"
	if response := g.written(put); response.StatusCode != http.StatusBadGateway {
		t.Errorf("a version of another type of content: status %d", response.StatusCode)
	}
}

// TestHeld checks on which condition the FHIR server is asked to write.
func TestHeld(t *testing.T) {
	t.Parallel()
	patch := `{"resourceType":"Parameters","parameter":[` + change("replace", "Observation.status", `,{"name":"value","valueCode":"amended"}`) + `]}`
	for _, tt := range []struct{ name, request, body, header, want string }{
		{"a patch", "PATCH Observation/a1", patch, "If-Match", `W/"1"`},
		{"an update that creates", "PUT Observation/fresh", strings.Replace(ofA, "a1", "fresh", 1), "If-None-Match", "*"},
	} {
		g := newGateway(t, records...)
		g.Upsert = true
		held := ""
		g.server.Seen = func(r *http.Request) {
			if r.Method != http.MethodGet {
				held = r.Header.Get(tt.header)
			}
		}
		if response := g.written(writing{holder: patientA, request: tt.request, body: tt.body}); response.StatusCode >= 300 || held != tt.want {
			t.Errorf("%s: status %d, %s: %q", tt.name, response.StatusCode, tt.header, held)
		}
	}
}

// TestWriteBounds is over writes that say too much, or reach too far.
func TestWriteBounds(t *testing.T) {
	t.Parallel()
	all := access.Holder{Scope: "system/Observation.cruds"}
	jsonMedia := "Content-Type: application/json-patch+json"
	replace := `{"op":"replace","path":"/status","value":"amended"}`
	for _, tt := range []writing{
		{"a reference that names no type", all, "POST Observation", strings.Replace(ofA, "Patient/a", "?identifier=1", 1), "", 403, ""},
		{"a search of another type in a reference", all, "POST Observation", strings.Replace(ofA, "Patient/a", "Patient?identifier=1", 1), "", 403, ""},
		{"a delete of others along", all, "DELETE Observation/a1?_cascade:mode=delete", "", "", 403, ""},
		{"as many operations as may be", patientA, "PATCH Observation/a1", "[" + strings.Repeat(replace+",", 999) + replace + "]", jsonMedia, 200, "Observation/a1=amended"},
		{"too many operations", patientA, "PATCH Observation/a1", "[" + strings.Repeat(replace+",", 1000) + replace + "]", jsonMedia, 403, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
	g := newGateway(t, records...)
	g.Limits = server.Limits{Body: 500}
	long := `[{"op":"add","path":"/note","value":[{"text":"` + strings.Repeat("x", 400) + `"}]}]`
	if got := g.written(writing{holder: patientA, request: "PATCH Observation/a1", body: long, header: jsonMedia}); got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a patch that comes to too much: status %d", got.StatusCode)
	}
}

// TestIncludesAsAsked checks that a server brings along no more than was asked for.
func TestIncludesAsAsked(t *testing.T) {
	t.Parallel()
	const (
		patient      = `{"resource":{"resourceType":"Patient","id":"a","generalPractitioner":[{"reference":"Practitioner/p"}]}}`
		practitioner = `{"resource":{"resourceType":"Practitioner","id":"p","qualification":[{"issuer":{"reference":"Organization/o"}}]},"search":{"mode":"include"}}`
		organization = `{"resource":{"resourceType":"Organization","id":"o"},"search":{"mode":"include"}}`
		observation  = `{"resource":{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}},"search":{"mode":"include"}}`
	)
	for query, want := range map[string]string{
		"":                                       "Patient/a",
		"?_include=Patient:general-practitioner": "Patient/a Practitioner/p",
		"?_include=Patient:general-practitioner&_include:iterate=Practitioner:org": "Organization/o Patient/a Practitioner/p",
		"?_revinclude=Observation:subject":                                         "Observation/a1 Patient/a",
	} {
		g := newGateway(t)
		g.server.Answers = map[string]http.HandlerFunc{
			"Patient": answering(`{"resourceType":"Bundle","type":"searchset","entry":[` + strings.Join([]string{patient, practitioner, organization, observation}, ",") + `]}`),
		}
		if got := strings.Join(g.found(patientA, "Patient"+query), " "); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

// TestGroupsAreNotCounted checks that a total that counts groups of others is not told, though none is on this page.
func TestGroupsAreNotCounted(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.server.Answers = map[string]http.HandlerFunc{"Group": func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("page"))
		answering(fmt.Sprintf(`{"resourceType":"Bundle","type":"searchset","total":9,
			"link":[{"relation":"next","url":"http://backend.internal:8080/fhir/Group?page=%d"}],
			"entry":[{"resource":{"resourceType":"Group","id":"g%d","member":[{"entity":{"reference":"Patient/a"}}]}}]}`, page+1, page))(w, r)
	}}
	if text := bodyOf(t, g.get(patientA, "Group?_count=1")); strings.Contains(text, `"total"`) || !strings.Contains(text, `"id":"g0"`) || !strings.Contains(text, `"relation":"next"`) {
		t.Error(text)
	}
}

// TestSearchesThatReachFurther is over parameters that would look at other resources.
func TestSearchesThatReachFurther(t *testing.T) {
	t.Parallel()
	two := access.Holder{Scope: "user/Observation.rs user/Patient.rs", User: clinician.User}
	for _, tt := range []struct {
		holder access.Holder
		target string
		status int
	}{
		{two, "Observation?subject:Patient.family=Adams", 200},
		{two, "Observation?subject:Patient.general-practitioner:below=Practitioner/alice", 403},
		{patientA, "Observation?_sort=status", 200},
		{patientA, "Observation?_sort=code-value-quantity", 403},
	} {
		if got := newGateway(t, records...).get(tt.holder, tt.target); got.StatusCode != tt.status {
			t.Errorf("%s: status %d", tt.target, got.StatusCode)
		}
	}
	g := newGateway(t, records[0],
		`{"resourceType":"Observation","id":"1","status":"final","subject":{"reference":"https://other.example/fhir/Patient/a"},"performer":[{"reference":"Patient/a"}]}`,
		`{"resourceType":"Observation","id":"2","status":"final","subject":{"reference":"Group/a"},"performer":[{"reference":"Patient/a"}]}`)
	if got := g.found(patientA, "Patient?_has:Observation:subject:status=final"); len(got) != 0 {
		t.Errorf("found %v by references that lead elsewhere", got)
	}
}

// TestOperationsSayLittle checks that a server's words about a failure are its own, and that no operation mixes patients.
func TestOperationsSayLittle(t *testing.T) {
	t.Parallel()
	g := operating(t)
	g.server.Answers["Observation/a1/$meta"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"resourceType":"OperationOutcome","text":"secret"}`)
	}
	if text := bodyOf(t, g.get(patientA, "Observation/a1/$meta")); strings.Contains(text, "secret") {
		t.Error(text)
	}
	both := access.Holder{Scope: "patient/*.rs user/*.rs", Patient: "a", User: interaction.Reference{Type: "Patient", ID: "b"}, UserPatient: "b"}
	g.server.Seen = func(r *http.Request) { t.Errorf("%s was asked for", r.URL) }
	if got := g.found(both, "Observation/$lastn?patient=Patient/a&subject=Patient/b"); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

// TestOperationPageOff checks that a page link of an operation leads nowhere once a site has taken that away.
func TestOperationPageOff(t *testing.T) {
	t.Parallel()
	g := operating(t)
	link := nextIn([]byte(bodyOf(t, g.get(patientA, "Patient/a/$everything?_count=1"))))
	if got := g.get(patientA, link); got.StatusCode != http.StatusOK {
		t.Fatalf("status %d", got.StatusCode)
	}
	off, err := operation.ParseOperation("$everything", "off")
	if err != nil {
		t.Fatal(err)
	}
	g.Operations = operation.NewOperations(off)
	if got := g.get(patientA, link); got.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", got.StatusCode)
	}
}

// TestRulesAllowWhatTheySay checks that a rule that allows one interaction allows no other, nor the next entry.
func TestRulesAllowWhatTheySay(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("allow request.id == 'b1' && request.interaction == 'read'", "allow request.id == 'b1' && request.interaction == 'update'")
	entries := request("GET", "Observation/b1") + "," + request("GET", "Observation/a1")
	text := bodyOf(t, g.written(writing{holder: nobody, request: "POST ", body: `{"resourceType":"Bundle","type":"batch","entry":[` + entries + `]}`}))
	if strings.Count(text, `"status":"200`) != 1 || strings.Count(text, `"status":"403`) != 1 {
		t.Error(text)
	}
	response := g.written(writing{holder: nobody, request: "PUT Observation/b1", body: records[5]})
	if text := bodyOf(t, response); response.StatusCode != http.StatusOK || text != "" {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
}
