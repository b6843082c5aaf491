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

// testWritings checks writes, each at a gateway of its own.
func testWritings(t *testing.T, tests []writing) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
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

func TestCreate(t *testing.T) {
	t.Parallel()
	own := observation("", "Patient/a", "")
	testWritings(t, []writing{
		{"own", patientA, "POST Observation", own, "", 201, "Observation/new-19=Patient/a"},
		{"by v1 scopes", access.Holder{Scope: "patient/*.write", Patient: "a"}, "POST Observation", own, "", 201, "Observation/new-19=Patient/a"},
		{"another's", patientA, "POST Observation", observation("", "Patient/b", ""), "", 403, ""},
		{"nobody's", patientA, "POST Observation", `{"resourceType":"Observation","status":"final"}`, "", 403, ""},
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
		{"a device of nobody", patientA, "POST Device", `{"resourceType":"Device"}`, "", 403, ""},
		{"another's device", patientA, "POST Device", `{"resourceType":"Device","patient":{"reference":"Patient/b"}}`, "", 403, ""},
		{"a binary of an own record", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Observation/a1"}}`, "", 201, "Binary/new-19=Observation/a1"},
		{"a binary of another's record", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}`, "", 403, ""},
		{"a binary of a device of nobody", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Device/free"}}`, "", 403, ""},
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
	testWritings(t, []writing{
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
		{"a device of nobody becomes one's own", patientA, "PUT Device/free", `{"resourceType":"Device","id":"free","patient":{"reference":"Patient/a"}}`, "", 403, ""},
		{"own device becomes nobody's", patientA, "PUT Device/a1", `{"resourceType":"Device","id":"a1"}`, "", 403, ""},
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

// TestUpsert checks what an update of what is not there does where the site allows it.
func TestUpsert(t *testing.T) {
	t.Parallel()
	for _, tt := range []writing{
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
			g.Upsert = true
			g.server.Put(observation("gone", "Patient/b", ""))
			g.written(writing{holder: clinician, request: "DELETE Observation/gone"})
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
	testWritings(t, []writing{
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

// change is an operation of a FHIRPath Patch.
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
	testWritings(t, []writing{
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
		{"a name that is none", patientA, "PATCH Observation/a1", patch(change("add", "Observation", name("subject ")+code)), "", 403, ""},
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
		{"whose provenance", patientA, "PATCH Provenance/a1", patch(change("delete", "Provenance.target[0]", "")), "", 403, ""},
		{"whose device", patientA, "PATCH Device/a1", patch(change("delete", "Device.patient", "")), "", 403, ""},
		{"whose binary", patientA, "PATCH Binary/a1", patch(change("delete", "Binary.securityContext", "")), "", 403, ""},
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
	testWritings(t, []writing{
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
		{"delete, all of one type, by a chain that finds nothing", chained, "DELETE Observation?subject:Patient.family=nobody&_id=b1", "", "", 404, ""},
		{"delete, all of one type, by a chain", chained, "DELETE Observation?subject:Patient.family=Adams&_id=a2", "", "", 204, "Observation/a2=!resourceType"},
		{"delete, one patient's, searching all", finder, "DELETE Observation?_id=a1", "", "", 204, "Observation/a1=!resourceType"},
		{"delete, one patient's, searching all, another's", finder, "DELETE Observation?_id=b1", "", "", 404, ""},
		{"delete, with an include", patientA, "DELETE Observation?_id=a1&_include=Observation:subject", "", "", 400, ""},
	})
}
