package enforce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	focus := func(id, reference string) string {
		return observation(id, "Patient/a", `,"focus":[{"reference":"`+reference+`"}]`)
	}
	nested := observation("", "Patient/a", `,"extension":[{"url":"http://e","valueReference":{"reference":"Patient?identifier=1"}}]`)
	list := `{"resourceType":"List","id":"a1","title":"new","subject":{"reference":"Patient/a"},"entry":[{"item":{"reference":"Observation/b1"}}]}`
	for _, tt := range []writing{
		{"to an own record", patientA, "POST Observation", focus("", "Encounter/a1"), "", 201, "Observation/new-19=Encounter/a1"},
		{"to another's record", patientA, "POST Observation", focus("", "Encounter/b1"), "", 403, ""},
		{"to what is not there", patientA, "POST Observation", focus("", "Encounter/none"), "", 403, ""},
		{"to another patient", patientA, "POST Observation", focus("", "Patient/b"), "", 403, ""},
		{"to a shared type", patientA, "POST Observation", focus("", "Practitioner/alice"), "", 201, "Observation/new-19=alice"},
		{"to a shared type that is not there", patientA, "POST Observation", focus("", "Practitioner/none"), "", 201, "Observation/new-19=none"},
		{"to another's device", patientA, "POST Observation", focus("", "Device/b1"), "", 403, ""},
		{"to another's record by the server's address", patientA, "POST Observation", focus("", "http://backend.internal:8080/fhir/Encounter/b1"), "", 403, ""},
		{"to another's record by a path", patientA, "POST Observation", focus("", "/Encounter/b1"), "", 403, ""},
		{"to another's record by its version", patientA, "POST Observation", focus("", "Encounter/b1/_history/1"), "", 403, ""},
		{"by an escape", patientA, "POST Observation", strings.Replace(focus("", "Encounter/b1"), `[{"reference"`, `[{"\u0072eference"`, 1), "", 403, ""},
		{"by dot segments", patientA, "POST Observation", focus("", "Encounter/.."), "", 403, ""},
		{"to what is contained", patientA, "POST Observation", focus("", "#x"), "", 201, "Observation/new-19=#x"},
		{"added by an update", patientA, "PUT Observation/a1", focus("a1", "Encounter/b1"), "", 403, ""},
		{"added by an update, own", patientA, "PUT Observation/a1", focus("a1", "Encounter/a1"), "", 200, "Observation/a1=Encounter/a1"},
		{"there before the update", patientA, "PUT List/a1", list, "", 200, "List/a1=new"},
		{"linking another patient", patientA, "PUT Patient/a", `{"resourceType":"Patient","id":"a","link":[{"type":"seealso","other":{"reference":"Patient/b"}}]}`, "", 403, ""},
		{"not under scopes that are bound to no patient", staff, "POST Observation", focus("", "Encounter/b1"), "", 201, "Observation/new-19=Encounter/b1"},
		{"conditional", patientA, "POST Observation", focus("", "Practitioner?identifier=1"), "", 412, ""},
		{"conditional, in an extension", patientA, "POST Observation", nested, "", 412, ""},
		{"conditional, all of another type", staff, "POST Observation", nested, "", 403, ""},
		{"conditional, all of its type", access.Holder{Scope: "user/Observation.cruds user/Patient.s", User: clinician.User}, "POST Observation", nested, "", 201, "Observation/new-19=Patient?identifier"},
		{"conditional, chained", access.Holder{Scope: "user/Observation.cruds user/Patient.s", User: clinician.User}, "POST Observation", strings.Replace(nested, "identifier", "organization.name", 1), "", 403, ""},
		{"conditional, _has", access.Holder{Scope: "user/Observation.cruds user/Patient.s", User: clinician.User}, "POST Observation", strings.Replace(nested, "identifier", "_has:Encounter:patient:status", 1), "", 403, ""},
		{"conditional, by an address", staff, "POST Observation", focus("", "http://backend.internal:8080/fhir/Patient?identifier=1"), "", 403, ""},
		{"conditional, all of all types", clinician, "POST Observation", nested, "", 201, "Observation/new-19=Patient?identifier"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

// TestReferencesLookAlike checks that a reference to another's record is refused as one to what is not there.
func TestReferencesLookAlike(t *testing.T) {
	t.Parallel()
	answers := map[string]bool{}
	for _, id := range []string{"b1", "none"} {
		g := newGateway(t, writable...)
		asked := ""
		g.server.Seen = func(r *http.Request) { asked += r.Method + " " }
		body := observation("", "Patient/a", `,"encounter":{"reference":"Encounter/`+id+`"}`)
		response := g.written(writing{holder: patientA, request: "POST Observation", body: body})
		text, _ := io.ReadAll(response.Body)
		answers[response.Status+string(text)+asked] = true
	}
	if len(answers) != 1 {
		t.Errorf("answers differ: %v", answers)
	}
}

// TestDotSegments checks that a reference which is no path to a resource is not followed.
func TestDotSegments(t *testing.T) {
	t.Parallel()
	g := newGateway(t, writable...)
	g.server.Seen = func(r *http.Request) { t.Errorf("asked for %s", r.URL.Path) }
	for _, to := range []string{"Encounter/..", "Encounter/.", "Encounter/../Patient/b"} {
		body := observation("", "Patient/a", `,"focus":[{"reference":"`+to+`"}]`)
		if got := g.written(writing{holder: patientA, request: "POST Observation", body: body}); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", to, got.StatusCode)
		}
	}
}

// A reference that is a search becomes one to what the client's own search finds.
func TestConditionalReferences(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, subject, performer, want string
		status                         int
	}{
		{"the own patient", "Patient?family=adams", "Patient/a", `"subject":{"reference":"Patient/a"}`, 201},
		{"a practitioner", "Patient/a", "Practitioner?family=boyd", `"performer":[{"reference":"Practitioner/bob"}]`, 201},
		{"another patient", "Patient?family=brown", "Patient/a", "", 412},
		{"nobody", "Patient/a", "Practitioner?family=nobody", "", 412},
		{"several", "Patient/a", "Practitioner?_id=bob,alice", "", 412},
		{"what tells too much", "Patient/a", "Practitioner?_list=1", "", 403},
		{"a type without a scope", "Patient/a", "Organization?name=mercy", "", 403},
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			g := newGateway(t, chart...)
			g.server.Seen = func(r *http.Request) {
				if text, _ := io.ReadAll(r.Body); strings.Contains(string(text), "?") {
					t.Errorf("%s: the server is sent %s", tt.name, text)
				} else {
					r.Body = io.NopCloser(strings.NewReader(string(text)))
				}
			}
			body, target := `{"resourceType":"Observation","status":"final","subject":{"reference":"`+tt.subject+`"},"performer":[{"reference":"`+tt.performer+`"}]}`, "Observation"
			if method == http.MethodPut {
				body, target = strings.Replace(body, `{`, `{"id":"a3",`, 1), "Observation/a3"
			}
			r := httptest.NewRequest(method, "/fhir/R4/"+target, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/fhir+json")
			r.Header.Set("Prefer", "return=representation")
			response := g.send(access.Holder{Scope: "patient/Observation.cruds patient/Patient.rs patient/Practitioner.rs", Patient: "a"}, r)
			text, _ := io.ReadAll(response.Body)
			want := tt.status
			if method == http.MethodPut && want == http.StatusCreated {
				want = http.StatusOK
			}
			if response.StatusCode != want || !strings.Contains(string(text), tt.want) {
				t.Errorf("%s %s: %d %s", method, tt.name, response.StatusCode, text)
			}
		}
	}
}
