package enforce_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
)

// submit is send for a Bundle with entries.
func (g *gateway) submit(h access.Holder, kind string, entries ...string) *http.Response {
	g.t.Helper()
	return g.post(h, `{"resourceType":"Bundle","type":"`+kind+`","entry":[`+strings.Join(entries, ",")+`]}`)
}

// post is send for a body posted to the base.
func (g *gateway) post(h access.Holder, body string) *http.Response {
	g.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/fhir/R4", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/fhir+json")
	return g.send(h, r)
}

// responses is what a batch or transaction is answered with.
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

// status is that of an entry.
func (r responses) status(n int) string { return r.Entry[n].Response.Status[:3] }

// said is the text of the outcome of an entry.
func (r responses) said(n int) string {
	if issues := r.Entry[n].Response.Outcome.Issue; len(issues) > 0 {
		return issues[0].Diagnostics
	}
	return ""
}

// answered reads the answer to a batch or transaction with as many entries.
func answered(t *testing.T, response *http.Response, entries int) (r responses) {
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

// request is an entry without a resource.
func request(method, target string) string {
	return fmt.Sprintf(`{"request":{"method":%q,"url":%q}}`, method, target)
}

// sending is an entry with one.
func sending(method, target, resource string) string {
	return fmt.Sprintf(`{"request":{"method":%q,"url":%q},"resource":%s}`, method, target, resource)
}

// Each entry of a batch is answered as the request that it is would be.
func TestBatchEntry(t *testing.T) {
	t.Parallel()
	reader := access.Holder{Scope: "patient/*.r", Patient: "a"}
	for _, tt := range []struct {
		name   string
		holder access.Holder
		entry  string
		status string
	}{
		{"own record", patientA, request("GET", "Observation/a1"), "200"},
		{"another's record", patientA, request("GET", "Observation/b1"), "404"},
		{"nobody's record", patientA, request("GET", "Observation/c1"), "404"},
		{"a search", patientA, request("GET", "Observation?status=final"), "200"},
		{"a search by POST", patientA, request("POST", "Observation/_search?status=final"), "200"},
		{"a search of the system", patientA, request("GET", "?_type=Patient"), "200"},
		{"a GET that is a search, without the permission", reader, request("GET", "Observation?_id=a1"), "403"},
		{"a GET that is a search, with nothing asked for", reader, request("GET", "Observation?"), "403"},
		{"a GET of a compartment, without the permission", reader, request("GET", "Patient/a/Observation"), "403"},
		{"a PATCH without the permission", reader, sending("PATCH", "Observation/a1", jsonPatch(`[{"op":"remove","path":"/status"}]`)), "403"},
		{"a PUT without the permission", reader, sending("PUT", "Observation/a1", records[3]), "403"},
		{"a history without the permission", access.Holder{Scope: "patient/*.cuds", Patient: "a"}, request("GET", "Observation/a1/_history"), "403"},
		{"a DELETE without the permission", reader, request("DELETE", "Observation/a1"), "403"},
		{"a POST without the permission", reader, sending("POST", "Observation", records[3]), "403"},
		{"history of everything", patientA, request("GET", "_history"), "403"},
		{"metadata", patientA, request("GET", "metadata"), "501"}, // what fhirtest says
		{"an export", patientA, request("GET", "$export"), "400"}, // it needs respond-async
		{"an operation not on the list", clinician, request("GET", "Patient/a/$secret"), "403"},
		{"a page", patientA, request("GET", "_page/1234"), "404"},
		{"another form of answer", patientA, request("GET", "Patient/a?_format=xml"), "200"},

		{"no url", patientA, `{"request":{"method":"GET"}}`, "400"},
		{"an empty url", patientA, request("GET", ""), "400"},
		{"no method", patientA, `{"request":{"url":"Patient/a"}}`, "400"},
		{"a method in small letters", patientA, request("get", "Patient/a"), "400"},
		{"HEAD", patientA, request("HEAD", "Patient/a"), "400"},
		{"an unknown method", patientA, request("TRACE", "Patient/a"), "400"},
		{"no request", patientA, `{"resource":` + records[0] + `}`, "400"},
		{"nothing", patientA, `{}`, "400"},
		{"a slash first", patientA, request("GET", "/Patient/a"), "400"},
		{"a slash alone", patientA, request("POST", "/"), "400"},
		{"a slash at the end", patientA, request("GET", "Patient/a/"), "404"},
		{"a question mark alone", patientA, request("POST", "?"), "400"},
		{"another host", patientA, request("GET", "//evil.example/Patient/a"), "400"},
		{"a URL", patientA, request("GET", "http://evil.example/Patient/a"), "400"},
		{"our own URL", patientA, request("GET", "https://gateway.example/fhir/R4/Patient/a"), "400"},
		{"dot segments", patientA, request("GET", "Patient/../Observation/a1"), "400"},
		{"encoded dot segments", patientA, request("GET", "Patient/%2e%2e/Observation/a1"), "400"},
		{"an encoded slash", patientA, request("GET", "Patient%2fa"), "400"},
		{"an encoded slash in capitals", patientA, request("GET", "Patient%2Fa"), "400"},
		{"encoded twice", patientA, request("GET", "Patient%252fa"), "400"},
		{"encoded once", patientA, request("GET", "%50atient/%61"), "200"},
		{"an escape that is none", patientA, request("GET", "Patient/%zz"), "400"},
		{"a backslash", patientA, `{"request":{"method":"GET","url":"Patient\\a"}}`, "400"},
		{"a semicolon", patientA, request("GET", "Patient/a;x=1"), "400"},
		{"a fragment", patientA, request("GET", "Patient/a#x"), "400"},
		{"two slashes", patientA, request("GET", "Patient//a"), "400"},
		{"a line break in the url", patientA, `{"request":{"method":"GET","url":"Patient/a\r\nX: y"}}`, "400"},
		{"a line break in a condition", patientA, `{"request":{"method":"GET","url":"Patient/a","ifMatch":"1\r\nX: y"}}`, "400"},
		{"a space in the query", patientA, request("GET", "Patient?name=a b"), "400"},
		{"an unknown type", patientA, request("GET", "Nonsense/1"), "404"},
		{"a Bundle in the Bundle", patientA, sending("POST", "", `{"resourceType":"Bundle","type":"batch"}`), "400"},

		{"a PUT without a resource", clinician, request("PUT", "Observation/a1"), "400"},
		{"a POST without a resource", clinician, request("POST", "Observation"), "400"},
		{"a PATCH without a resource", clinician, request("PATCH", "Observation/a1"), "400"},
		{"a resource of another type", clinician, sending("POST", "Observation", records[0]), "400"},
		{"a resource with another id", clinician, sending("PUT", "Observation/a2", records[3]), "400"},
		{"a resource without a type", clinician, sending("POST", "Observation", `{"id":"a"}`), "400"},
		{"a patch that is no Binary", clinician, sending("PATCH", "Observation/a1", records[3]), "400"},
		{"a patch in XML", clinician, sending("PATCH", "Observation/a1", strings.Replace(jsonPatch("[]"), "json-patch+json", "xml-patch+xml", 1)), "400"},
		{"a patch without data", clinician, sending("PATCH", "Observation/a1", `{"resourceType":"Binary","contentType":"application/json-patch+json"}`), "400"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// The second entry has every entry answered by itself.
			r := answered(t, newGateway(t, records...).submit(tt.holder, "batch", tt.entry, request("GET", "x")), 2)
			if r.status(0) != tt.status || r.Type != "batch-response" {
				t.Errorf("%s %s: %s, want %s", r.Type, r.Entry[0].Response.Status, r.said(0), tt.status)
			}
			if tt.status != "200" && r.Entry[0].Resource != nil {
				t.Errorf("answered with %s", r.Entry[0].Resource)
			}
		})
	}
}

