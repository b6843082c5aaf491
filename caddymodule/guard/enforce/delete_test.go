package enforce_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestDelete(t *testing.T) {
	t.Parallel()
	gone := func(reference string) string { return reference + "=!resourceType" }
	testWritings(t, []writing{
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
	})
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

// capableOf is a CapabilityStatement with conditional deletes of some types.
func capableOf(conditionalDelete string, types ...string) string {
	text := `{"resourceType":"CapabilityStatement","rest":[{"mode":"server","resource":[{"type":"Patient"}`
	for _, t := range types {
		text += `,{"type":"` + t + `","conditionalDelete":"` + conditionalDelete + `"}`
	}
	return text + `]}]}`
}

// TestDeleteMoved is over deletes of resources that somebody moves out of the scope after they were judged: on a server that
// ignores If-Match and has conditional deletes, they stay, and the client is told that they do.
func TestDeleteMoved(t *testing.T) {
	t.Parallel()
	const amended = `{"resourceType":"Observation","id":"a1","status":"amended","category":[{"coding":[{"system":"http://c","code":"vital-signs"}]}],"subject":{"reference":"Patient/a"}}`
	final := access.Holder{Scope: "system/Observation.rd?status=final", Patient: "a"}
	for _, tt := range []struct {
		name   string
		holder access.Holder
		of     string // the resource
		moved  string // how it is when it is deleted; empty: gone
		body   string // of a bundle, in place of the delete by itself
		header string
		status int
		entry  string // status of the bundle's entry
	}{
		{"to another patient", patientA, "Observation/a1", observation("a1", "Patient/b", ""), "", "", 409, ""},
		{"to another patient, with If-Match", patientA, "Observation/a1", observation("a1", "Patient/b", ""), "", `If-Match: W/"1"`, 412, ""},
		{"out of the constraint", laboratory, "Observation/a1", amended, "", "", 409, ""},
		{"out of the constraint, without a patient", final, "Observation/a1", amended, "", "", 409, ""},
		{"a Device", patientA, "Device/a1", `{"resourceType":"Device","id":"a1","patient":{"reference":"Patient/b"}}`, "", "", 409, ""},
		{"a Device to nobody", patientA, "Device/a1", `{"resourceType":"Device","id":"a1"}`, "", "", 409, ""},
		{"deleted in between", patientA, "Observation/a1", "", "", "", 204, ""},
		{"changed within the scope", patientA, "Observation/a1", observation("a1", "Patient/a", `,"note":[{"text":"x"}]`), "", "", 204, ""},
		{"in a batch", patientA, "Observation/a1", observation("a1", "Patient/b", ""), "batch", "", 200, "409"},
		{"in a transaction", patientA, "Observation/a1", observation("a1", "Patient/b", ""), "transaction", "", 200, "409"},
		{"in a transaction, within the scope", patientA, "Observation/a1", observation("a1", "Patient/a", ""), "transaction", "", 200, "204"},
		{"by criteria", patientA, "Observation?_id=a1", observation("a1", "Patient/b", ""), "", "", 409, ""},
	} {
		for _, kind := range []string{"single", "multiple"} {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				g := newGateway(t, writable...)
				g.server.IgnoresIfMatch = true
				g.server.Answers = map[string]http.HandlerFunc{"metadata": answering(capableOf(kind, "Observation", "Device"))}
				moved := tt.moved == ""
				g.server.Seen = func(r *http.Request) {
					if r.Method == http.MethodGet || moved {
						return
					}
					moved = true
					g.server.Put(tt.moved)
				}
				if tt.moved == "" {
					g.server.Seen = func(r *http.Request) {
						if r.URL.Path == "/fhir/R4/metadata" {
							g.server.Delete("Observation/a1")
						}
					}
				}
				request, body := "DELETE "+tt.of, ""
				if tt.body != "" {
					request, body = "POST ", `{"resourceType":"Bundle","type":"`+tt.body+`","entry":[`+requested("DELETE", tt.of)+`]}`
				}
				got := g.written(writing{holder: tt.holder, request: request, body: body, header: tt.header})
				text, _ := io.ReadAll(got.Body)
				if got.StatusCode != tt.status || tt.entry != "" && !strings.Contains(string(text), `"status":"`+tt.entry) {
					t.Errorf("%d: %s", got.StatusCode, text)
				}
				refused := tt.status/100 == 4 || tt.entry == "409"
				if there := g.server.Get(strings.Replace(tt.of, "?_id=", "/", 1)) != ""; there != refused {
					t.Errorf("it is there: %v", there)
				}
			})
		}
	}
}

