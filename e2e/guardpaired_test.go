package e2e

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// pairedReads and pairedWrites are the requests that are sent in both worlds, one per line. parseLine describes the format.
const pairedReads = `
GET Patient/{denied}
GET Patient/{added}
GET Patient/{patient}
GET Observation/{hidden}
GET Observation/{appeared}
GET Observation/{pulse}
GET Observation/{smoking}
GET Binary/{noteBinary}
GET Provenance/{provenanceOfHidden}
GET Group/{group}
GET Person/{person}
HEAD Patient/{denied}
HEAD Patient/{added}
HEAD Observation/{appeared}
GET Patient/{denied} If-None-Match=W/"1"
GET Patient/{denied} If-None-Match=W/"2"
GET Observation/{hidden} If-None-Match=W/"2"
GET Patient/{denied} If-Modified-Since=Sat,_29_Oct_2094_19:43:31_GMT
GET Patient/{added} If-Modified-Since=Sat,_29_Oct_2094_19:43:31_GMT
GET Patient/{denied}?_summary=true
GET Patient/{denied}?_elements=id
GET Patient/{denied} Accept=application/fhir+xml
GET Patient/{denied}/_history/1
GET Patient/{denied}/_history/2
GET Patient/{added}/_history/1
GET Observation/{hidden}/_history/1
GET Observation/{hidden}/_history/2
GET Observation/{appeared}/_history/1
GET Patient/{denied}/_history
GET Patient/{added}/_history
GET Observation/{hidden}/_history
GET Observation/{appeared}/_history
GET Observation/{pulse}/_history
GET Patient/_history
GET Observation/_history
GET Observation/_history?_count=1
GET Organization/_history?_count=1
GET _history
GET _history?_since=2020-01-01T00:00:00Z&_count=5
GET Patient?family={family}
GET Patient?family={fam}
GET Patient?family:exact={family}
GET Patient?family:contains={fam}
GET Patient?name={fam}
GET Patient?identifier={family}
GET Patient?birthdate=1950-01-02
GET Patient?general-practitioner=Practitioner/{doctor}
GET Patient?_id={denied}
GET Patient?_id={added}
GET Patient?_id={denied},{patient}
GET Patient?_id={denied}&_total=accurate
GET Patient?_id={denied}&_summary=count
GET Patient?_id={denied}&_count=0
GET Patient?_id={denied}&_elements=id
GET Patient?_id={denied}&_summary=true
GET Patient?family={family}&_summary=count
GET Patient?family={family}&_total=accurate
GET Patient?family={family}&_count=1
GET Patient?_has:Observation:subject:code=pulse&_id={denied},{patient}
GET Patient?_has:Observation:subject:code={family}
GET Patient?_tag={family}
GET Observation?patient.family={family}
GET Observation?patient.family={fam}
GET Observation?patient.family={fam}&_summary=count
GET Observation?patient.family={fam}&_total=accurate
GET Observation?patient.birthdate=1950-01-02
GET Observation?patient.identifier={family}
GET Observation?subject:Patient.family={family}
GET Observation?subject:Patient.name={fam}
GET Observation?subject.family={family}
GET Observation?patient.general-practitioner=Practitioner/{doctor}
GET Observation?patient.organization.name=Clinic&patient=Patient/{denied}
GET Observation?patient:identifier={family}
GET Observation?patient=Patient/{denied}
GET Observation?patient=Patient/{denied}&patient.family={family}
GET Observation?patient=Patient/{denied}&patient.gender=female
GET Observation?patient=Patient/{denied}&_has:Provenance:target:agent=Practitioner/{doctor}
GET Observation?subject=Patient/{added}
GET Observation?code={family}
GET Observation?code={family}&_summary=count
GET Observation?code={family}&_total=accurate
GET Observation?code={family}&_count=0
GET Observation?code:missing=false&patient=Patient/{patient}
GET Observation?code:not=pulse&patient=Patient/{patient}
GET Observation?patient=Patient/{patient}
GET Observation?patient=Patient/{patient}&_total=accurate
GET Observation?patient=Patient/{patient}&_summary=count
GET Observation?patient=Patient/{patient}&_count=1
GET Observation?patient=Patient/{patient}&_count=2&_sort=date
GET Observation?patient=Patient/{patient}&_sort=-date
GET Observation?patient=Patient/{patient}&_sort=status,code
GET Observation?patient=Patient/{patient},Patient/{denied}&_sort=patient.family
GET Observation?patient=Patient/{patient},Patient/{denied}&_sort=subject
GET Observation?patient=Patient/{patient}&_elements=status
GET Observation?patient=Patient/{patient}&_summary=true
GET Observation?patient=Patient/{patient}&_summary=text
GET Observation?encounter=Encounter/{encounter}
GET Observation?has-member=Observation/{weight}
GET Observation?has-member:Observation.code={family}
GET Observation?derived-from=Observation/{weight}
GET Observation?_id={hidden}
GET Observation?_id={appeared}
GET Observation?_id={hidden},{pulse}
GET Observation?_id={deniedPulse}&_include=Observation:subject
GET Observation?_id={deniedPulse}&_include=Observation:patient
GET Observation?_id={deniedPulse}&_include=*
GET Observation?_id={smoking}&_include=Observation:has-member
GET Observation?_id={weight}&_revinclude=Observation:has-member
GET Observation?_id={weight}&_revinclude=Observation:derived-from
GET Observation?_id={deniedPulse}&_include=Observation:subject&_include:iterate=Patient:general-practitioner
GET Practitioner?_id={doctor}&_revinclude=Patient:general-practitioner
GET Practitioner?_id={doctor}&_revinclude=Patient:general-practitioner&_revinclude:iterate=Observation:subject
GET Practitioner?_has:Patient:general-practitioner:family={family}
GET Organization?_has:Patient:organization:family={family}
GET Organization?_has:Patient:organization:birthdate=1950-01-02
GET Encounter?_has:Observation:encounter:code={family}
GET Encounter?subject.family={family}
GET Encounter?_id={encounter}&_revinclude=Observation:encounter
GET Patient?_id={patient}&_revinclude=Observation:subject
GET Patient?_id={denied}&_revinclude=Observation:subject
GET DiagnosticReport?result.code={family}
GET DiagnosticReport?result:Observation.code={family}
GET DiagnosticReport?result.status=amended
GET DiagnosticReport?_id={reportOfHidden}&_include=DiagnosticReport:result
GET DiagnosticReport?subject.family={family}
GET Condition?patient.family={family}
GET DocumentReference?patient.family={fam}
GET MedicationRequest?patient.family={family}
GET Provenance?target=Observation/{appeared}
GET Provenance?target:Observation.code={family}
GET Provenance?patient.family={family}
GET RelatedPerson?patient.family={family}
GET RelatedPerson?name=Plain
GET Person?name={family}
GET Person?link=Patient/{denied}
GET Group?member=Patient/{denied}
GET Group?member:Patient.family={family}
GET Observation?_filter=subject.family+eq+{family}
GET Observation?_content={family}
GET Observation?_text={family}
GET Observation?_list={family}
GET Observation?_query=x&patient.family={family}
GET ?_type=Observation,Condition&patient.family={family}
GET ?_type=Patient&_id={denied}
GET ?_type=Patient,Observation&_id={denied},{pulse},{appeared}
GET ?_type=Observation&_tag={family}
GET ?_id={added}
GET Patient/{denied}/Observation
GET Patient/{denied}/*
GET Patient/{patient}/Observation
GET Patient/{patient}/Observation?code={family}
GET Encounter/{encounter}/Observation
GET Practitioner/{doctor}/Patient
GET Practitioner/{doctor}/Observation?patient.family={family}
POST Patient/_search Content-Type=application/x-www-form-urlencoded	family={family}
POST Observation/_search Content-Type=application/x-www-form-urlencoded	patient.family={fam}
POST Observation/_search Content-Type=application/x-www-form-urlencoded	code={family}&_total=accurate
POST Patient/{denied}/Observation/_search Content-Type=application/x-www-form-urlencoded	code=pulse
GET Patient/{denied}/$everything
GET Patient/{added}/$everything
GET Patient/{patient}/$everything
GET Patient/{patient}/$everything?_count=3
GET Patient/{patient}/$everything?_type=Observation
GET Patient/$everything?_id={denied}
GET Encounter/{encounter}/$everything
GET Observation/$lastn?patient=Patient/{denied}
GET Observation/$lastn?patient=Patient/{patient}
GET Observation/$lastn?patient=Patient/{patient}&code={family}
GET Observation/$lastn?subject=Patient/{patient}&max=1
GET DocumentReference/$docref?patient={denied}
GET DocumentReference/$docref?patient={patient}
GET Patient/{denied}/$meta
GET Patient/{added}/$meta
GET Observation/{hidden}/$meta
GET Observation/{appeared}/$meta
GET Patient/$meta
GET Observation/$meta
GET $meta
GET Patient/{denied}/$validate
GET Patient/{added}/$validate
POST Patient/{denied}/$validate	{"resourceType":"Parameters","parameter":[{"name":"resource","resource":{"resourceType":"Patient","id":"{denied}"}},{"name":"mode","valueCode":"update"}]}
POST Patient/$validate	{"resourceType":"Parameters","parameter":[{"name":"resource","resource":{"resourceType":"Patient","id":"{added}"}},{"name":"mode","valueCode":"create"}]}
POST Observation/{appeared}/$validate	{"resourceType":"Parameters","parameter":[{"name":"mode","valueCode":"delete"}]}
GET Patient/{denied}/$graphql?query=%7Bid%7D
GET $graphql?query=%7BPatientList(name:"{fam}")%7Bid%7D%7D
GET Patient/{denied}/$diff
GET Patient/{denied}/_history/2/$diff
POST Patient/$match	{"resourceType":"Parameters","parameter":[{"name":"resource","resource":{"resourceType":"Patient","name":[{"family":"{family}"}]}}]}
GET $get-resource-counts
GET List/$find?patient={denied}&name=current-problems
GET metadata`

