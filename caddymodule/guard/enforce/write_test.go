package enforce_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
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

func TestCreate(t *testing.T) {
	t.Parallel()
	own := observation("", "Patient/a", "")
	for _, tt := range []writing{
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	own := observation("a1", "Patient/a", "")
	for _, tt := range []writing{
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
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

func TestDelete(t *testing.T) {
	t.Parallel()
	gone := func(reference string) string { return reference + "=!resourceType" }
	for _, tt := range []writing{
		{"own", patientA, "DELETE Observation/a1", "", "", 204, gone("Observation/a1")},
		{"another's", patientA, "DELETE Observation/b1", "", "", 404, ""},
		{"not there", patientA, "DELETE Observation/none", "", "", 404, ""},
		{"of two patients", patientA, "DELETE Observation/ab", "", "", 403, ""},
		{"own patient", patientA, "DELETE Patient/a", "", "", 403, ""},
		{"another patient", patientA, "DELETE Patient/b", "", "", 403, ""},
		{"a patient by a clinician", clinician, "DELETE Patient/b", "", "", 204, gone("Patient/b")},
		{"within a constraint", laboratory, "DELETE Observation/a1", "", "", 204, gone("Observation/a1")},
		{"outside a constraint", laboratory, "DELETE Observation/a2", "", "", 404, ""},
		{"no permission", updater, "DELETE Observation/a1", "", "", 403, ""},
		{"another version", patientA, "DELETE Observation/a1", "", `If-Match: W/"7"`, 412, ""},
		{"a shared type", patientA, "DELETE Practitioner/alice", "", "", 403, ""},
		{"a device of nobody", patientA, "DELETE Device/free", "", "", 403, ""},
		{"own device", patientA, "DELETE Device/a1", "", "", 204, gone("Device/a1")},
		{"cascading", patientA, "DELETE Observation/a1?_cascade=delete", "", "", 403, ""},
		{"cascading by header", patientA, "DELETE Observation/a1", "", "X-Cascade: delete", 403, ""},
		{"cascading, all of one type", staff, "DELETE Observation/a1?_cascade=delete", "", "", 403, ""},
		{"cascading by header, all of one type", staff, "DELETE Observation/a1", "", "X-Cascade: delete", 403, ""},
		{"cascading, all of all types", clinician, "DELETE Observation/a1?_cascade=delete", "", "", 204, gone("Observation/a1")},
		{"an unknown parameter", patientA, "DELETE Observation/a1?_expunge=true", "", "", 403, ""},
		{"all of one type", staff, "DELETE Observation/b1", "", "", 204, gone("Observation/b1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

// TestDeletedIsNotFound checks that what was deleted answers as what never was, and as what is not covered.
func TestDeletedIsNotFound(t *testing.T) {
	t.Parallel()
	g := newGateway(t, writable...)
	g.written(writing{holder: patientA, request: "DELETE Observation/a1"})
	answers := map[string]bool{}
	for _, request := range []string{
		"DELETE Observation/a1", "DELETE Observation/b1", "DELETE Observation/none", "PUT Observation/a1", "PUT Observation/b1", "PUT Observation/none",
	} {
		id := request[strings.IndexByte(request, '/')+1:]
		response := g.written(writing{holder: patientA, request: request, body: observation(id, "Patient/a", "")})
		body, _ := io.ReadAll(response.Body)
		answers[response.Status+string(body)] = true
	}
	if len(answers) != 1 {
		t.Errorf("answers differ: %v", answers)
	}
}

func TestConditional(t *testing.T) {
	t.Parallel()
	own := observation("", "Patient/a", "")
	none := "If-None-Exist: "
	for _, tt := range []writing{
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
		{"delete, with an include", patientA, "DELETE Observation?_id=a1&_include=Observation:subject", "", "", 400, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

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
		{"conditional", patientA, "POST Observation", focus("", "Practitioner?identifier=1"), "", 403, ""},
		{"conditional, in an extension", patientA, "POST Observation", nested, "", 403, ""},
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

// TestWrittenAnswer checks what clients are told of what they have written.
func TestWrittenAnswer(t *testing.T) {
	t.Parallel()
	body := observation("a1", "Patient/a", "")
	for _, tt := range []struct {
		name    string
		holder  access.Holder
		request string
		shown   bool
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
			response := g.written(writing{holder: tt.holder, request: tt.request, body: body, header: "Prefer: return=representation"})
			text, _ := io.ReadAll(response.Body)
			if got := strings.Contains(string(text), "Observation"); got != tt.shown || response.StatusCode/100 != 2 {
				t.Errorf("status %d, body %s", response.StatusCode, text)
			}
			if location := response.Header.Get("Location"); !strings.HasPrefix(location, "https://gateway.example/fhir/R4/Observation/") || response.Header.Get("Etag") == "" {
				t.Errorf("Location %q, ETag %q", location, response.Header.Get("Etag"))
			}
		})
	}
}

// TestWriteIsHeld checks that what was judged is what is changed: another version in between makes the write fail.
func TestWriteIsHeld(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"PUT Observation/a1", "DELETE Observation/a1", "PATCH Observation/a1"} {
		for header, status := range map[string]int{"": 409, `If-Match: W/"1"`: 412} {
			g := newGateway(t, writable...)
			g.server.Seen = func(r *http.Request) {
				if r.Method != http.MethodGet {
					g.server.Put(observation("a1", "Patient/b", "")) // somebody was faster
				}
			}
			tt := writing{holder: patientA, request: request, header: header, body: observation("a1", "Patient/a", "")}
			if strings.HasPrefix(request, "PATCH") {
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
		if got := statusOf(g.Serve(httptest.NewRecorder(), r, tt.server, access.New(patientA, g.Shared), "")); got == nil || got.Status != tt.status {
			t.Errorf("%s: got %v, want %d", tt.name, got, tt.status)
		}
	}
}

// refusing is a server that reads and does not write.
type refusing struct{ status int }

func (s refusing) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
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

// TestRefusedByServer checks that of the FHIR server's refusal only the status is told.
func TestRefusedByServer(t *testing.T) {
	t.Parallel()
	for from, status := range map[int]int{400: 400, 401: 502, 403: 403, 404: 404, 405: 405, 409: 409, 410: 404, 412: 409, 422: 422, 429: 429, 500: 500, 302: 502} {
		g := newGateway(t)
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			r := httptest.NewRequest(method, "/fhir/R4/Observation/a1", strings.NewReader(observation("a1", "Patient/a", "")))
			r.Header.Set("Content-Type", "application/fhir+json")
			got := statusOf(g.Serve(httptest.NewRecorder(), r, refusing{from}, access.New(patientA, g.Shared), ""))
			if got.Status != status || strings.Contains(got.Description, "Patient/b") {
				t.Errorf("%s, %d: %d %s", method, from, got.Status, got.Description)
			}
		}
	}
}

// TestInvalidBody checks that of an invalid body, a client that may write all of the type is told what is wrong and
// where, in none of the server's words.
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
		{"all of the type", staff, 422, outcome, `{"issue":[{"severity":"error","code":"required","expression":["Observation.status"]}],"resourceType":"OperationOutcome"}`},
		{"bound", patientA, 422, outcome, "The FHIR server refuses the write."},
		{"a conflict", staff, 409, outcome, "The resource was changed in the meantime, or others refer to it."},
		{"no issue", staff, 422, `{"resourceType":"OperationOutcome"}`, "The FHIR server refuses the write."},
		{"no outcome", staff, 400, `{"resourceType":"Patient","issue":[{"severity":"error","code":"required"}]}`, "The FHIR server refuses the write."},
	} {
		g := newGateway(t)
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/Observation", strings.NewReader(observation("", "Patient/a", "")))
		r.Header.Set("Content-Type", "application/fhir+json")
		err := g.Serve(w, r, constant{tt.status, "", tt.body}, access.New(tt.holder, g.Shared), "")
		got := w.Body.String()
		if refused := statusOf(err); refused != nil {
			got = refused.Description
			w.Code = refused.Status
		}
		if got != tt.want || w.Code != tt.status {
			t.Errorf("%s: %d %s", tt.name, w.Code, got)
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

// statusOf is the refusal that an error is.
func statusOf(err error) *guard.Error {
	refused, _ := errors.AsType[*guard.Error](err)
	return refused
}
