package enforce_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

// named is an entry with a fullUrl.
func named(fullURL, method, target, resource string) string {
	return fmt.Sprintf(`{"fullUrl":%q,"request":{"method":%q,"url":%q},"resource":%s}`, fullURL, method, target, resource)
}

const (
	newObservation = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"}}`
	ofNewPatient   = `{"resourceType":"Observation","status":"final","subject":{"reference":"urn:uuid:p"}}`
	withMember     = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"},"hasMember":[{"reference":"urn:uuid:o"}]}`
	newPatient     = `{"resourceType":"Patient","name":[{"family":"Cole"}]}`
	provenance     = `{"resourceType":"Provenance","target":[{"reference":"urn:uuid:o"}]}`
)

// document has a link from one entry to another, which is none of the Bundle that it is sent in.
const document = `{"resourceType":"Bundle","type":"document","entry":[` +
	`{"fullUrl":"urn:uuid:1","resource":{"resourceType":"Composition","subject":{"reference":"Patient/a"},"section":[{"entry":[{"reference":"urn:uuid:2"}]}]}},` +
	`{"fullUrl":"urn:uuid:2","resource":{"resourceType":"Observation","subject":{"reference":"Patient/a"}}}]}`

// matching is an entry that creates a resource unless one matches the criteria.
func matching(fullURL, criteria, resource string) string {
	return fmt.Sprintf(`{"fullUrl":%q,"request":{"method":"POST","url":"Observation","ifNoneExist":%q},"resource":%s}`, fullURL, criteria, resource)
}