// jsonPatch is a JSON Patch as an entry has it.
func jsonPatch(operations string) string {
	return `{"resourceType":"Binary","contentType":"application/json-patch+json","data":"` +
		base64.StdEncoding.EncodeToString([]byte(operations)) + `"}`
}

// What an entry is refused with says as much as what the request is refused with.
func TestBatchRefusals(t *testing.T) {
	t.Parallel()
	reader := access.Holder{Scope: "patient/Observation.r", Patient: "a"}
	for _, target := range []string{"Observation/b1", "Observation/c1", "Patient/a", "Observation?_id=a1", "Patient/a/Condition", "nothing"} {
		g := newGateway(t, records...)
		single := g.get(reader, target)
		text, _ := io.ReadAll(single.Body)
		r := answered(t, g.submit(reader, "batch", request("GET", target)), 1)
		if r.status(0) != fmt.Sprint(single.StatusCode) || r.said(0) != string(text) {
			t.Errorf("%s: %s %s, alone %d %s", target, r.status(0), r.said(0), single.StatusCode, text)
		}
	}
}

// What some clients send by mistake is refused with what is wrong with it.
func TestBatchWords(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"/Patient/a": "The entry's request.url is not relative to the FHIR base.",
		"":           "The entry has no request.url.",
	} {
		r := answered(t, newGateway(t, records...).submit(patientA, "batch", request("GET", target)), 1)
		if r.said(0) != want {
			t.Errorf("%q: %s", target, r.said(0))
		}
	}
}

