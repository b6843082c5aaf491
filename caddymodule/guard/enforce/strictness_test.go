package enforce_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

const ofA = `{"resourceType":"Observation","id":"a1","status":"final","subject":{"reference":"Patient/a"}}`

// TestServedAnother checks that a server which answers with something else is not believed.
func TestServedAnother(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	media := "application/fhir+json"
	g.server.Answers = map[string]http.HandlerFunc{"Observation/a1": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", media)
		w.Header().Set("Etag", `W/"1"`)
		text := ofA
		if r.Method != http.MethodGet {
			text = strings.Replace(ofA, "a1", "a2", 1)
		}
		_, _ = io.WriteString(w, text)
	}}
	put := writing{holder: patientA, request: "PUT Observation/a1", body: ofA}
	if response := g.written(put); response.StatusCode != http.StatusOK || bodyOf(t, response) != "" {
		t.Errorf("another resource was shown: status %d", response.StatusCode)
	}
	media = "text/plain"
	if response := g.written(put); response.StatusCode != http.StatusBadGateway {
		t.Errorf("a version of another type of content: status %d", response.StatusCode)
	}
}

// TestHeld checks on which condition the FHIR server is asked to write.
func TestHeld(t *testing.T) {
	t.Parallel()
	patch := `{"resourceType":"Parameters","parameter":[` + change("replace", "Observation.status", `,{"name":"value","valueCode":"amended"}`) + `]}`
	for _, tt := range []struct{ name, request, body, header, want string }{
		{"a patch", "PATCH Observation/a1", patch, "If-Match", `W/"1"`},
		{"an update that creates", "PUT Observation/fresh", strings.Replace(ofA, "a1", "fresh", 1), "If-None-Match", "*"},
	} {
		g := newGateway(t, records...)
		g.Upsert = true
		held := ""
		g.server.Seen = func(r *http.Request) {
			if r.Method != http.MethodGet {
				held = r.Header.Get(tt.header)
			}
		}
		if response := g.written(writing{holder: patientA, request: tt.request, body: tt.body}); response.StatusCode >= 300 || held != tt.want {
			t.Errorf("%s: status %d, %s: %q", tt.name, response.StatusCode, tt.header, held)
		}
	}
}

// TestWriteBounds is over writes that say too much, or reach too far.
func TestWriteBounds(t *testing.T) {
	t.Parallel()
	all := access.Holder{Scope: "system/Observation.cruds"}
	jsonMedia := "Content-Type: application/json-patch+json"
	replace := `{"op":"replace","path":"/status","value":"amended"}`
	testWritings(t, []writing{
		{"a reference that names no type", all, "POST Observation", strings.Replace(ofA, "Patient/a", "?identifier=1", 1), "", 403, ""},
		{"a search of another type in a reference", all, "POST Observation", strings.Replace(ofA, "Patient/a", "Patient?identifier=1", 1), "", 403, ""},
		{"a delete of others along", all, "DELETE Observation/a1?_cascade:mode=delete", "", "", 403, ""},
		{"as many operations as may be", patientA, "PATCH Observation/a1", "[" + strings.Repeat(replace+",", 999) + replace + "]", jsonMedia, 200, "Observation/a1=amended"},
		{"too many operations", patientA, "PATCH Observation/a1", "[" + strings.Repeat(replace+",", 1000) + replace + "]", jsonMedia, 403, ""},
	})
	g := newGateway(t, records...)
	g.Limits = fhirserver.Limits{Body: 500}
	long := `[{"op":"add","path":"/note","value":[{"text":"` + strings.Repeat("x", 400) + `"}]}]`
	if got := g.written(writing{holder: patientA, request: "PATCH Observation/a1", body: long, header: jsonMedia}); got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a patch that comes to too much: status %d", got.StatusCode)
	}
}