// A transaction is refused if any of its entries would be, and nothing of it is done.
func TestTransaction(t *testing.T) {
	t.Parallel()
	plain := sending("POST", "Observation", newObservation)
	everyPatient := access.Holder{Scope: "user/Patient.cs patient/Observation.cruds", Patient: "a", User: clinician.User}
	provenancer := access.Holder{Scope: "user/Patient.c user/Observation.cs patient/Provenance.c", Patient: "a", User: clinician.User}
	for _, tt := range []struct {
		name    string
		holder  access.Holder
		entries []string
		status  int
	}{
		{"own record", patientA, []string{plain, request("DELETE", "Observation/a2"), request("GET", "Observation?status=final")}, 200},
		{"reads alone", patientA, []string{request("GET", "Patient/a"), request("GET", "Device?_count=1")}, 200},
		{"a read of another's record", patientA, []string{plain, request("GET", "Observation/b1")}, 403},
		{"a read of nobody's record", patientA, []string{plain, request("GET", "Observation/c1")}, 403},
		{"a read of what it writes", patientA, []string{sending("PUT", "Observation/a1", records[3]), request("GET", "Observation/a1")}, 200},
		{"a search without the permission", access.Holder{Scope: "patient/Observation.cr", Patient: "a"}, []string{plain, request("GET", "Observation?_id=a1")}, 403},
		{"a search that tells too much", patientA, []string{plain, request("GET", "Observation?_filter=x")}, 403},
		{"another's record created", patientA, []string{plain, sending("POST", "Observation", strings.Replace(newObservation, "/a", "/b", 1))}, 403},
		{"another's record updated", patientA, []string{plain, sending("PUT", "Observation/b1", strings.Replace(records[5], "Patient/b", "Patient/a", 1))}, 403},
		{"own record moved", patientA, []string{plain, sending("PUT", "Observation/a1", strings.Replace(records[3], "Patient/a", "Patient/b", 1))}, 403},
		{"another's record deleted", patientA, []string{plain, request("DELETE", "Observation/b1")}, 403},
		{"nobody's record deleted", patientA, []string{plain, request("DELETE", "Observation/c1")}, 403},
		{"own record patched", patientA, []string{plain, sending("PATCH", "Observation/a1", jsonPatch(`[{"op":"replace","path":"/status","value":"amended"}]`))}, 200},
		{"own record patched away", patientA, []string{plain, sending("PATCH", "Observation/a1", jsonPatch(`[{"op":"replace","path":"/subject/reference","value":"Patient/b"}]`))}, 403},
		{"another's record patched", patientA, []string{plain, sending("PATCH", "Observation/b1", jsonPatch(`[{"op":"replace","path":"/subject/reference","value":"Patient/a"}]`))}, 403},
		{"a patch without u", access.Holder{Scope: "patient/Observation.crds", Patient: "a"}, []string{plain, sending("PATCH", "Observation/a1", jsonPatch(`[{"op":"remove","path":"/status"}]`))}, 403},
		{"a delete by criteria that match another's", patientA, []string{plain, request("DELETE", "Observation?subject=Patient/b")}, 403},
		{"a delete by criteria", patientA, []string{plain, request("DELETE", "Observation?category=http://c|vital-signs")}, 200},
		{"the same resource twice", patientA, []string{sending("PUT", "Observation/a1", records[3]), request("DELETE", "Observation/a1")}, 400},
		{"the same resource twice, by criteria", patientA, []string{sending("PUT", "Observation/a2", records[4]), request("DELETE", "Observation?category=http://c|vital-signs")}, 400},
		{"a conditional reference", patientA, []string{sending("POST", "Observation", strings.Replace(newObservation, "Patient/a", "Patient?name=Adams", 1))}, 200},

		{"a member that is new", patientA, []string{named("urn:uuid:o", "POST", "Observation", newObservation), sending("POST", "Observation", withMember)}, 200},
		{"a member that comes later", patientA, []string{sending("POST", "Observation", withMember), named("urn:uuid:o", "POST", "Observation", newObservation)}, 200},
		{"a member that is updated", patientA, []string{named("urn:uuid:o", "PUT", "Observation/a1", records[3]), sending("POST", "Observation", withMember)}, 200},
		{"a provenance of what is new", patientA, []string{named("urn:uuid:o", "POST", "Observation", newObservation), sending("POST", "Provenance", provenance)}, 200},
		{"a provenance of nothing", patientA, []string{sending("POST", "Provenance", provenance)}, 400},
		{"a urn of no entry", patientA, []string{sending("POST", "Observation", withMember)}, 400},
		{"a urn in other letters", patientA, []string{named("urn:uuid:O", "POST", "Observation", newObservation), sending("POST", "Observation", withMember)}, 400},
		{"a urn brought by a patch", patientA, []string{named("urn:uuid:o", "POST", "Observation", newObservation), sending("PATCH", "Observation/a1", jsonPatch(`[{"op":"replace","path":"/subject/reference","value":"urn:uuid:o"}]`))}, 403},
		{"a urn brought by a patch where it tells nothing", patientA, []string{named("urn:uuid:o", "POST", "Observation", newObservation), sending("PATCH", "Observation/a1", jsonPatch(`[{"op":"add","path":"/hasMember","value":[{"display":"x"}]},{"op":"add","path":"/hasMember/0/reference","value":"urn:uuid:o"}]`))}, 400},
		{"a patient that is new", patientA, []string{named("urn:uuid:p", "POST", "Patient", newPatient), sending("POST", "Observation", ofNewPatient)}, 403},
		{"another's subject, new by another scope", everyPatient, []string{named("urn:uuid:p", "POST", "Patient", newPatient), sending("POST", "Observation", ofNewPatient)}, 403},
		{"another's subject, new with our id", everyPatient, []string{named("urn:uuid:p", "POST", "Patient", `{"resourceType":"Patient","id":"a"}`), sending("POST", "Observation", ofNewPatient)}, 403},
		{"our address as the fullUrl of a new patient", everyPatient, []string{named("https://gateway.example/fhir/R4/Patient/a", "POST", "Patient", newPatient), plain}, 400},
		{"the address of another server as a fullUrl", patientA, []string{named("http://elsewhere.example/Observation/1", "POST", "Observation", newObservation)}, 400},
		{"a relative fullUrl", patientA, []string{named("Patient/a", "POST", "Observation", newObservation)}, 400},
		{"a patient found by criteria that is another", everyPatient, []string{
			`{"fullUrl":"urn:uuid:p","request":{"method":"POST","url":"Patient","ifNoneExist":"name=Brown"},"resource":` + newPatient + `}`, sending("POST", "Observation", ofNewPatient),
		}, 403},
		{"a member found by criteria", patientA, []string{sending("POST", "Observation", withMember), matching("urn:uuid:o", "category=http://c|vital-signs", newObservation)}, 200},
		{"a member not found by criteria", patientA, []string{sending("POST", "Observation", withMember), matching("urn:uuid:o", "status=preliminary", newObservation)}, 200},
		{"a member found by criteria, too late", patientA, []string{matching("urn:uuid:x", "status=preliminary", withMember), matching("urn:uuid:o", "category=http://c|vital-signs", newObservation)}, 403},
		{"a member found by criteria, too late to be named", access.Holder{Scope: "user/Observation.c patient/Observation.s", Patient: "a", User: clinician.User}, []string{matching("urn:uuid:x", "status=preliminary", withMember), matching("urn:uuid:o", "category=http://c|vital-signs", newObservation)}, 400},
		{"a provenance of what is another's", provenancer, []string{named("urn:uuid:o", "POST", "Observation", strings.Replace(newObservation, "/a", "/b", 1)), sending("POST", "Provenance", provenance)}, 403},
		{"a provenance of what becomes ours", provenancer, []string{named("urn:uuid:o", "POST", "Observation", newObservation), sending("POST", "Provenance", provenance)}, 200},
		{"a provenance of what the server may find to be another's", provenancer, []string{matching("urn:uuid:o", "_id=b1", newObservation), sending("POST", "Provenance", provenance)}, 403},
		{"a provenance of a new patient with our id", provenancer, []string{named("urn:uuid:o", "POST", "Patient", `{"resourceType":"Patient","id":"a"}`), sending("POST", "Provenance", provenance)}, 403},
		{"a document with links of its own", patientA, []string{sending("POST", "Bundle", document)}, 200},
		{"a fullUrl twice", patientA, []string{named("urn:uuid:o", "POST", "Observation", newObservation), named("urn:uuid:o", "POST", "Observation", newObservation)}, 400},
		{"a fullUrl twice, with all rights", clinician, []string{named("urn:uuid:o", "POST", "Observation", newObservation), named("urn:uuid:o", "POST", "Observation", newObservation)}, 400},

		{"an operation", clinician, []string{plain, request("GET", "Patient/a/$everything")}, 400},
		{"a history", clinician, []string{plain, request("GET", "Patient/a/_history")}, 400},
		{"metadata", clinician, []string{plain, request("GET", "metadata")}, 400},
		{"a Bundle", clinician, []string{plain, sending("POST", "", `{"resourceType":"Bundle","type":"batch"}`)}, 400},
		{"another host", clinician, []string{plain, request("GET", "//evil.example/Patient/a")}, 400},
		{"a method in small letters", clinician, []string{plain, request("delete", "Observation/a1")}, 400},
		{"no permission", access.Holder{Scope: "patient/*.rs", Patient: "a"}, []string{plain}, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			writes := 0
			g.server.Seen = func(r *http.Request) {
				if r.Method != http.MethodGet {
					writes++
				}
			}
			got := g.submit(tt.holder, "transaction", tt.entries...)
			body, _ := io.ReadAll(got.Body)
			if got.StatusCode != tt.status {
				t.Fatalf("status %d, want %d: %s", got.StatusCode, tt.status, body)
			}
			if tt.status != http.StatusOK && (writes > 0 || !strings.Contains(string(body), "Bundle.entry[")) {
				t.Errorf("%d writes, %s", writes, body)
			}
			if writes > 1 {
				t.Errorf("%d writes", writes)
			}
		})
	}
}

