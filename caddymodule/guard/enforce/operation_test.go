package enforce_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
)

// newHandler returns a handler that responds with a resource.
func newHandler(resource string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, resource)
	}
}

// respondWithText returns a handler that responds with text.
func respondWithText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, text)
	}
}

// respondWithError returns a handler that responds with an error that mentions another patient.
func respondWithError(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"resourceType":"Patient","id":"a","name":[{"family":"Brown"}]}`)
	}
}

// searchset returns a Bundle of the records with the given references.
func searchset(references ...string) string {
	server := fhirtest.New(records...)
	var entries []string
	for _, reference := range references {
		entries = append(entries, fmt.Sprintf(`{"fullUrl":"%s/%s","resource":%s,"search":{"mode":"match"}}`, fhirtest.Address, reference, server.Get(reference)))
	}
	return fmt.Sprintf(`{"resourceType":"Bundle","type":"searchset","total":%d,"entry":[%s]}`, len(references), strings.Join(entries, ","))
}

// newOperationGateway returns a gateway for a server with operations that return too much.
func newOperationGateway(t *testing.T, own ...operation.Operation) *gateway {
	t.Helper()
	g := newGateway(t, records...)
	g.Operations = operation.NewOperations(own...)
	everything := newHandler(searchset("Patient/a", "Observation/a1", "Observation/a2", "Observation/b1", "Practitioner/alice", "Device/b1"))
	valid := newHandler(`{"resourceType":"OperationOutcome","issue":[{"severity":"information","code":"informational"}]}`)
	meta := newHandler(`{"resourceType":"Parameters","parameter":[{"name":"return","valueMeta":{"versionId":"1"}}]}`)
	g.server.Handlers = map[string]http.HandlerFunc{
		"Patient/a/$everything": everything, "Patient/b/$everything": everything, "Patient/$everything": everything,
		"Observation/a1/$document": newHandler(strings.Replace(searchset("Observation/a1", "Observation/a2"), "searchset", "document", 1)),
		"Observation/a2/$document": newHandler(strings.Replace(searchset("Observation/a1", "Observation/b1"), "searchset", "document", 1)),
		"Observation/$lastn":       everything, "DocumentReference/$docref": everything,
		"Observation/$validate": valid, "Observation/a1/$validate": valid, "Observation/b1/$validate": valid, "Device/$validate": valid, "Condition/$validate": meta,
		"Observation/a1/$meta": meta, "Observation/b1/$meta": meta, "Observation/$meta": meta, "$meta": meta,
		"Observation/a1/$meta-add": meta, "Patient/$member-match": meta, "$graphql": newHandler(`{}`), "Patient/$own": everything,
		"Observation/mistaken": newHandler(g.server.Get("Observation/a1")), "Observation/mistaken/$meta": meta, "Patient/$text": respondWithText(g.server.Get("Patient/a")),
		"Patient/$fail": respondWithError(http.StatusPreconditionFailed), "ValueSet/$expand": newHandler(`{"resourceType":"ValueSet"}`), "Observation/$stats": meta,
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
		{"everything of a missing patient", nil, reader, "GET Patient/c/$everything", 404},
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
		{"metadata of a type, unrestricted scope", nil, user("user/Observation.r"), "GET Observation/$meta", 200},
		{"metadata of the system, scope of a type", nil, user("user/Observation.r"), "GET $meta", 403},
		{"metadata of the system, unrestricted scopes", nil, clinician, "GET $meta", 200},
		{"metadata of a swapped resource", nil, reader, "GET Observation/mistaken/$meta", 404},
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
			g := newOperationGateway(t, tt.own...)
			if got := g.send(tt.holder, requestOf(tt.target, "")); got.StatusCode != tt.status {
				text, _ := io.ReadAll(got.Body)
				t.Errorf("status %d, want %d: %s", got.StatusCode, tt.status, text)
			} else if text, _ := io.ReadAll(got.Body); strings.Contains(string(text), "Brown") && tt.holder.Patient != "" {
				t.Errorf("contains another patient's data: %s", text)
			}
		})
	}
}

// recordOperationQuery returns a pointer to the query of the last operation request to the FHIR server; "-" before the first.
func (g *gateway) recordOperationQuery() *string {
	query := "-"
	g.server.OnRequest = func(r *http.Request) {
		if strings.Contains(r.URL.Path, "$") {
			query, _ = url.QueryUnescape(r.URL.RawQuery)
		}
	}
	return &query
}

// requestOf returns the request for a target of the form "METHOD path".
func requestOf(target, body string) *http.Request {
	method, target, _ := strings.Cut(target, " ")
	r := newRequest(method, "/fhir/R4/"+target, "application/fhir+json", body)
	return r
}

// Prefer: respond-async starts no job, because the FHIR server's link to the job would not be bound to a token.
func TestNoAsync(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"GET Observation", "GET Patient/a", "GET Patient/a/$everything", "POST Observation/_search"} {
		for _, h := range []access.Holder{clinician, patientA} {
			g := newOperationGateway(t)
			g.server.OnRequest = func(r *http.Request) {
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

// entriesOf returns the references of a Bundle's entries on all pages.
func (g *gateway) entriesOf(h access.Holder, r *http.Request) []string {
	g.t.Helper()
	var all []string
	for range 20 {
		b := mustDecode[bundle](g.t, g.send(h, r))
		for _, e := range b.Entry {
			all = append(all, e.Resource.ResourceType+"/"+e.Resource.ID)
			if !strings.HasPrefix(e.FullURL, "https://gateway.example/fhir/R4/") {
				g.t.Errorf("fullUrl %s", e.FullURL)
			}
		}
		if b.next() == "" {
			slices.Sort(all)
			return all
		}
		r = httptest.NewRequest(http.MethodGet, strings.TrimPrefix(b.next(), "https://gateway.example"), nil)
	}
	g.t.Fatal("the pages do not end")
	return nil
}

// The response to an operation contains only resources that the scopes cover.
func TestJudgedOperation(t *testing.T) {
	t.Parallel()
	op, _ := operation.ParseOperation("$own", "patient", "r")
	creating, _ := operation.ParseOperation("$creating", "patient", "c")
	for _, tt := range []struct {
		name, scope, target string
		want                string
	}{
		{"all types", "patient/*.rs", "GET Patient/a/$everything", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"by POST", "patient/*.rs", "POST Patient/a/$everything", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"a type without a scope", "patient/Patient.rs", "GET Patient/a/$everything", "Patient/a"},
		{"a type with r alone", "patient/Patient.rs patient/Observation.r", "GET Patient/a/$everything", "Patient/a"},
		{"a constraint", "patient/Patient.rs patient/Observation.rs?category=http://c|vital-signs", "GET Patient/a/$everything", "Observation/a2 Patient/a"},
		{"referenced only by hidden resources", "patient/Patient.rs patient/Practitioner.rs patient/Observation.rs?category=http://c|vital-signs", "GET Patient/a/$everything", "Observation/a2 Patient/a"},
		{"last observations", "patient/*.rs", "GET Observation/$lastn", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"a whole type, of all patients", "user/Patient.rs", "GET Patient/$everything", "Patient/a"},
		{"one of the site's that creates", "patient/*.c", "POST Patient/$creating", ""},
		{"one of the site's", "patient/*.r", "GET Patient/$own", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOperationGateway(t, op, creating)
			g.server.Handlers["Patient/$creating"] = g.server.Handlers["Patient/$own"]
			got := g.entriesOf(access.Holder{Scope: tt.scope, Patient: "a", User: clinician.User}, requestOf(tt.target, ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Shared resources are included only if no withheld resource can refer to them; otherwise they would reveal its existence.
func TestJudgedSharedIncludes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope, answer string
		want                string
	}{
		{"nothing is hidden", "patient/*.rs", searchset("Patient/a", "Practitioner/alice"), "Patient/a Practitioner/alice"},
		{"another's record is", "patient/*.rs", searchset("Patient/a", "Practitioner/alice", "Observation/b1"), "Patient/a"},
		{"types could be", "patient/Patient.rs patient/Practitioner.rs", searchset("Patient/a", "Practitioner/alice"), "Patient/a"},
		{"referenced by a visible resource", "patient/*.rs", searchset("Observation/a1", "Practitioner/alice", "Observation/b1"), "Observation/a1 Practitioner/alice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOperationGateway(t)
			g.server.Handlers["Patient/a/$everything"] = newHandler(tt.answer)
			got := g.entriesOf(access.Holder{Scope: tt.scope, Patient: "a"}, requestOf("GET Patient/a/$everything", ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Complete resources are requested from the FHIR server, because partial ones cannot be judged.
func TestOperationForm(t *testing.T) {
	t.Parallel()
	op, _ := operation.ParseOperation("$own", "patient", "r")
	g := newOperationGateway(t, op)
	g.server.OnRequest = func(r *http.Request) {
		if r.URL.RawQuery != "code=a" {
			t.Errorf("unexpected request %s", r.URL.RawQuery)
		}
	}
	expectStatus(t, g.get(patientA, "Patient/$own?_elements=id&code=a&_summary=true&_format=json"), http.StatusOK)
}

// withLinks adds the links self and next to a Bundle.
func withLinks(bundle, self, next string) string {
	return strings.Replace(bundle, `"entry":`, `"link":[{"relation":"self","url":"`+fhirtest.Address+self+`"},{"relation":"next","url":"`+next+`"}],"entry":`, 1)
}

// Operations that select the latest resources are restricted to the patient.
func TestOperationOfPatient(t *testing.T) {
	t.Parallel()
	parent := access.Holder{Scope: "patient/*.rs user/*.rs", Patient: "a", UserPatient: "b"}
	parent.User.Type, parent.User.ID = "Patient", "b"
	one := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		want   string // query received by the server; "-" if there was no request
		status int
	}{
		{"no patient named", one, "Observation/$lastn?max=2", "max=2&patient=Patient/a", 200},
		{"the patient named", one, "Observation/$lastn?patient=a", "patient=Patient/a", 200},
		{"the patient as a subject", one, "Observation/$lastn?subject=Patient/a", "patient=Patient/a", 200},
		{"another patient named", one, "Observation/$lastn?patient=Patient/b", "-", 200},
		{"both named", one, "Observation/$lastn?patient=a&subject=Patient/b", "-", 200},
		{"both named at once", one, "Observation/$lastn?patient=a,b", "-", 200},
		{"another's documents", one, "DocumentReference/$docref?patient=b", "-", 200},
		{"documents", one, "DocumentReference/$docref", "patient=a", 200},
		{"one of two patients", parent, "Observation/$lastn?patient=b", "patient=Patient/b", 200},
		{"neither of two patients", parent, "Observation/$lastn", "-", 400},
		{"a clinician", clinician, "Observation/$lastn?patient=b", "patient=b", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOperationGateway(t)
			query := g.recordOperationQuery()
			if got := g.get(tt.holder, tt.target); got.StatusCode != tt.status || *query != tt.want {
				t.Errorf("status %d, request %q, want %q", got.StatusCode, *query, tt.want)
			}
		})
	}
}

// The parameters of a body are judged like those of a query.
func TestOperationParameters(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"none", `{"resourceType":"Parameters"}`, 200, "_count=50"},
		{"allowed", `{"resourceType":"Parameters","parameter":[{"name":"start","valueDate":"2020-01-01"},{"name":"_count","valueInteger":5}]}`, 200, "start=2020-01-01&_count=5"},
		{"not allowed", `{"resourceType":"Parameters","parameter":[{"name":"_filter","valueString":"a"}]}`, 403, "-"},
		{"two values", `{"resourceType":"Parameters","parameter":[{"name":"start","valueDate":"2020-01-01","valueString":"a"}]}`, 400, "-"},
		{"value is not primitive", `{"resourceType":"Parameters","parameter":[{"name":"start","valuePeriod":{}}]}`, 400, "-"},
		{"a resource", `{"resourceType":"Parameters","parameter":[{"name":"start","resource":{"resourceType":"Patient"}}]}`, 400, "-"},
		{"no Parameters", `{"resourceType":"Patient"}`, 400, "-"},
		{"no JSON", `<Parameters/>`, 400, "-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOperationGateway(t)
			query := g.recordOperationQuery()
			got := g.send(access.Holder{Scope: "patient/*.rs", Patient: "a"}, requestOf("POST Patient/a/$everything", tt.body))
			if got.StatusCode != tt.status || *query != tt.want {
				t.Errorf("status %d, request %q, want %d, %q", got.StatusCode, *query, tt.status, tt.want)
			}
		})
	}
}

// Links in the response to an operation are sealed, even if the response passes unjudged.
func TestOperationLinks(t *testing.T) {
	t.Parallel()
	unrestricted, _ := operation.ParseOperation("$own", "whole", "r")
	instance, _ := operation.ParseOperation("$list", "instance", "r")
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
	}{
		{"operation on a type", clinician, "Patient/$own"},
		{"of a resource", access.Holder{Scope: "patient/*.rs", Patient: "a"}, "Patient/a/$list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOperationGateway(t, unrestricted, instance)
			g.server.Handlers[tt.target] = newHandler(withLinks(searchset("Patient/a"), "/"+tt.target, fhirtest.Address+"?_getpages=1"))
			var b bundle
			if err := json.NewDecoder(g.get(tt.holder, tt.target).Body).Decode(&b); err != nil || !strings.HasPrefix(b.next(), "https://gateway.example/fhir/R4/_page/") {
				t.Fatalf("%v, next %s", err, b.next())
			}
			g.server.Handlers[""] = newHandler(searchset("Observation/a1"))
			if text, _ := io.ReadAll(g.get(tt.holder, b.next()).Body); !strings.Contains(string(text), `"id":"a1"`) {
				t.Errorf("next page: %s", text)
			}
		})
	}
}

// Policies apply to the responses to operations.
func TestPoliciesOperation(t *testing.T) {
	t.Parallel()
	unrestricted, _ := operation.ParseOperation("$own", "whole", "r")
	writer := access.Holder{Scope: "user/*.cruds", User: clinician.User}
	const observation = `{"resourceType":"Observation","id":"a1","status":"final","subject":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name   string
		holder access.Holder
		rules  string
		target string
		body   string
		status int
	}{
		{"called at all", writer, "deny request.operation == '$everything'", "GET Patient/a/$everything", "", 403},
		{"another", writer, "deny request.operation == '$lastn'", "GET Patient/a/$everything", "", 200},
		{"on a withheld resource", writer, "deny resource.id == 'a'", "GET Patient/a/$everything", "", 404},
		{"metadata of a withheld resource", writer, "deny resource.id == 'a1'", "GET Observation/a1/$meta", "", 404},
		{"metadata of a visible resource", writer, "deny resource.id == 'a2'", "GET Observation/a1/$meta", "", 200},
		{"metadata of a type", writer, "deny resource.id == 'a2'", "GET Observation/$meta", "", 403},
		{"metadata of the system", writer, "deny resource.id == 'a2'", "GET $meta", "", 403},
		{"metadata of a type, where no resource is denied", writer, "deny request.operation == '$lastn'", "GET Observation/$meta", "", 200},
		{"validation of a denied resource", writer, "deny resource.id == 'a1'", "POST Observation/$validate", observation, 403},
		{"validation of an allowed resource", writer, "deny resource.id == 'a2'", "POST Observation/$validate", observation, 200},
		{"unknown operation, allowed", nobody, "allow true", "GET Patient/$unknown", "", 403},
		{"an export, allowed", nobody, "allow true", "GET $export", "", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOperationGateway(t, unrestricted).withRules(tt.rules)
			r := requestOf(tt.target, tt.body)
			r.Header.Set("Prefer", "respond-async")
			expectStatus(t, g.send(tt.holder, r), tt.status)
		})
	}
	for _, target := range []string{"GET Patient/a/$everything", "GET Patient/$own"} {
		got := newOperationGateway(t, unrestricted).withRules("deny resource.id == 'a1'").entriesOf(writer, requestOf(target, ""))
		if text := strings.Join(got, " "); strings.Contains(text, "Observation/a1") || !strings.Contains(text, "Observation/a2") {
			t.Errorf("%s: %s", target, text)
		}
	}
}