const pairedWrites = `
PUT Patient/{denied}	{"resourceType":"Patient","id":"{denied}"}
PUT Patient/{denied} If-Match=W/"2"	{"resourceType":"Patient","id":"{denied}"}
PUT Patient/{denied} If-None-Match=*	{"resourceType":"Patient","id":"{denied}"}
PUT Observation/{hidden}	{"resourceType":"Observation","id":"{hidden}","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/{patient}"}}
PUT Observation/{hidden} If-Match=W/"2"	{"resourceType":"Observation","id":"{hidden}","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/{patient}"}}
PATCH Patient/{denied} Content-Type=application/json-patch+json	[{"op":"test","path":"/birthDate","value":"1950-01-02"}]
PATCH Observation/{hidden} Content-Type=application/json-patch+json	[{"op":"test","path":"/status","value":"amended"}]
PATCH Observation/{appeared} Content-Type=application/json-patch+json	[{"op":"replace","path":"/status","value":"amended"}]
PATCH Observation?code={family} Content-Type=application/json-patch+json	[{"op":"replace","path":"/status","value":"amended"}]
PATCH Observation?patient.family={family} Content-Type=application/json-patch+json	[{"op":"replace","path":"/status","value":"amended"}]
DELETE Patient/{denied}
DELETE Patient/{denied} If-Match=W/"7"
DELETE Observation/{hidden}
DELETE Observation/{hidden}/_history/2
DELETE Observation?code={family}
DELETE Observation?patient.family={family}
DELETE Patient?family={family}
POST Patient If-None-Exist=family={family}	{"resourceType":"Patient","active":false,"meta":{"tag":[{"code":"new-{fam}"}]}}
POST Observation If-None-Exist=patient.family={family}	{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient/{patient}"}}
POST Observation If-None-Exist=code={family}	{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient/{patient}"}}
POST Observation If-None-Exist=_id={appeared}	{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient/{patient}"}}
POST Observation	{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient?family={family}"}}
POST Observation	{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient/{added}"}}
POST Observation	{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient/{patient}"},"hasMember":[{"reference":"Observation/{appeared}"}]}
POST Observation	{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient/{patient}"},"hasMember":[{"reference":"Observation?code={family}"}]}
PUT Observation?code={family}	{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient/{patient}"}}
PUT Observation?patient.family={family}	{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient/{patient}"}}
PUT Patient?family={family}	{"resourceType":"Patient","active":false,"meta":{"tag":[{"code":"new-{fam}"}]}}
POST 	{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"Patient/{denied}"}},{"request":{"method":"GET","url":"Patient/{added}"}},{"request":{"method":"GET","url":"Patient?family={family}"}},{"request":{"method":"GET","url":"Observation?patient.family={fam}"}},{"request":{"method":"GET","url":"Observation/{appeared}"}},{"request":{"method":"GET","url":"Observation/{hidden}/_history"}},{"request":{"method":"GET","url":"Observation/{hidden}/_history/2"}},{"request":{"method":"GET","url":"Observation?code={family}&_total=accurate"}},{"request":{"method":"GET","url":"Patient/{denied}/$everything"}},{"request":{"method":"GET","url":"Patient/{denied}","ifNoneMatch":"W/\"2\""}},{"request":{"method":"DELETE","url":"Observation?code={family}"}},{"request":{"method":"DELETE","url":"Patient/{denied}"}}]}
POST 	{"resourceType":"Bundle","type":"transaction","entry":[{"request":{"method":"GET","url":"Patient/{denied}"}},{"request":{"method":"GET","url":"Observation/{pulse}"}}]}
POST 	{"resourceType":"Bundle","type":"transaction","entry":[{"request":{"method":"GET","url":"Observation?patient.family={family}"}}]}
POST 	{"resourceType":"Bundle","type":"transaction","entry":[{"request":{"method":"GET","url":"Observation?code={family}"}}]}
POST 	{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient?family={family}"}},"request":{"method":"POST","url":"Observation"}}]}
POST 	{"resourceType":"Bundle","type":"transaction","entry":[{"resource":{"resourceType":"Observation","status":"final","code":{"text":"new"},"meta":{"tag":[{"code":"new-{fam}"}]},"subject":{"reference":"Patient/{patient}"}},"request":{"method":"POST","url":"Observation","ifNoneExist":"patient.family={family}"}}]}
POST 	{"resourceType":"Bundle","type":"transaction","entry":[{"request":{"method":"DELETE","url":"Observation?code={family}"}}]}`