// TestIncludesAsAsked checks that a server brings along no more than was asked for.
func TestIncludesAsAsked(t *testing.T) {
	t.Parallel()
	const (
		patient      = `{"resource":{"resourceType":"Patient","id":"a","generalPractitioner":[{"reference":"Practitioner/p"}]}}`
		practitioner = `{"resource":{"resourceType":"Practitioner","id":"p","qualification":[{"issuer":{"reference":"Organization/o"}}]},"search":{"mode":"include"}}`
		organization = `{"resource":{"resourceType":"Organization","id":"o"},"search":{"mode":"include"}}`
		observation  = `{"resource":{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}},"search":{"mode":"include"}}`
	)
	for query, want := range map[string]string{
		"":                                       "Patient/a",
		"?_include=Patient:general-practitioner": "Patient/a Practitioner/p",
		"?_include=Patient:general-practitioner&_include:iterate=Practitioner:org": "Organization/o Patient/a Practitioner/p",
		"?_revinclude=Observation:subject":                                         "Observation/a1 Patient/a",
	} {
		g := newGateway(t)
		g.server.Answers = map[string]http.HandlerFunc{
			"Patient": answering(`{"resourceType":"Bundle","type":"searchset","entry":[` + strings.Join([]string{patient, practitioner, organization, observation}, ",") + `]}`),
		}
		if got := strings.Join(g.found(patientA, "Patient"+query), " "); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

// TestGroupsAreNotCounted checks that a total that counts groups of others is not told, though none is on this page.
func TestGroupsAreNotCounted(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.server.Answers = map[string]http.HandlerFunc{"Group": func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("page"))
		answering(fmt.Sprintf(`{"resourceType":"Bundle","type":"searchset","total":9,
			"link":[{"relation":"next","url":"http://backend.internal:8080/fhir/Group?page=%d"}],
			"entry":[{"resource":{"resourceType":"Group","id":"g%d","member":[{"entity":{"reference":"Patient/a"}}]}}]}`, page+1, page))(w, r)
	}}
	if text := bodyOf(t, g.get(patientA, "Group?_count=1")); strings.Contains(text, `"total"`) || !strings.Contains(text, `"id":"g0"`) || !strings.Contains(text, `"relation":"next"`) {
		t.Error(text)
	}
}

// TestSearchesThatReachFurther is over parameters that would look at other resources.
func TestSearchesThatReachFurther(t *testing.T) {
	t.Parallel()
	two := access.Holder{Scope: "user/Observation.rs user/Patient.rs", User: clinician.User}
	for _, tt := range []struct {
		holder access.Holder
		target string
		status int
	}{
		{two, "Observation?subject:Patient.family=Adams", 200},
		{two, "Observation?subject:Patient.general-practitioner:below=Practitioner/alice", 403},
		{patientA, "Observation?_sort=status", 200},
		{patientA, "Observation?_sort=code-value-quantity", 403},
	} {
		if got := newGateway(t, records...).get(tt.holder, tt.target); got.StatusCode != tt.status {
			t.Errorf("%s: status %d", tt.target, got.StatusCode)
		}
	}
	g := newGateway(t, records[0],
		`{"resourceType":"Observation","id":"1","status":"final","subject":{"reference":"https://other.example/fhir/Patient/a"},"performer":[{"reference":"Patient/a"}]}`,
		`{"resourceType":"Observation","id":"2","status":"final","subject":{"reference":"Group/a"},"performer":[{"reference":"Patient/a"}]}`)
	if got := g.found(patientA, "Patient?_has:Observation:subject:status=final"); len(got) != 0 {
		t.Errorf("found %v by references that lead elsewhere", got)
	}
}