// An export contains no resource that a rule denies.
func TestPoliciesExport(t *testing.T) {
	t.Parallel()
	var query string
	g, h := newExportGateway(t, &query).withRules("deny resource.id == 'a'"), access.Holder{Scope: "system/*.rs"}
	file := g.exportedFile(h, g.export(h, "$export"))
	got := g.send(h, linkRequest("GET", file))
	if text, _ := io.ReadAll(got.Body); got.StatusCode != http.StatusOK || string(text) != "{\"resourceType\":\"Patient\",\"id\":\"b\"}\n" {
		t.Errorf("status %d, %s", got.StatusCode, text)
	}
	for name, link := range map[string]string{"the job": g.export(h, "$export"), "the file": file} {
		if got := g.withRules("deny request.operation == '$export'").send(h, linkRequest("GET", link)); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s, denied since: status %d", name, got.StatusCode)
		}
		g.withRules("deny resource.id == 'a'")
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	writer := access.Holder{Scope: "patient/*.cu", Patient: "a"}
	const own = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"}}`
	alone := `{"name":"resource","resource":` + own + `}`
	searching := strings.Replace(alone, "Patient/a", "Patient?family=Brown", 1)
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		body   string
		status int
	}{
		{"an own record", writer, "POST Observation/$validate", own, 200},
		{"with c alone", access.Holder{Scope: "patient/*.c", Patient: "a"}, "POST Observation/$validate", own, 200},
		{"with u alone", access.Holder{Scope: "patient/*.u", Patient: "a"}, "POST Observation/$validate", own, 200},
		{"with neither", access.Holder{Scope: "patient/*.rds", Patient: "a"}, "POST Observation/$validate", own, 403},
		{"in Parameters", writer, "POST Observation/$validate", `{"resourceType":"Parameters","parameter":[{"name":"mode","valueCode":"create"},{"name":"resource","resource":` + own + `}]}`, 200},
		{"in Parameters twice", writer, "POST Observation/$validate", `{"resourceType":"Parameters","parameter":[{"name":"resource","resource":` + own + `},{"name":"resource","resource":` + own + `}]}`, 403},
		{"in Parameters twice by one name", writer, "POST Observation/$validate", `{"resourceType":"Parameters","parameter":[` + searching + `],"parameter":[` + alone + `]}`, 400},
		{"in Parameters, and in a member like it", writer, "POST Observation/$validate", `{"resourceType":"Parameters","parameter":[` + searching + `],"Parameter":[` + alone + `]}`, 403},
		{"in a parameter, and in a member like it", writer, "POST Observation/$validate", `{"resourceType":"Parameters","parameter":[` + strings.TrimSuffix(searching, "}") + `,"Resource":` + own + `}]}`, 403},
		{"in Parameters without any", writer, "POST Observation/$validate", `{"resourceType":"Parameters"}`, 400},
		{"of another patient", writer, "POST Observation/$validate", strings.Replace(own, "Patient/a", "Patient/b", 1), 403},
		{"without a patient", writer, "POST Observation/$validate", strings.Replace(own, "Patient/a", "Patient/c", 1), 403},
		{"that names another's record", writer, "POST Observation/$validate", strings.Replace(own, `"subject"`, `"hasMember":[{"reference":"Observation/b1"}],"subject"`, 1), 403},
		{"with a reference to a missing resource", writer, "POST Observation/$validate", strings.Replace(own, `"subject"`, `"hasMember":[{"reference":"Observation/none"}],"subject"`, 1), 403},
		{"that refers by a search", writer, "POST Observation/$validate", strings.Replace(own, `"subject"`, `"hasMember":[{"reference":"Observation?code=a"}],"subject"`, 1), 403},
		{"that refers by a search of another type", access.Holder{Scope: "user/Observation.cu", User: clinician.User}, "POST Observation/$validate", strings.Replace(own, "Patient/a", "Patient?family=Brown", 1), 403},
		{"that names an own record", writer, "POST Observation/$validate", strings.Replace(own, `"subject"`, `"hasMember":[{"reference":"Observation/a2"}],"subject"`, 1), 200},
		{"on an own record", writer, "POST Observation/a1/$validate", own, 200},
		{"on another's record", writer, "POST Observation/b1/$validate", own, 404},
		{"another type", writer, "POST Observation/$validate", `{"resourceType":"Patient"}`, 400},
		{"unassigned device", writer, "POST Device/$validate", `{"resourceType":"Device"}`, 403},
		{"with an unknown parameter", writer, "POST Observation/$validate?patient=b", own, 403},
		{"with a response that is no OperationOutcome", writer, "POST Condition/$validate", strings.Replace(own, "Observation", "Condition", 1), 502},
		{"by GET", writer, "GET Observation/a1/$validate", "", 405},
		{"without a body", writer, "POST Observation/$validate", "", 400},
		{"by a clinician", clinician, "POST Observation/$validate", own, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			expectStatus(t, newOperationGateway(t).send(tt.holder, requestOf(tt.target, tt.body)), tt.status)
		})
	}
}