// A server that goes by the resource, and not by request.url, would write another one than the one that is judged.
func TestBatchOtherResource(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{sending("POST", "Observation", records[0]), sending("PUT", "Observation/a2", records[3])} {
		for _, kind := range []string{"batch", "transaction"} {
			g := newGateway(t, records...)
			g.server.Seen = func(r *http.Request) { t.Errorf("asked %s %s", r.Method, r.URL) }
			if got := g.submit(clinician, kind, entry); kind == "transaction" && got.StatusCode != http.StatusBadRequest {
				t.Errorf("status %d", got.StatusCode)
			}
		}
	}
}

func TestBatchAnswer(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	r := answered(t, g.submit(patientA, "batch",
		request("GET", "Patient/a"), request("GET", "Patient/b"), request("GET", "Device?_count=1"),
		`{"request":{"method":"GET","url":"Patient/a","ifNoneMatch":"W/\"1\""}}`), 4)
	if e := r.Entry[0]; e.Response.Etag != `W/"1"` || !strings.Contains(string(e.Resource), "Adams") {
		t.Errorf("read: %+v", e)
	}
	if text := string(r.Entry[1].Resource) + r.said(1); strings.Contains(text, "Brown") || strings.Contains(text, "Patient/b") {
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
	many := slices.Repeat([]string{request("GET", "Patient/a")}, 501)
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
		{"two ids in a resource", `{"resourceType":"Bundle","type":"batch","entry":[` + sending("PUT", "Patient/a", `{"resourceType":"Patient","id":"a","id":"b"}`) + `]}`, 400},
		{"entries that are no array", `{"resourceType":"Bundle","type":"batch","entry":{}}`, 400},
		{"an entry that is no object", `{"resourceType":"Bundle","type":"batch","entry":[1]}`, 400},
		{"a url that is no string", `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":1}}]}`, 400},
		{"more behind it", `{"resourceType":"Bundle","type":"batch"}{}`, 400},
		{"deep nesting", `{"resourceType":"Bundle","type":"batch","entry":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, 400},
		{"too many entries", `{"resourceType":"Bundle","type":"batch","entry":[` + strings.Join(many, ",") + `]}`, 413},
		{"no entries", `{"resourceType":"Bundle","type":"batch"}`, 200},
	} {
		for _, holder := range []access.Holder{patientA, clinician} {
			t.Run(tt.name, func(t *testing.T) {
				if got := newGateway(t, records...).post(holder, tt.body); got.StatusCode != tt.status {
					t.Errorf("status %d, want %d", got.StatusCode, tt.status)
				}
			})
		}
	}
}

// The limits hold for each entry, and for all answers together.
func TestBatchLimits(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	g.Limits = server.Limits{Requests: 1}
	r := answered(t, g.submit(patientA, "batch", request("GET", "Binary/a1"), request("GET", "Patient/a"), request("GET", "Patient/a")), 3)
	if got := r.status(0) + r.status(1) + r.status(2); got != "403200200" {
		t.Errorf("requests: %s", got)
	}
	asked := 0
	g.server.Seen = func(*http.Request) { asked++ }
	g.Limits = server.Limits{Answer: 200}
	r = answered(t, g.submit(patientA, "batch", slices.Repeat([]string{request("GET", "Patient/a")}, 10)...), 10)
	if r.status(0) != "200" || r.status(9) != "403" || asked > 4 {
		t.Errorf("size: %s, %s after %d requests", r.status(0), r.status(9), asked)
	}
}

// A batch of which every entry would pass goes on as one request, written anew.
func TestBatchWhole(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	var asked []string
	g.server.Seen = func(r *http.Request) { asked = append(asked, r.Method+" "+r.URL.Path) }
	r := answered(t, g.submit(clinician, "batch",
		request("GET", "Observation/b1"), sending("PUT", "Observation/a1", records[3]), request("DELETE", "Device/free"), request("GET", "Patient/c")), 4)
	if got := strings.Join(asked, " "); got != "POST /fhir/R4" {
		t.Errorf("asked %s", got)
	}
	if got := r.status(0) + r.status(1) + r.status(2) + r.status(3); got != "200200204404" {
		t.Errorf("statuses %s", got)
	}
	if got := r.Entry[1].Response.Location; got != "https://gateway.example/fhir/R4/Observation/a1/_history/2" {
		t.Errorf("location %s", got)
	}
	asked = nil
	answered(t, g.submit(clinician, "batch", request("GET", "Observation/b1"), request("GET", "$export")), 2)
	if got := strings.Join(asked, " "); got != "GET /fhir/R4/Observation/b1" {
		t.Errorf("asked %s with an operation in it", got)
	}
}
