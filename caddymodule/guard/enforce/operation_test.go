package enforce_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
)

// answering is a server that answers a path with a resource.
func answering(resource string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, resource)
	}
}

// inText is a server that answers a path with a text.
func inText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, text)
	}
}

// failing is a server that answers a path with an error, and a word about somebody.
func failing(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"resourceType":"Patient","id":"a","name":[{"family":"Brown"}]}`)
	}
}

// searchset is a Bundle of the records with the references.
func searchset(references ...string) string {
	server := fhirtest.New(records...)
	var entries []string
	for _, reference := range references {
		entries = append(entries, fmt.Sprintf(`{"fullUrl":"%s/%s","resource":%s,"search":{"mode":"match"}}`, fhirtest.Address, reference, server.Get(reference)))
	}
	return fmt.Sprintf(`{"resourceType":"Bundle","type":"searchset","total":%d,"entry":[%s]}`, len(references), strings.Join(entries, ","))
}

// operating is a gateway before a server that has operations, and answers more than it should.
func operating(t *testing.T, own ...operation.Operation) *gateway {
	t.Helper()
	g := newGateway(t, records...)
	g.Operations = operation.NewOperations(own...)
	everything := answering(searchset("Patient/a", "Observation/a1", "Observation/a2", "Observation/b1", "Practitioner/alice", "Device/b1"))
	valid := answering(`{"resourceType":"OperationOutcome","issue":[{"severity":"information","code":"informational"}]}`)
	meta := answering(`{"resourceType":"Parameters","parameter":[{"name":"return","valueMeta":{"versionId":"1"}}]}`)
	g.server.Answers = map[string]http.HandlerFunc{
		"Patient/a/$everything": everything, "Patient/b/$everything": everything, "Patient/$everything": everything,
		"Observation/a1/$document": answering(strings.Replace(searchset("Observation/a1", "Observation/a2"), "searchset", "document", 1)),
		"Observation/a2/$document": answering(strings.Replace(searchset("Observation/a1", "Observation/b1"), "searchset", "document", 1)),
		"Observation/$lastn":       everything, "DocumentReference/$docref": everything,
		"Observation/$validate": valid, "Observation/a1/$validate": valid, "Observation/b1/$validate": valid, "Device/$validate": valid, "Condition/$validate": meta,
		"Observation/a1/$meta": meta, "Observation/b1/$meta": meta, "Observation/$meta": meta, "$meta": meta,
		"Observation/a1/$meta-add": meta, "Patient/$member-match": meta, "$graphql": answering(`{}`), "Patient/$own": everything,
		"Observation/mistaken": answering(g.server.Get("Observation/a1")), "Observation/mistaken/$meta": meta, "Patient/$text": inText(g.server.Get("Patient/a")),
		"Patient/$fail": failing(http.StatusPreconditionFailed), "ValueSet/$expand": answering(`{"resourceType":"ValueSet"}`), "Observation/$stats": meta,
	}
	return g
}

func TestOperation(t *testing.T) {
	t.Parallel()
	reader := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	user := func(scope string) access.Holder { return access.Holder{Scope: scope, User: clinician.User} }
	own := func(words ...string) []operation.Operation {
		op, err := operation.ParseOperation(words...)
		if err != nil {
			t.Fatal(err)
		}
		return []operation.Operation{op}
	}
	for _, tt := range []struct {
		name   string
		own    []operation.Operation
		holder access.Holder
		target string
		status int
	}{
		{"everything of the own patient", nil, reader, "GET Patient/a/$everything", 200},
		{"everything of another patient", nil, reader, "GET Patient/b/$everything", 404},
		{"everything of nobody", nil, reader, "GET Patient/c/$everything", 404},
		{"everything by POST", nil, reader, "POST Patient/a/$everything", 200},
		{"everything of all under a bound scope", nil, reader, "GET Patient/$everything", 403},
		{"everything of all under whole scopes", nil, clinician, "GET Patient/$everything", 200},
		{"everything of all under a whole scope", nil, user("user/Patient.rs"), "GET Patient/$everything", 200},
		{"everything without s", nil, access.Holder{Scope: "patient/*.r", Patient: "a"}, "GET Patient/a/$everything", 403},
		{"everything with r and s in two scopes", nil, access.Holder{Scope: "patient/*.r patient/*.s", Patient: "a"}, "GET Patient/a/$everything", 200},
		{"everything of another type", nil, reader, "GET Observation/a1/$everything", 403},
		{"everything with an unknown parameter", nil, reader, "GET Patient/a/$everything?_filter=a", 403},
		{"everything with a chain", nil, reader, "GET Patient/a/$everything?general-practitioner.name=a", 403},
		{"everything since", nil, reader, "GET Patient/a/$everything?_since=2020-01-01&_type=Observation&_count=2&_format=json", 200},
		{"everything, listed with r alone", own("$everything", "patient", "r"), access.Holder{Scope: "patient/*.r", Patient: "a"}, "GET Patient/a/$everything", 200},
		{"everything, not listed", own("$everything", "off"), reader, "GET Patient/a/$everything", 403},
		{"everything, listed for another type", own("$everything", "patient", "rs", "Encounter"), reader, "GET Patient/a/$everything", 403},
		{"last observations", nil, reader, "GET Observation/$lastn?category=laboratory", 200},
		{"last observations by a chain", nil, reader, "GET Observation/$lastn?performer.name=Alder", 403},
		{"last observations under a constraint", nil, access.Holder{Scope: "patient/Observation.rs?status=final", Patient: "a"}, "GET Observation/$lastn", 403},
		{"last observations of an observation", nil, reader, "GET Observation/a1/$lastn", 404},
		{"document references", nil, reader, "GET DocumentReference/$docref", 200},
		{"metadata of an own record", nil, reader, "GET Observation/a1/$meta", 200},
		{"metadata of another's record", nil, reader, "GET Observation/b1/$meta", 404},
		{"metadata of a type", nil, reader, "GET Observation/$meta", 403},
		{"metadata of the system", nil, reader, "GET $meta", 403},
		{"metadata of a type under a whole scope", nil, user("user/Observation.r"), "GET Observation/$meta", 200},
		{"metadata of the system under the scope of a type", nil, user("user/Observation.r"), "GET $meta", 403},
		{"metadata of the system under whole scopes", nil, clinician, "GET $meta", 200},
		{"metadata of what the server takes for another", nil, reader, "GET Observation/mistaken/$meta", 404},
		{"adding metadata", nil, clinician, "POST Observation/a1/$meta-add", 403},
		{"adding metadata, listed", own("$meta-add", "instance", "u"), patientA, "POST Observation/a1/$meta-add", 200},
		{"adding metadata by GET", own("$meta-add", "instance", "u"), patientA, "GET Observation/a1/$meta-add", 405},
		{"adding metadata by GET under whole scopes", own("$meta-add", "instance", "u"), clinician, "GET Observation/a1/$meta-add", 405},
		{"adding metadata without u", own("$meta-add", "instance", "u"), reader, "POST Observation/a1/$meta-add", 403},
		{"a member match", nil, clinician, "POST Patient/$member-match", 403},
		{"GraphQL", nil, clinician, "GET $graphql?query=a", 403},
		{"expunging", nil, clinician, "POST $expunge", 403},
		{"reindexing", nil, clinician, "POST $reindex", 403},
		{"an unknown one", nil, clinician, "GET Patient/$own", 403},
		{"a whole one, bound", own("$own", "whole", "r"), patientA, "GET Patient/$own", 403},
		{"a whole one", own("$own", "whole", "r"), user("user/Patient.r"), "GET Patient/$own", 200},
		{"a whole one of another type", own("$own", "whole", "r"), user("user/Observation.r"), "GET Patient/$own", 403},
		{"a whole one, constrained", own("$own", "whole", "r"), user("user/Patient.r?active=true"), "GET Patient/$own", 403},
		{"one that is judged", own("$own", "patient", "r"), patientA, "GET Patient/$own", 200},
		{"one that is judged, without a scope", own("$own", "patient", "r"), access.Holder{Scope: "patient/Observation.r", Patient: "a"}, "GET Patient/$own", 403},
		{"one that is judged, with a link of the server's", own("$own", "patient", "r"), patientA, "GET Patient/$own?_getpages=1", 403},
		{"one that is judged, with an answer that cannot be", own("$stats", "patient", "r"), patientA, "GET Observation/$stats", 502},
		{"a document of own records", own("$document", "patient", "r"), patientA, "GET Observation/a1/$document", 200},
		{"a document with another's record", own("$document", "patient", "r"), patientA, "GET Observation/a2/$document", 404},
		{"expansion under any scope", nil, access.Holder{Scope: "openid"}, "GET ValueSet/$expand?url=a", 200},
		{"expansion of another type", nil, access.Holder{Scope: "openid"}, "GET Patient/$expand?url=a", 403},
		{"one that fails", own("$fail", "patient", "r"), patientA, "GET Patient/$fail", 400},
		{"one that answers in no JSON", own("$text", "patient", "r"), patientA, "GET Patient/$text", 502},
		{"no poll of the server's", nil, clinician, "GET $export-poll-status?_jobId=1", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t, tt.own...)
			if got := g.send(tt.holder, requestOf(tt.target, "")); got.StatusCode != tt.status {
				text, _ := io.ReadAll(got.Body)
				t.Errorf("status %d, want %d: %s", got.StatusCode, tt.status, text)
			} else if text, _ := io.ReadAll(got.Body); strings.Contains(string(text), "Brown") && tt.holder.Patient != "" {
				t.Errorf("tells of another: %s", text)
			}
		})
	}
}

// requestOf makes a request of "METHOD target".
func requestOf(target, body string) *http.Request {
	method, target, _ := strings.Cut(target, " ")
	r := httptest.NewRequest(method, "/fhir/R4/"+target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/fhir+json")
	return r
}

// TestNoAsync checks that no job begins by a preference, since the server's own link to it would be anybody's.
func TestNoAsync(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"GET Observation", "GET Patient/a", "GET Patient/a/$everything", "POST Observation/_search"} {
		for _, h := range []access.Holder{clinician, patientA} {
			g := operating(t)
			g.server.Seen = func(r *http.Request) {
				if strings.Contains(strings.Join(r.Header["Prefer"], ","), "async") {
					t.Errorf("%s: Prefer %q", target, r.Header["Prefer"])
				}
			}
			r := requestOf(target, "")
			if strings.HasSuffix(target, "_search") {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			r.Header["Prefer"] = []string{"handling=strict, Respond-Async", "respond-async; wait=1"}
			if got := g.send(h, r); got.StatusCode != http.StatusOK {
				t.Errorf("%s: status %d", target, got.StatusCode)
			}
		}
	}
}