// TestOperationsSayLittle checks that a server's words about a failure are its own, and that no operation mixes patients.
func TestOperationsSayLittle(t *testing.T) {
	t.Parallel()
	g := operating(t)
	g.server.Answers["Observation/a1/$meta"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"resourceType":"OperationOutcome","text":"secret"}`)
	}
	if text := bodyOf(t, g.get(patientA, "Observation/a1/$meta")); strings.Contains(text, "secret") {
		t.Error(text)
	}
	both := access.Holder{Scope: "patient/*.rs user/*.rs", Patient: "a", User: interaction.Reference{Type: "Patient", ID: "b"}, UserPatient: "b"}
	g.server.Seen = func(r *http.Request) { t.Errorf("%s was asked for", r.URL) }
	if got := g.found(both, "Observation/$lastn?patient=Patient/a&subject=Patient/b"); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

// TestOperationPageOff checks that a page link of an operation leads nowhere once a site has taken that away.
func TestOperationPageOff(t *testing.T) {
	t.Parallel()
	g := operating(t)
	link := nextIn([]byte(bodyOf(t, g.get(patientA, "Patient/a/$everything?_count=1"))))
	if got := g.get(patientA, link); got.StatusCode != http.StatusOK {
		t.Fatalf("status %d", got.StatusCode)
	}
	off, err := operation.ParseOperation("$everything", "off")
	if err != nil {
		t.Fatal(err)
	}
	g.Operations = operation.NewOperations(off)
	expectStatus(t, g.get(patientA, link), http.StatusNotFound)
}

// TestRulesAllowWhatTheySay checks that a rule that allows one interaction allows no other, nor the next entry.
func TestRulesAllowWhatTheySay(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("allow request.id == 'b1' && request.interaction == 'read'", "allow request.id == 'b1' && request.interaction == 'update'")
	entries := request("GET", "Observation/b1") + "," + request("GET", "Observation/a1")
	text := bodyOf(t, g.written(writing{holder: nobody, request: "POST ", body: `{"resourceType":"Bundle","type":"batch","entry":[` + entries + `]}`}))
	if strings.Count(text, `"status":"200`) != 1 || strings.Count(text, `"status":"403`) != 1 {
		t.Error(text)
	}
	response := g.written(writing{holder: nobody, request: "PUT Observation/b1", body: records[5]})
	if text := bodyOf(t, response); response.StatusCode != http.StatusOK || text != "" {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
}

// TestWholeIsRefused is over batches of somebody who may do everything, which the FHIR server must not get as they are.
func TestWholeIsRefused(t *testing.T) {
	t.Parallel()
	own := strings.Replace(records[3], `"id":"a1"`, `"id":"a2"`, 1)
	twice := `{"fullUrl":"urn:uuid:1","request":{"method":"GET","url":"Observation/a1"}}`
	for _, tt := range []struct{ name, entries string }{
		{"another id than in the path", sending("PUT", "Observation/a1", own)},
		{"a patch of another type", sending("PATCH", "Observation/a1", `{"resourceType":"Binary","contentType":"text/plain","data":"W10="}`)},
		{"a fullUrl twice", twice + "," + twice},
		{"a search, whose links are to be sealed", request("GET", "Observation?_count=1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			g.server.Seen = func(r *http.Request) {
				if r.Method != http.MethodGet {
					t.Errorf("%s %s was asked for", r.Method, r.URL)
				}
			}
			response := g.written(writing{holder: clinician, request: "POST ", body: `{"resourceType":"Bundle","type":"batch","entry":[` + tt.entries + `]}`})
			if text := bodyOf(t, response); strings.Contains(text, "_getpages") {
				t.Errorf("status %d: %s", response.StatusCode, text)
			}
		})
	}
}

// TestEntriesForget checks that what was found for one entry does not count for the next.
func TestEntriesForget(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	entries := strings.Join([]string{request("GET", "Binary/a1"), request("DELETE", "Observation/a1"), request("GET", "Binary/a1")}, ",")
	response := g.written(writing{holder: patientA, request: "POST ", body: `{"resourceType":"Bundle","type":"batch","entry":[` + entries + `]}`})
	text := bodyOf(t, response)
	if strings.Count(text, `"status":"200`) != 1 || strings.Count(text, `"status":"404`) != 1 {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
}

// TestLenientHandling checks that only Prefer: handling=lenient has unknown parameters ignored, that the answer says so, and
// that no parameter is ignored that could reveal more, or that selects what is written.
func TestLenientHandling(t *testing.T) {
	t.Parallel()
	whole := access.Holder{Scope: "user/Observation.cruds user/Patient.rs", User: clinician.User}
	for _, tt := range []struct {
		name, request, prefer string
		holder                access.Holder
		status, matches       int
		self                  string
	}{
		{"no preference", "GET Observation?_totalMethod=x", "", patientA, 400, 0, ""},
		{"strict", "GET Observation?_totalMethod=x", "handling=strict", patientA, 400, 0, ""},
		{"the first preference counts", "GET Observation?_totalMethod=x", "handling=strict, handling=lenient", patientA, 400, 0, ""},
		{"lenient", "GET Observation?_totalMethod=x&status=final", "handling=lenient", patientA, 200, 2, "Observation?status=final"},
		{"lenient, among others", "GET Observation?mine=x", `return=minimal, Handling = "lenient"; a=b`, patientA, 200, 2, "Observation"},
		{"lenient, with a modifier", "GET Observation?mine:exact=x", "handling=lenient", patientA, 200, 2, "Observation"},
		{"lenient, several types", "GET ?_type=Observation,Patient&mine=x", "handling=lenient", patientA, 200, 3, "?_type=Observation%2CPatient"},
		{"lenient, by form", "POST Observation/_search?mine=x&status=final", "handling=lenient", patientA, 200, 2, "Observation?status=final"},
		{"lenient, whole type", "GET Observation?mine=x", "handling=lenient", whole, 200, 3, "Observation"},
		{"lenient, an oracle", "GET Observation?_filter=x", "handling=lenient", patientA, 403, 0, ""},
		{"lenient, a server's page", "GET Observation?_getpages=x", "handling=lenient", patientA, 403, 0, ""},
		{"lenient, an unknown order", "GET Observation?_sort=mine", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, an unknown chain", "GET Observation?subject:Patient.mine=x", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, conditional delete", "DELETE Observation?_id=a1&mine=x", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, conditional update", "PUT Observation?_id=a1&mine=x", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, conditional delete of a whole type", "DELETE Observation?_id=a1&mine=x", "handling=lenient", whole, 400, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			before := len(g.server.All())
			method, target, _ := strings.Cut(tt.request, " ")
			body := ""
			if path, form, ok := strings.Cut(target, "?"); ok && method == http.MethodPost {
				target, body = path, form
			} else if method == http.MethodPut {
				body = records[3]
			}
			r := httptest.NewRequest(method, "/fhir/R4/"+target, strings.NewReader(body))
			r.Header.Set("Content-Type", map[bool]string{true: "application/x-www-form-urlencoded", false: "application/fhir+json"}[method == http.MethodPost])
			if tt.prefer != "" {
				r.Header.Set("Prefer", tt.prefer)
			}
			response := g.send(tt.holder, r)
			if response.StatusCode != tt.status {
				t.Fatalf("status %d, want %d: %s", response.StatusCode, tt.status, bodyOf(t, response))
			}
			if tt.status != http.StatusOK {
				if len(g.server.All()) != before || g.server.Get("Observation/a1") == "" {
					t.Error("something was written")
				}
				return
			}
			var b bundle
			if err := json.NewDecoder(response.Body).Decode(&b); err != nil || len(b.Entry) != tt.matches+1 {
				t.Fatalf("%v, %d entries", err, len(b.Entry))
			}
			if last := b.Entry[tt.matches]; last.Resource.ResourceType != "OperationOutcome" || last.Search.Mode != "outcome" {
				t.Errorf("no outcome: %+v", last)
			}
			if self := strings.TrimPrefix(strings.TrimPrefix(b.Link[0].URL, g.BaseURL), "/"); self != tt.self {
				t.Errorf("self is %s", self)
			}
		})
	}
	// The pages that follow have no such header.
	for _, rule := range []string{"", "deny resource.id == 'none'"} {
		g := newGateway(t, records...)
		if rule != "" {
			g.withRules(rule)
		}
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation?mine=x&_count=1&_sort=_id", nil)
		r.Header.Set("Prefer", "handling=lenient")
		var b bundle
		if err := json.NewDecoder(g.send(patientA, r).Body).Decode(&b); err != nil || b.next() == "" {
			t.Fatalf("%v, %+v", err, b)
		}
		if got := g.read(patientA, b.next(), 1); len(got) != 1 || got[0] != "a2" {
			t.Errorf("the rest is %v", got)
		}
	}
}

// TestIfModifiedSince checks that reads heed If-Modified-Since only for what is covered (RFC 9110 §13.1.3).
func TestIfModifiedSince(t *testing.T) {
	t.Parallel()
	const updated = "Wed, 01 May 2024 10:00:00 GMT"
	timed := func(id, subject string) string {
		return `{"resourceType":"Observation","id":"` + id + `","meta":{"lastUpdated":"2024-05-01T12:00:00.999+02:00"},"status":"final","subject":{"reference":"Patient/` + subject + `"}}`
	}
	for _, tt := range []struct {
		name, method, target string
		since, noneMatch     string
		status               int
	}{
		{"the same second", "GET", "Observation/t", updated, "", 304},
		{"later", "GET", "Observation/t", "Wed, 01 May 2024 10:00:01 GMT", "", 304},
		{"earlier", "GET", "Observation/t", "Wed, 01 May 2024 09:59:59 GMT", "", 200},
		{"by HEAD", "HEAD", "Observation/t", updated, "", 304},
		{"no date", "GET", "Observation/t", "yesterday", "", 200},
		{"If-None-Match comes first", "GET", "Observation/t", updated, `W/"7"`, 200},
		{"If-None-Match matches", "GET", "Observation/t", "Wed, 01 May 2024 09:59:59 GMT", `W/"1"`, 304},
		{"without a time", "GET", "Observation/a1", updated, "", 200},
		{"not covered", "GET", "Observation/u", updated, "", 404},
		{"not there", "GET", "Observation/none", updated, "", 404},
		{"a search", "GET", "Observation?_id=t", updated, "", 200},
		{"Last-Modified", "GET", "Observation/dated", "Wed, 01 May 2024 10:00:00 GMT", "", 200},
		{"Last-Modified, later", "GET", "Observation/dated", "Fri, 31 May 2024 10:00:00 GMT", "", 304},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, append([]string{timed("t", "a"), timed("u", "b")}, records...)...)
			g.server.Answers = map[string]http.HandlerFunc{"Observation/dated": func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Last-Modified", "Fri, 31 May 2024 10:00:00 GMT")
				answering(timed("dated", "a"))(w, r)
			}}
			r := httptest.NewRequest(tt.method, "/fhir/R4/"+tt.target, nil)
			r.Header.Set("If-Modified-Since", tt.since)
			if tt.noneMatch != "" {
				r.Header.Set("If-None-Match", tt.noneMatch)
			}
			if got := g.send(patientA, r); got.StatusCode != tt.status || got.StatusCode == 304 && bodyOf(t, got) != "" {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}
