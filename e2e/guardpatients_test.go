package e2e

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

const (
	vipLabel = `"meta":{"security":[{"system":"http://terminology.hl7.org/CodeSystem/v3-ActCode","code":"VIP"}]}`

	// pairedRecords are the records that both worlds contain.
	pairedRecords = `
		Organization {clinic} "name":"Clinic"
		Practitioner {doctor} "name":[{"family":"Doctor"}]
		Patient {patient} "name":[{"family":"Plain"}],"birthDate":"1970-05-05","gender":"female","generalPractitioner":[{"reference":"Practitioner/{doctor}"}]
		Patient {other} "name":[{"family":"Else"}],"birthDate":"1971-05-05"
		Encounter {encounter} "status":"finished","class":{"code":"AMB"},"subject":{"reference":"Patient/{patient}"}
		Encounter {deniedEncounter} "status":"finished","class":{"code":"AMB"},"subject":{"reference":"Patient/{denied}"}
		Observation {pulse} "status":"final","code":{"coding":[{"code":"pulse"}]},"subject":{"reference":"Patient/{patient}"},"encounter":{"reference":"Encounter/{encounter}"},"effectiveDateTime":"2024-01-01","performer":[{"reference":"Practitioner/{doctor}"}]
		Observation {weight} "status":"final","code":{"coding":[{"code":"weight"}]},"subject":{"reference":"Patient/{patient}"},"effectiveDateTime":"2024-02-01"
		Observation {smoking} "status":"final","code":{"coding":[{"code":"smoking"}]},"subject":{"reference":"Patient/{patient}"},"effectiveDateTime":"2024-03-01","hasMember":[{"reference":"Observation/{hidden}"}]
		Observation {otherPulse} "status":"final","code":{"coding":[{"code":"pulse"}]},"subject":{"reference":"Patient/{other}"},"effectiveDateTime":"2024-04-01"
		Observation {deniedPulse} "status":"final","code":{"coding":[{"code":"pulse"}]},"subject":{"reference":"Patient/{denied}"},"effectiveDateTime":"2024-05-01"
		Condition {condition} "code":{"text":"cough"},"subject":{"reference":"Patient/{patient}"}
		Condition {deniedCondition} "code":{"text":"cough"},"subject":{"reference":"Patient/{denied}"}
		DiagnosticReport {report} "status":"final","code":{"text":"r"},"subject":{"reference":"Patient/{patient}"},"result":[{"reference":"Observation/{pulse}"}]
		DiagnosticReport {reportOfHidden} "status":"final","code":{"text":"r"},"subject":{"reference":"Patient/{patient}"},"result":[{"reference":"Observation/{hidden}"}]
		DiagnosticReport {deniedReport} "status":"final","code":{"text":"r"},"subject":{"reference":"Patient/{denied}"},"result":[{"reference":"Observation/{deniedPulse}"}]
		Binary {noteBinary} "contentType":"text/plain","data":"bm90ZQ=="
		DocumentReference {note} "status":"current","type":{"text":"note"},"subject":{"reference":"Patient/{patient}"},"content":[{"attachment":{"contentType":"text/plain","url":"Binary/{noteBinary}"}}]
		DocumentReference {deniedNote} "status":"current","type":{"text":"note"},"subject":{"reference":"Patient/{denied}"},"content":[{"attachment":{"contentType":"text/plain","data":"bm90ZQ=="}}]
		MedicationRequest {order} "status":"active","intent":"order","medicationCodeableConcept":{"text":"m"},"subject":{"reference":"Patient/{patient}"}
		Provenance {provenance} "target":[{"reference":"Observation/{pulse}"}],"recorded":"2024-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/{doctor}"}}]
		Provenance {provenanceOfHidden} "target":[{"reference":"Observation/{hidden}"}],"recorded":"2024-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/{doctor}"}}]
		RelatedPerson {relative} "patient":{"reference":"Patient/{denied}"},"name":[{"family":"Plain"}]
		Group {group} "type":"person","actual":true,"member":[{"entity":{"reference":"Patient/{patient}"}},{"entity":{"reference":"Patient/{denied}"}}]`
)

