package e2e

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// appRecords are US Core records of one patient and a few records of another patient.
const appRecords = `
	Organization {clinic} "name":"Clinic"
	Practitioner {doctor} "name":[{"family":"Doctor"}]
	Patient {patient} "name":[{"family":"{family}"}],"birthDate":"1970-05-05","gender":"female","identifier":[{"system":"urn:mrn","value":"{family}"}]
	Patient {other} "name":[{"family":"{family}"}],"birthDate":"1970-05-05","gender":"female","identifier":[{"system":"urn:mrn","value":"{fam}"}]
	Encounter {encounter} "status":"finished","class":{"code":"AMB"},"subject":{"reference":"Patient/{patient}"},"period":{"start":"2024-01-01"}
	Observation {lab} "status":"final","category":[{"coding":[{"system":"http://c","code":"laboratory"}]}],"code":{"coding":[{"system":"http://loinc.org","code":"4548-4"}]},"subject":{"reference":"Patient/{patient}"},"effectiveDateTime":"2024-01-02"
	Observation {vital} "status":"final","category":[{"coding":[{"system":"http://c","code":"vital-signs"}]}],"code":{"coding":[{"system":"http://loinc.org","code":"8867-4"}]},"subject":{"reference":"Patient/{patient}"},"effectiveDateTime":"2024-02-02"
	Observation {social} "status":"final","category":[{"coding":[{"system":"http://c","code":"social-history"}]}],"code":{"coding":[{"system":"http://loinc.org","code":"72166-2"}]},"subject":{"reference":"Patient/{patient}"},"effectiveDateTime":"2024-03-02"
	Observation {otherLab} "status":"final","category":[{"coding":[{"system":"http://c","code":"laboratory"}]}],"code":{"coding":[{"system":"http://loinc.org","code":"4548-4"}]},"subject":{"reference":"Patient/{other}"},"effectiveDateTime":"2024-01-02"
	Condition {condition} "clinicalStatus":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/condition-clinical","code":"active"}]},"category":[{"coding":[{"system":"http://c","code":"problem-list-item"}]}],"code":{"text":"x"},"subject":{"reference":"Patient/{patient}"},"encounter":{"reference":"Encounter/{encounter}"}
	Condition {otherCondition} "clinicalStatus":{"coding":[{"code":"active"}]},"category":[{"coding":[{"system":"http://c","code":"problem-list-item"}]}],"code":{"text":"x"},"subject":{"reference":"Patient/{other}"}
	AllergyIntolerance {allergy} "clinicalStatus":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/allergyintolerance-clinical","code":"active"}]},"code":{"text":"x"},"patient":{"reference":"Patient/{patient}"}
	Medication {drug} "code":{"text":"x"}
	MedicationRequest {order} "status":"active","intent":"order","medicationReference":{"reference":"Medication/{drug}"},"subject":{"reference":"Patient/{patient}"},"encounter":{"reference":"Encounter/{encounter}"},"authoredOn":"2024-01-01"
	Immunization {shot} "status":"completed","vaccineCode":{"text":"x"},"patient":{"reference":"Patient/{patient}"},"occurrenceDateTime":"2024-01-01"
	Procedure {procedure} "status":"completed","code":{"text":"x"},"subject":{"reference":"Patient/{patient}"},"performedDateTime":"2024-01-01"
	DiagnosticReport {report} "status":"final","category":[{"coding":[{"system":"http://c","code":"LAB"}]}],"code":{"coding":[{"system":"http://loinc.org","code":"24323-8"}]},"subject":{"reference":"Patient/{patient}"},"effectiveDateTime":"2024-01-01","result":[{"reference":"Observation/{lab}"}]
	CarePlan {plan} "status":"active","intent":"plan","category":[{"coding":[{"system":"http://c","code":"assess-plan"}]}],"subject":{"reference":"Patient/{patient}"}
	CareTeam {team} "status":"active","subject":{"reference":"Patient/{patient}"}
	Goal {goal} "lifecycleStatus":"active","description":{"text":"x"},"subject":{"reference":"Patient/{patient}"}
	Device {device} "patient":{"reference":"Patient/{patient}"},"type":{"text":"x"}
	ServiceRequest {request} "status":"active","intent":"order","code":{"text":"x"},"subject":{"reference":"Patient/{patient}"}
	Coverage {coverage} "status":"active","beneficiary":{"reference":"Patient/{patient}"},"payor":[{"reference":"Organization/{clinic}"}]
	RelatedPerson {relative} "patient":{"reference":"Patient/{patient}"},"name":[{"family":"x"}]
	Binary {noteBinary} "contentType":"text/plain","data":"bm90ZQ=="
	DocumentReference {note} "status":"current","type":{"coding":[{"system":"http://loinc.org","code":"34133-9"}]},"category":[{"coding":[{"system":"http://c","code":"clinical-note"}]}],"subject":{"reference":"Patient/{patient}"},"date":"2024-01-01T00:00:00Z","content":[{"attachment":{"contentType":"text/plain","url":"Binary/{noteBinary}"}}]
	DocumentReference {otherNote} "status":"current","category":[{"coding":[{"system":"http://c","code":"clinical-note"}]}],"subject":{"reference":"Patient/{other}"},"content":[{"attachment":{"contentType":"text/plain","url":"Binary/x"}}]
	Provenance {provenance} "target":[{"reference":"Observation/{lab}"}],"recorded":"2024-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/{doctor}"}}]`

