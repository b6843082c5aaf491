package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// granularRecords are records that reference or contain other records: as target, entry, contained resource or securityContext.
const granularRecords = `
	Organization {clinic} "name":"Clinic"
	Practitioner {doctor} "name":[{"family":"Doctor"}]
	Patient {patient} "name":[{"family":"Plain"}]
	Patient {other} "name":[{"family":"Else"}]
	Observation {pulse} "status":"final","category":[{"coding":[{"system":"http://c","code":"vital"}]}],"code":{"text":"x"},"subject":{"reference":"Patient/{patient}"}
	Observation {lab} "status":"final","category":[{"coding":[{"system":"http://c","code":"lab"}]}],"code":{"text":"x"},"subject":{"reference":"Patient/{patient}"},"performer":[{"reference":"Practitioner/{doctor}"}]
	Condition {condition} "code":{"text":"x"},"subject":{"reference":"Patient/{patient}"}
	DocumentReference {note} "status":"current","category":[{"coding":[{"system":"http://c","code":"clinical-note"}]}],"subject":{"reference":"Patient/{patient}"}
	DocumentReference {therapy} "status":"current","category":[{"coding":[{"system":"http://c","code":"psychotherapy"}]}],"subject":{"reference":"Patient/{patient}"}
	Binary {ofNote} "contentType":"text/plain","securityContext":{"reference":"DocumentReference/{note}"},"data":"bm90ZQ=="
	Binary {ofTherapy} "contentType":"text/plain","securityContext":{"reference":"DocumentReference/{therapy}"},"data":"bm90ZQ=="
	Binary {ofPatient} "contentType":"text/plain","securityContext":{"reference":"Patient/{patient}"},"data":"bm90ZQ=="
	Provenance {aboutPulse} "target":[{"reference":"Observation/{pulse}"}],"recorded":"2024-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/{doctor}"}}]
	Provenance {aboutLab} "target":[{"reference":"Observation/{lab}"}],"recorded":"2024-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/{doctor}"}}]
	Provenance {aboutCondition} "target":[{"reference":"Condition/{condition}"}],"recorded":"2024-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/{doctor}"}}]
	Provenance {aboutBoth} "target":[{"reference":"Observation/{pulse}"},{"reference":"Condition/{condition}"}],"recorded":"2024-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/{doctor}"}}]
	Provenance {aboutDoctor} "target":[{"reference":"Practitioner/{doctor}"}],"recorded":"2024-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/{doctor}"}}]
	Bundle {withCondition} "type":"document","timestamp":"2024-01-01T00:00:00Z","identifier":{"system":"u","value":"1"},"entry":[` + documentOf + `,{"fullUrl":"urn:uuid:{condition}","resource":{"resourceType":"Condition","code":{"text":"secret"},"subject":{"reference":"Patient/{patient}"}}}]
	Bundle {withoutCondition} "type":"document","timestamp":"2024-01-01T00:00:00Z","identifier":{"system":"u","value":"1"},"entry":[` + documentOf + `]
	Observation {containing} "status":"final","code":{"text":"x"},"subject":{"reference":"#p"},"performer":[{"reference":"Patient/{patient}"}],"contained":[{"resourceType":"Patient","id":"p","name":[{"family":"Contained"}]}]`

const documentOf = `{"fullUrl":"urn:uuid:{pulse}","resource":{"resourceType":"Composition","status":"final","type":{"text":"x"},"date":"2024-01-01","title":"x","author":[{"reference":"Practitioner/{doctor}"}],"subject":{"reference":"Patient/{patient}"}}}`