// What cannot be seen is refused in the same words as what is not there.
func TestTransactionTellsNothing(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "DELETE"} {
		var texts []string
		for _, id := range []string{"b1", "c1"} {
			body, _ := io.ReadAll(newGateway(t, records...).submit(patientA, "transaction", request(method, "Observation/"+id)).Body)
			texts = append(texts, string(body))
		}
		if texts[0] != texts[1] || !strings.HasPrefix(texts[0], "Nothing was done, because of Bundle.entry[0]: ") {
			t.Errorf("%s: %q", method, texts)
		}
	}
}

func TestTransactionAnswer(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	r := answered(t, g.submit(patientA, "transaction",
		request("GET", "Observation?status=final"),
		sending("POST", "Observation", withMember),
		named("urn:uuid:o", "POST", "Observation", newObservation),
		sending("PATCH", "Observation/a1", jsonPatch(`[{"op":"replace","path":"/status","value":"amended"}]`)),
		request("DELETE", "Observation/a2"),
		`{"fullUrl":"urn:uuid:x","request":{"method":"POST","url":"Device","ifNoneExist":"_id=a1"},"resource":{"resourceType":"Device","patient":{"reference":"Patient/a"}}}`), 6)
	if got := r.Type + r.status(0) + r.status(1) + r.status(2) + r.status(3) + r.status(4) + r.status(5); got != "transaction-response200201201200204200" {
		t.Errorf("statuses %s", got)
	}
	if e := r.Entry[1]; !strings.HasPrefix(e.Response.Location, "https://gateway.example/fhir/R4/Observation/new-") || e.Response.Etag != `W/"1"` || e.Resource == nil {
		t.Errorf("created: %+v, %s", e.Response, e.Resource)
	}
	member, _, _ := strings.Cut(strings.TrimPrefix(r.Entry[2].Response.Location, "https://gateway.example/fhir/R4/"), "/_history")
	if !strings.Contains(string(r.Entry[1].Resource), `"hasMember":[{"reference":"`+member+`"}]`) {
		t.Errorf("member %s of %s", member, r.Entry[1].Resource)
	}
	if got := r.Entry[5].Response.Location; got != "https://gateway.example/fhir/R4/Device/a1" {
		t.Errorf("found %s", got)
	}
	// The search is answered when all else is done.
	if text := string(r.Entry[0].Resource); !strings.Contains(text, `"new-`) || strings.Contains(text, `"id":"a1"`) || strings.Contains(text, `"id":"a2"`) {
		t.Errorf("search: %s", text)
	}
}