// requested is an entry of a bundle without a resource.
func requested(method, target string) string {
	return `{"request":{"method":"` + method + `","url":"` + target + `"}}`
}

// TestDeleteSent checks which DELETE request the FHIR server receives, by its CapabilityStatement.
func TestDeleteSent(t *testing.T) {
	t.Parallel()
	both := observation("both", "Patient/a", `,"performer":[{"reference":"Patient/a"}]`)
	binary := `{"resourceType":"Binary","id":"own","contentType":"text/plain","securityContext":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name, statement, rules string
		holder                 access.Holder
		of, want               string
	}{
		{"a server with conditional deletes", capableOf("single", "Observation"), "", patientA, "Observation/a1", "Observation?_id=a1&subject=Patient%2Fa"},
		{"two references to the patient", capableOf("single", "Observation"), "", patientA, "Observation/both", "Observation?_id=both&performer=Patient%2Fa&subject=Patient%2Fa"},
		{"a constraint", capableOf("single", "Observation"), "", laboratory, "Observation/a1", "Observation?_id=a1&category=http%3A%2F%2Fc%7Claboratory&subject=Patient%2Fa"},
		{"a type without", capableOf("single", "Device"), "", patientA, "Observation/a1", "Observation/a1"},
		{"a server without", capableOf("not-supported", "Observation"), "", patientA, "Observation/a1", "Observation/a1"},
		{"no statement", `{"resourceType":"OperationOutcome"}`, "", patientA, "Observation/a1", "Observation/a1"},
		{"no JSON", `<CapabilityStatement/>`, "", patientA, "Observation/a1", "Observation/a1"},
		{"a type that is not searched", capableOf("single", "Binary"), "", patientA, "Binary/own", "Binary/own"},
		{"a scope about all", capableOf("single", "Observation"), "", clinician, "Observation/b1", "Observation/b1"},
		{"a rule that allows it", capableOf("single", "Observation"), "allow resource.subject.reference == 'Patient/b'", patientA, "Observation/b1", "Observation/b1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, append(slices.Clone(writable), both, binary)...)
			if tt.rules != "" {
				g = g.withRules(tt.rules)
			}
			asked, sent := 0, ""
			g.server.Answers = map[string]http.HandlerFunc{"metadata": func(w http.ResponseWriter, r *http.Request) {
				asked++
				answering(tt.statement)(w, r)
			}}
			g.server.Seen = func(r *http.Request) {
				if r.Method == http.MethodDelete {
					sent = strings.TrimPrefix(r.URL.RequestURI(), "/fhir/R4/")
				}
			}
			if got := g.written(writing{holder: tt.holder, request: "DELETE " + tt.of}).StatusCode; got != 204 || sent != tt.want || g.server.Get(tt.of) != "" {
				t.Errorf("%d, sent %s, want %s", got, sent, tt.want)
			}
			g.written(writing{holder: patientA, request: "DELETE Observation/a2"})
			if asked > 1 {
				t.Errorf("asked for the statement %d times", asked)
			}
		})
	}
}

// TestStatementExpires checks that a server is asked again after an hour, or a minute if it gave no statement.
func TestStatementExpires(t *testing.T) {
	t.Parallel()
	for statement, ttl := range map[string]time.Duration{capableOf("single", "Observation"): time.Hour, `no`: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			g, asked := newGateway(t), 0
			g.server.Answers = map[string]http.HandlerFunc{"metadata": func(w http.ResponseWriter, r *http.Request) {
				asked++
				answering(statement)(w, r)
			}}
			for n, wait := range []time.Duration{0, ttl - time.Second, 2 * time.Second} {
				time.Sleep(wait)
				g.server.Put(observation("a1", "Patient/a", ""))
				if got := g.written(writing{holder: patientA, request: "DELETE Observation/a1"}).StatusCode; got != 204 || asked != []int{1, 1, 2}[n] {
					t.Errorf("after %v: %d, asked %d times", wait, got, asked)
				}
			}
		})
	}
}

// TestWrittenAnswer checks the responses to writes.
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

// secured is a server that tells a Binary's securityContext in a header, as HAPI's does.
type secured struct{}

func (secured) ServeHTTP(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/fhir+json")
	w.Header().Set("Etag", `W/"1"`)
	w.Header().Set("X-Security-Context", "Patient/a")
	_, err := io.WriteString(w, `{"resourceType":"Binary","id":"b","contentType":"text/plain","securityContext":{"reference":"Patient/a"}}`)
	return err
}

// TestWrittenSecurityContext checks that the header is told to those who may read the Binary.
func TestWrittenSecurityContext(t *testing.T) {
	t.Parallel()
	body := `{"resourceType":"Binary","id":"b","contentType":"text/plain","securityContext":{"reference":"Patient/a"}}`
	for scope, want := range map[string]string{"patient/*.u": "", "user/Binary.u": "", "patient/*.ru": "Patient/a"} {
		g, w := newGateway(t), httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPut, "/fhir/R4/Binary/b", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/fhir+json")
		holder := access.Holder{Scope: scope, Patient: "a", User: clinician.User}
		if err := g.Serve(w, r, secured{}, enforce.Bearer{Rights: access.New(holder, g.Shared)}); err != nil {
			t.Errorf("%s: %v", scope, err)
		}
		if got := w.Header().Get("X-Security-Context"); got != want || w.Code != http.StatusOK {
			t.Errorf("%s: %d with %q, want %q", scope, w.Code, got, want)
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

// TestRefusedByServer checks that only the status of the FHIR server's refusal is passed on.
func TestRefusedByServer(t *testing.T) {
	t.Parallel()
	for from, status := range map[int]int{400: 400, 401: 502, 403: 403, 404: 404, 405: 405, 409: 409, 410: 404, 412: 409, 422: 422, 429: 429, 500: 500, 302: 502} {
		g := newGateway(t)
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			r := httptest.NewRequest(method, "/fhir/R4/Observation/a1", strings.NewReader(observation("a1", "Patient/a", "")))
			r.Header.Set("Content-Type", "application/fhir+json")
			got := statusOf(g.Serve(httptest.NewRecorder(), r, refusing{from}, enforce.Bearer{Rights: access.New(patientA, g.Shared)}))
			if got.Status != status || strings.Contains(got.Description, "Patient/b") {
				t.Errorf("%s, %d: %d %s", method, from, got.Status, got.Description)
			}
		}
	}
}

// TestInvalidBody checks that of an invalid body, a client is told what is wrong and where, as far as it has sent that.
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
		{"all of the type", staff, 422, outcome, `{"issue":[{"severity":"error","code":"required","diagnostics":"The FHIR server refuses the write.","expression":["Observation.status"]}],"resourceType":"OperationOutcome"}`},
		{"bound", patientA, 422, outcome, `{"issue":[{"severity":"error","code":"required","diagnostics":"The FHIR server refuses the write.","expression":["Observation.status"]}],"resourceType":"OperationOutcome"}`},
		{
			"in words", patientA, 400, `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"processing","diagnostics":"HAPI-0450: Invalid status \"amended\" in Observation, as of Brown"}]}`,
			`{"issue":[{"severity":"error","code":"processing","diagnostics":"HAPI-0450: Invalid status \"amended\" in Observation, as of …"}],"resourceType":"OperationOutcome"}`,
		},
		{"about another one", patientA, 422, `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"duplicate","diagnostics":"Invalid status"}]}`, "The FHIR server refuses the write."},
		{"a conflict", staff, 409, outcome, "The resource was changed in the meantime, or others refer to it."},
		{"no issue", staff, 422, `{"resourceType":"OperationOutcome"}`, "The FHIR server refuses the write."},
		{"no outcome", staff, 400, `{"resourceType":"Patient","issue":[{"severity":"error","code":"required"}]}`, "The FHIR server refuses the write."},
	} {
		g := newGateway(t)
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/Observation", strings.NewReader(observation("", "Patient/a", "")))
		r.Header.Set("Content-Type", "application/fhir+json")
		err := g.Serve(w, r, constant{tt.status, "", tt.body}, enforce.Bearer{Rights: access.New(tt.holder, g.Shared)})
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

// statusOf is the refusal that an error is.
func statusOf(err error) *guard.Error {
	refused, _ := errors.AsType[*guard.Error](err)
	return refused
}

// TestHeaders checks that nothing goes along with a write by which FHIR servers would do more.
func TestHeaders(t *testing.T) {
	t.Parallel()
	g := newGateway(t, writable...)
	g.server.Seen = func(r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-") {
				t.Errorf("%s has %s", r.Method, name)
			}
		}
	}
	header := "X-Rewrite-History: true\nX-Security-Context: Patient/b\nX-Upsert-Extistence-Check: disabled\n"
	g.written(writing{holder: patientA, request: "PUT Observation/a1", body: observation("a1", "Patient/a", ""), header: header})
}

// TestRefusedPatch checks that what a patch came to is not told to who may not read it.
func TestRefusedPatch(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]int{"patient/Observation.u": 0, "patient/Observation.ru": http.StatusBadRequest} {
		g := newGateway(t)
		r := httptest.NewRequest(http.MethodPatch, "/fhir/R4/Observation/a1", strings.NewReader(`[{"op":"replace","path":"/status","value":"abc"}]`))
		r.Header.Set("Content-Type", "application/json-patch+json")
		w := httptest.NewRecorder()
		w.Code = 0
		err := g.Serve(w, r, invalidating{}, enforce.Bearer{Rights: access.New(access.Holder{Scope: scope, Patient: "a"}, g.Shared)})
		if w.Code != want || (statusOf(err) == nil) != (want != 0) {
			t.Errorf("%s: %d %s, %v", scope, w.Code, w.Body, err)
		}
	}
}

// invalidating is a server that reads, and finds wrong what is written.
type invalidating struct{}

func (invalidating) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodGet {
		return refusing{}.ServeHTTP(w, r)
	}
	return constant{http.StatusBadRequest, "", `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"value","expression":["Observation.status"]}]}`}.ServeHTTP(w, r)
}

// TestRefusedSearch checks that a client is told what is wrong with a search, and with which issue type.
func TestRefusedSearch(t *testing.T) {
	t.Parallel()
	outcome := `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"processing","diagnostics":"Invalid date/time format: \"abc\" in %s"}]}`
	for target, want := range map[string]string{
		"Observation?date=abc":                "The FHIR server refuses the search (400). It says: Invalid date/time format: \"abc\" in …",
		"Observation?date=abc&status=Brown":   "The FHIR server refuses the search (400). It says: Invalid date/time format: \"abc\" in Brown",
		"Observation?date=abc&_summary=count": "The FHIR server refuses the search (400). It says: Invalid date/time format: \"abc\" in …",
		"Observation/_search":                 "The FHIR server refuses the search (400). It says: Invalid date/time format: \"abc\" in …",
		"Observation/$lastn?max=abc":          "The FHIR server refuses the operation (400). It says: Invalid date/time format: \"abc\" in …",
	} {
		g := newGateway(t)
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+target, nil)
		if strings.HasSuffix(target, "_search") {
			r = httptest.NewRequest(http.MethodPost, "/fhir/R4/"+target, strings.NewReader("date=abc"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		err := g.Serve(httptest.NewRecorder(), r, constant{http.StatusBadRequest, "", fmt.Sprintf(outcome, "Brown")}, enforce.Bearer{Rights: access.New(patientA, g.Shared)})
		if got := statusOf(err); got == nil || got.Description != want || got.IssueType() != "invalid" || got.Challenge("x") != "" {
			t.Errorf("%s: %+v", target, got)
		}
	}
}

// Who asks for an OperationOutcome of a write is given one.
func TestReturnOutcome(t *testing.T) {
	t.Parallel()
	for _, holder := range []access.Holder{patientA, {Scope: "user/Observation.cruds", User: clinician.User}, {Scope: "patient/Observation.c", Patient: "a"}} {
		g := newGateway(t, writable...)
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/Observation", strings.NewReader(observation("", "Patient/a", "")))
		r.Header.Set("Content-Type", "application/fhir+json")
		r.Header.Set("Prefer", "return=OperationOutcome")
		response := g.send(holder, r)
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusCreated || !strings.Contains(string(text), `"OperationOutcome"`) || strings.Contains(string(text), "amended") {
			t.Errorf("%s: %d %s", holder.Scope, response.StatusCode, text)
		}
	}
	g := newGateway(t, writable...)
	r := httptest.NewRequest(http.MethodPost, "/fhir/R4", strings.NewReader(`{"resourceType":"Bundle","type":"batch","entry":[{"resource":`+observation("", "Patient/a", "")+`,"request":{"method":"POST","url":"Observation"}}]}`))
	r.Header.Set("Content-Type", "application/fhir+json")
	r.Header.Set("Prefer", "return=OperationOutcome")
	if text, _ := io.ReadAll(g.send(patientA, r).Body); !strings.Contains(string(text), `"outcome":{"issue"`) || strings.Contains(string(text), `"resource":{`) {
		t.Errorf("in a batch: %s", text)
	}
}