// pairedExports are kick-off requests. Their manifests and files are also compared.
const pairedExports = `
$export
$export?_type=Patient
$export?_type=Patient,Observation
$export?_type=Observation&_typeFilter=Observation?code={family}
$export?_type=Observation&_typeFilter=Observation?patient.family={family}
$export?_type=Observation&_typeFilter=Observation?patient.family={fam}
$export?_type=Observation&_typeFilter=Observation?subject:Patient.family={family}
$export?_type=Observation&_typeFilter=Observation?patient.birthdate=1950-01-02
$export?_type=Observation&_typeFilter=Observation?patient:identifier={family}
$export?_type=Observation&_typeFilter=Observation?_has:Provenance:target:agent=Practitioner/{doctor}
$export?_type=Observation&_typeFilter=Observation?_include=Observation:subject
$export?_type=Patient&_typeFilter=Patient?family={family}
$export?_type=Patient&_typeFilter=Patient?family={fam}
$export?_type=Patient&_typeFilter=Patient?_has:Observation:subject:code={family}
$export?_type=Practitioner&_typeFilter=Practitioner?_has:Patient:general-practitioner:family={family}
$export?_type=Organization&_typeFilter=Organization?_has:Patient:organization:family={family}
$export?_type=DiagnosticReport&_typeFilter=DiagnosticReport?result.code={family}
$export?_type=Observation&_since={since}
$export?_type=Patient&_since={since}
$export?_type=Observation&_elements=id
$export?_type=Observation,Patient&organizeOutputBy=Patient
$export?_type=Observation&includeAssociatedData=LatestProvenanceResources
$export?patient=Patient/{denied}&_type=Observation
Patient/$export?_type=Observation
Patient/$export?_type=Observation,Patient
Patient/$export?patient=Patient/{denied}&_type=Observation
Patient/$export?patient=Patient/{added}&_type=Observation
Patient/$export?patient=Patient/{patient}&_type=Observation
Patient/$export?_type=Observation&_typeFilter=Observation?patient.family={family}
Patient/{denied}/$export
Patient/{added}/$export
Group/{group}/$export?_type=Observation
Group/{group}/$export?_type=Observation&patient=Patient/{denied}
Group/{group}/$export?_type=Observation&_typeFilter=Observation?patient.family={fam}`