// pairedRule is a deny rule with the records that it denies in two otherwise equal worlds (states of the FHIR server).
type pairedRule struct {
	name, rule    string
	holders       string // comma-separated keys of holdersByScope: the token holders for reads and writes; exports have their own
	before, after string // templates of the denied records in the first world and in the second world
}

var pairedRules = []pairedRule{
	{
		name: "research", holders: "system patient", rule: "deny research `token.client_id == 'an-app' && resource.resourceType in ['Patient', 'RelatedPerson', 'Person']`",
		before: `
			Patient {denied} "name":[{"family":"Jones","given":["Ann"]}],"birthDate":"1960-06-06","gender":"male"
			Person {hidden} "name":[{"family":"Jones"}]`,
		after: `
			Patient {denied} "name":[{"family":"{family}","given":["Ann"]}],"birthDate":"1950-01-02","gender":"female","active":true,"identifier":[{"value":"{family}"}],"generalPractitioner":[{"reference":"Practitioner/{doctor}"}],"managingOrganization":{"reference":"Organization/{clinic}"},"address":[{"city":"{family}"}],"deceasedBoolean":true,"meta":{"tag":[{"code":"{family}"}]}
			Patient {added} "name":[{"family":"{family}"}],"generalPractitioner":[{"reference":"Practitioner/{doctor}"}]
			Person {hidden} "name":[{"family":"{family}"}]
			Person {person} "name":[{"family":"{family}"}],"link":[{"target":{"reference":"Patient/{denied}"}}]`,
	},
	{
		name: "label", holders: "user patient", rule: "deny vip `resource.?meta.?security.orValue([]).exists(label, label.?code.orValue('') == 'VIP')`",
		before: `
			Patient {denied} ` + vipLabel + `,"name":[{"family":"Jones","given":["Ann"]}],"birthDate":"1960-06-06","gender":"male"
			Observation {hidden} ` + vipLabel + `,"status":"final","code":{"coding":[{"code":"shown"}]},"subject":{"reference":"Patient/{patient}"}`,
		after: `
			Patient {denied} ` + vipLabel + `,"name":[{"family":"{family}","given":["Ann"]}],"birthDate":"1950-01-02","gender":"female","active":true,"identifier":[{"value":"{family}"}],"generalPractitioner":[{"reference":"Practitioner/{doctor}"}],"managingOrganization":{"reference":"Organization/{clinic}"}
			Patient {added} ` + vipLabel + `,"name":[{"family":"{family}"}],"generalPractitioner":[{"reference":"Practitioner/{doctor}"}]
			Observation {addedPulse} ` + vipLabel + `,"status":"final","code":{"coding":[{"code":"{family}"}]},"subject":{"reference":"Patient/{added}"}
			Observation {hidden} ` + vipLabel + `,"status":"amended","code":{"coding":[{"code":"{family}"}]},"subject":{"reference":"Patient/{patient}"},"encounter":{"reference":"Encounter/{encounter}"},"effectiveDateTime":"1950-01-02","hasMember":[{"reference":"Observation/{weight}"}]
			Observation {appeared} ` + vipLabel + `,"status":"final","code":{"coding":[{"code":"{family}"}]},"subject":{"reference":"Patient/{patient}"},"encounter":{"reference":"Encounter/{encounter}"},"effectiveDateTime":"1950-01-02","derivedFrom":[{"reference":"Observation/{weight}"}]`,
	},
}

// testPatients is a set of patients for one test. Placeholders such as {patient} in templates of records and requests are
// replaced with UUIDs and words that no other test uses.
type testPatients struct{ names map[string]string }

func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func newTestPatients() *testPatients {
	w := &testPatients{names: map[string]string{}}
	for name := range strings.FieldsSeq("patient other denied added clinic doctor group person relative " +
		"pulse weight smoking hidden appeared encounter condition report reportOfHidden note noteBinary order provenance provenanceOfHidden " +
		"otherPulse deniedPulse deniedCondition deniedEncounter deniedReport deniedNote addedPulse") {
		w.names["{"+name+"}"] = newUUID()
	}
	word := "Z" + strings.ReplaceAll(newUUID(), "-", "")[:10]
	w.names["{family}"], w.names["{fam}"] = word+"son", word // {fam} is a prefix of {family}
	return w
}

