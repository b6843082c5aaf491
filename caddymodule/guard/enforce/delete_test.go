package enforce_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestDelete(t *testing.T) {
	t.Parallel()
	gone := func(reference string) string { return reference + "=!resourceType" }
	for _, tt := range []writing{
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
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