// TestGuardDeniedPaired checks that all requests get equal responses in two worlds that differ only in denied records. The test
// is not parallel, because some requests read everything on the server.
func TestGuardDeniedPaired(t *testing.T) {
	h := hapiServer(t)
	h.warmUp(t)
	for _, rule := range pairedRules {
		t.Run(rule.name, func(t *testing.T) {
			w := newTestPatients()
			h.store(t, w.records(rule.before+pairedRecords))
			w.names["{since}"] = time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
			g := startGuarded(t, "paired-"+rule.name, h.fhirAPI, rule.rule)
			before := g.askPaired(t, w, rule)
			h.store(t, w.records(rule.after))
			versions := h.deniedVersions(t, w, rule)
			after := g.askPaired(t, w, rule)
			differ := 0
			for _, request := range slices.Sorted(maps.Keys(before)) {
				if before[request] != after[request] {
					differ++
					t.Errorf("%s\n%s", request, firstDifference(after[request], before[request]))
				}
				if at := strings.Index(after[request], "{family}"); at >= 0 && !strings.Contains(request, "{fam") {
					t.Errorf("%s returns denied data: %.300s", request, after[request][max(0, at-100):])
				}
			}
			if now := h.deniedVersions(t, w, rule); now != versions {
				t.Errorf("denied records were changed: %s, before %s", now, versions)
			}
			t.Logf("%d requests, of which the answers to %d differ", len(before), differ)
		})
	}
}

