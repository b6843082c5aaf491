package enforce_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
)

// submit sends a Bundle of type kind with entries.
func (g *gateway) submit(h access.Holder, kind string, entries ...string) *http.Response {
	g.t.Helper()
	return g.post(h, `{"resourceType":"Bundle","type":"`+kind+`","entry":[`+strings.Join(entries, ",")+`]}`)
}

// post sends body to the FHIR base URL by POST.
func (g *gateway) post(h access.Holder, body string) *http.Response {
	g.t.Helper()
	r := newRequest(http.MethodPost, "/fhir/R4", "application/fhir+json", body)
	return g.send(h, r)
}

// responses is the response Bundle of a batch or transaction.
type responses struct {
	Type  string
	Entry []struct {
		FullURL  string
		Resource json.RawMessage
		Response struct {
			Status, Location, Etag, LastModified string
			Outcome                              struct {
				Issue []struct{ Code, Diagnostics string }
			}
		}
	}
}

func (r responses) status(n int) string { return r.Entry[n].Response.Status[:3] }

// diagnostics returns the diagnostics in the outcome of entry n.
func (r responses) diagnostics(n int) string {
	if issues := r.Entry[n].Response.Outcome.Issue; len(issues) > 0 {
		return issues[0].Diagnostics
	}
	return ""
}

// parseBatchResponse parses the response to a batch or transaction and checks the number of entries.
func parseBatchResponse(t *testing.T, response *http.Response, entries int) (r responses) {
	t.Helper()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", response.StatusCode, body)
	}
	if err := json.Unmarshal(body, &r); err != nil || len(r.Entry) != entries {
		t.Fatalf("%d entries, %v: %s", len(r.Entry), err, body)
	}
	return r
}

// bundleEntry returns an entry without a resource.
func bundleEntry(method, target string) string {
	return fmt.Sprintf(`{"request":{"method":%q,"url":%q}}`, method, target)
}

// entryWithResource returns an entry with a resource.
func entryWithResource(method, target, resource string) string {
	return fmt.Sprintf(`{"request":{"method":%q,"url":%q},"resource":%s}`, method, target, resource)
}

