package enforce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// writing is a case of a write.
type writing struct {
	name    string
	holder  access.Holder
	request string // method and target
	body    string
	header  string // Name: value, lines
	status  int
	stored  string // reference=part of what is stored then; with ! what is not
}

// written has a write answered.
func (g *gateway) written(tt writing) *http.Response {
	g.t.Helper()
	method, target, _ := strings.Cut(tt.request, " ")
	r := httptest.NewRequest(method, "/fhir/R4/"+target, strings.NewReader(tt.body))
	r.Header.Set("Content-Type", "application/fhir+json")
	for line := range strings.Lines(tt.header) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		r.Header.Set(name, value)
	}
	return g.send(tt.holder, r)
}

// check sends a write, and compares what came of it. Nothing else but what the case names may have changed.
func (tt writing) check(t *testing.T) {
	t.Helper()
	tt.checkAt(newGateway(t, writable...))
}

func (tt writing) checkAt(g *gateway) {
	g.t.Helper()
	g.server.Seen = func(r *http.Request) {
		if r.Method != http.MethodGet && tt.status/100 == 4 && tt.status != http.StatusPreconditionFailed {
			g.t.Errorf("%s %s reaches the server", r.Method, r.URL)
		}
	}
	response := g.written(tt)
	if response.StatusCode != tt.status {
		text, _ := io.ReadAll(response.Body)
		g.t.Errorf("status %d, want %d: %s", response.StatusCode, tt.status, text)
	}
	reference, part, named := strings.Cut(tt.stored, "=")
	part, absent := strings.CutPrefix(part, "!")
	if got := g.server.Get(reference); named && strings.Contains(got, part) == absent {
		g.t.Errorf("%s is %s, want %s", reference, got, tt.stored)
	}
	for _, text := range writable {
		if of := referenceOf(text); of != reference && !strings.Contains(g.server.Get(of), `"versionId":"1"`) {
			g.t.Errorf("%s was changed: %s", of, g.server.Get(of))
		}
	}
}