// appRequests are the most common requests of US Core apps. After the tab: the names of the expected records, or 404.
const appRequests = `GET Patient/{patient}	patient
GET Patient?_id={patient}	patient
GET Patient?identifier=urn:mrn|{family}	patient
GET Patient?name={family}	patient
GET Patient?birthdate=1970-05-05&name={family}	patient
GET Patient?family={family}&gender=female	patient
GET AllergyIntolerance?patient={patient}	allergy
GET AllergyIntolerance?patient=Patient/{patient}&clinical-status=active	allergy
GET CarePlan?patient={patient}&category=assess-plan	plan
GET CareTeam?patient={patient}&status=active	team
GET Condition?patient={patient}	condition
GET Condition?patient={patient}&category=problem-list-item	condition
GET Condition?patient={patient}&clinical-status=active	condition
GET Condition?encounter=Encounter/{encounter}&patient={patient}	condition
GET Coverage?patient={patient}	coverage
GET Device?patient={patient}	device
GET DiagnosticReport?patient={patient}&category=LAB&date=ge2023-12-31	report
GET DiagnosticReport?patient={patient}&code=24323-8	report
GET DiagnosticReport?patient={patient}&_include=DiagnosticReport:result	report lab
GET DocumentReference?patient={patient}&category=clinical-note	note
GET DocumentReference?patient={patient}&type=34133-9&_sort=-date	note
GET DocumentReference?patient={patient}&status=current&date=ge2023	note
GET Binary/{noteBinary}	noteBinary
GET Encounter?patient={patient}&date=ge2023-01-01	encounter
GET Encounter?patient={patient}&_sort=-date	encounter
GET Goal?patient={patient}&lifecycle-status=active	goal
GET Immunization?patient={patient}&_sort=-date	shot
GET MedicationRequest?patient={patient}&intent=order&status=active	order
GET MedicationRequest?patient={patient}&intent=order&_include=MedicationRequest:medication	order drug
GET MedicationRequest?patient={patient}&encounter=Encounter/{encounter}	order
GET Medication/{drug}	drug
GET Observation?patient={patient}&category=laboratory	lab
GET Observation?patient={patient}&category=http://c|vital-signs&_sort=-date	vital
GET Observation?patient={patient}&category=social-history	social
GET Observation?patient={patient}&code=4548-4&date=ge2023-12-31	lab
GET Observation?patient={patient}&category=laboratory&_revinclude=Provenance:target	lab provenance
GET Observation?patient={patient}&category=laboratory,vital-signs&_count=1	lab vital
GET Observation?patient={patient}&status=final,amended&date=gt2024-02-01&date=lt2024-02-28	vital
GET Observation?patient={patient}&_lastUpdated=gt2020-01-01	lab vital social
GET Observation?patient={patient}&_elements=status&category=laboratory	lab
POST Observation/_search	lab
POST Patient/_search	patient
GET Procedure?patient={patient}&date=ge2023	procedure
GET Provenance/{provenance}	provenance
GET ServiceRequest?patient={patient}&status=active	request
GET RelatedPerson?patient={patient}	relative
GET Organization/{clinic}	clinic
GET Practitioner/{doctor}	doctor
GET Patient/{patient}/$everything?_type=Condition,Immunization	condition encounter patient shot
GET Observation/{lab}/_history/1	lab
GET Observation/{otherLab}	404
GET DocumentReference/{otherNote}	404
GET Patient/{other}	404
GET Observation?patient={other}	
GET DocumentReference?patient={other}&category=clinical-note	
GET DocumentReference/$docref?patient={other}	`