// Each entry of a batch gets the response of the corresponding request.
func TestBatchEntry(t *testing.T) {
	t.Parallel()
	reader := access.Holder{Scope: "patient/*.r", Patient: "a"}
	for _, tt := range []struct {
		name   string
		holder access.Holder
		entry  string
		status string
	}{
		{"own record", patientA, bundleEntry("GET", "Observation/a1"), "200"},
		{"another's record", patientA, bundleEntry("GET", "Observation/b1"), "404"},
		{"record without a patient", patientA, bundleEntry("GET", "Observation/c1"), "404"},
		{"a search", patientA, bundleEntry("GET", "Observation?status=final"), "200"},
		{"a search by POST", patientA, bundleEntry("POST", "Observation/_search?status=final"), "200"},
		{"a search of the system", patientA, bundleEntry("GET", "?_type=Patient"), "200"},
		{"a GET that is a search, without the permission", reader, bundleEntry("GET", "Observation?_id=a1"), "403"},
		{"search by GET without parameters", reader, bundleEntry("GET", "Observation?"), "403"},
		{"a GET of a compartment, without the permission", reader, bundleEntry("GET", "Patient/a/Observation"), "403"},
		{"a PATCH without the permission", reader, entryWithResource("PATCH", "Observation/a1", jsonPatch(`[{"op":"remove","path":"/status"}]`)), "403"},
		{"a PUT without the permission", reader, entryWithResource("PUT", "Observation/a1", records[3]), "403"},
		{"a history without the permission", access.Holder{Scope: "patient/*.cuds", Patient: "a"}, bundleEntry("GET", "Observation/a1/_history"), "403"},
		{"a DELETE without the permission", reader, bundleEntry("DELETE", "Observation/a1"), "403"},
		{"a POST without the permission", reader, entryWithResource("POST", "Observation", records[3]), "403"},
		{"history of everything", patientA, bundleEntry("GET", "_history"), "403"},
		{"metadata", patientA, bundleEntry("GET", "metadata"), "501"}, // status of fhirtest
		{"an export", patientA, bundleEntry("GET", "$export"), "400"}, // because Prefer: respond-async is missing
		{"an operation not on the list", clinician, bundleEntry("GET", "Patient/a/$secret"), "403"},
		{"a page", patientA, bundleEntry("GET", "_page/1234"), "404"},
		{"another form of answer", patientA, bundleEntry("GET", "Patient/a?_format=xml"), "200"},

		{"no url", patientA, `{"request":{"method":"GET"}}`, "400"},
		{"an empty url", patientA, bundleEntry("GET", ""), "400"},
		{"no method", patientA, `{"request":{"url":"Patient/a"}}`, "400"},
		{"a method in small letters", patientA, bundleEntry("get", "Patient/a"), "400"},
		{"HEAD", patientA, bundleEntry("HEAD", "Patient/a"), "400"},
		{"an unknown method", patientA, bundleEntry("TRACE", "Patient/a"), "400"},
		{"no request", patientA, `{"resource":` + records[0] + `}`, "400"},
		{"nothing", patientA, `{}`, "400"},
		{"a slash first", patientA, bundleEntry("GET", "/Patient/a"), "400"},
		{"a slash alone", patientA, bundleEntry("POST", "/"), "400"},
		{"a slash at the end", patientA, bundleEntry("GET", "Patient/a/"), "404"},
		{"a question mark alone", patientA, bundleEntry("POST", "?"), "400"},
		{"another host", patientA, bundleEntry("GET", "//evil.example/Patient/a"), "400"},
		{"a URL", patientA, bundleEntry("GET", "http://evil.example/Patient/a"), "400"},
		{"our own URL", patientA, bundleEntry("GET", "https://gateway.example/fhir/R4/Patient/a"), "400"},
		{"dot segments", patientA, bundleEntry("GET", "Patient/../Observation/a1"), "400"},
		{"encoded dot segments", patientA, bundleEntry("GET", "Patient/%2e%2e/Observation/a1"), "400"},
		{"an encoded slash", patientA, bundleEntry("GET", "Patient%2fa"), "400"},
		{"an encoded slash in capitals", patientA, bundleEntry("GET", "Patient%2Fa"), "400"},
		{"encoded twice", patientA, bundleEntry("GET", "Patient%252fa"), "400"},
		{"encoded once", patientA, bundleEntry("GET", "%50atient/%61"), "200"},
		{"invalid escape", patientA, bundleEntry("GET", "Patient/%zz"), "400"},
		{"a backslash", patientA, `{"request":{"method":"GET","url":"Patient\\a"}}`, "400"},
		{"a semicolon", patientA, bundleEntry("GET", "Patient/a;x=1"), "400"},
		{"a fragment", patientA, bundleEntry("GET", "Patient/a#x"), "400"},
		{"two slashes", patientA, bundleEntry("GET", "Patient//a"), "400"},
		{"a line break in the url", patientA, `{"request":{"method":"GET","url":"Patient/a\r\nX: y"}}`, "400"},
		{"a line break in a condition", patientA, `{"request":{"method":"GET","url":"Patient/a","ifMatch":"1\r\nX: y"}}`, "400"},
		{"a space in the query", patientA, bundleEntry("GET", "Patient?name=a b"), "400"},
		{"an unknown type", patientA, bundleEntry("GET", "Nonsense/1"), "404"},
		{"a Bundle in the Bundle", patientA, entryWithResource("POST", "", `{"resourceType":"Bundle","type":"batch"}`), "400"},

		{"a PUT without a resource", clinician, bundleEntry("PUT", "Observation/a1"), "400"},
		{"a POST without a resource", clinician, bundleEntry("POST", "Observation"), "400"},
		{"a PATCH without a resource", clinician, bundleEntry("PATCH", "Observation/a1"), "400"},
		{"a resource of another type", clinician, entryWithResource("POST", "Observation", records[0]), "400"},
		{"a resource with another id", clinician, entryWithResource("PUT", "Observation/a2", records[3]), "400"},
		{"a resource without a type", clinician, entryWithResource("POST", "Observation", `{"id":"a"}`), "400"},
		{"a patch that is no Binary", clinician, entryWithResource("PATCH", "Observation/a1", records[3]), "400"},
		{"a patch in XML", clinician, entryWithResource("PATCH", "Observation/a1", strings.Replace(jsonPatch("[]"), "json-patch+json", "xml-patch+xml", 1)), "400"},
		{"a patch without data", clinician, entryWithResource("PATCH", "Observation/a1", `{"resourceType":"Binary","contentType":"application/json-patch+json"}`), "400"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// The second entry prevents the batch from being forwarded in one request.
			r := parseBatchResponse(t, newGateway(t, records...).submit(tt.holder, "batch", tt.entry, bundleEntry("GET", "x")), 2)
			if r.status(0) != tt.status || r.Type != "batch-response" {
				t.Errorf("%s %s: %s, want %s", r.Type, r.Entry[0].Response.Status, r.diagnostics(0), tt.status)
			}
			if tt.status != "200" && r.Entry[0].Resource != nil {
				t.Errorf("answered with %s", r.Entry[0].Resource)
			}
		})
	}
}