// deniedVersions returns the current versions of the denied records on the FHIR server.
func (h fhirAPI) deniedVersions(t *testing.T, w *testPatients, rule pairedRule) string {
	t.Helper()
	var versions []string
	for _, r := range w.records(rule.after) {
		versions = append(versions, w.template(r.Reference())+" "+h.send(t, http.MethodGet, r.Reference(), "").header.Get("ETag"))
	}
	return strings.Join(versions, ", ")
}

// askPaired sends all requests with each kind of token, and returns comparable responses by request.
func (g *guarded) askPaired(t *testing.T, w *testPatients, rule pairedRule) map[string]string {
	t.Helper()
	var mu sync.Mutex
	answers := map[string]string{}
	for name, who := range holdersByScope(w) {
		exports := strings.Split(strings.TrimSpace(pairedExports), "\n")
		if name != "system" {
			exports = exports[:3] // the other exports require system scopes
		}
		jobs := map[string]httpResponse{} // started together, because each export takes seconds
		for _, line := range exports {
			path, query, _ := strings.Cut(w.text(line), "?")
			jobs[line] = g.send(t, who, http.MethodGet, path+"?"+escapedFilter(query), "", "Prefer", "respond-async")
		}
		reads, writes := strings.Split(strings.TrimSpace(pairedReads), "\n"), strings.Split(strings.TrimSpace(pairedWrites), "\n")
		if !strings.Contains(rule.holders, name) {
			reads, writes = nil, nil
		}
		var group errgroup.Group
		group.SetLimit(8)
		for _, line := range reads {
			group.Go(func() error {
				text := w.comparable(g.sendLine(t, who, w.text(line)))
				mu.Lock()
				defer mu.Unlock()
				answers[name+": "+line] = text
				return nil
			})
		}
		_ = group.Wait() // sendLine reports errors
		for line, job := range jobs {
			text := w.comparable([]httpResponse{job})
			if job.status == http.StatusAccepted {
				text += w.exported(t, g, who, job.header.Get("Content-Location"))
			}
			answers[name+": "+line] = text
		}
		for _, line := range writes {
			answers[name+": "+line] = w.comparable(g.sendLine(t, who, w.text(line)))
		}
		for _, resourceType := range []string{"Observation", "Patient"} {
			for reference := range g.server.all(t, resourceType+"?_tag=new-"+w.names["{fam}"]) {
				g.server.send(t, http.MethodDelete, reference, "").is(t, http.StatusOK)
			}
		}
	}
	return answers
}

// escapedFilter escapes the value of _typeFilter, which is the last query parameter.
func escapedFilter(query string) string {
	before, filter, found := strings.Cut(query, "_typeFilter=")
	if !found {
		return query
	}
	return before + "_typeFilter=" + url.QueryEscape(filter)
}

// exported returns the manifest and the files of an export as comparable text.
func (w *testPatients) exported(t *testing.T, g *guarded, who guardHolder, status string) string {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		a := g.send(t, who, http.MethodGet, status, "")
		if a.status != http.StatusAccepted {
			var end struct {
				Output, Error, Deleted []struct{ Type, URL string }
			}
			text := w.comparable([]httpResponse{a})
			if a.status == http.StatusOK {
				a.decode(t, &end)
			}
			var files []string
			for _, file := range slices.Concat(end.Output, end.Error, end.Deleted) {
				lines := slices.Sorted(strings.Lines(string(g.send(t, who, http.MethodGet, file.URL, "").body)))
				files = append(files, w.comparable([]httpResponse{{body: []byte(file.Type + "\n" + strings.Join(lines, ""))}}))
			}
			slices.Sort(files)
			return text + strings.Join(files, "")
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still at work: %d %s %s", status, a.status, a.header.Get("X-Progress"), a.body)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