// TestGuardGranular checks that a record is withheld unless the scopes also cover the records that it references or contains.
func TestGuardGranular(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	for name := range strings.FieldsSeq("lab therapy ofNote ofTherapy ofPatient aboutPulse aboutLab aboutCondition aboutBoth aboutDoctor withCondition withoutCondition containing") {
		w.names["{"+name+"}"] = newUUID()
	}
	h.store(t, w.records(granularRecords))
	g := startGuarded(t, "granular", h.fhirAPI)
	patient := func(scope string) guardHolder { return guardHolder{scope: scope, patient: w.names["{patient}"]} }
	const allTypes, vital = "patient/*.rs", "patient/Observation.rs?category=http://c|vital patient/Provenance.rs"
	for _, test := range []struct {
		scope, record string
		wantVisible   bool
	}{
		{granularNote, "DocumentReference/{note}", true},
		{granularNote, "DocumentReference/{therapy}", false},
		{granularNote, "Binary/{ofNote}", true},
		{granularNote, "Binary/{ofTherapy}", false},
		{granularNote, "Binary/{ofPatient}", false},
		{"patient/Patient.rs patient/Binary.rs", "Binary/{ofPatient}", true},
		{"patient/Patient.rs patient/Binary.rs", "Binary/{ofNote}", false},
		{allTypes, "Binary/{ofNote}", true},
		{allTypes, "Binary/{ofTherapy}", true},
		{allTypes, "Binary/{ofPatient}", true},
		{"patient/Bundle.rs patient/Patient.rs", "Bundle/{withCondition}", false},
		{"patient/Bundle.rs patient/Patient.rs patient/Composition.rs", "Bundle/{withCondition}", false},
		{"patient/Bundle.rs patient/Patient.rs patient/Composition.rs patient/Condition.rs", "Bundle/{withCondition}", true},
		{"patient/Bundle.rs patient/Patient.rs patient/Composition.rs", "Bundle/{withoutCondition}", true},
		{allTypes, "Bundle/{withCondition}", true},
		{"patient/Provenance.rs", "Provenance/{aboutPulse}", false},
		{"patient/Provenance.rs patient/Observation.rs", "Provenance/{aboutPulse}", true},
		{"patient/Provenance.rs patient/Observation.rs", "Provenance/{aboutCondition}", false},
		{"patient/Provenance.rs patient/Observation.rs", "Provenance/{aboutBoth}", false},
		{"patient/Provenance.rs patient/Observation.rs patient/Condition.rs", "Provenance/{aboutBoth}", true},
		{vital, "Provenance/{aboutPulse}", true},
		{vital, "Provenance/{aboutLab}", false},
		{allTypes, "Provenance/{aboutCondition}", true},
		{"user/Provenance.rs user/Observation.rs", "Provenance/{aboutPulse}", true},
	} {
		who := patient(w.text(test.scope))
		if strings.Contains(test.scope, "user/") {
			who.fhirUser = w.text("Practitioner/{doctor}")
		}
		resourceType, template, _ := strings.Cut(test.record, "/")
		for _, path := range []string{"%s/%s", "%s/%s/_history/1", "%s/%s/_history", "%s?_id=%s"} {
			path = fmt.Sprintf(path, resourceType, "{id}")
			ask := func(id string) (httpResponse, string) {
				a := g.send(t, who, http.MethodGet, strings.Replace(path, "{id}", id, 1), "")
				return a, strings.ReplaceAll(w.comparable([]httpResponse{a}), w.template(id), "(id)")
			}
			a, there := ask(w.text(template))
			visible := strings.Contains(there, `"resourceType":"`+resourceType) && strings.Contains(string(a.body), `"id":"`+w.text(template))
			if strings.Contains(path, "?") && (resourceType == "Binary" || resourceType == "Bundle" || resourceType == "Provenance") && !visible {
				continue // the patient compartment has no search parameter for these types
			}
			if visible != test.wantVisible {
				t.Errorf("%s: %s: %d, visible %t: %.200s", test.scope, strings.Replace(path, "{id}", template, 1), a.status, visible, a.body)
			}
			if _, absent := ask(newUUID()); !test.wantVisible && there != absent {
				t.Errorf("%s: %s differs from an absent resource:\n%s", test.scope, strings.Replace(path, "{id}", template, 1), firstDifference(there, absent))
			}
		}
	}
	t.Run("included as read", func(t *testing.T) {
		for _, scope := range []string{allTypes, "patient/Provenance.rs patient/Observation.rs", vital, "patient/Observation.rs patient/Practitioner.rs patient/Provenance.rs"} {
			for target, provenance := range map[string]string{"Observation/{pulse}": "aboutPulse", "Observation/{lab}": "aboutLab", "Condition/{condition}": "aboutCondition", "Practitioner/{doctor}": "aboutDoctor"} {
				resourceType, id, _ := strings.Cut(w.text(target), "/")
				read := g.send(t, patient(scope), http.MethodGet, w.text("Provenance/{"+provenance+"}"), "").status == http.StatusOK
				a := g.send(t, patient(scope), http.MethodGet, resourceType+"?_id="+id+"&_revinclude=Provenance:target", "")
				if included := strings.Contains(string(a.body), w.names["{"+provenance+"}"]); a.status == http.StatusOK && included != read && strings.Contains(string(a.body), `"match"`) {
					t.Errorf("%s: Provenance of %s is read: %t, included: %t", scope, target, read, included)
				}
			}
		}
	})
	t.Run("contained patient", func(t *testing.T) {
		read := g.send(t, patient(allTypes), http.MethodGet, w.text("Observation/{containing}"), "").status == http.StatusOK
		found := strings.Contains(string(g.send(t, patient(allTypes), http.MethodGet, "Observation?_count=100", "").body), w.names["{containing}"])
		everything := strings.Contains(string(g.send(t, patient(allTypes), http.MethodGet, w.text("Patient/{patient}/$everything?_count=100"), "").body), w.names["{containing}"])
		if read != found || everything && !read {
			t.Errorf("read %t, found %t, in $everything %t", read, found, everything)
		}
		t.Logf("read %t", read)
	})
}