// referenceOf is the Type/id of a resource in a test.
func referenceOf(text string) string {
	between := func(before string) string {
		_, rest, _ := strings.Cut(text, before)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	return between(`"resourceType":"`) + "/" + between(`"id":"`)
}

// writable are the records and some more of them, to be written.
var writable = append(slices.Clone(records),
	`{"resourceType":"Observation","id":"ab","status":"final","subject":{"reference":"Patient/a"},"performer":[{"reference":"Patient/b"}]}`,
	`{"resourceType":"Encounter","id":"a1","status":"finished","subject":{"reference":"Patient/a"}}`,
	`{"resourceType":"Encounter","id":"b1","status":"finished","subject":{"reference":"Patient/b"}}`,
	`{"resourceType":"Provenance","id":"a1","target":[{"reference":"Observation/a1"}]}`,
	`{"resourceType":"Provenance","id":"b1","target":[{"reference":"Observation/b1"}]}`,
	`{"resourceType":"List","id":"a1","subject":{"reference":"Patient/a"},"entry":[{"item":{"reference":"Observation/b1"}}]}`,
)

// observation is an Observation of a test, as final as the others.
func observation(id, subject, more string) string {
	text := `{"resourceType":"Observation",`
	if id != "" {
		text += `"id":"` + id + `",`
	}
	return text + `"status":"amended","category":[{"coding":[{"system":"http://c","code":"laboratory"}]}],"subject":{"reference":"` + subject + `"}` + more + `}`
}

// holders that tests of writes share.
var (
	creator    = access.Holder{Scope: "patient/*.c", Patient: "a"}
	updater    = access.Holder{Scope: "patient/*.u", Patient: "a"}
	laboratory = access.Holder{Scope: "patient/Observation.cruds?category=http://c|laboratory", Patient: "a"}
	staff      = access.Holder{Scope: "user/Observation.cruds", User: clinician.User}
	mixed      = access.Holder{
		Scope:   "patient/Observation.cruds?category=http://c|laboratory user/Observation.cruds?category=http://c|vital-signs",
		Patient: "a", User: clinician.User,
	}
)

// TestWriteIsHeld checks that what was judged is what is changed: another version in between makes the write fail.
func TestWriteIsHeld(t *testing.T) {
	t.Parallel()
	plain := `{"resourceType":"Parameters","parameter":[` + change("replace", "Observation.status", `,{"name":"value","valueCode":"amended"}`) + `]}`
	for _, request := range []string{"PUT Observation/a1", "DELETE Observation/a1", "PATCH Observation/a1", "PATCH Observation/a1 "} {
		for header, status := range map[string]int{"": 409, `If-Match: W/"1"`: 412} {
			g := newGateway(t, writable...)
			g.server.Seen = func(r *http.Request) {
				if r.Method != http.MethodGet {
					g.server.Put(observation("a1", "Patient/b", "")) // somebody was faster
				}
			}
			tt := writing{holder: patientA, request: request, header: header, body: observation("a1", "Patient/a", "")}
			if request == "PATCH Observation/a1 " { // by FHIRPath
				tt.body, tt.request = plain, strings.TrimSpace(request)
			} else if strings.HasPrefix(request, "PATCH") {
				tt.body, tt.header = `[{"op":"replace","path":"/status","value":"amended"}]`, "Content-Type: application/json-patch+json\n"+header
			}
			if response := g.written(tt); response.StatusCode != status {
				t.Errorf("%s %s: status %d, want %d", request, header, response.StatusCode, status)
			}
			if !strings.Contains(g.server.Get("Observation/a1"), "Patient/b") {
				t.Errorf("%s %s: written over what was not judged", request, header)
			}
		}
	}
}

// constant is a server that always gives the same answer.
type constant struct {
	status int
	etag   string
	body   string
}

func (s constant) ServeHTTP(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/fhir+json")
	if s.etag != "" {
		w.Header().Set("Etag", s.etag)
	}
	w.WriteHeader(s.status)
	_, err := io.WriteString(w, s.body)
	return err
}

// TestUnfitVersion checks what is answered if the version that is to be changed cannot be had.
func TestUnfitVersion(t *testing.T) {
	t.Parallel()
	const etag = `W/"1"`
	own := observation("a1", "Patient/a", "")
	for _, tt := range []struct {
		name   string
		server constant
		status int
	}{
		{"no version to hold", constant{200, "", own}, 502},
		{"another resource", constant{200, etag, observation("a2", "Patient/a", "")}, 404},
		{"another type", constant{200, etag, `{"resourceType":"Encounter","id":"a1","subject":{"reference":"Patient/a"}}`}, 404},
		{"no resource", constant{200, etag, "{}"}, 502},
		{"deleted", constant{410, etag, own}, 404},
		{"forbidden", constant{403, etag, own}, 404},
		{"unavailable", constant{503, etag, own}, 503},
	} {
		g := newGateway(t)
		r := httptest.NewRequest(http.MethodDelete, "/fhir/R4/Observation/a1", nil)
		if got := statusOf(g.Serve(httptest.NewRecorder(), r, tt.server, enforce.Bearer{Rights: access.New(patientA, g.Shared)})); got == nil || got.Status != tt.status {
			t.Errorf("%s: got %v, want %d", tt.name, got, tt.status)
		}
	}
}

// TestPoliciesMove checks that rules judge what a patch comes to, and are not mixed with scopes.
func TestPoliciesMove(t *testing.T) {
	t.Parallel()
	patch := `[{"op":"replace","path":"/status","value":"amended"}]`
	for _, tt := range []struct {
		rule string
		writing
	}{
		{"deny resource.status == 'amended'", writing{"patched to what is denied", clinician, "PATCH Observation/a1", patch, "Content-Type: application/json-patch+json", 403, ""}},
		{"allow resource.subject.reference == 'Patient/b'", writing{"from what the scopes cover to what a rule allows", patientA, "PUT Observation/a1", observation("a1", "Patient/b", ""), "", 403, ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.checkAt(newGateway(t, writable...).withRules(tt.rule))
		})
	}
}

// A contained Patient is somebody else: nobody who is bound to a patient sees or changes a record of theirs.
func TestContainedPatientIsAnother(t *testing.T) {
	t.Parallel()
	const text = `{"resourceType":"Observation","id":"c","status":"final","contained":[{"resourceType":"Patient","id":"p"}],"subject":{"reference":"#p"},"performer":[{"reference":"Patient/a"}]}`
	for method, want := range map[string]int{http.MethodGet: 404, http.MethodPut: 403, http.MethodDelete: 404} {
		g := newGateway(t, append([]string{text}, writable...)...)
		r := httptest.NewRequest(method, "/fhir/R4/Observation/c", strings.NewReader(text))
		r.Header.Set("Content-Type", "application/fhir+json")
		if response := g.send(patientA, r); response.StatusCode != want || g.server.Get("Observation/c") == "" {
			t.Errorf("%s: %d", method, response.StatusCode)
		}
	}
}