// What may be written but not read is not answered with.
func TestTransactionWithoutRead(t *testing.T) {
	t.Parallel()
	r := answered(t, newGateway(t, records...).submit(access.Holder{Scope: "patient/Observation.c", Patient: "a"}, "transaction", sending("POST", "Observation", newObservation)), 1)
	if r.status(0) != "201" || r.Entry[0].Resource != nil {
		t.Errorf("%+v", r.Entry[0])
	}
}

// What goes on is what was judged, held by its version, and nothing else of the client's text.
func TestTransactionSent(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	var sent string
	g.server.Seen = func(r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			sent, r.Body = string(body), io.NopCloser(strings.NewReader(string(body)))
		}
	}
	answered(t, g.submit(patientA, "transaction",
		`{"fullUrl":"http://elsewhere.example/Observation/1","link":[{"url":"x"}],"resource":`+records[3]+`,"request":{"method":"PUT","url":"%4fbservation/a1","extension":[{"url":"x"}]},"response":{"status":"x"}}`,
		request("GET", "Patient/a"),
		named("urn:uuid:o", "POST", "Observation", `{"resourceType":"Observation","id":"z","subject":{"reference":"Patient/a"},"hasMember":[{"reference":"http://elsewhere.example/Observation/1"}]}`)), 3)
	want := `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":` + records[3] +
		`,"request":{"method":"PUT","url":"Observation/a1","ifMatch":"W/\"1\""}},{"fullUrl":"urn:uuid:o","resource":` +
		`{"resourceType":"Observation","subject":{"reference":"Patient/a"},"hasMember":[{"reference":"Observation/a1"}]},"request":{"method":"POST","url":"Observation"}}]}`
	if sent != want {
		t.Errorf("sent %s,\nwant %s", sent, want)
	}
}

// A read of a new record is under the site's rules as any other.
func TestTransactionRules(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny request.interaction == 'create' && resource.meta.versionId == '1'")
	r := answered(t, g.submit(patientA, "transaction", sending("POST", "Observation", newObservation)), 1)
	if r.status(0) != "201" || r.Entry[0].Resource != nil {
		t.Errorf("%+v, %s", r.Entry[0].Response, r.Entry[0].Resource)
	}
	g = newGateway(t, records...).withRules("deny request.interaction == 'delete'")
	for _, holder := range []access.Holder{patientA, clinician} {
		if got := g.submit(holder, "transaction", request("DELETE", "Observation/a1")); got.StatusCode != http.StatusForbidden {
			t.Errorf("status %d", got.StatusCode)
		}
	}
}