// text replaces the placeholders in a template with their values.
func (w *testPatients) text(template string) string {
	for name, value := range w.names {
		template = strings.ReplaceAll(template, name, value)
	}
	return template
}

// template replaces the values in a text with their placeholders, for comparisons and messages.
func (w *testPatients) template(text string) string {
	for name, value := range w.names {
		if name != "{fam}" {
			text = strings.ReplaceAll(text, value, name)
		}
	}
	return strings.ReplaceAll(text, w.names["{fam}"], "{fam}")
}

// records parses templates, one per line: the type, the placeholder of the id, and the JSON members after the id.
func (w *testPatients) records(templates string) []guardattack.Record {
	var all []guardattack.Record
	for line := range strings.Lines(w.text(templates)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		resourceType, rest, _ := strings.Cut(line, " ")
		id, body, _ := strings.Cut(rest, " ")
		all = append(all, guardattack.Record{
			Type: resourceType, ID: id,
			JSON: fmt.Sprintf(`{"resourceType":%q,"id":%q,%s}`, resourceType, id, body),
		})
	}
	return all
}

// warmUp makes HAPI load its definitions. Otherwise, its first validation would exceed the timeout of a gateway's client.
func (h fhirAPI) warmUp(t *testing.T) {
	t.Helper()
	h.send(t, http.MethodPost, "Patient/$validate", `{"resourceType":"Parameters","parameter":[`+
		`{"name":"resource","resource":{"resourceType":"Patient","id":"x"}},{"name":"mode","valueCode":"create"}]}`)
	h.send(t, http.MethodPost, "Patient/$validate", `{"resourceType":"Patient"}`).is(t, http.StatusOK)
}

// store stores records one at a time. Targets of references must precede their sources, because HAPI never resolves references
// to records that are stored later.
func (h fhirAPI) store(t *testing.T, records []guardattack.Record) {
	t.Helper()
	order := []string{"Organization", "Practitioner", "Patient", "Encounter", "Observation"}
	slices.SortStableFunc(records, func(a, b guardattack.Record) int {
		return (slices.Index(order, a.Type)+9)%9 - (slices.Index(order, b.Type)+9)%9
	})
	for _, r := range records {
		if a := h.send(t, http.MethodPut, r.Reference(), r.JSON); a.status != http.StatusCreated && a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", r.JSON, a.status, a.body)
		}
	}
}

// holdersByScope returns one token holder for each kind of scope.
func holdersByScope(w *testPatients) map[string]guardHolder {
	return map[string]guardHolder{
		"system":  {scope: "system/*.cruds"},
		"user":    {scope: "user/*.cruds", fhirUser: w.text("Practitioner/{doctor}")},
		"patient": {scope: "patient/*.cruds", patient: w.text("{patient}")},
	}
}

// sortedTypes are types of the patient compartment, with the members of a minimal record before the reference to the patient.
var sortedTypes = [][2]string{
	{"Observation", `"status":"final","code":{"text":"x"},"subject":`}, {"Condition", `"code":{"text":"x"},"subject":`},
	{"Encounter", `"status":"finished","class":{"code":"AMB"},"subject":`}, {"Procedure", `"status":"completed","subject":`},
	{"MedicationRequest", `"status":"active","intent":"order","medicationCodeableConcept":{"text":"x"},"subject":`},
	{"Immunization", `"status":"completed","vaccineCode":{"text":"x"},"patient":`}, {"AllergyIntolerance", `"patient":`},
	{"DiagnosticReport", `"status":"final","code":{"text":"x"},"subject":`}, {"DocumentReference", `"status":"current","subject":`},
	{"CarePlan", `"status":"active","intent":"plan","subject":`}, {"CareTeam", `"subject":`},
	{"Goal", `"lifecycleStatus":"active","description":{"text":"x"},"subject":`}, {"ServiceRequest", `"status":"active","intent":"order","subject":`},
	{"Flag", `"status":"active","code":{"text":"x"},"subject":`}, {"RiskAssessment", `"status":"final","subject":`},
	{"ImagingStudy", `"status":"available","subject":`},
}

const (
	clinicalNote = `"category":[{"coding":[{"system":"http://c","code":"clinical-note"}]}]`
	granularNote = "patient/DocumentReference.rs?category=http://c|clinical-note patient/Binary.rs"
)
