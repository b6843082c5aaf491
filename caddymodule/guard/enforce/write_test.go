package enforce_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// writeCase is a test case of a write.
type writeCase struct {
	name    string
	holder  access.Holder
	request string // method and target
	body    string
	header  string // lines of the form "Name: value"
	status  int
	stored  string // reference=expected substring of the stored resource; !reference for an unexpected one
}

// written sends the write of a test case.
func (g *gateway) written(tt writeCase) *http.Response {
	g.t.Helper()
	method, target, _ := strings.Cut(tt.request, " ")
	r := newRequest(method, "/fhir/R4/"+target, "application/fhir+json", tt.body)
	for line := range strings.Lines(tt.header) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		r.Header.Set(name, value)
	}
	return g.send(tt.holder, r)
}

// check sends a write and compares the result. Only the resources in stored may change.
func (tt writeCase) check(t *testing.T) {
	t.Helper()
	tt.checkAt(newGateway(t, writable...))
}

// testWrites checks writes, each with a new gateway.
func testWrites(t *testing.T, tests []writeCase) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

func (tt writeCase) checkAt(g *gateway) {
	g.t.Helper()
	g.server.OnRequest = func(r *http.Request) {
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

// referenceOf returns the reference (Type/id) to a resource.
func referenceOf(text string) string {
	between := func(before string) string {
		_, rest, _ := strings.Cut(text, before)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	return between(`"resourceType":"`) + "/" + between(`"id":"`)
}

// writable contains the records and additional resources for writes.
var writable = append(slices.Clone(records),
	`{"resourceType":"Observation","id":"ab","status":"final","subject":{"reference":"Patient/a"},"performer":[{"reference":"Patient/b"}]}`,
	`{"resourceType":"Encounter","id":"a1","status":"finished","subject":{"reference":"Patient/a"}}`,
	`{"resourceType":"Encounter","id":"b1","status":"finished","subject":{"reference":"Patient/b"}}`,
	`{"resourceType":"Provenance","id":"a1","target":[{"reference":"Observation/a1"}]}`,
	`{"resourceType":"Provenance","id":"b1","target":[{"reference":"Observation/b1"}]}`,
	`{"resourceType":"List","id":"a1","subject":{"reference":"Patient/a"},"entry":[{"item":{"reference":"Observation/b1"}}]}`,
)

// observation returns a final Observation with additional members.
func observation(id, subject, more string) string {
	text := `{"resourceType":"Observation",`
	if id != "" {
		text += `"id":"` + id + `",`
	}
	return text + `"status":"amended","category":[{"coding":[{"system":"http://c","code":"laboratory"}]}],"subject":{"reference":"` + subject + `"}` + more + `}`
}

// Holders for several tests of writes.
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

// Only the judged version is changed: a write fails if another version was stored in the meantime.
func TestWriteIsConditional(t *testing.T) {
	t.Parallel()
	plain := `{"resourceType":"Parameters","parameter":[` + change("replace", "Observation.status", `,{"name":"value","valueCode":"amended"}`) + `]}`
	for _, request := range []string{"PUT Observation/a1", "DELETE Observation/a1", "PATCH Observation/a1", "PATCH Observation/a1 "} {
		for header, status := range map[string]int{"": 409, `If-Match: W/"1"`: 412} {
			g := newGateway(t, writable...)
			g.server.OnRequest = func(r *http.Request) {
				if r.Method != http.MethodGet {
					g.server.Put(observation("a1", "Patient/b", "")) // concurrent write
				}
			}
			tt := writeCase{holder: patientA, request: request, header: header, body: observation("a1", "Patient/a", "")}
			if request == "PATCH Observation/a1 " { // a FHIRPath Patch
				tt.body, tt.request = plain, strings.TrimSpace(request)
			} else if strings.HasPrefix(request, "PATCH") {
				tt.body, tt.header = `[{"op":"replace","path":"/status","value":"amended"}]`, "Content-Type: application/json-patch+json\n"+header
			}
			if response := g.written(tt); response.StatusCode != status {
				t.Errorf("%s %s: status %d, want %d", request, header, response.StatusCode, status)
			}
			if !strings.Contains(g.server.Get("Observation/a1"), "Patient/b") {
				t.Errorf("%s %s: overwrote a version that was not judged", request, header)
			}
		}
	}
}

// fixedResponse is a server that always sends the same response.
type fixedResponse struct {
	status int
	etag   string
	body   string
}

func (s fixedResponse) ServeHTTP(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/fhir+json")
	if s.etag != "" {
		w.Header().Set("Etag", s.etag)
	}
	w.WriteHeader(s.status)
	_, err := io.WriteString(w, s.body)
	return err
}

// A write fails if the version to change cannot be read.
func TestUnfitVersion(t *testing.T) {
	t.Parallel()
	const etag = `W/"1"`
	own := observation("a1", "Patient/a", "")
	for _, tt := range []struct {
		name   string
		server fixedResponse
		status int
	}{
		{"no version to hold", fixedResponse{200, "", own}, 502},
		{"another resource", fixedResponse{200, etag, observation("a2", "Patient/a", "")}, 404},
		{"another type", fixedResponse{200, etag, `{"resourceType":"Encounter","id":"a1","subject":{"reference":"Patient/a"}}`}, 404},
		{"no resource", fixedResponse{200, etag, "{}"}, 502},
		{"deleted", fixedResponse{410, etag, own}, 404},
		{"forbidden", fixedResponse{403, etag, own}, 404},
		{"unavailable", fixedResponse{503, etag, own}, 503},
	} {
		g := newGateway(t)
		r := httptest.NewRequest(http.MethodDelete, "/fhir/R4/Observation/a1", nil)
		if got := rejectionIn(g.Serve(httptest.NewRecorder(), r, tt.server, enforce.Bearer{Rights: access.New(patientA, g.TypeRules)})); got == nil || got.Status != tt.status {
			t.Errorf("%s: got %v, want %d", tt.name, got, tt.status)
		}
	}
}

// Rules judge the result of a patch. They are not combined with scopes.
func TestPoliciesMove(t *testing.T) {
	t.Parallel()
	patch := `[{"op":"replace","path":"/status","value":"amended"}]`
	for _, tt := range []struct {
		rule string
		writeCase
	}{
		{"deny resource.status == 'amended'", writeCase{"patched to a denied status", clinician, "PATCH Observation/a1", patch, "Content-Type: application/json-patch+json", 403, ""}},
		{"allow resource.subject.reference == 'Patient/b'", writeCase{"from a covered resource to one that a rule allows", patientA, "PUT Observation/a1", observation("a1", "Patient/b", ""), "", 403, ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.checkAt(newGateway(t, writable...).withRules(tt.rule))
		})
	}
}

// A contained Patient is treated as another patient: clients bound to a patient cannot access records that contain one.
func TestContainedPatientIsAnother(t *testing.T) {
	t.Parallel()
	const text = `{"resourceType":"Observation","id":"c","status":"final","contained":[{"resourceType":"Patient","id":"p"}],"subject":{"reference":"#p"},"performer":[{"reference":"Patient/a"}]}`
	for method, want := range map[string]int{http.MethodGet: 404, http.MethodPut: 403, http.MethodDelete: 404} {
		g := newGateway(t, append([]string{text}, writable...)...)
		r := newRequest(method, "/fhir/R4/Observation/c", "application/fhir+json", text)
		if response := g.send(patientA, r); response.StatusCode != want || g.server.Get("Observation/c") == "" {
			t.Errorf("%s: %d", method, response.StatusCode)
		}
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	own := observation("", "Patient/a", "")
	testWrites(t, []writeCase{
		{"own", patientA, "POST Observation", own, "", 201, "Observation/new-19=Patient/a"},
		{"by v1 scopes", access.Holder{Scope: "patient/*.write", Patient: "a"}, "POST Observation", own, "", 201, "Observation/new-19=Patient/a"},
		{"another's", patientA, "POST Observation", observation("", "Patient/b", ""), "", 403, ""},
		{"without a patient", patientA, "POST Observation", `{"resourceType":"Observation","status":"final"}`, "", 403, ""},
		{"own and another's", patientA, "POST Observation", observation("", "Patient/a", `,"performer":[{"reference":"Patient/b"}]`), "", 403, ""},
		{"own, by performer, about another", patientA, "POST Observation", observation("", "Patient/b", `,"performer":[{"reference":"Patient/a"}]`), "", 403, ""},
		{"another's of another server", patientA, "POST Observation", observation("", "http://backend.internal:8080/fhir/Patient/a", ""), "", 403, ""},
		{"own by the gateway's address", patientA, "POST Observation", observation("", "https://gateway.example/fhir/R4/Patient/a", ""), "", 201, "Observation/new-19=Patient/a"},
		{"own by its version", patientA, "POST Observation", observation("", "Patient/a/_history/1", ""), "", 201, "Observation/new-19=Patient/a"},
		{"the id in the body means nothing", patientA, "POST Observation", observation("b1", "Patient/a", ""), "", 201, "Observation/new-19=Patient/a"},
		{"a new patient", patientA, "POST Patient", `{"resourceType":"Patient"}`, "", 403, ""},
		{"a new patient with one's own id", patientA, "POST Patient", `{"resourceType":"Patient","id":"a"}`, "", 403, ""},
		{"a new patient by a clinician", clinician, "POST Patient", `{"resourceType":"Patient"}`, "", 201, "Patient/new-19=Patient"},
		{"a shared type", patientA, "POST Organization", `{"resourceType":"Organization"}`, "", 403, ""},
		{"a type of no patient", patientA, "POST ValueSet", `{"resourceType":"ValueSet"}`, "", 403, ""},
		{"another type than the path's", patientA, "POST Encounter", own, "", 400, ""},
		{"a name twice", patientA, "POST Observation", own[:len(own)-1] + `,"subject":{"reference":"Patient/b"}}`, "", 400, ""},
		{"a name twice in depth", patientA, "POST Observation", strings.Replace(own, `"reference":`, `"reference":"Patient/b","reference":`, 1), "", 400, ""},
		{"XML", patientA, "POST Observation", "<Observation/>", "Content-Type: application/fhir+xml", 415, ""},
		{"read alone", access.Holder{Scope: "patient/*.rs", Patient: "a"}, "POST Observation", own, "", 403, ""},
		{"update alone", updater, "POST Observation", own, "", 403, ""},
		{"within a constraint", laboratory, "POST Observation", own, "", 201, "Observation/new-19=laboratory"},
		{"outside a constraint", laboratory, "POST Observation", strings.Replace(own, "laboratory", "vital-signs", 1), "", 403, ""},
		{"the context of one scope with the constraint of another", mixed, "POST Observation", observation("", "Patient/b", ""), "", 403, ""},
		{"the other scope", mixed, "POST Observation", strings.Replace(observation("", "Patient/b", ""), "laboratory", "vital-signs", 1), "", 201, "Observation/new-19=Patient/b"},
		{"contained of another", patientA, "POST Observation", observation("", "Patient/a", `,"contained":[{"resourceType":"Specimen","id":"s","subject":{"reference":"Patient/b"}}]`), "", 403, ""},
		{"own device", patientA, "POST Device", `{"resourceType":"Device","patient":{"reference":"Patient/a"}}`, "", 201, "Device/new-19=Patient/a"},
		{"unassigned device", patientA, "POST Device", `{"resourceType":"Device"}`, "", 403, ""},
		{"another's device", patientA, "POST Device", `{"resourceType":"Device","patient":{"reference":"Patient/b"}}`, "", 403, ""},
		{"a binary of an own record", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Observation/a1"}}`, "", 201, "Binary/new-19=Observation/a1"},
		{"a binary of another's record", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}`, "", 403, ""},
		{"binary of an unassigned device", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Device/free"}}`, "", 403, ""},
		{"a binary of no record", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain"}`, "", 403, ""},
		{"a provenance of an own record", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Observation/a1"}]}`, "", 201, "Provenance/new-19=Observation/a1"},
		{"a provenance of oneself", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"}]}`, "", 201, "Provenance/new-19=Patient/a"},
		{"a provenance of another's record besides", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"},{"reference":"Observation/b1"}]}`, "", 403, ""},
		{"a provenance of another patient besides", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"},{"reference":"Patient/b"}]}`, "", 403, ""},
		{"a provenance of what everyone reads", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Practitioner/alice"}]}`, "", 403, ""},
		{"a provenance by header", patientA, "POST Observation", own, `X-Provenance: {"resourceType":"Provenance","target":[]}`, 403, ""},
		{"a provenance by header, whole but for Provenance", access.Holder{Scope: "user/Observation.cruds user/*.rs", User: clinician.User}, "POST Observation", own, `X-Provenance: {"resourceType":"Provenance","target":[]}`, 403, ""},
		{"a group of two", patientA, "POST Group", `{"resourceType":"Group","member":[{"entity":{"reference":"Patient/a"}},{"entity":{"reference":"Patient/b"}}]}`, "", 403, ""},
		{"a parameter", patientA, "POST Observation?_format=json", own, "", 201, "Observation/new-19=Patient/a"},
	})
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	own := observation("a1", "Patient/a", "")
	testWrites(t, []writeCase{
		{"own", patientA, "PUT Observation/a1", own, "", 200, "Observation/a1=amended"},
		{"own patient", patientA, "PUT Patient/a", `{"resourceType":"Patient","id":"a","gender":"female"}`, "", 200, "Patient/a=female"},
		{"another patient", patientA, "PUT Patient/b", `{"resourceType":"Patient","id":"b","gender":"female"}`, "", 403, ""},
		{"moved to another patient", patientA, "PUT Observation/a1", observation("a1", "Patient/b", ""), "", 403, ""},
		{"moved from another patient", patientA, "PUT Observation/b1", observation("b1", "Patient/a", ""), "", 404, ""},
		{"not there", patientA, "PUT Observation/none", observation("none", "Patient/a", ""), "", 404, ""},
		{"of two patients", patientA, "PUT Observation/ab", observation("ab", "Patient/a", ""), "", 403, ""},
		{"taken out of all compartments", patientA, "PUT Observation/a1", `{"resourceType":"Observation","id":"a1","status":"final"}`, "", 403, ""},
		{"another id", patientA, "PUT Observation/a1", observation("a2", "Patient/a", ""), "", 400, ""},
		{"no id", patientA, "PUT Observation/a1", observation("", "Patient/a", ""), "", 400, ""},
		{"another type", patientA, "PUT Encounter/a1", own, "", 400, ""},
		{"without read", updater, "PUT Observation/a1", own, "", 200, "Observation/a1=amended"},
		{"create alone", creator, "PUT Observation/a1", own, "", 403, ""},
		{"within a constraint", laboratory, "PUT Observation/a1", own, "", 200, "Observation/a1=amended"},
		{"outside a constraint before", laboratory, "PUT Observation/a2", observation("a2", "Patient/a", ""), "", 404, ""},
		{"outside a constraint after", laboratory, "PUT Observation/a1", strings.Replace(own, "laboratory", "vital-signs", 1), "", 403, ""},
		{"before by one scope, after by another", access.Holder{Scope: "patient/Observation.cruds?category=http://c|laboratory patient/Observation.cruds?category=http://c|vital-signs", Patient: "a"}, "PUT Observation/a1", strings.Replace(own, "laboratory", "vital-signs", 1), "", 403, ""},
		{"the version", patientA, "PUT Observation/a1", own, `If-Match: W/"1"`, 200, "Observation/a1=amended"},
		{"another version", patientA, "PUT Observation/a1", own, `If-Match: W/"7"`, 412, ""},
		{"only if it is not there", patientA, "PUT Observation/a1", own, `If-None-Match: *`, 412, ""},
		{"another version of another's", patientA, "PUT Observation/b1", observation("b1", "Patient/a", ""), `If-Match: W/"7"`, 404, ""},
		{"own device", patientA, "PUT Device/a1", `{"resourceType":"Device","id":"a1","status":"active","patient":{"reference":"Patient/a"}}`, "", 200, "Device/a1=active"},
		{"unassigned device becomes the patient's own", patientA, "PUT Device/free", `{"resourceType":"Device","id":"free","patient":{"reference":"Patient/a"}}`, "", 403, ""},
		{"own device becomes unassigned", patientA, "PUT Device/a1", `{"resourceType":"Device","id":"a1"}`, "", 403, ""},
		{"a shared type", patientA, "PUT Practitioner/alice", `{"resourceType":"Practitioner","id":"alice"}`, "", 403, ""},
		{"own provenance", patientA, "PUT Provenance/a1", `{"resourceType":"Provenance","id":"a1","recorded":"2026","target":[{"reference":"Observation/a1"}]}`, "", 200, "Provenance/a1=2026"},
		{"another's provenance", patientA, "PUT Provenance/b1", `{"resourceType":"Provenance","id":"b1","target":[{"reference":"Observation/a1"}]}`, "", 404, ""},
		{"a parameter", patientA, "PUT Observation/a1?_meta-history=false", own, "", 403, ""},
		{"a clinician", clinician, "PUT Observation/b1", observation("b1", "Patient/b", ""), "", 200, "Observation/b1=amended"},
		{"a clinician, not there", clinician, "PUT Observation/none", observation("none", "Patient/b", ""), "", 201, "Observation/none=amended"},
		{"all of one type, not there", access.Holder{Scope: "user/Observation.u", User: clinician.User}, "PUT Observation/none", observation("none", "Patient/b", ""), "", 201, "Observation/none=amended"},
		{"all of one type, another version", access.Holder{Scope: "user/Observation.u", User: clinician.User}, "PUT Observation/b1", observation("b1", "Patient/b", ""), `If-Match: W/"7"`, 412, ""},
	})
}

// If the site permits it, updates of missing resources create them.
func TestUpsert(t *testing.T) {
	t.Parallel()
	for _, tt := range []writeCase{
		{"not there", patientA, "PUT Observation/none", observation("none", "Patient/a", ""), "", 201, "Observation/none=amended"},
		{"not there, for another", patientA, "PUT Observation/none", observation("none", "Patient/b", ""), "", 403, ""},
		{"not there, if it has a version", patientA, "PUT Observation/none", observation("none", "Patient/a", ""), `If-Match: W/"1"`, 404, ""},
		{"none that matches, not there", patientA, "PUT Observation?_id=none", observation("none", "Patient/a", ""), "", 201, "Observation/none=amended"},
		{"none that matches, taken", patientA, "PUT Observation?_id=b1", observation("b1", "Patient/a", ""), "", 404, ""},
		{"taken", patientA, "PUT Observation/b1", observation("b1", "Patient/a", ""), "", 404, ""},
		{"not there, referring to another's record", patientA, "PUT Observation/none", observation("none", "Patient/a", `,"focus":[{"reference":"Encounter/b1"}]`), "", 403, ""},
		{"deleted", patientA, "PUT Observation/gone", observation("gone", "Patient/a", ""), "", 404, "Observation/gone=!amended"},
		{"own patient", access.Holder{Scope: "patient/*.cruds", Patient: "none"}, "PUT Patient/none", `{"resourceType":"Patient","id":"none"}`, "", 404, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, writable...)
			g.AllowsUpsert = true
			g.server.Put(observation("gone", "Patient/b", ""))
			g.written(writeCase{holder: clinician, request: "DELETE Observation/gone"})
			tt.checkAt(g)
		})
	}
}

func TestJSONPatch(t *testing.T) {
	t.Parallel()
	const media = "Content-Type: application/json-patch+json"
	replace := func(path, value string) string {
		return `[{"op":"replace","path":"` + path + `","value":` + value + `}]`
	}
	amend := replace("/status", `"amended"`)
	testWrites(t, []writeCase{
		{"own", patientA, "PATCH Observation/a1", amend, media, 200, "Observation/a1=amended"},
		{"another's", patientA, "PATCH Observation/b1", amend, media, 404, ""},
		{"not there", patientA, "PATCH Observation/none", amend, media, 404, ""},
		{"own patient", patientA, "PATCH Patient/a", `[{"op":"add","path":"/gender","value":"female"}]`, media, 200, "Patient/a=female"},
		{"without read", updater, "PATCH Observation/a1", amend, media, 200, "Observation/a1=amended"},
		{"without references and without update", access.Holder{Scope: "patient/*.crds", Patient: "a"}, "PATCH Observation/a1", amend, media, 403, ""},
		{"without references, by read scopes", access.Holder{Scope: "patient/*.rs", Patient: "a"}, "PATCH Observation/a1", amend, media, 403, ""},
		{"moved to another patient", patientA, "PATCH Observation/a1", replace("/subject/reference", `"Patient/b"`), media, 403, ""},
		{"another patient besides", patientA, "PATCH Observation/a1", `[{"op":"add","path":"/performer/0","value":{"reference":"Patient/b"}}]`, media, 403, ""},
		{"subject without a reference", patientA, "PATCH Observation/a1", replace("/subject", `{"type":"Patient"}`), media, 403, ""},
		{"subject without an id", patientA, "PATCH Observation/a1", replace("/subject", `{"reference":"Patient/"}`), media, 403, ""},
		{"subject removed", patientA, "PATCH Observation/a1", `[{"op":"remove","path":"/subject"}]`, media, 403, ""},
		{"subject moved away and back", patientA, "PATCH Observation/a1", `[{"op":"move","from":"/subject","path":"/focus"},{"op":"move","from":"/focus","path":"/subject"},{"op":"replace","path":"/status","value":"amended"}]`, media, 200, "Observation/a1=amended"},
		{"another's record by copy", patientA, "PATCH List/a1", `[{"op":"copy","from":"/entry/0/item","path":"/subject"}]`, media, 403, ""},
		{"an own record referred to", patientA, "PATCH Observation/a1", `[{"op":"add","path":"/encounter","value":{"reference":"Encounter/a1"}}]`, media, 200, "Observation/a1=Encounter/a1"},
		{"another's record referred to", patientA, "PATCH Observation/a1", `[{"op":"add","path":"/encounter","value":{"reference":"Encounter/b1"}}]`, media, 403, ""},
		{"a conditional reference", patientA, "PATCH Observation/a1", `[{"op":"add","path":"/encounter","value":{"reference":"Encounter?status=finished"}}]`, media, 403, ""},
		{"a conditional reference put together", staff, "PATCH Observation/a1", `[{"op":"add","path":"/encounter","value":{}},{"op":"add","path":"/note","value":[{"text":"Encounter?status=finished"}]},{"op":"move","from":"/note/0/text","path":"/encounter/reference"}]`, media, 403, ""},
		{"out of a constraint", laboratory, "PATCH Observation/a1", replace("/category/0/coding/0/code", `"vital-signs"`), media, 403, ""},
		{"into a constraint", laboratory, "PATCH Observation/a2", replace("/category/0/coding/0/code", `"laboratory"`), media, 404, ""},
		{"another id", patientA, "PATCH Observation/a1", replace("/id", `"b1"`), media, 400, ""},
		{"another type", patientA, "PATCH Observation/a1", replace("/resourceType", `"Encounter"`), media, 400, ""},
		{"the whole resource", patientA, "PATCH Observation/a1", `[{"op":"replace","path":"","value":{}}]`, media, 400, ""},
		{"a test that holds", patientA, "PATCH Observation/a1", `[{"op":"test","path":"/status","value":"final"},{"op":"replace","path":"/status","value":"amended"}]`, media, 200, "Observation/a1=amended"},
		{"a test that fails", patientA, "PATCH Observation/a1", `[{"op":"test","path":"/status","value":"cancelled"}]`, media, 422, ""},
		{"a test without read", updater, "PATCH Observation/a1", `[{"op":"test","path":"/status","value":"final"}]`, media, 403, ""},
		{"a test of all of the type without read", access.Holder{Scope: "user/*.us", User: clinician.User}, "PATCH Observation/a1", `[{"op":"test","path":"/status","value":"final"}]`, media, 403, ""},
		{"nothing there", patientA, "PATCH Observation/a1", replace("/note/0", `{}`), media, 422, ""},
		{"a negative index", patientA, "PATCH Observation/a1", replace("/category/-1", `{}`), media, 400, ""},
		{"an index with a zero before", patientA, "PATCH Observation/a1", replace("/category/00", `{}`), media, 400, ""},
		{"a name twice", patientA, "PATCH Observation/a1", `[{"op":"replace","path":"/status","path":"/subject/reference","value":"Patient/b"}]`, media, 400, ""},
		{"without a value", patientA, "PATCH Observation/a1", `[{"op":"replace","path":"/status"}]`, media, 400, ""},
		{"an unknown operation", patientA, "PATCH Observation/a1", `[{"op":"Replace","path":"/status","value":"amended"}]`, media, 400, ""},
		{"no list", patientA, "PATCH Observation/a1", `{}`, media, 400, ""},
		{"another version", patientA, "PATCH Observation/a1", amend, media + "\nIf-Match: W/\"7\"", 412, ""},
		{"XML", patientA, "PATCH Observation/a1", "<diff/>", "Content-Type: application/xml-patch+xml", 415, ""},
		{"a merge patch", patientA, "PATCH Observation/a1", `{"status":"amended"}`, "Content-Type: application/merge-patch+json", 415, ""},
		{"a shared type", patientA, "PATCH Practitioner/alice", replace("/active", "false"), media, 403, ""},
		{"conditional, one", patientA, "PATCH Observation?_id=a1", amend, media, 200, "Observation/a1=amended"},
		{"conditional, none", patientA, "PATCH Observation?_id=none", amend, media, 404, ""},
		{"conditional, another's", patientA, "PATCH Observation?_id=b1", amend, media, 404, ""},
		{"conditional, several", patientA, "PATCH Observation?status=final", amend, media, 412, ""},
		{"conditional, without update", access.Holder{Scope: "patient/Patient.write patient/Observation.read", Patient: "a"}, "PATCH Observation?_id=a1", amend, media, 403, ""},
		{"conditional, all of one type", staff, "PATCH Observation?_id=b1", amend, media, 200, "Observation/b1=amended"},
		{"all of one type", staff, "PATCH Observation/b1", amend, media, 200, "Observation/b1=amended"},
	})
}

// change returns an operation of a FHIRPath Patch.
func change(kind, path, value string) string {
	return `{"name":"operation","part":[{"name":"type","valueCode":"` + kind + `"},{"name":"path","valueString":"` + path + `"}` + value + `]}`
}

func TestFHIRPathPatch(t *testing.T) {
	t.Parallel()
	patch := func(operations ...string) string {
		return `{"resourceType":"Parameters","parameter":[` + strings.Join(operations, ",") + `]}`
	}
	amended, code := `,{"name":"value","valueCode":"amended"}`, `,{"name":"value","valueCodeableConcept":{"text":"x"}}`
	name := func(s string) string { return `,{"name":"name","valueString":"` + s + `"}` }
	toB := `,{"name":"value","valueReference":{"reference":"Patient/b"}}`
	amend := change("replace", "Observation.status", amended)
	testWrites(t, []writeCase{
		{"own", patientA, "PATCH Observation/a1", patch(amend), "", 200, "Observation/a1=amended"},
		{"another's", patientA, "PATCH Observation/b1", patch(amend), "", 404, ""},
		{"not there", patientA, "PATCH Observation/none", patch(amend), "", 404, ""},
		{"without update", access.Holder{Scope: "patient/*.rs", Patient: "a"}, "PATCH Observation/a1", patch(amend), "", 403, ""},
		{"membership", patientA, "PATCH Observation/a1", patch(change("replace", "Observation.subject", code)), "", 403, ""},
		{"membership within", patientA, "PATCH Observation/a1", patch(change("delete", "Observation.subject.display", "")), "", 403, ""},
		{"membership by add", patientA, "PATCH Observation/a1", patch(change("add", "Observation", name("performer")+code)), "", 403, ""},
		{"membership by index", patientA, "PATCH Observation/a1", patch(change("delete", "Observation.performer[0]", "")), "", 403, ""},
		{"membership second", patientA, "PATCH Observation/a1", patch(amend, change("delete", "Observation.subject", "")), "", 403, ""},
		{"another element by add", patientA, "PATCH Observation/a1", patch(change("add", "Observation", name("bodySite")+code)), "", 200, "Observation/a1=text"},
		{"a reference", patientA, "PATCH Observation/a1", patch(change("replace", "Observation.encounter", toB)), "", 403, ""},
		{"a reference by its text", patientA, "PATCH Observation/a1", patch(change("replace", "Observation.encounter.reference", `,{"name":"value","valueString":"Encounter/b1"}`)), "", 403, ""},
		{"a reference by add", patientA, "PATCH Observation/a1", patch(change("add", "Observation.encounter", name("reference")+amended)), "", 403, ""},
		{"a nested part", patientA, "PATCH Observation/a1", patch(change("replace", "Observation.encounter", `,{"name":"value","part":[{"name":"reference","valueString":"Encounter/b1"}]}`)), "", 403, ""},
		{"a path with a function", patientA, "PATCH Observation/a1", patch(change("replace", "Observation.where(true).status", amended)), "", 403, ""},
		{"a path of everything", patientA, "PATCH Observation/a1", patch(change("delete", "Observation", "")), "", 403, ""},
		{"a path of another type", patientA, "PATCH Observation/a1", patch(change("replace", "Resource.status", amended)), "", 403, ""},
		{"a path twice", patientA, "PATCH Observation/a1", patch(change("replace", "Observation.status", `,{"name":"path","valueString":"Observation.subject"}`+amended)), "", 403, ""},
		{"a path twice, the plain one last", patientA, "PATCH Observation/a1", patch(change("replace", "Observation.subject", `,{"name":"path","valueString":"Observation.status"}`+amended)), "", 403, ""},
		{"a path of two values", patientA, "PATCH Observation/a1", strings.Replace(patch(amend), `"valueString":"Observation.status"`, `"valueString":"Observation.status","valueCode":"Observation.subject"`, 1), "", 403, ""},
		{"invalid element name", patientA, "PATCH Observation/a1", patch(change("add", "Observation", name("subject ")+code)), "", 403, ""},
		{"of two patients", patientA, "PATCH Observation/ab", patch(amend), "", 403, ""},
		{"another operation", patientA, "PATCH Observation/a1", patch(change("test", "Observation.status", amended)), "", 403, ""},
		{"an element that is named as none is", patientA, "PATCH Observation/a1", patch(change("add", "Observation", name("Subject")+code)), "", 403, ""},
		{"contained", patientA, "PATCH Observation/a1", patch(change("delete", "Observation.contained[0]", "")), "", 403, ""},
		{"id", patientA, "PATCH Observation/a1", patch(change("replace", "Observation.id", amended)), "", 403, ""},
		{"meta", patientA, "PATCH Observation/a1", patch(change("delete", "Observation.meta", "")), "", 403, ""},
		{"a constraint", laboratory, "PATCH Observation/a1", patch(change("delete", "Observation.category[0]", "")), "", 403, ""},
		{"beside a constraint", laboratory, "PATCH Observation/a1", patch(amend), "", 200, "Observation/a1=amended"},
		{"outside a constraint", laboratory, "PATCH Observation/a2", patch(amend), "", 404, ""},
		{"a choice of types in a constraint", access.Holder{Scope: "patient/Observation.u?date=2026", Patient: "a"}, "PATCH Observation/a1", patch(change("delete", "Observation.effective", "")), "", 403, ""},
		{"target of a provenance", patientA, "PATCH Provenance/a1", patch(change("delete", "Provenance.target[0]", "")), "", 403, ""},
		{"patient of a device", patientA, "PATCH Device/a1", patch(change("delete", "Device.patient", "")), "", 403, ""},
		{"security context of a binary", patientA, "PATCH Binary/a1", patch(change("delete", "Binary.securityContext", "")), "", 403, ""},
		{"names in another case", patientA, "PATCH Observation/a1", strings.ReplaceAll(patch(change("delete", "Observation.subject", "")), `"part"`, `"Part"`), "", 403, ""},
		{"no Parameters", patientA, "PATCH Observation/a1", `{"resourceType":"Observation"}`, "", 400, ""},
		{"a name twice", patientA, "PATCH Observation/a1", strings.Replace(patch(amend), `"name"`, `"name":"x","name"`, 1), "", 400, ""},
		{"all of one type, any path", staff, "PATCH Observation/b1", patch(change("replace", "Observation.status", amended), change("replace", "Observation.encounter", toB)), "", 200, "Observation/b1=amended"},
		{"all of one type, a conditional reference", staff, "PATCH Observation/b1", patch(change("replace", "Observation.encounter", strings.Replace(toB, "Patient/b", "Patient?identifier=1", 1))), "", 403, ""},
		{"all of one type, a question", staff, "PATCH Observation/b1", patch(change("replace", "Observation.status", `,{"name":"value","valueString":"What?"}`)), "", 200, "Observation/b1=What?"},
		{"all of one type without read", access.Holder{Scope: "user/*.u", User: clinician.User}, "PATCH Observation/b1", patch(change("replace", "Observation.where(status='final').status", amended)), "", 403, ""},
	})
}

func TestConditional(t *testing.T) {
	t.Parallel()
	own := observation("", "Patient/a", "")
	none := "If-None-Exist: "
	deleter := access.Holder{Scope: "user/Observation.d patient/Observation.s", Patient: "a", User: clinician.User}
	chained := access.Holder{Scope: "user/Observation.ds patient/Patient.s", Patient: "a", User: clinician.User}
	finder := access.Holder{Scope: "patient/Observation.d user/*.s", Patient: "a", User: clinician.User}
	testWrites(t, []writeCase{
		{"create, none", patientA, "POST Observation", own, none + "status=cancelled", 201, "Observation/new-19=Patient/a"},
		{"create, one", patientA, "POST Observation", own, none + "_id=a1", 200, "Observation/new-19=!Patient/a"},
		{"create, several", patientA, "POST Observation", own, none + "status=final", 412, "Observation/new-19=!Patient/a"},
		{"create, one of another", patientA, "POST Observation", own, none + "_id=b1", 201, "Observation/new-19=Patient/a"},
		{"create, own among others", patientA, "POST Observation", own, none + "_id=a1,b1", 200, "Observation/new-19=!Patient/a"},
		{"create, by another type", patientA, "POST Observation", own, none + "_filter=x", 403, ""},
		{"create, without search", creator, "POST Observation", own, none + "_id=a1", 403, ""},
		{"create, v1 scopes", access.Holder{Scope: "patient/*.read patient/*.write", Patient: "a"}, "POST Observation", own, none + "_id=a1", 200, ""},
		{"create, all of one type", staff, "POST Observation", own, none + "_id=b1", 200, ""},
		{"create, all of one type, none", staff, "POST Observation", own, none + "_id=none", 201, "Observation/new-19=Patient/a"},
		{"update, one", patientA, "PUT Observation?_id=a1", own, "", 200, "Observation/a1=amended"},
		{"update, the one with the id", patientA, "PUT Observation?_id=a1", observation("a1", "Patient/a", ""), "", 200, "Observation/a1=amended"},
		{"update, another id", patientA, "PUT Observation?_id=a1", observation("a2", "Patient/a", ""), "", 400, ""},
		{"update, none", patientA, "PUT Observation?_id=none", own, "", 201, "Observation/new-19=amended"},
		{"update, none, to another patient", patientA, "PUT Observation?_id=none", observation("", "Patient/b", ""), "", 403, ""},
		{"update, none with that id", patientA, "PUT Observation?_id=none", observation("none", "Patient/a", ""), "", 404, ""},
		{"update, none, and the id of another record of one's own", patientA, "PUT Observation?_id=none", observation("a1", "Patient/a", ""), "", 409, ""},
		{"update, one of another", patientA, "PUT Observation?_id=b1", own, "", 201, "Observation/new-19=amended"},
		{"update, one of another with the id", patientA, "PUT Observation?_id=b1", observation("b1", "Patient/a", ""), "", 404, ""},
		{"update, several", patientA, "PUT Observation?status=final", own, "", 412, ""},
		{"update, of two patients", patientA, "PUT Observation?_id=ab", own, "", 403, ""},
		{"update, to another patient", patientA, "PUT Observation?_id=a1", observation("", "Patient/b", ""), "", 403, ""},
		{"update, without search", updater, "PUT Observation?_id=a1", own, "", 403, ""},
		{"update, no new patient", access.Holder{Scope: "patient/*.us", Patient: "a"}, "PUT Patient?_id=none", `{"resourceType":"Patient"}`, "", 403, ""},
		{"update, all of one type", staff, "PUT Observation?_id=b1", observation("", "Patient/b", ""), "", 200, "Observation/b1=amended"},
		{"update, another version", patientA, "PUT Observation?_id=a1", own, `If-Match: W/"7"`, 412, ""},
		{"delete, one", patientA, "DELETE Observation?_id=a1", "", "", 204, "Observation/a1=!resourceType"},
		{"delete, none", patientA, "DELETE Observation?_id=none", "", "", 404, ""},
		{"delete, another's", patientA, "DELETE Observation?_id=b1", "", "", 404, ""},
		{"delete, by another's", patientA, "DELETE Observation?subject=Patient/b&_id=b1", "", "", 404, ""},
		{"delete, several", patientA, "DELETE Observation?status=final", "", "", 412, ""},
		{"delete, a patient", patientA, "DELETE Patient?_id=a", "", "", 403, ""},
		{"delete, cascading", patientA, "DELETE Observation?_id=a1&_cascade=delete", "", "", 403, ""},
		{"delete, cascading, all of one type", staff, "DELETE Observation?_id=a1&_cascade=delete", "", "", 403, ""},
		{"delete, without search", access.Holder{Scope: "patient/*.d", Patient: "a"}, "DELETE Observation?_id=a1", "", "", 403, ""},
		{"delete, all of one type", staff, "DELETE Observation?_id=b1", "", "", 204, "Observation/b1=!resourceType"},
		{"delete, all of one type, searching one patient's", deleter, "DELETE Observation?_id=b1", "", "", 404, ""},
		{"delete, all of one type, by a chain without matches", chained, "DELETE Observation?subject:Patient.family=nobody&_id=b1", "", "", 404, ""},
		{"delete, all of one type, by a chain", chained, "DELETE Observation?subject:Patient.family=Adams&_id=a2", "", "", 204, "Observation/a2=!resourceType"},
		{"delete, one patient's, searching all", finder, "DELETE Observation?_id=a1", "", "", 204, "Observation/a1=!resourceType"},
		{"delete, one patient's, searching all, another's", finder, "DELETE Observation?_id=b1", "", "", 404, ""},
		{"delete, with an include", patientA, "DELETE Observation?_id=a1&_include=Observation:subject", "", "", 400, ""},
	})
}

// parts are the parts of generated writes. The ids of patient b's resources begin with "b".
var parts = map[string][]string{
	"scope": {
		"patient/*.cruds", "patient/*.read patient/*.write", "patient/*.cud", "patient/Observation.cruds?category=http://c|laboratory patient/*.rs",
		"patient/Observation.cruds patient/Encounter.cruds",
	},
	"type": {"Observation", "Observation", "Observation", "Encounter", "Patient", "Device", "Binary", "Provenance", "List", "Practitioner"},
	"reference": {
		"Patient/a", "Patient/a", "Patient/a", "Patient/b", "Patient/b", "https://gateway.example/fhir/R4/Patient/b",
		"http://backend.internal:8080/fhir/Patient/b", "/Patient/b", "Patient/b/_history/1", "Patient?identifier=1", "Observation/a1",
		"Observation/b1", "Encounter/a1", "Encounter/b1", "#c", "urn:uuid:b", "Practitioner/alice", "Device/free", "Binary/b1", "Patient/",
	},
	"element":  {"subject", "subject", "performer", "patient", "target", "securityContext", "focus", "encounter", "contained"},
	"header":   {"", "", "", "", `If-Match: W/"1"`, `If-Match: *`, "If-None-Match: *", "X-Cascade: delete", "Prefer: return=representation"},
	"criteria": {"_id=a1", "_id=b1", "_id=none", "status=final", "subject=Patient/b", "_id=a1&_cascade=delete", "subject.name=x"},
	"pointer": {
		"/subject", "/subject/reference", "/performer", "/performer/0", "/performer/0/reference", "/patient/reference", "/target/0/reference",
		"/target/-", "/securityContext/reference", "/status", "/status", "/status", "/focus", "/id", "/focus", "/focus/0/reference", "/resourceType", "/meta", "/", "",
	},
	"op": {"add", "replace", "remove", "move", "copy", "test"},
	"path": {
		".subject", ".subject.reference", ".performer[0]", ".status", ".status", ".status", ".focus", ".focus[0]", ".patient", ".target[0]", "", ".where(true).subject",
		".contained[0]", ".meta", ".id", ".encounter",
	},
}

// writer generates random writes.
type writer struct{ *rand.Rand }

func (w writer) pick(name string) string { return parts[name][w.IntN(len(parts[name]))] }

func (w writer) reference() string { return `{"reference":"` + w.pick("reference") + `"}` }

// resource returns a resource with random references.
func (w writer) resource(resourceType, id string) string {
	text := `{"resourceType":"` + resourceType + `","status":"amended","category":[{"coding":[{"system":"http://c","code":"laboratory"}]}]`
	if id != "" {
		text += `,"id":"` + id + `"`
	}
	seen := map[string]bool{}
	if w.IntN(2) == 0 {
		text, seen["subject"] = text+`,"subject":{"reference":"Patient/a"}`, true
	}
	for range w.IntN(3) {
		element := w.pick("element")
		switch {
		case seen[element] && w.IntN(20) > 0:
			continue
		case slices.Contains([]string{"performer", "focus", "target"}, element):
			text += `,"` + element + `":[` + w.reference() + `]`
		case element == "contained":
			text += `,"contained":[{"resourceType":"Specimen","id":"c","subject":` + w.reference() + `}]`
		default:
			text += `,"` + element + `":` + w.reference()
		}
		seen[element] = true
	}
	return text + "}"
}

// patch returns a random JSON Patch or FHIRPath Patch.
func (w writer) patch(resourceType string) (body, header string) {
	var all []string
	if w.IntN(3) == 0 {
		for range 1 + w.IntN(2) {
			value := []string{`,{"name":"value","valueReference":` + w.reference() + `}`, `,{"name":"value","valueCode":"amended"}`}[w.IntN(2)]
			all = append(all, change([]string{"add", "replace", "delete"}[w.IntN(3)], resourceType+w.pick("path"), value))
		}
		return `{"resourceType":"Parameters","parameter":[` + strings.Join(all, ",") + `]}`, ""
	}
	for range 1 + w.IntN(2) {
		values := []string{`"Patient/b"`, `"Patient/a"`, `"amended"`, w.reference(), `[` + w.reference() + `]`}
		all = append(all, fmt.Sprintf(`{"op":%q,"path":%q,"from":%q,"value":%s}`, w.pick("op"), w.pick("pointer"), w.pick("pointer"), values[w.IntN(len(values))]))
	}
	return "[" + strings.Join(all, ",") + "]", "Content-Type: application/json-patch+json\n"
}

// request returns a random write of a random resource.
func (w writer) request() (tt writeCase) {
	resourceType := w.pick("type")
	id := []string{"a1", "a1", "a1", "b1", "ab", "none", "free", "a", "b", "a2"}[w.IntN(10)]
	target := resourceType + "/" + id
	if w.IntN(4) == 0 {
		target = resourceType + "?" + w.pick("criteria")
	}
	tt.header = w.pick("header")
	tt.body = w.resource(resourceType, id)
	switch w.IntN(4) {
	case 0:
		tt.request = "POST " + resourceType
		if w.IntN(3) == 0 {
			tt.header = "If-None-Exist: " + w.pick("criteria")
		}
	case 1:
		tt.request = "PUT " + target
	case 2:
		tt.request = "PATCH " + target
		body, header := w.patch(resourceType)
		tt.body, tt.header = body, header+tt.header
	default:
		tt.request, tt.body = "DELETE "+target, ""
	}
	return tt
}

// owning matches the elements that determine a resource's owner.
var owning = regexp.MustCompile(`"(?:subject|patient|securityContext|performer|target)":\[?\{"reference":"([^"]*)"`)

// contained matches the contained resources in generated resources.
var contained = regexp.MustCompile(`"contained":\[\{[^]]*\]`)

// owners returns the patients who own a resource, identified by the first letters of the ids in its references.
func owners(reference, text string) string {
	var all []string
	if of, id, _ := strings.Cut(reference, "/"); of == "Patient" {
		all = append(all, id[:1])
	}
	text = contained.ReplaceAllString(text, "") // contained resources have no separate owner
	for _, match := range owning.FindAllStringSubmatch(text, -1) {
		parts := strings.Split(strings.Split(match[1], "/_history")[0], "/")
		last := parts[len(parts)-1]
		if isRecord := strings.HasPrefix(last, "a") || strings.HasPrefix(last, "b"); isRecord && !slices.Contains(all, last[:1]) && last != "alice" {
			all = append(all, last[:1])
		}
	}
	return strings.Join(all, "")
}

// Generated writes with a patient's token change only the patient's own records. They never move a record from or to another
// patient, nor add a reference to another patient's record.
func TestWritesStayWithinPatient(t *testing.T) {
	t.Parallel()
	ofOther := regexp.MustCompile(`"reference":"[^"]*/b[^"]*"|"reference":"[^"]*\?`)
	done := map[string]int{}
	for seed := range uint64(200) {
		w := writer{rand.New(rand.NewPCG(seed, 1))}
		g := newGateway(t, writable...)
		g.AllowsUpsert = seed%2 == 0
		for range 50 {
			before := g.server.All()
			tt := w.request()
			tt.holder = access.Holder{Scope: w.pick("scope"), Patient: "a"}
			response := g.written(tt)
			after := g.server.All()
			for reference, text := range after {
				was, existed := before[reference]
				if was == text {
					continue
				}
				done[strings.Fields(tt.request)[0]]++
				switch {
				case response.StatusCode/100 != 2:
					t.Errorf("%+v changed %s with status %d", tt, reference, response.StatusCode)
				case existed && owners(reference, was) != "a":
					t.Errorf("%+v changed %s", tt, was)
				case text != "" && owners(reference, text) != "a":
					t.Errorf("%+v made %s", tt, text)
				case len(ofOther.FindAllString(text, -1)) > len(ofOther.FindAllString(was, -1)):
					t.Errorf("%+v added a reference to %s: %s", tt, reference, text)
				}
			}
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if done[method] < 20 {
			t.Errorf("only %d writes by %s succeeded", done[method], method)
		}
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	deleted := func(reference string) string { return reference + "=!resourceType" }
	testWrites(t, []writeCase{
		{"own", patientA, "DELETE Observation/a1", "", "", 204, deleted("Observation/a1")},
		{"another's", patientA, "DELETE Observation/b1", "", "", 404, ""},
		{"not there", patientA, "DELETE Observation/none", "", "", 404, ""},
		{"of two patients", patientA, "DELETE Observation/ab", "", "", 403, ""},
		{"own patient", patientA, "DELETE Patient/a", "", "", 403, ""},
		{"another patient", patientA, "DELETE Patient/b", "", "", 403, ""},
		{"a patient by a clinician", clinician, "DELETE Patient/b", "", "", 204, deleted("Patient/b")},
		{"within a constraint", laboratory, "DELETE Observation/a1", "", "", 204, deleted("Observation/a1")},
		{"outside a constraint", laboratory, "DELETE Observation/a2", "", "", 404, ""},
		{"no permission", updater, "DELETE Observation/a1", "", "", 403, ""},
		{"another version", patientA, "DELETE Observation/a1", "", `If-Match: W/"7"`, 412, ""},
		{"a shared type", patientA, "DELETE Practitioner/alice", "", "", 403, ""},
		{"unassigned device", patientA, "DELETE Device/free", "", "", 403, ""},
		{"own device", patientA, "DELETE Device/a1", "", "", 204, deleted("Device/a1")},
		{"cascading", patientA, "DELETE Observation/a1?_cascade=delete", "", "", 403, ""},
		{"cascading by header", patientA, "DELETE Observation/a1", "", "X-Cascade: delete", 403, ""},
		{"cascading, all of one type", staff, "DELETE Observation/a1?_cascade=delete", "", "", 403, ""},
		{"cascading by header, all of one type", staff, "DELETE Observation/a1", "", "X-Cascade: delete", 403, ""},
		{"cascading, all of all types", clinician, "DELETE Observation/a1?_cascade=delete", "", "", 204, deleted("Observation/a1")},
		{"an unknown parameter", patientA, "DELETE Observation/a1?_expunge=true", "", "", 403, ""},
		{"all of one type", staff, "DELETE Observation/b1", "", "", 204, deleted("Observation/b1")},
	})
}

// The rejection for a deleted resource is the same as for a missing or uncovered one.
func TestDeletedIsNotFound(t *testing.T) {
	t.Parallel()
	g := newGateway(t, writable...)
	g.written(writeCase{holder: patientA, request: "DELETE Observation/a1"})
	answers := map[string]bool{}
	for _, request := range []string{
		"DELETE Observation/a1", "DELETE Observation/b1", "DELETE Observation/none", "PUT Observation/a1", "PUT Observation/b1", "PUT Observation/none",
	} {
		id := request[strings.IndexByte(request, '/')+1:]
		response := g.written(writeCase{holder: patientA, request: request, body: observation(id, "Patient/a", "")})
		body, _ := io.ReadAll(response.Body)
		answers[response.Status+string(body)] = true
	}
	if len(answers) != 1 {
		t.Errorf("answers differ: %v", answers)
	}
}

// capabilityStatement returns a CapabilityStatement that declares conditional deletes for some types.
func capabilityStatement(conditionalDelete string, types ...string) string {
	text := `{"resourceType":"CapabilityStatement","rest":[{"mode":"server","resource":[{"type":"Patient"}`
	for _, t := range types {
		text += `,{"type":"` + t + `","conditionalDelete":"` + conditionalDelete + `"}`
	}
	return text + `]}]}`
}

// If a resource is moved out of the scope after it was judged, a server that ignores If-Match but supports conditional deletes
// does not delete it. The client gets an error.
func TestDeleteMoved(t *testing.T) {
	t.Parallel()
	const amended = `{"resourceType":"Observation","id":"a1","status":"amended","category":[{"coding":[{"system":"http://c","code":"vital-signs"}]}],"subject":{"reference":"Patient/a"}}`
	final := access.Holder{Scope: "system/Observation.rd?status=final", Patient: "a"}
	for _, tt := range []struct {
		name   string
		holder access.Holder
		of     string // resource to delete
		moved  string // concurrent version; empty if the resource is deleted concurrently
		body   string // Bundle to send instead of a single delete
		header string
		status int
		entry  string // expected status of the Bundle's entry
	}{
		{"to another patient", patientA, "Observation/a1", observation("a1", "Patient/b", ""), "", "", 409, ""},
		{"to another patient, with If-Match", patientA, "Observation/a1", observation("a1", "Patient/b", ""), "", `If-Match: W/"1"`, 412, ""},
		{"out of the constraint", laboratory, "Observation/a1", amended, "", "", 409, ""},
		{"out of the constraint, without a patient", final, "Observation/a1", amended, "", "", 409, ""},
		{"a Device", patientA, "Device/a1", `{"resourceType":"Device","id":"a1","patient":{"reference":"Patient/b"}}`, "", "", 409, ""},
		{"Device without a patient", patientA, "Device/a1", `{"resourceType":"Device","id":"a1"}`, "", "", 409, ""},
		{"deleted in between", patientA, "Observation/a1", "", "", "", 204, ""},
		{"changed within the scope", patientA, "Observation/a1", observation("a1", "Patient/a", `,"note":[{"text":"x"}]`), "", "", 204, ""},
		{"in a batch", patientA, "Observation/a1", observation("a1", "Patient/b", ""), "batch", "", 200, "409"},
		{"in a transaction", patientA, "Observation/a1", observation("a1", "Patient/b", ""), "transaction", "", 200, "409"},
		{"in a transaction, within the scope", patientA, "Observation/a1", observation("a1", "Patient/a", ""), "transaction", "", 200, "204"},
		{"by criteria", patientA, "Observation?_id=a1", observation("a1", "Patient/b", ""), "", "", 409, ""},
	} {
		for _, kind := range []string{"single", "multiple"} {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				g := newGateway(t, writable...)
				g.server.IgnoresIfMatch = true
				g.server.Handlers = map[string]http.HandlerFunc{"metadata": newHandler(capabilityStatement(kind, "Observation", "Device"))}
				moved := tt.moved == ""
				g.server.OnRequest = func(r *http.Request) {
					if r.Method == http.MethodGet || moved {
						return
					}
					moved = true
					g.server.Put(tt.moved)
				}
				if tt.moved == "" {
					g.server.OnRequest = func(r *http.Request) {
						if r.URL.Path == "/fhir/R4/metadata" {
							g.server.Delete("Observation/a1")
						}
					}
				}
				request, body := "DELETE "+tt.of, ""
				if tt.body != "" {
					request, body = "POST ", `{"resourceType":"Bundle","type":"`+tt.body+`","entry":[`+entryWithoutResource("DELETE", tt.of)+`]}`
				}
				got := g.written(writeCase{holder: tt.holder, request: request, body: body, header: tt.header})
				text, _ := io.ReadAll(got.Body)
				if got.StatusCode != tt.status || tt.entry != "" && !strings.Contains(string(text), `"status":"`+tt.entry) {
					t.Errorf("%d: %s", got.StatusCode, text)
				}
				refused := tt.status/100 == 4 || tt.entry == "409"
				if there := g.server.Get(strings.Replace(tt.of, "?_id=", "/", 1)) != ""; there != refused {
					t.Errorf("it is there: %v", there)
				}
			})
		}
	}
}

// entryWithoutResource returns a bundle entry that has a request but no resource.
func entryWithoutResource(method, target string) string {
	return `{"request":{"method":"` + method + `","url":"` + target + `"}}`
}

// The form of the DELETE request to the FHIR server depends on its CapabilityStatement.
func TestDeleteSent(t *testing.T) {
	t.Parallel()
	both := observation("both", "Patient/a", `,"performer":[{"reference":"Patient/a"}]`)
	binary := `{"resourceType":"Binary","id":"own","contentType":"text/plain","securityContext":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name, statement, rules string
		holder                 access.Holder
		of, want               string
	}{
		{"a server with conditional deletes", capabilityStatement("single", "Observation"), "", patientA, "Observation/a1", "Observation?_id=a1&subject=Patient%2Fa"},
		{"two references to the patient", capabilityStatement("single", "Observation"), "", patientA, "Observation/both", "Observation?_id=both&performer=Patient%2Fa&subject=Patient%2Fa"},
		{"a constraint", capabilityStatement("single", "Observation"), "", laboratory, "Observation/a1", "Observation?_id=a1&category=http%3A%2F%2Fc%7Claboratory&subject=Patient%2Fa"},
		{"a type without", capabilityStatement("single", "Device"), "", patientA, "Observation/a1", "Observation/a1"},
		{"a server without", capabilityStatement("not-supported", "Observation"), "", patientA, "Observation/a1", "Observation/a1"},
		{"no statement", `{"resourceType":"OperationOutcome"}`, "", patientA, "Observation/a1", "Observation/a1"},
		{"no JSON", `<CapabilityStatement/>`, "", patientA, "Observation/a1", "Observation/a1"},
		{"a type that is not searched", capabilityStatement("single", "Binary"), "", patientA, "Binary/own", "Binary/own"},
		{"a scope about all", capabilityStatement("single", "Observation"), "", clinician, "Observation/b1", "Observation/b1"},
		{"a rule that allows it", capabilityStatement("single", "Observation"), "allow resource.subject.reference == 'Patient/b'", patientA, "Observation/b1", "Observation/b1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, append(slices.Clone(writable), both, binary)...)
			if tt.rules != "" {
				g = g.withRules(tt.rules)
			}
			requests, sent := 0, ""
			g.server.Handlers = map[string]http.HandlerFunc{"metadata": func(w http.ResponseWriter, r *http.Request) {
				requests++
				newHandler(tt.statement)(w, r)
			}}
			g.server.OnRequest = func(r *http.Request) {
				if r.Method == http.MethodDelete {
					sent = strings.TrimPrefix(r.URL.RequestURI(), "/fhir/R4/")
				}
			}
			if got := g.written(writeCase{holder: tt.holder, request: "DELETE " + tt.of}).StatusCode; got != 204 || sent != tt.want || g.server.Get(tt.of) != "" {
				t.Errorf("%d, sent %s, want %s", got, sent, tt.want)
			}
			g.written(writeCase{holder: patientA, request: "DELETE Observation/a2"})
			if requests > 1 {
				t.Errorf("%d requests for the CapabilityStatement", requests)
			}
		})
	}
}

// The FHIR server's statement is read again after an hour, or after a minute if it was unavailable.
func TestStatementExpires(t *testing.T) {
	t.Parallel()
	for statement, ttl := range map[string]time.Duration{capabilityStatement("single", "Observation"): time.Hour, `no`: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			g, requests := newGateway(t), 0
			g.server.Handlers = map[string]http.HandlerFunc{"metadata": func(w http.ResponseWriter, r *http.Request) {
				requests++
				newHandler(statement)(w, r)
			}}
			for n, wait := range []time.Duration{0, ttl - time.Second, 2 * time.Second} {
				time.Sleep(wait)
				g.server.Put(observation("a1", "Patient/a", ""))
				if got := g.written(writeCase{holder: patientA, request: "DELETE Observation/a1"}).StatusCode; got != 204 || requests != []int{1, 1, 2}[n] {
					t.Errorf("after %v: %d, %d requests", wait, got, requests)
				}
			}
		})
	}
}

// The response to a write contains the resource only if the scopes allow reading it.
func TestWriteResponse(t *testing.T) {
	t.Parallel()
	body := observation("a1", "Patient/a", "")
	for _, tt := range []struct {
		name    string
		holder  access.Holder
		request string
		visible bool
	}{
		{"created, without read", creator, "POST Observation", false},
		{"created", patientA, "POST Observation", true},
		{"updated, without read", updater, "PUT Observation/a1", false},
		{"updated", patientA, "PUT Observation/a1", true},
		{"updated, read of another type", access.Holder{Scope: "patient/*.u patient/Patient.r", Patient: "a"}, "PUT Observation/a1", false},
		{"updated, read of another constraint", access.Holder{Scope: "patient/*.u patient/Observation.r?category=http://c|vital-signs", Patient: "a"}, "PUT Observation/a1", false},
		{"all of the type, without read", access.Holder{Scope: "user/*.cus", User: clinician.User}, "PUT Observation/a1", false},
		{"all of the type, created without read", access.Holder{Scope: "user/*.cus", User: clinician.User}, "POST Observation", false},
		{"all of the type, read bound", access.Holder{Scope: "user/*.us patient/*.r", Patient: "b", User: clinician.User}, "PUT Observation/a1", false},
		{"all", clinician, "PUT Observation/a1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, writable...)
			response := g.written(writeCase{holder: tt.holder, request: tt.request, body: body, header: "Prefer: return=representation"})
			text, _ := io.ReadAll(response.Body)
			if got := strings.Contains(string(text), "Observation"); got != tt.visible || response.StatusCode/100 != 2 {
				t.Errorf("status %d, body %s", response.StatusCode, text)
			}
			if location := response.Header.Get("Location"); !strings.HasPrefix(location, "https://gateway.example/fhir/R4/Observation/") || response.Header.Get("Etag") == "" {
				t.Errorf("Location %q, ETag %q", location, response.Header.Get("Etag"))
			}
		})
	}
}

// X-Security-Context is returned only to clients that may read the Binary.
func TestWrittenSecurityContext(t *testing.T) {
	t.Parallel()
	body := `{"resourceType":"Binary","id":"b","contentType":"text/plain","securityContext":{"reference":"Patient/a"}}`
	secured := handler(func(w http.ResponseWriter, r *http.Request) error { // sends the securityContext of a Binary as a header, like HAPI
		w.Header().Set("X-Security-Context", "Patient/a")
		return fixedResponse{http.StatusOK, `W/"1"`, body}.ServeHTTP(w, r)
	})
	for scope, want := range map[string]string{"patient/*.u": "", "user/Binary.u": "", "patient/*.ru": "Patient/a"} {
		g, w := newGateway(t), httptest.NewRecorder()
		r := newRequest(http.MethodPut, "/fhir/R4/Binary/b", "application/fhir+json", body)
		holder := access.Holder{Scope: scope, Patient: "a", User: clinician.User}
		if err := g.Serve(w, r, secured, enforce.Bearer{Rights: access.New(holder, g.TypeRules)}); err != nil {
			t.Errorf("%s: %v", scope, err)
		}
		if got := w.Header().Get("X-Security-Context"); got != want || w.Code != http.StatusOK {
			t.Errorf("%s: %d with %q, want %q", scope, w.Code, got, want)
		}
	}
}

// rejectingServer is a server that rejects writes.
type rejectingServer struct{ status int }

func (s rejectingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/fhir+json")
	if r.Method == http.MethodGet {
		w.Header().Set("Etag", `W/"1"`)
		_, err := io.WriteString(w, observation("a1", "Patient/a", ""))
		return err
	}
	w.WriteHeader(s.status)
	_, err := io.WriteString(w, `{"resourceType":"OperationOutcome","issue":[{"diagnostics":"Patient/b refers to it"}]}`)
	return err
}

// Only the status of the FHIR server's rejection is returned to the client.
func TestRefusedByServer(t *testing.T) {
	t.Parallel()
	for from, status := range map[int]int{400: 400, 401: 502, 403: 403, 404: 404, 405: 405, 409: 409, 410: 404, 412: 409, 422: 422, 429: 429, 500: 500, 302: 502} {
		g := newGateway(t)
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			r := newRequest(method, "/fhir/R4/Observation/a1", "application/fhir+json", observation("a1", "Patient/a", ""))
			got := rejectionIn(g.Serve(httptest.NewRecorder(), r, rejectingServer{from}, enforce.Bearer{Rights: access.New(patientA, g.TypeRules)}))
			if got.Status != status || strings.Contains(got.Description, "Patient/b") {
				t.Errorf("%s, %d: %d %s", method, from, got.Status, got.Description)
			}
		}
	}
}

// For an invalid body, the client gets the cause and location if they concern only its own input.
func TestInvalidBody(t *testing.T) {
	t.Parallel()
	outcome := `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"required","diagnostics":"as in Patient/b",
		"details":{"text":"Patient/b"},"expression":["Observation.status","Observation.where(subject='Patient/b')"]},{"severity":"error","code":"Patient/b"}]}`
	for _, tt := range []struct {
		name   string
		holder access.Holder
		status int
		body   string
		want   string
	}{
		{"all of the type", staff, 422, outcome, `{"issue":[{"severity":"error","code":"required","diagnostics":"The FHIR server rejected the write.","expression":["Observation.status"]}],"resourceType":"OperationOutcome"}`},
		{"bound", patientA, 422, outcome, `{"issue":[{"severity":"error","code":"required","diagnostics":"The FHIR server rejected the write.","expression":["Observation.status"]}],"resourceType":"OperationOutcome"}`},
		{
			"in words", patientA, 400, `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"processing","diagnostics":"HAPI-0450: Invalid status \"amended\" in Observation, as of Brown"}]}`,
			`{"issue":[{"severity":"error","code":"processing","diagnostics":"HAPI-0450: Invalid status \"amended\" in Observation, as of …"}],"resourceType":"OperationOutcome"}`,
		},
		{"about another one", patientA, 422, `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"duplicate","diagnostics":"Invalid status"}]}`, "The FHIR server rejected the write."},
		{"a conflict", staff, 409, outcome, "The resource has changed since it was read, or other resources refer to it."},
		{"no issue", staff, 422, `{"resourceType":"OperationOutcome"}`, "The FHIR server rejected the write."},
		{"no outcome", staff, 400, `{"resourceType":"Patient","issue":[{"severity":"error","code":"required"}]}`, "The FHIR server rejected the write."},
	} {
		g := newGateway(t)
		w := httptest.NewRecorder()
		r := newRequest(http.MethodPost, "/fhir/R4/Observation", "application/fhir+json", observation("", "Patient/a", ""))
		err := g.Serve(w, r, fixedResponse{tt.status, "", tt.body}, enforce.Bearer{Rights: access.New(tt.holder, g.TypeRules)})
		got := w.Body.String()
		if refused := rejectionIn(err); refused != nil {
			got = refused.Description
			w.Code = refused.Status
		}
		if got != tt.want || w.Code != tt.status {
			t.Errorf("%s: %d %s", tt.name, w.Code, got)
		}
	}
}

// rejectionIn returns the rejection that err wraps.
func rejectionIn(err error) *guard.Error {
	refused, _ := errors.AsType[*guard.Error](err)
	return refused
}

// Headers that extend the effect of a write on FHIR servers are not forwarded.
func TestHeaders(t *testing.T) {
	t.Parallel()
	g := newGateway(t, writable...)
	g.server.OnRequest = func(r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-") {
				t.Errorf("%s has %s", r.Method, name)
			}
		}
	}
	header := "X-Rewrite-History: true\nX-Security-Context: Patient/b\nX-Upsert-Extistence-Check: disabled\n"
	g.written(writeCase{holder: patientA, request: "PUT Observation/a1", body: observation("a1", "Patient/a", ""), header: header})
}

// The reason why a patch was rejected is not disclosed to clients that may not read its result.
func TestRefusedPatch(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]int{"patient/Observation.u": 0, "patient/Observation.ru": http.StatusBadRequest} {
		g := newGateway(t)
		r := newRequest(http.MethodPatch, "/fhir/R4/Observation/a1", "application/json-patch+json", `[{"op":"replace","path":"/status","value":"abc"}]`)
		w := httptest.NewRecorder()
		w.Code = 0
		err := g.Serve(w, r, validatingServer{}, enforce.Bearer{Rights: access.New(access.Holder{Scope: scope, Patient: "a"}, g.TypeRules)})
		if w.Code != want || (rejectionIn(err) == nil) != (want != 0) {
			t.Errorf("%s: %d %s, %v", scope, w.Code, w.Body, err)
		}
	}
}

// validatingServer is a server that reports every write as invalid.
type validatingServer struct{}

func (validatingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodGet {
		return rejectingServer{}.ServeHTTP(w, r)
	}
	return fixedResponse{http.StatusBadRequest, "", `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"value","expression":["Observation.status"]}]}`}.ServeHTTP(w, r)
}

// For an invalid search, the client gets the cause and the issue type.
func TestRefusedSearch(t *testing.T) {
	t.Parallel()
	outcome := `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"processing","diagnostics":"Invalid date/time format: \"abc\" in %s"}]}`
	for target, want := range map[string]string{
		"Observation?date=abc":                "The FHIR server rejected the search (400). Reason: Invalid date/time format: \"abc\" in …",
		"Observation?date=abc&status=Brown":   "The FHIR server rejected the search (400). Reason: Invalid date/time format: \"abc\" in Brown",
		"Observation?date=abc&_summary=count": "The FHIR server rejected the search (400). Reason: Invalid date/time format: \"abc\" in …",
		"Observation/_search":                 "The FHIR server rejected the search (400). Reason: Invalid date/time format: \"abc\" in …",
		"Observation/$lastn?max=abc":          "The FHIR server rejected the operation (400). Reason: Invalid date/time format: \"abc\" in …",
	} {
		g := newGateway(t)
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+target, nil)
		if strings.HasSuffix(target, "_search") {
			r = newRequest(http.MethodPost, "/fhir/R4/"+target, "application/x-www-form-urlencoded", "date=abc")
		}
		err := g.Serve(httptest.NewRecorder(), r, fixedResponse{http.StatusBadRequest, "", fmt.Sprintf(outcome, "Brown")}, enforce.Bearer{Rights: access.New(patientA, g.TypeRules)})
		if got := rejectionIn(err); got == nil || got.Description != want || got.IssueType() != "invalid" || got.Challenge("x") != "" {
			t.Errorf("%s: %q, want %q", target, got.Description, want)
		}
	}
}

// A client that requests an OperationOutcome for a write gets one.
func TestReturnOutcome(t *testing.T) {
	t.Parallel()
	for _, holder := range []access.Holder{patientA, {Scope: "user/Observation.cruds", User: clinician.User}, {Scope: "patient/Observation.c", Patient: "a"}} {
		g := newGateway(t, writable...)
		r := newRequest(http.MethodPost, "/fhir/R4/Observation", "application/fhir+json", observation("", "Patient/a", ""))
		r.Header.Set("Prefer", "return=OperationOutcome")
		response := g.send(holder, r)
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusCreated || !strings.Contains(string(text), `"OperationOutcome"`) || strings.Contains(string(text), "amended") {
			t.Errorf("%s: %d %s", holder.Scope, response.StatusCode, text)
		}
	}
	g := newGateway(t, writable...)
	r := newRequest(http.MethodPost, "/fhir/R4", "application/fhir+json", `{"resourceType":"Bundle","type":"batch","entry":[{"resource":`+observation("", "Patient/a", "")+`,"request":{"method":"POST","url":"Observation"}}]}`)
	r.Header.Set("Prefer", "return=OperationOutcome")
	if text, _ := io.ReadAll(g.send(patientA, r).Body); !strings.Contains(string(text), `"outcome":{"issue"`) || strings.Contains(string(text), `"resource":{`) {
		t.Errorf("in a batch: %s", text)
	}
}

// hook is the channel of a Subscription that sends full resources to an app.
const hook = `"type":"rest-hook","endpoint":"https://app.example/hook","payload":"application/fhir+json"`

func subscription(criteria, channel, more string) string {
	return fmt.Sprintf(`{"resourceType":"Subscription","status":"requested","reason":"r","criteria":%q,"channel":{%s}%s}`, criteria, channel, more)
}

// observationSubscription returns a Subscription with criteria for Observations.
func observationSubscription(criteria string) string { return subscription(criteria, hook, "") }

// backportSubscription returns a Subscription as defined by the Subscriptions R5 Backport.
func backportSubscription(criteria, filter, content string) string {
	const at = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-"
	more := ""
	if filter != "" {
		more = fmt.Sprintf(`,"_criteria":{"extension":[{"url":%q,"valueString":%q}]}`, at+"filter-criteria", filter)
	}
	channel := hook + fmt.Sprintf(`,"_payload":{"extension":[{"url":%q,"valueCode":%q}]}`, at+"payload-content", content)
	return subscription(criteria, channel, more)
}

// Holders of scopes for Subscriptions.
var (
	observer           = access.Holder{Scope: "user/Subscription.cruds user/Observation.rs", User: clinician.User}
	labObserver        = access.Holder{Scope: "system/Subscription.cruds system/Observation.rs?category=http://c|laboratory"}
	patientObserver    = access.Holder{Scope: "user/Subscription.cruds patient/Observation.rs", Patient: "a", User: clinician.User}
	patientLabObserver = access.Holder{Scope: "user/Subscription.cruds patient/Observation.rs?category=http://c|laboratory", Patient: "a", User: clinician.User}
	ofAll              = access.Holder{Scope: "system/Subscription.cruds system/*.rs"}
	ofEvery            = access.Holder{Scope: "system/*.cruds"}
	searching          = access.Holder{Scope: "system/Subscription.cruds system/*.s"}
)

func TestSubscription(t *testing.T) {
	t.Parallel()
	const topic = "http://example.org/topic"
	extension := func(url string) string { return `,"extension":[{"url":"` + url + `","valueString":"Patient?"}]` }
	for _, tt := range []struct {
		name   string
		holder access.Holder
		body   string
		status int
	}{
		{"of what may be read", observer, observationSubscription("Observation?"), 201},
		{"the type alone", observer, observationSubscription("Observation"), 201},
		{"by parameters of the type", observer, observationSubscription("Observation?code=http://loinc.org|1975-2&status=final"), 201},
		{"of another type", observer, observationSubscription("Patient?"), 403},
		{"without any scope to read", access.Holder{Scope: "system/Subscription.c"}, observationSubscription("Patient?"), 403},
		{"read and searched by two scopes", access.Holder{Scope: "system/Subscription.c system/Observation.r system/Observation.s"}, observationSubscription("Observation?"), 201},
		{"searched, not read", access.Holder{Scope: "system/Subscription.c system/Observation.s"}, observationSubscription("Observation?"), 403},
		{"read, not searched", access.Holder{Scope: "system/Subscription.c system/Observation.r"}, observationSubscription("Observation?"), 403},
		{"everything searched, not read", searching, observationSubscription("Patient?"), 403},
		{"a chain", observer, observationSubscription("Observation?subject:Patient.name=Adams"), 403},
		{"a reversed chain", observer, observationSubscription("Observation?_has:Provenance:target:agent=Practitioner/p"), 403},
		{"what comes along", observer, observationSubscription("Observation?_include=Observation:subject"), 403},
		{"a filter", observer, observationSubscription("Observation?_filter=status eq final"), 403},
		{"a parameter of the server's own", observer, observationSubscription("Observation?mine=1"), 403},
		{"a type of the server's own", observer, observationSubscription("Mine?"), 403},
		{"several types", observer, observationSubscription("[Observation,Patient]"), 403},
		{"all types", observer, observationSubscription("[*]"), 403},
		{"a list of types", observer, observationSubscription("?_type=Observation"), 403},
		{"a compartment", observer, observationSubscription("Patient/a/Observation"), 403},
		{"an operation", observer, observationSubscription("Observation/$lastn"), 403},
		{"a URL", observer, observationSubscription("http://hapi:8080/fhir/Observation?"), 403},
		{"no criteria", observer, `{"resourceType":"Subscription","status":"off","channel":{` + hook + `}}`, 403},
		{"criteria is not a string", observer, `{"resourceType":"Subscription","criteria":["Observation?"],"channel":{` + hook + `}}`, 403},
		{"criteria that escapes hide", observer, strings.Replace(observationSubscription("Xatient?"), "X", `\u0050`, 1), 403},
		{"switched off", observer, strings.Replace(observationSubscription("Patient?"), "requested", "off", 1), 403},
		{"the constraint among the criteria", labObserver, observationSubscription("Observation?category=http://c|laboratory&status=final"), 201},
		{"no constraint", labObserver, observationSubscription("Observation?status=final"), 403},
		{"more than the constraint", labObserver, observationSubscription("Observation?category=http://c|laboratory,http://c|vital-signs"), 403},
		{"one patient's, with notifications that are not judged", patientObserver, observationSubscription("Observation?subject=Patient/a"), 403},
		{"one patient's, with the constraint", patientLabObserver, observationSubscription("Observation?subject=Patient/a&category=http://c|laboratory"), 403},
		{"everything", ofAll, observationSubscription("Patient?_has:Observation:subject:code=x"), 201},
		{"a topic", observer, backportSubscription(topic, "", "full-resource"), 403},
		{"a topic with a filter", observer, backportSubscription(topic, "Observation?status=final", "full-resource"), 403},
		{"a topic of which nothing is sent", observer, backportSubscription(topic, "Observation?status=final", "empty"), 403},
		{"a topic, by everything", ofAll, backportSubscription(topic, "Patient?", "full-resource"), 201},
		{"a filter beside criteria", observer, backportSubscription("Observation?", "Patient?", "full-resource"), 403},
		{"how much is sent", observer, backportSubscription("Observation?", "", "id-only"), 201},
		{"an extension that sends more", observer, subscription("Observation?", hook, extension("http://hapifhir.io/fhir/StructureDefinition/subscription-payload-search-criteria")), 403},
		{"one that must be understood", observer, subscription("Observation?", hook, strings.Replace(extension("http://x"), "extension", "modifierExtension", 1)), 403},
		{"one of the channel", observer, subscription("Observation?", hook+extension("http://x"), ""), 403},

		{"a header", observer, subscription("Observation?", hook+`,"header":["Authorization: Bearer x","X-A:"]`, ""), 201},
		{"two headers in one", observer, subscription("Observation?", hook+`,"header":["X-A: b\r\nX-B: c"]`, ""), 400},
		{"a header of a request's end", observer, subscription("Observation?", hook+`,"header":["transfer-encoding: chunked"]`, ""), 400},
		{"another method", observer, subscription("Observation?", hook+`,"header":["X-HTTP-Method-Override: DELETE"]`, ""), 400},
		{"no header", observer, subscription("Observation?", hook+`,"header":["X A: b"]`, ""), 400},
		{"by websocket", observer, subscription("Observation?", `"type":"websocket"`, ""), 201},
		{"by mail", observer, subscription("Observation?", `"type":"email","endpoint":"mailto:a@example.org"`, ""), 201},
		{"by the server's queue", observer, subscription("Observation?", `"type":"message","endpoint":"channel:x"`, ""), 403},
		{"by a way of the server's own", observer, subscription("Observation?", `"type":"mine"`, ""), 403},
		{"no channel", observer, `{"resourceType":"Subscription","criteria":"Observation?"}`, 403},
		{"to a file", observer, subscription("Observation?", `"type":"rest-hook","endpoint":"file:///etc/x"`, ""), 400},
		{"to a path", observer, subscription("Observation?", `"type":"rest-hook","endpoint":"/hook"`, ""), 400},
		{"with a password", observer, subscription("Observation?", `"type":"rest-hook","endpoint":"https://a:b@app.example"`, ""), 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			writeCase{holder: tt.holder, request: "POST Subscription", body: tt.body, status: tt.status}.check(t)
		})
	}
}

// A Subscription is judged by its new version, whatever interaction writes it.
func TestSubscriptionWrites(t *testing.T) {
	t.Parallel()
	withID := func(text, id string) string { return strings.Replace(text, `{`, `{"id":"`+id+`",`, 1) }
	const jsonType = "Content-Type: application/json-patch+json"
	byPath := `{"resourceType":"Parameters","parameter":[` + change("replace", "Subscription.status", `,{"name":"value","valueCode":"off"}`) + `]}`
	stored := append(slices.Clone(writable), withID(observationSubscription("Observation?"), "own"), withID(observationSubscription("Patient?"), "wide"))
	for _, tt := range []writeCase{
		{"update", observer, "PUT Subscription/own", withID(observationSubscription("Observation?status=final"), "own"), "", 200, "Subscription/own=status=final"},
		{"update to more", observer, "PUT Subscription/own", withID(observationSubscription("Patient?"), "own"), "", 403, ""},
		{"update of a wider one, which stays as wide", observer, "PUT Subscription/wide", withID(observationSubscription("Patient?"), "wide"), "", 403, ""},
		{"update of a wider one, which is narrowed", observer, "PUT Subscription/wide", withID(observationSubscription("Observation?"), "wide"), "", 200, ""},
		{"update that creates", observer, "PUT Subscription/new", withID(observationSubscription("Patient?"), "new"), "", 403, ""},
		{"patch", observer, "PATCH Subscription/own", `[{"op":"replace","path":"/status","value":"off"}]`, jsonType, 200, `Subscription/own="off"`},
		{"patch to more", observer, "PATCH Subscription/own", `[{"op":"replace","path":"/criteria","value":"Patient?"}]`, jsonType, 403, ""},
		{"patch of another endpoint into a wider one", observer, "PATCH Subscription/wide", `[{"op":"replace","path":"/channel/endpoint","value":"https://x.example"}]`, jsonType, 403, ""},
		{"activation of a wider one", observer, "PATCH Subscription/wide", `[{"op":"replace","path":"/status","value":"active"}]`, jsonType, 403, ""},
		{"patch by FHIRPath", observer, "PATCH Subscription/wide", byPath, "", 403, ""},
		{"patch by FHIRPath, by everything", ofEvery, "PATCH Subscription/own", byPath, "", 200, ""},
		{"conditional create", observer, "POST Subscription", observationSubscription("Patient?"), "If-None-Exist: status=off", 403, ""},
		{"conditional update", observer, "PUT Subscription?criteria=Observation?", observationSubscription("Patient?"), "", 403, ""},
		{"conditional patch", observer, "PATCH Subscription?status=requested&_id=own", `[{"op":"replace","path":"/criteria","value":"Patient?"}]`, jsonType, 403, ""},
		{"deletion", observer, "DELETE Subscription/wide", "", "", 204, ""},
		{"by everything", ofEvery, "POST Subscription", observationSubscription("Patient?"), "", 201, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.checkAt(newGateway(t, stored...))
		})
	}
}

// Subscriptions in bundles are judged, although bundles that don't need judging are forwarded in one request.
func TestSubscriptionInBundle(t *testing.T) {
	t.Parallel()
	reader := access.Holder{Scope: "system/Subscription.cr system/*.s"}
	wide := entryWithResource("POST", "Subscription", observationSubscription("Patient?"))
	for _, h := range []access.Holder{observer, reader} {
		g := newGateway(t, writable...)
		g.server.OnRequest = func(r *http.Request) {
			if r.Method != http.MethodGet {
				t.Errorf("%s %s reaches the server", r.Method, r.URL)
			}
		}
		if got := parseBatchResponse(t, g.submit(h, "batch", wide), 1).status(0); got != "403" {
			t.Errorf("%s: %s in a batch", h.Scope, got)
		}
		if got := g.submit(h, "transaction", wide).StatusCode; got != 403 {
			t.Errorf("%s: %d as a transaction", h.Scope, got)
		}
	}
	for _, kind := range []string{"batch", "transaction"} {
		g := newGateway(t, writable...)
		if got := parseBatchResponse(t, g.submit(observer, kind, entryWithResource("POST", "Subscription", observationSubscription("Observation?"))), 1).status(0); got != "201" {
			t.Errorf("%s in a %s", got, kind)
		}
	}
}

// Subscriptions are rejected if rules judge each resource.
func TestSubscriptionUnderRules(t *testing.T) {
	t.Parallel()
	for _, h := range []access.Holder{observer, labObserver, ofEvery} {
		tt := writeCase{name: h.Scope, holder: h, request: "POST Subscription", body: observationSubscription("Observation?category=http://c|laboratory"), status: 403}
		tt.checkAt(newGateway(t, writable...).withRules("deny resource.status == 'amended'"))
	}
}

// Other types that have side effects when stored are also judged by them.
func TestEffects(t *testing.T) {
	t.Parallel()
	scoped := func(resourceType string) access.Holder {
		return access.Holder{Scope: "user/" + resourceType + ".cruds user/Observation.rs", User: clinician.User}
	}
	task := func(input string) string {
		return `{"resourceType":"Task","status":"requested","input":[{` + input + `}]}`
	}
	asking := func(payload string) string {
		return `{"resourceType":"CommunicationRequest","status":"active","subject":{"reference":"Patient/a"},"payload":[` + payload + `]}`
	}
	for _, tt := range []struct {
		name, resourceType, body string
		status                   int
	}{
		{"a parameter", "SearchParameter", `{"resourceType":"SearchParameter","code":"status","base":["Observation"],"expression":"Observation.subject.resolve().name"}`, 403},
		{"a compartment", "CompartmentDefinition", `{"resourceType":"CompartmentDefinition"}`, 403},
		{"a graph", "GraphDefinition", `{"resourceType":"GraphDefinition"}`, 403},
		{"an operation", "OperationDefinition", `{"resourceType":"OperationDefinition"}`, 403},
		{"a message", "MessageDefinition", `{"resourceType":"MessageDefinition"}`, 403},
		{"an event", "EventDefinition", `{"resourceType":"EventDefinition"}`, 403},
		{"a plan", "PlanDefinition", `{"resourceType":"PlanDefinition"}`, 403},
		{"a task", "Task", task(`"type":{"text":"x"},"valueString":"Is this right? Ask the Patient."`), 201},
		{"a task about a resource", "Task", task(`"valueReference":{"reference":"Observation/a1"}`), 201},
		{"a task that asks for what may be read", "Task", task(`"valueString":"Observation?subject=Patient/a"`), 201},
		{"a task that asks for more", "Task", task(`"valueString":"Condition?subject=Patient/a"`), 403},
		{"a task that asks for more by URL", "Task", task(`"valueUrl":"https://f.example/fhir/Condition?x=y"`), 403},
		{"a task that asks in a compartment", "Task", task(`"valueString":"Patient/b/Condition?code=x"`), 403},
		{"a task that reads", "Task", task(`"valueString":"Patient/b"`), 403},
		{"a task that reads a permitted type", "Task", task(`"valueString":"Observation/b1"`), 201},
		{"a task that calls an operation", "Task", task(`"valueString":"Patient/b/$everything"`), 403},
		{"a task that calls an operation by URL", "Task", task(`"valueUrl":"https://f.example/fhir/Patient/b/$everything"`), 403},
		{"a task that searches in a nested extension", "Task", task(`"extension":[{"url":"http://x","extension":[{"url":"y","valueString":"Condition?"}]}]`), 403},
		{"a request that searches", "CommunicationRequest", asking(`{"extension":[{"url":"http://x","valueString":"Condition?"}]}`), 403},
		{"a request that sends a permitted type", "CommunicationRequest", asking(`{"contentReference":{"reference":"Observation/b1"}}`), 201},
		{"a request that sends more", "CommunicationRequest", asking(`{"contentReference":{"reference":"Condition/b1"}}`), 403},
		{"a request with a text", "CommunicationRequest", asking(`{"contentString":"Please call."}`), 201},
		{"a stored message", "Bundle", `{"resourceType":"Bundle","type":"message"}`, 403},
		{"a stored transaction", "Bundle", `{"resourceType":"Bundle","type":"transaction"}`, 403},
		{"a Bundle of no type", "Bundle", `{"resourceType":"Bundle"}`, 403},
		{"a stored document", "Bundle", `{"resourceType":"Bundle","type":"document"}`, 201},
		{"a topic", "Basic", `{"resourceType":"Basic","code":{"coding":[{"code":"\u0053ubscriptionTopic"}]}}`, 403},
		{"another Basic", "Basic", `{"resourceType":"Basic","code":{"text":"x"}}`, 201},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			writeCase{holder: scoped(tt.resourceType), request: "POST " + tt.resourceType, body: tt.body, status: tt.status}.check(t)
			writeCase{holder: ofEvery, request: "POST " + tt.resourceType, body: tt.body, status: 201}.check(t)
		})
	}
	ofStatus := access.Holder{Scope: "user/CommunicationRequest.cruds?status=active user/Observation.rs", User: clinician.User}
	writeCase{holder: ofStatus, request: "POST CommunicationRequest", body: asking(`{"contentReference":{"reference":"Condition/b1"}}`), status: 403}.check(t)
	for payload, status := range map[string]int{
		`{"contentString":"Observation?"}`:                              403,
		`{"contentReference":{"reference":"Observation/a1"}}`:           201,
		`{"contentReference":{"reference":"Observation/b1"}}`:           403,
		`{"contentReference":{"reference":"Observation?status=final"}}`: 412,
	} {
		writeCase{holder: patientA, request: "POST CommunicationRequest", body: asking(payload), status: status}.check(t)
	}
}

// Operations that trigger another client's Subscription are rejected, whatever the site's configuration.
func TestDeliveryOperations(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"$events", "$get-ws-binding-token", "$process-message", "$trigger-subscription"} {
		for _, reach := range []operation.ScopeRequirement{operation.RequireToken, operation.RequireInstance, operation.RequirePatient, operation.RequireAll} {
			g := newGateway(t, writable...)
			g.Operations = operation.NewOperations(operation.Operation{Name: name, Requirement: reach, Permission: 2})
			at := interaction.Reference{Type: "Subscription", ID: "x"}.String() + "/" + name
			for _, h := range []access.Holder{observer, searching} {
				if got := g.get(h, at).StatusCode; got != 403 {
					t.Errorf("%s by %s, %s: %d", name, reach, h.Scope, got)
				}
			}
			if got := g.get(ofEvery, at).StatusCode; got == 403 {
				t.Errorf("%s by %s is refused to those who may read everything", name, reach)
			}
		}
	}
}