// appForms are the bodies of the POST requests, by path.
var appForms = map[string]string{
	"Observation/_search": "patient={patient}&category=laboratory",
	"Patient/_search":     "_id={patient}",
}

// TestGuardUSCoreRequests sends the most common requests of US Core apps with four kinds of tokens.
func TestGuardUSCoreRequests(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	for name := range strings.FieldsSeq("lab vital social otherLab otherCondition allergy drug shot procedure plan team goal device request coverage relative otherNote") {
		w.names["{"+name+"}"] = newUUID()
	}
	h.store(t, w.records(appRecords))
	g := startGuarded(t, "uscore", h.fhirAPI)
	patient, practitioner := w.names["{patient}"], w.text("Practitioner/{doctor}")
	for name, who := range map[string]guardHolder{
		"patient":              {scope: "patient/*.rs", patient: patient},
		"practitioner":         {scope: "user/*.rs", fhirUser: practitioner},
		"the patient herself":  {scope: "user/*.rs", fhirUser: "Patient/" + patient},
		"launched by a doctor": {scope: "patient/*.rs", patient: patient, fhirUser: practitioner},
	} {
		unbound := strings.Contains(who.scope, "user/") && who.fhirUser == practitioner
		for line := range strings.Lines(appRequests) {
			request, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			if unbound && strings.Contains(request, "ther") || unbound && (strings.Contains(request, "name=") || strings.Contains(request, "family=")) {
				continue // the user scopes of a practitioner also cover the other patient
			}
			method, path, _ := strings.Cut(request, " ")
			body, headers := w.text(appForms[path]), []string(nil)
			if strings.HasSuffix(path, "_search") {
				headers = []string{"Content-Type", "application/x-www-form-urlencoded"}
			}
			found := references{}
			status := 0
			for address, pages := w.text(path), 0; address != "" && pages < 9; pages++ {
				a := g.send(t, who, method, strings.ReplaceAll(address, "|", "%7C"), body, headers...)
				method, body, headers, status = http.MethodGet, "", nil, a.status
				if a.status != http.StatusOK {
					break
				}
				var page searchPage
				a.decode(t, &page)
				address = page.next()
				add := func(resource []byte) {
					_, id, _ := strings.Cut(referenceOf(resource), "/")
					found[strings.Trim(w.template(id), "{}")] = true
				}
				if !strings.Contains(string(a.body[:min(len(a.body), 40)]), `"Bundle"`) {
					add(a.body)
				}
				for _, e := range page.Entry {
					add(e.Resource)
				}
			}
			got := strings.Join(slices.Sorted(maps.Keys(found)), " ")
			if status != http.StatusOK {
				got = strings.TrimSpace(strings.Split(http.StatusText(status), "\n")[0])
			}
			wanted := strings.Join(slices.Sorted(slices.Values(strings.Fields(want))), " ")
			if want == "404" {
				wanted = http.StatusText(http.StatusNotFound)
			}
			if got != wanted {
				t.Errorf("%s: %s: %q, want %q", name, request, got, wanted)
			}
		}
	}
}