// jsonPatch returns a JSON Patch as the resource of an entry.
func jsonPatch(operations string) string {
	return `{"resourceType":"Binary","contentType":"application/json-patch+json","data":"` +
		base64.StdEncoding.EncodeToString([]byte(operations)) + `"}`
}

// The outcome of a rejected entry has the same diagnostics as the outcome of the corresponding rejected request.
func TestBatchRefusals(t *testing.T) {
	t.Parallel()
	reader := access.Holder{Scope: "patient/Observation.r", Patient: "a"}
	for _, target := range []string{"Observation/b1", "Observation/c1", "Patient/a", "Observation?_id=a1", "Patient/a/Condition", "nothing"} {
		g := newGateway(t, records...)
		single := g.get(reader, target)
		text, _ := io.ReadAll(single.Body)
		r := parseBatchResponse(t, g.submit(reader, "batch", bundleEntry("GET", target)), 1)
		if r.status(0) != fmt.Sprint(single.StatusCode) || r.diagnostics(0) != string(text) {
			t.Errorf("%s: %s %s, alone %d %s", target, r.status(0), r.diagnostics(0), single.StatusCode, text)
		}
	}
}

// Diagnostics help with common mistakes of clients.
func TestBatchMistakes(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"/Patient/a": "The entry's request.url must be relative to the FHIR base.",
		"":           "The entry has no request.url.",
	} {
		r := parseBatchResponse(t, newGateway(t, records...).submit(patientA, "batch", bundleEntry("GET", target)), 1)
		if r.diagnostics(0) != want {
			t.Errorf("%q: %s", target, r.diagnostics(0))
		}
	}
}

// An entry with a resource that differs from request.url is rejected: a FHIR server that uses the resource's id would write a
// resource that was not judged.
func TestBatchOtherResource(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{entryWithResource("POST", "Observation", records[0]), entryWithResource("PUT", "Observation/a2", records[3])} {
		for _, kind := range []string{"batch", "transaction"} {
			g := newGateway(t, records...)
			g.server.OnRequest = func(r *http.Request) { t.Errorf("unexpected request %s %s", r.Method, r.URL) }
			if got := g.submit(clinician, kind, entry); kind == "transaction" && got.StatusCode != http.StatusBadRequest {
				t.Errorf("status %d", got.StatusCode)
			}
		}
	}
}

func TestBatchResponse(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	r := parseBatchResponse(t, g.submit(patientA, "batch",
		bundleEntry("GET", "Patient/a"), bundleEntry("GET", "Patient/b"), bundleEntry("GET", "Device?_count=1"),
		`{"request":{"method":"GET","url":"Patient/a","ifNoneMatch":"W/\"1\""}}`), 4)
	if e := r.Entry[0]; e.Response.Etag != `W/"1"` || !strings.Contains(string(e.Resource), "Adams") {
		t.Errorf("read: %+v", e)
	}
	if text := string(r.Entry[1].Resource) + r.diagnostics(1); strings.Contains(text, "Brown") || strings.Contains(text, "Patient/b") {
		t.Errorf("another's: %s", text)
	}
	if r.status(3) != "304" || r.Entry[3].Resource != nil {
		t.Errorf("known already: %+v", r.Entry[3])
	}
	var page bundle
	if err := json.Unmarshal(r.Entry[2].Resource, &page); err != nil || len(page.Entry) != 1 {
		t.Fatalf("page: %v, %+v", err, page)
	}
	if next := page.next(); !strings.HasPrefix(next, "https://gateway.example/fhir/R4/_page/") || g.get(patientA, next).StatusCode != http.StatusOK {
		t.Errorf("next page: %q", next)
	}
}

