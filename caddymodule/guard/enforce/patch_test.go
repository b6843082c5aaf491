package enforce_test

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestJSONPatch(t *testing.T) {
	t.Parallel()
	const media = "Content-Type: application/json-patch+json"
	replace := func(path, value string) string {
		return `[{"op":"replace","path":"` + path + `","value":` + value + `}]`
	}
	amend := replace("/status", `"amended"`)
	for _, tt := range []writing{
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

// operation is an operation of a FHIRPath Patch.
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
	for _, tt := range []writing{
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
		{"a path twice, the good one last", patientA, "PATCH Observation/a1", patch(change("replace", "Observation.subject", `,{"name":"path","valueString":"Observation.status"}`+amended)), "", 403, ""},
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}