// ExpandScopes apply only to terminology operations.
func TestExpandScopesAlone(t *testing.T) {
	t.Parallel()
	op, _ := operation.ParseOperation("$own", "token")
	g := newOperationGateway(t, op)
	g.ExpandScopes = []string{"terminology"}
	expectStatus(t, g.get(access.Holder{Scope: "openid"}, "Patient/$own"), http.StatusOK)
}

// A site can require scopes for terminology operations.
func TestExpandScopes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope string
		status      int
	}{
		{"another scope", "openid patient/*.rs", 403},
		{"the scope", "terminology", 200},
		{"a scope that covers it", "user/*.rs", 200},
		{"a scope that covers a part", "user/ValueSet.s", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOperationGateway(t)
			g.ExpandScopes = []string{"terminology", "user/ValueSet.rs"}
			expectStatus(t, g.get(access.Holder{Scope: tt.scope, Patient: "a"}, "ValueSet/$expand?url=a"), tt.status)
		})
	}
}

// Requesting metadata with a token or in a batch does not reveal more of the FHIR server's statement.
func TestMetadataWithToken(t *testing.T) {
	t.Parallel()
	statement := `{"resourceType":"CapabilityStatement","implementation":{"url":"` + fhirtest.Address + `"}}`
	for _, holder := range []access.Holder{patientA, clinician} {
		for target, want := range map[string]string{
			"metadata": "200", "metadata?_summary=true": "200", "metadata?_getpages=1": "403", "metadata?_format=json&x=1": "403",
		} {
			for _, inBatch := range []bool{false, true} {
				g := newGateway(t)
				if !inBatch {
					g.withRules("deny true")
				}
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fhir/R4/"+target, nil)
				if inBatch {
					r = newRequest(http.MethodPost, "/fhir/R4", "application/fhir+json", `{"resourceType":"Bundle","type":"batch","entry":[`+bundleEntry("GET", target)+`]}`)
				}
				err := g.Serve(w, r, fixedResponse{http.StatusOK, "", statement}, enforce.Bearer{Rights: access.New(holder, g.TypeRules)})
				got := w.Result().Status[:3] + w.Body.String()
				if refused := rejectionIn(err); refused != nil {
					got = http.StatusText(refused.Status)
				}
				if strings.Contains(got, "backend.internal") || !inBatch && (want == "200") != strings.HasPrefix(got, "200") || inBatch && !strings.Contains(got, `"status":"`+want) {
					t.Errorf("%s, in a batch %t: %s", target, inBatch, got)
				}
			}
		}
	}
}