func TestBundleRefused(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]string{bundleEntry("GET", "Patient/a")}, 501)
	for _, tt := range []struct {
		name   string
		body   string
		status int
	}{
		{"a collection", `{"resourceType":"Bundle","type":"collection"}`, 400},
		{"no type", `{"resourceType":"Bundle"}`, 400},
		{"another resource", `{"resourceType":"Parameters","type":"batch"}`, 400},
		{"no resourceType", `{"type":"batch"}`, 400},
		{"nothing", ``, 400},
		{"an array", `[]`, 400},
		{"two types", `{"resourceType":"Bundle","type":"batch","type":"transaction"}`, 400},
		{"two urls", `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"Patient/a","url":"Patient/b"}}]}`, 400},
		{"two ids in a resource", `{"resourceType":"Bundle","type":"batch","entry":[` + entryWithResource("PUT", "Patient/a", `{"resourceType":"Patient","id":"a","id":"b"}`) + `]}`, 400},
		{"entry is not an array", `{"resourceType":"Bundle","type":"batch","entry":{}}`, 400},
		{"entry is not an object", `{"resourceType":"Bundle","type":"batch","entry":[1]}`, 400},
		{"url is not a string", `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":1}}]}`, 400},
		{"more behind it", `{"resourceType":"Bundle","type":"batch"}{}`, 400},
		{"deep nesting", `{"resourceType":"Bundle","type":"batch","entry":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, 400},
		{"too many entries in the Bundle", `{"resourceType":"Bundle","type":"batch","entry":[` + strings.Join(many, ",") + `]}`, 413},
		{"no entries", `{"resourceType":"Bundle","type":"batch"}`, 200},
	} {
		for _, holder := range []access.Holder{patientA, clinician} {
			t.Run(tt.name, func(t *testing.T) {
				expectStatus(t, newGateway(t, records...).post(holder, tt.body), tt.status)
			})
		}
	}
}

// The limits apply to each entry and to the total size of the responses.
func TestBatchLimits(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	g.Limits = fhirserver.Limits{Requests: 1}
	r := parseBatchResponse(t, g.submit(patientA, "batch", bundleEntry("GET", "Binary/a1"), bundleEntry("GET", "Patient/a"), bundleEntry("GET", "Patient/a")), 3)
	if got := r.status(0) + r.status(1) + r.status(2); got != "403200200" {
		t.Errorf("requests: %s", got)
	}
	requests := 0
	g.server.OnRequest = func(*http.Request) { requests++ }
	g.Limits = fhirserver.Limits{ResponseBytes: 200}
	r = parseBatchResponse(t, g.submit(patientA, "batch", slices.Repeat([]string{bundleEntry("GET", "Patient/a")}, 10)...), 10)
	if r.status(0) != "200" || r.status(9) != "403" || requests > 4 {
		t.Errorf("size: %s, %s after %d requests", r.status(0), r.status(9), requests)
	}
}

// If all entries of a batch pass, the batch is forwarded as one request after being re-serialized.
func TestBatchForwarded(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	var requests []string
	g.server.OnRequest = func(r *http.Request) { requests = append(requests, r.Method+" "+r.URL.Path) }
	r := parseBatchResponse(t, g.submit(clinician, "batch",
		bundleEntry("GET", "Observation/b1"), entryWithResource("PUT", "Observation/a1", records[3]), bundleEntry("DELETE", "Device/free"), bundleEntry("GET", "Patient/c")), 4)
	if got := strings.Join(requests, " "); got != "POST /fhir/R4" {
		t.Errorf("requests %s", got)
	}
	if got := r.status(0) + r.status(1) + r.status(2) + r.status(3); got != "200200204404" {
		t.Errorf("statuses %s", got)
	}
	if got := r.Entry[1].Response.Location; got != "https://gateway.example/fhir/R4/Observation/a1/_history/2" {
		t.Errorf("location %s", got)
	}
	requests = nil
	parseBatchResponse(t, g.submit(clinician, "batch", bundleEntry("GET", "Observation/b1"), bundleEntry("GET", "$export")), 2)
	if got := strings.Join(requests, " "); got != "GET /fhir/R4/Observation/b1" {
		t.Errorf("requests %s for a batch with an operation", got)
	}
}

// entryWithFullURL is like entryWithResource, but sets fullUrl.
func entryWithFullURL(fullURL, method, target, resource string) string {
	return fmt.Sprintf(`{"fullUrl":%q,"request":{"method":%q,"url":%q},"resource":%s}`, fullURL, method, target, resource)
}

const (
	newObservation = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"}}`
	ofNewPatient   = `{"resourceType":"Observation","status":"final","subject":{"reference":"urn:uuid:p"}}`
	withMember     = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"},"hasMember":[{"reference":"urn:uuid:o"}]}`
	newPatient     = `{"resourceType":"Patient","name":[{"family":"Cole"}]}`
	provenance     = `{"resourceType":"Provenance","target":[{"reference":"urn:uuid:o"}]}`
)

// document contains a reference between its own entries that must not be resolved in the surrounding Bundle.
const document = `{"resourceType":"Bundle","type":"document","entry":[` +
	`{"fullUrl":"urn:uuid:1","resource":{"resourceType":"Composition","subject":{"reference":"Patient/a"},"section":[{"entry":[{"reference":"urn:uuid:2"}]}]}},` +
	`{"fullUrl":"urn:uuid:2","resource":{"resourceType":"Observation","subject":{"reference":"Patient/a"}}}]}`

// conditionalCreateEntry returns an entry that creates a resource unless a resource matches the criteria.
func conditionalCreateEntry(fullURL, criteria, resource string) string {
	return fmt.Sprintf(`{"fullUrl":%q,"request":{"method":"POST","url":"Observation","ifNoneExist":%q},"resource":%s}`, fullURL, criteria, resource)
}

// A transaction that contains a rejected entry is rejected as a whole.
func TestTransaction(t *testing.T) {
	t.Parallel()
	plain := entryWithResource("POST", "Observation", newObservation)
	everyPatient := access.Holder{Scope: "user/Patient.cs patient/Observation.cruds", Patient: "a", User: clinician.User}
	provenancer := access.Holder{Scope: "user/Patient.c user/Observation.cs patient/Provenance.c", Patient: "a", User: clinician.User}
	for _, tt := range []struct {
		name    string
		holder  access.Holder
		entries []string
		status  int
	}{
		{"own record", patientA, []string{plain, bundleEntry("DELETE", "Observation/a2"), bundleEntry("GET", "Observation?status=final")}, 200},
		{"reads alone", patientA, []string{bundleEntry("GET", "Patient/a"), bundleEntry("GET", "Device?_count=1")}, 200},
		{"a read of another's record", patientA, []string{plain, bundleEntry("GET", "Observation/b1")}, 403},
		{"read of a record without a patient", patientA, []string{plain, bundleEntry("GET", "Observation/c1")}, 403},
		{"a read of what it writes", patientA, []string{entryWithResource("PUT", "Observation/a1", records[3]), bundleEntry("GET", "Observation/a1")}, 200},
		{"a search without the permission", access.Holder{Scope: "patient/Observation.cr", Patient: "a"}, []string{plain, bundleEntry("GET", "Observation?_id=a1")}, 403},
		{"leaky search", patientA, []string{plain, bundleEntry("GET", "Observation?_filter=x")}, 403},
		{"another's record created", patientA, []string{plain, entryWithResource("POST", "Observation", strings.Replace(newObservation, "/a", "/b", 1))}, 403},
		{"another's record updated", patientA, []string{plain, entryWithResource("PUT", "Observation/b1", strings.Replace(records[5], "Patient/b", "Patient/a", 1))}, 403},
		{"own record moved", patientA, []string{plain, entryWithResource("PUT", "Observation/a1", strings.Replace(records[3], "Patient/a", "Patient/b", 1))}, 403},
		{"another's record deleted", patientA, []string{plain, bundleEntry("DELETE", "Observation/b1")}, 403},
		{"delete of a record without a patient", patientA, []string{plain, bundleEntry("DELETE", "Observation/c1")}, 403},
		{"own record patched", patientA, []string{plain, entryWithResource("PATCH", "Observation/a1", jsonPatch(`[{"op":"replace","path":"/status","value":"amended"}]`))}, 200},
		{"own record patched away", patientA, []string{plain, entryWithResource("PATCH", "Observation/a1", jsonPatch(`[{"op":"replace","path":"/subject/reference","value":"Patient/b"}]`))}, 403},
		{"another's record patched", patientA, []string{plain, entryWithResource("PATCH", "Observation/b1", jsonPatch(`[{"op":"replace","path":"/subject/reference","value":"Patient/a"}]`))}, 403},
		{"a patch without u", access.Holder{Scope: "patient/Observation.crds", Patient: "a"}, []string{plain, entryWithResource("PATCH", "Observation/a1", jsonPatch(`[{"op":"remove","path":"/status"}]`))}, 403},
		{"a delete by criteria that match another's", patientA, []string{plain, bundleEntry("DELETE", "Observation?subject=Patient/b")}, 403},
		{"a delete by criteria", patientA, []string{plain, bundleEntry("DELETE", "Observation?category=http://c|vital-signs")}, 200},
		{"the same resource twice", patientA, []string{entryWithResource("PUT", "Observation/a1", records[3]), bundleEntry("DELETE", "Observation/a1")}, 400},
		{"the same resource twice, by criteria", patientA, []string{entryWithResource("PUT", "Observation/a2", records[4]), bundleEntry("DELETE", "Observation?category=http://c|vital-signs")}, 400},
		{"a conditional reference", patientA, []string{entryWithResource("POST", "Observation", strings.Replace(newObservation, "Patient/a", "Patient?name=Adams", 1))}, 200},

		{"a member that is new", patientA, []string{entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation), entryWithResource("POST", "Observation", withMember)}, 200},
		{"a member that comes later", patientA, []string{entryWithResource("POST", "Observation", withMember), entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation)}, 200},
		{"a member that is updated", patientA, []string{entryWithFullURL("urn:uuid:o", "PUT", "Observation/a1", records[3]), entryWithResource("POST", "Observation", withMember)}, 200},
		{"provenance of a new resource", patientA, []string{entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation), entryWithResource("POST", "Provenance", provenance)}, 200},
		{"a provenance of nothing", patientA, []string{entryWithResource("POST", "Provenance", provenance)}, 400},
		{"a urn of no entry", patientA, []string{entryWithResource("POST", "Observation", withMember)}, 400},
		{"a urn in other letters", patientA, []string{entryWithFullURL("urn:uuid:O", "POST", "Observation", newObservation), entryWithResource("POST", "Observation", withMember)}, 400},
		{"urn added by a patch", patientA, []string{entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation), entryWithResource("PATCH", "Observation/a1", jsonPatch(`[{"op":"replace","path":"/subject/reference","value":"urn:uuid:o"}]`))}, 403},
		{"urn added by a patch at an unjudged place", patientA, []string{entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation), entryWithResource("PATCH", "Observation/a1", jsonPatch(`[{"op":"add","path":"/hasMember","value":[{"display":"x"}]},{"op":"add","path":"/hasMember/0/reference","value":"urn:uuid:o"}]`))}, 400},
		{"a patient that is new", patientA, []string{entryWithFullURL("urn:uuid:p", "POST", "Patient", newPatient), entryWithResource("POST", "Observation", ofNewPatient)}, 403},
		{"another's subject, new by another scope", everyPatient, []string{entryWithFullURL("urn:uuid:p", "POST", "Patient", newPatient), entryWithResource("POST", "Observation", ofNewPatient)}, 403},
		{"another's subject, new with our id", everyPatient, []string{entryWithFullURL("urn:uuid:p", "POST", "Patient", `{"resourceType":"Patient","id":"a"}`), entryWithResource("POST", "Observation", ofNewPatient)}, 403},
		{"our address as the fullUrl of a new patient", everyPatient, []string{entryWithFullURL("https://gateway.example/fhir/R4/Patient/a", "POST", "Patient", newPatient), plain}, 400},
		{"the address of another server as a fullUrl", patientA, []string{entryWithFullURL("http://elsewhere.example/Observation/1", "POST", "Observation", newObservation)}, 400},
		{"a relative fullUrl", patientA, []string{entryWithFullURL("Patient/a", "POST", "Observation", newObservation)}, 400},
		{"a patient found by criteria that is another", everyPatient, []string{
			`{"fullUrl":"urn:uuid:p","request":{"method":"POST","url":"Patient","ifNoneExist":"name=Brown"},"resource":` + newPatient + `}`, entryWithResource("POST", "Observation", ofNewPatient),
		}, 403},
		{"a member found by criteria", patientA, []string{entryWithResource("POST", "Observation", withMember), conditionalCreateEntry("urn:uuid:o", "category=http://c|vital-signs", newObservation)}, 200},
		{"a member not found by criteria", patientA, []string{entryWithResource("POST", "Observation", withMember), conditionalCreateEntry("urn:uuid:o", "status=preliminary", newObservation)}, 200},
		{"a member found by criteria, too late", patientA, []string{conditionalCreateEntry("urn:uuid:x", "status=preliminary", withMember), conditionalCreateEntry("urn:uuid:o", "category=http://c|vital-signs", newObservation)}, 403},
		{"a member found by criteria, too late to be named", access.Holder{Scope: "user/Observation.c patient/Observation.s", Patient: "a", User: clinician.User}, []string{conditionalCreateEntry("urn:uuid:x", "status=preliminary", withMember), conditionalCreateEntry("urn:uuid:o", "category=http://c|vital-signs", newObservation)}, 400},
		{"provenance of another's record", provenancer, []string{entryWithFullURL("urn:uuid:o", "POST", "Observation", strings.Replace(newObservation, "/a", "/b", 1)), entryWithResource("POST", "Provenance", provenance)}, 403},
		{"a provenance of what becomes ours", provenancer, []string{entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation), entryWithResource("POST", "Provenance", provenance)}, 200},
		{"provenance of a conditional create that may match another's record", provenancer, []string{conditionalCreateEntry("urn:uuid:o", "_id=b1", newObservation), entryWithResource("POST", "Provenance", provenance)}, 403},
		{"a provenance of a new patient with our id", provenancer, []string{entryWithFullURL("urn:uuid:o", "POST", "Patient", `{"resourceType":"Patient","id":"a"}`), entryWithResource("POST", "Provenance", provenance)}, 403},
		{"a document with links of its own", patientA, []string{entryWithResource("POST", "Bundle", document)}, 200},
		{"a fullUrl twice", patientA, []string{entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation), entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation)}, 400},
		{"a fullUrl twice, with all rights", clinician, []string{entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation), entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation)}, 400},

		{"an operation", clinician, []string{plain, bundleEntry("GET", "Patient/a/$everything")}, 400},
		{"a history", clinician, []string{plain, bundleEntry("GET", "Patient/a/_history")}, 400},
		{"metadata", clinician, []string{plain, bundleEntry("GET", "metadata")}, 400},
		{"a Bundle", clinician, []string{plain, entryWithResource("POST", "", `{"resourceType":"Bundle","type":"batch"}`)}, 400},
		{"another host", clinician, []string{plain, bundleEntry("GET", "//evil.example/Patient/a")}, 400},
		{"a method in small letters", clinician, []string{plain, bundleEntry("delete", "Observation/a1")}, 400},
		{"no permission", access.Holder{Scope: "patient/*.rs", Patient: "a"}, []string{plain}, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			writes := 0
			g.server.OnRequest = func(r *http.Request) {
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

// Rejections of invisible and of missing resources have the same diagnostics.
func TestTransactionRevealsNothing(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "DELETE"} {
		var texts []string
		for _, id := range []string{"b1", "c1"} {
			body, _ := io.ReadAll(newGateway(t, records...).submit(patientA, "transaction", bundleEntry(method, "Observation/"+id)).Body)
			texts = append(texts, string(body))
		}
		if texts[0] != texts[1] || !strings.HasPrefix(texts[0], "The transaction was rejected because of Bundle.entry[0]: ") {
			t.Errorf("%s: %q", method, texts)
		}
	}
}

func TestTransactionResponse(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	r := parseBatchResponse(t, g.submit(patientA, "transaction",
		bundleEntry("GET", "Observation?status=final"),
		entryWithResource("POST", "Observation", withMember),
		entryWithFullURL("urn:uuid:o", "POST", "Observation", newObservation),
		entryWithResource("PATCH", "Observation/a1", jsonPatch(`[{"op":"replace","path":"/status","value":"amended"}]`)),
		bundleEntry("DELETE", "Observation/a2"),
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
	// Searches are executed last.
	if text := string(r.Entry[0].Resource); !strings.Contains(text, `"new-`) || strings.Contains(text, `"id":"a1"`) || strings.Contains(text, `"id":"a2"`) {
		t.Errorf("search: %s", text)
	}
}

// A resource that the client may write but not read is not returned.
func TestTransactionWithoutRead(t *testing.T) {
	t.Parallel()
	r := parseBatchResponse(t, newGateway(t, records...).submit(access.Holder{Scope: "patient/Observation.c", Patient: "a"}, "transaction", entryWithResource("POST", "Observation", newObservation)), 1)
	if r.status(0) != "201" || r.Entry[0].Resource != nil {
		t.Errorf("%+v", r.Entry[0])
	}
}

// The forwarded transaction contains only the judged writes and the versions for If-Match.
func TestTransactionSent(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	var sent string
	g.server.OnRequest = func(r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			sent, r.Body = string(body), io.NopCloser(strings.NewReader(string(body)))
		}
	}
	parseBatchResponse(t, g.submit(patientA, "transaction",
		`{"fullUrl":"http://elsewhere.example/Observation/1","link":[{"url":"x"}],"resource":`+records[3]+`,"request":{"method":"PUT","url":"%4fbservation/a1","extension":[{"url":"x"}]},"response":{"status":"x"}}`,
		bundleEntry("GET", "Patient/a"),
		entryWithFullURL("urn:uuid:o", "POST", "Observation", `{"resourceType":"Observation","id":"z","subject":{"reference":"Patient/a"},"hasMember":[{"reference":"http://elsewhere.example/Observation/1"}]}`)), 3)
	want := `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":` + records[3] +
		`,"request":{"method":"PUT","url":"Observation/a1","ifMatch":"W/\"1\""}},{"fullUrl":"urn:uuid:o","resource":` +
		`{"resourceType":"Observation","subject":{"reference":"Patient/a"},"hasMember":[{"reference":"Observation/a1"}]},"request":{"method":"POST","url":"Observation"}}]}`
	if sent != want {
		t.Errorf("sent %s,\nwant %s", sent, want)
	}
}

// Policies judge the read access to a resource that a transaction creates.
func TestTransactionRules(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny request.interaction == 'create' && resource.meta.versionId == '1'")
	r := parseBatchResponse(t, g.submit(patientA, "transaction", entryWithResource("POST", "Observation", newObservation)), 1)
	if r.status(0) != "201" || r.Entry[0].Resource != nil {
		t.Errorf("%+v, %s", r.Entry[0].Response, r.Entry[0].Resource)
	}
	g = newGateway(t, records...).withRules("deny request.interaction == 'delete'")
	for _, holder := range []access.Holder{patientA, clinician} {
		expectStatus(t, g.submit(holder, "transaction", bundleEntry("DELETE", "Observation/a1")), http.StatusForbidden)
	}
}
