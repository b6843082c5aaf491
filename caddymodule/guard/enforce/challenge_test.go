package enforce_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// challengedRequests has a request for each interaction. <T> is replaced by the resource type.
var challengedRequests = []string{
	"GET <T>/x", "GET <T>/x/_history/1", "GET <T>/x/_history", "GET <T>/_history", "GET _history",
	"GET <T>", "GET <T>?_id=x", "POST <T>/_search", "GET Patient/a/<T>", "GET ?_type=<T>", "GET <T>?_summary=count",
	"POST <T>", "POST <T> If-None-Exist: _id=x", "PUT <T>/x", "PUT <T>?_id=x", "PATCH <T>/x", "PATCH <T>?_id=x", "DELETE <T>/x", "DELETE <T>?_id=x",
	"GET <T>/x/$meta", "GET <T>/x/$everything", "GET <T>/$lastn?patient=Patient/a", "GET <T>/$docref?patient=a", "POST <T>/$validate", "GET <T>/$expand", "GET <T>/$unheard",
	"GET $export?_type=<T>", "GET Patient/$export?_type=<T>",
}

// challengedScopes are the scopes of a token with patient a and, as the user, a practitioner or patient c.
var challengedScopes = []string{
	"", "openid fhirUser", "patient/*.rs", "patient/*.cruds", "patient/*.r patient/*.s", "patient/*.r", "patient/*.s", "patient/Patient.r",
	"patient/<T>.r", "patient/<T>.s", "patient/<T>.r patient/<T>.s", "patient/*.s patient/<T>.r", "patient/<T>.cud", "patient/<T>.u patient/<T>.rs", "patient/<T>.rs?_id=x",
	"patient/*.read", "patient/*.write", "user/*.rs", "user/<T>.cruds", "user/*.r user/<T>.s", "user/Patient.rs patient/Patient.rs", "user/*.cruds?_id=x",
	"system/*.rs", "system/*.cruds", "system/<T>.rs", "system/<T>.r system/*.s", "system/Patient.cruds", "system/<T>.cruds?_id=x",
}

var slow = flag.Bool("slow", false, "test every combination")

// everyCase are types with different rules, tested with each request and set of scopes. Other types are tested with every
// seventh combination, unless -slow is set.
var everyCase = []string{"Patient", "Observation", "Binary", "Bundle", "Provenance", "Group", "Device", "Practitioner", "Subscription", "ValueSet", "Library", "Task"}

// A challenge never contains a scope that the token has. A client that gets the scopes in the challenge gets a response, or a
// rejection without a challenge.
func TestChallenge(t *testing.T) {
	t.Parallel()
	practitioner, patient := clinician.User, interaction.Reference{Type: "Patient", ID: "c"}
	for k, resourceType := range interaction.Types() {
		t.Run(resourceType, func(t *testing.T) {
			t.Parallel()
			c := challenges{t: t, text: recordOfPatient(resourceType), done: map[string]*guard.Error{}}
			c.g = newGateway(t, c.text, `{"resourceType":"Patient","id":"a"}`)
			for m, line := range challengedRequests {
				for n, scope := range challengedScopes {
					if !*slow && (k+m+n)%7 != 0 && !slices.Contains(everyCase, resourceType) {
						continue
					}
					for _, user := range []interaction.Reference{practitioner, patient} {
						if user == patient && !strings.Contains(scope, "user/") {
							continue
						}
						h := access.Holder{Scope: strings.ReplaceAll(scope, "<T>", resourceType), Patient: "a", User: user}
						if user == patient {
							h.UserPatient = "c"
						}
						c.check(h, strings.ReplaceAll(line, "<T>", resourceType), 0)
					}
				}
			}
		})
	}
}

// challenges checks the challenges in rejections of requests for one type.
type challenges struct {
	t    *testing.T
	g    *gateway
	text string                  // a resource of the type, as JSON
	done map[string]*guard.Error // rejections that were already obtained, by holder and request
}

// check sends a request and repeats it with each scope in the challenge until the rejection contains none.
func (c challenges) check(h access.Holder, line string, step int) {
	c.t.Helper()
	refusal := c.of(h, line)
	if refusal == nil || refusal.Scope == "" {
		return
	}
	if step == 3 {
		c.t.Errorf("%s under %q: challenge after challenge: %s", line, h.Scope, refusal.Scope)
		return
	}
	for wanted := range strings.FieldsSeq(refusal.Scope) {
		if granted, err := smart.Grant([]string{wanted}, strings.Fields(h.Scope)); err == nil && slices.Contains(granted, wanted) {
			c.t.Errorf("%s under %q names %s, which is held: %s", line, h.Scope, wanted, refusal.Description)
			continue
		}
		more := h
		more.Scope += " " + wanted
		if again := c.of(more, line); again != nil && errors.Is(again.Err, message.ErrInsufficientScope) && again.Scope == "" {
			c.t.Errorf("%s under %q: %s does not help: %s", line, h.Scope, wanted, again.Description)
		}
		c.check(more, line, step+1)
	}
}

// of returns the rejection of a request, or nil if the request succeeds.
func (c challenges) of(h access.Holder, line string) *guard.Error {
	key := h.Scope + " " + h.User.String() + " " + line
	refusal, ok := c.done[key]
	if !ok {
		refusal = c.send(h, line)
		c.done[key] = refusal
	}
	return refusal
}

func (c challenges) send(h access.Holder, line string) *guard.Error {
	text, g := c.text, c.g
	if !strings.HasPrefix(line, "GET") {
		g = newGateway(c.t, text, `{"resourceType":"Patient","id":"a"}`)
	}
	line, header, _ := strings.Cut(line, " If-None-Exist: ")
	method, target, _ := strings.Cut(line, " ")
	body := text
	contentType := "application/fhir+json"
	switch {
	case method == http.MethodGet || method == http.MethodDelete:
		body = ""
	case method == http.MethodPatch:
		body, contentType = `[{"op":"add","path":"/language","value":"de"}]`, "application/json-patch+json"
	case strings.HasSuffix(target, "_search"):
		body, contentType = "_id=x", "application/x-www-form-urlencoded"
	case strings.HasSuffix(target, "$validate"):
		body = `{"resourceType":"Parameters","parameter":[{"name":"resource","resource":` + text + `}]}`
	}
	r := newRequest(method, "/fhir/R4/"+target, contentType, body)
	r.Header.Set("Accept", "application/fhir+json")
	if header != "" {
		r.Header.Set("If-None-Exist", header)
	}
	if strings.Contains(target, "$export") {
		r.Header.Set("Prefer", "respond-async")
	}
	err := g.Serve(httptest.NewRecorder(), r, g.server, enforce.Bearer{Rights: access.New(h, g.TypeRules)})
	refusal, _ := errors.AsType[*guard.Error](err)
	return refusal
}

// recordOfPatient returns a resource of resourceType that belongs to patient a if the type can refer to a patient.
func recordOfPatient(resourceType string) string {
	text := `{"resourceType":"` + resourceType + `","id":"x"`
	for _, name := range append(membershipOf(resourceType), "patient") {
		p, ok := searchparam.Lookup(resourceType, name)
		if ok && len(p.Paths) > 0 {
			return text + "," + elementAt(p.Paths[0].Elements, `[{"reference":"Patient/a"}]`) + "}"
		}
	}
	return text + "}"
}

func membershipOf(resourceType string) []string {
	names, _ := compartment.PatientParameters(resourceType)
	return slices.Clone(names)
}

// hiddenRecords are resources that patient a may not see, at least one for each rule. The id "no" is a placeholder.
var hiddenRecords = map[string]string{
	"in the compartment":               `{"resourceType":"Observation","id":"no","status":"final","subject":{"reference":"Patient/b"}}`,
	"a Patient":                        `{"resourceType":"Patient","id":"no","name":[{"family":"Brown"}]}`,
	"a List":                           `{"resourceType":"List","id":"no","status":"current","mode":"working","subject":{"reference":"Patient/b"},"entry":[{"item":{"reference":"Observation/a1"}}]}`,
	"a DocumentReference":              `{"resourceType":"DocumentReference","id":"no","status":"current","subject":{"reference":"Patient/b"},"content":[{"attachment":{"url":"Binary/b1"}}]}`,
	"a Group with others":              `{"resourceType":"Group","id":"no","type":"person","actual":true,"member":[{"entity":{"reference":"Patient/a"}},{"entity":{"reference":"Patient/b"}}]}`,
	"a Device":                         `{"resourceType":"Device","id":"no","patient":{"reference":"Patient/b"}}`,
	"a Binary of a record":             `{"resourceType":"Binary","id":"no","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}`,
	"a Binary of a patient":            `{"resourceType":"Binary","id":"no","contentType":"text/plain","securityContext":{"reference":"Patient/b"}}`,
	"a Binary of nothing there":        `{"resourceType":"Binary","id":"no","contentType":"text/plain","securityContext":{"reference":"Observation/gone"}}`,
	"a Binary without a patient":       `{"resourceType":"Binary","id":"no","contentType":"text/plain"}`,
	"a Provenance":                     `{"resourceType":"Provenance","id":"no","recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/alice"}}],"target":[{"reference":"Observation/b1"}]}`,
	"a Provenance of several":          `{"resourceType":"Provenance","id":"no","recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/alice"}}],"target":[{"reference":"Observation/b1"},{"reference":"Observation/a1"},{"reference":"Device/b1"}]}`,
	"a Provenance of a patient":        `{"resourceType":"Provenance","id":"no","recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/alice"}}],"target":[{"reference":"Patient/b"}]}`,
	"a document":                       `{"resourceType":"Bundle","id":"no","type":"document","entry":[{"resource":{"resourceType":"Composition","id":"c","subject":{"reference":"Patient/b"}}}]}`,
	"a collection":                     `{"resourceType":"Bundle","id":"no","type":"collection","entry":[{"resource":{"resourceType":"Binary","id":"k","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}},{"resource":{"resourceType":"Observation","id":"k","status":"final","subject":{"reference":"Patient/a"}}}]}`,
	"outside of compartments":          `{"resourceType":"Library","id":"no","status":"active"}`,
	"a record that others are part of": `{"resourceType":"Observation","id":"no","status":"final","subject":{"reference":"Patient/a"},"contained":[{"resourceType":"Observation","id":"x","status":"final","subject":{"reference":"Patient/b"}}]}`,
}

// askings are requests for a resource of type T with id I. Text after the first blank line is the body.
var askings = map[string]string{
	"read":                    "GET T/I",
	"vread":                   "GET T/I/_history/1",
	"history":                 "GET T/I/_history",
	"history, page by page":   "GET T/I/_history?_count=1",
	"search by id":            "GET T?_id=I",
	"search of the system":    "GET ?_type=T&_id=I",
	"search of a compartment": "GET Patient/I/Observation",
	"search by a reference":   "GET Observation?subject=T/I",
	"a chain":                 "GET Observation?subject:T._id=I",
	"_has":                    "GET Patient?_has:T:subject:_id=I",
	"_revinclude":             "GET T?_id=I&_revinclude=Provenance:target",
	"update":                  "PUT T/I\n\nNEW",
	"JSON Patch":              `PATCH T/I` + "\n\n" + `[{"op":"add","path":"/language","value":"de"}]`,
	"delete":                  "DELETE T/I",
	"conditional update":      "PUT T?_id=I\n\nNEW",
	"conditional delete":      "DELETE T?_id=I",
	"create with a reference": "POST Observation\n\n" + `{"resourceType":"Observation","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/a"},"focus":[{"reference":"T/I"}]}`,
	"an operation":            "GET T/I/$meta",
	"$everything":             "GET T/I/$everything",
	"batch":                   "POST \n\n" + `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"T/I"}},{"request":{"method":"GET","url":"T/I"}},{"request":{"method":"DELETE","url":"T/I"}}]}`,
	"transaction":             "POST \n\n" + `{"resourceType":"Bundle","type":"transaction","entry":[{"request":{"method":"GET","url":"Patient/a"}},{"request":{"method":"GET","url":"T/I"}}]}`,
}

// A request for another patient's resource causes as many backend requests, and of the same kinds, as for a missing resource,
// so that response times do not reveal existence.
func TestAsksAlike(t *testing.T) {
	t.Parallel()
	holders := map[string]access.Holder{
		"patient": patientA,
		"two patients": {
			Scope: "patient/*.cruds user/*.cruds", Patient: "a", User: interaction.Reference{Type: "Patient", ID: "c"}, UserPatient: "c",
		},
		"constraint": {Scope: "patient/*.cruds?_id=no,absent", Patient: "a"},
	}
	for kind, text := range hiddenRecords {
		for name, asking := range askings {
			t.Run(kind+": "+name, func(t *testing.T) {
				t.Parallel()
				for of, holder := range holders {
					hidden, absent := backendRequests(t, holder, text, asking, "no"), backendRequests(t, holder, text, asking, "absent")
					if !slices.Equal(hidden, absent) {
						t.Errorf("%s: there: %q\nabsent: %q", of, hidden, absent)
					}
				}
			})
		}
	}
}

// The number of backend requests reveals how many of the patient's own records a Provenance refers to before one of another
// patient (see docs/evidence/guard.md).
func TestAsksMoreOfOwn(t *testing.T) {
	t.Parallel()
	for targets, want := range map[string]int{
		`{"reference":"Observation/b1"},{"reference":"Observation/a1"}`:                                2,
		`{"reference":"Observation/a1"},{"reference":"Observation/b1"}`:                                3,
		`{"reference":"Observation/a1"},{"reference":"Observation/a2"},{"reference":"Observation/b1"}`: 4,
	} {
		text := `{"resourceType":"Provenance","id":"no","target":[` + targets + `]}`
		if got := backendRequests(t, access.Holder{Scope: "patient/Provenance.r patient/Observation.r", Patient: "a"}, text, "GET T/I", "no"); len(got) != want+1 {
			t.Errorf("%s: %q, want %d requests", targets, got, want)
		}
	}
}

// backendRequests returns the FHIR server's requests caused by a request for a resource or a missing id, and the response.
func backendRequests(t *testing.T, h access.Holder, text, asking, id string) (kinds []string) {
	t.Helper()
	g := newGateway(t, append(slices.Clip(records), `{"resourceType":"Patient","id":"c"}`)...)
	for range 3 {
		g.server.Put(text) // store several versions
	}
	g.server.OnRequest = func(r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/fhir/R4/")
		i, _ := interaction.Parse(r.Method, path, r.URL.RawQuery, r.Header)
		kinds = append(kinds, i.Kind.String())
	}
	line, body, _ := strings.Cut(asking, "\n\n")
	own := strings.NewReplacer("Patient/b", "Patient/a", "Observation/b1", "Observation/a1", "Device/b1", "Device/a1", `"no"`, `"I"`).Replace(text)
	_, rest, _ := strings.Cut(text, `"resourceType":"`)
	resourceType, _, _ := strings.Cut(rest, `"`)
	about := func(s string) string {
		return strings.NewReplacer("T/I", resourceType+"/"+id, "T?", resourceType+"?", ":T", ":"+resourceType, "=T", "="+resourceType,
			"=I", "="+id, "/I/", "/"+id+"/", `"I"`, `"`+id+`"`).Replace(s)
	}
	method, target, _ := strings.Cut(about(line), " ")
	path, query, _ := strings.Cut(target, "?")
	r := httptest.NewRequest(method, "/fhir/R4/", strings.NewReader(about(strings.Replace(body, "NEW", own, 1))))
	r.URL = &url.URL{Path: strings.TrimSuffix("/fhir/R4/"+path, "/"), RawQuery: query}
	r.Header.Set("Content-Type", "application/fhir+json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/json-patch+json")
	}
	response := g.send(h, r)
	return append(kinds, response.Status)
}

// resourcesFor returns n resources of patient a that match the parameters of a search.
func resourcesFor(t *testing.T, search string, n int) (all []string) {
	t.Helper()
	resourceType, query, _ := strings.Cut(search, "?")
	parameters, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		res := map[string]any{"resourceType": resourceType, "id": fmt.Sprintf("m%d", i)}
		if _, ok := searchparam.Lookup(resourceType, "patient"); ok && parameters.Get("patient") == "" {
			parameters.Set("patient", "a")
		}
		for name := range parameters {
			p, ok := searchparam.Lookup(resourceType, name)
			if !ok || len(p.Paths) == 0 || strings.HasPrefix(name, "_") {
				continue
			}
			value := parameters.Get(name)
			set(res, p.Paths[0].Elements, map[string]string{
				"Reference": `{"reference":"Patient/a"}`, "CodeableConcept": `{"coding":[{"code":"` + value + `"}]}`,
				"dateTime": `"2024-05-05"`, "instant": `"2024-05-05T00:00:00Z"`, "Period": `{"start":"2024-05-05"}`,
				"code": `"` + value + `"`, "Coding": `{"code":"` + value + `"}`,
			}[p.Paths[0].Type])
		}
		text, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// costRow matches a row of the table: a search, and the number of backend requests for one page and for three.
var costRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9]+) \\| ([0-9]+) \\|$")

// The requests for searches of SMART apps match the table in docs/evidence/guard.md.
func TestRequestsOfApps(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/evidence/guard.md")
	if err != nil {
		t.Fatal(err)
	}
	measured, _, _ := strings.Cut(string(text), tableBegin)
	rows := costRow.FindAllStringSubmatch(measured, -1)
	if len(rows) < 20 {
		t.Errorf("%d rows, want 20 at least", len(rows))
	}
	for _, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			t.Parallel()
			if one, three := countPageRequests(t, row[1]); one != row[2] || three != row[3] {
				t.Errorf("takes %s and %s requests, the table has %s and %s", one, three, row[2], row[3])
			}
		})
	}
}

// countPageRequests returns how many backend requests a search for seven resources causes on one page, and on three pages.
func countPageRequests(t *testing.T, search string) (one, three string) {
	t.Helper()
	g := newGateway(t, resourcesFor(t, search, 7)...)
	g.server.Put(`{"resourceType":"Patient","id":"a"}`)
	g.server.Handlers = map[string]http.HandlerFunc{"Patient/a/$everything": newHandler(searchset("Patient/a"))}
	requests := 0
	g.server.OnRequest = func(*http.Request) { requests++ }
	walk := func(size int) string {
		requests = 0
		target := search
		if !strings.Contains(search, "$") {
			target += map[bool]string{true: "&", false: "?"}[strings.Contains(search, "?")] + "_count=" + strconv.Itoa(size)
		}
		if found := g.read(access.Holder{Scope: "patient/*.rs", Patient: "a"}, target, 0); len(found) == 0 {
			t.Errorf("%s finds nothing", target)
		}
		return strconv.Itoa(requests)
	}
	return walk(10), walk(3)
}

// A search by patient causes a single backend request only if one of its parameters confines it to that patient.
func TestConfinedByApp(t *testing.T) {
	t.Parallel()
	for search, want := range map[string]int{
		"Observation?patient=a": 1, "Observation?patient=Patient/a": 1, "Observation?subject:Patient=a": 1, "Observation?performer=Patient/a": 1,
		"Observation?subject=a": 2, "Observation?focus=Patient/a": 2, "Observation?patient=b": 2, "Observation?patient=a,b": 2,
		"Observation?patient:missing=false": 2, "Observation?subject:identifier=a": 2, "Observation?subject:Patient.name=adams": 3,
		"AllergyIntolerance?patient=a": 1, "AllergyIntolerance?onset=2020": 3, "DeviceUseStatement?patient=a": 1,
		"Device?patient=a": 1, "Device?patient=b": 2, "Device?status=active": 2, "Patient/a/Observation?patient=a": 1,
	} {
		t.Run(search, func(t *testing.T) {
			t.Parallel()
			g, requests := newGateway(t, chart...), 0
			g.server.OnRequest = func(*http.Request) { requests++ }
			for _, found := range g.found(patientA, search) {
				if found == "Observation/b1" {
					t.Errorf("finds %s", found)
				}
			}
			if requests != want {
				t.Errorf("%d requests, want %d", requests, want)
			}
		})
	}
}

const ofA = `{"resourceType":"Observation","id":"a1","status":"final","subject":{"reference":"Patient/a"}}`

// If the FHIR server responds to an update with a different resource or Content-Type, its response is not returned.
func TestUntrustedWriteResponse(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	media := "application/fhir+json"
	g.server.Handlers = map[string]http.HandlerFunc{"Observation/a1": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", media)
		w.Header().Set("Etag", `W/"1"`)
		text := ofA
		if r.Method != http.MethodGet {
			text = strings.Replace(ofA, "a1", "a2", 1)
		}
		_, _ = io.WriteString(w, text)
	}}
	put := writeCase{holder: patientA, request: "PUT Observation/a1", body: ofA}
	if response := g.written(put); response.StatusCode != http.StatusOK || bodyOf(t, response) != "" {
		t.Errorf("another resource was shown: status %d", response.StatusCode)
	}
	media = "text/plain"
	if response := g.written(put); response.StatusCode != http.StatusBadGateway {
		t.Errorf("a version of another type of content: status %d", response.StatusCode)
	}
}

// Write requests to the FHIR server contain conditions.
func TestWriteConditions(t *testing.T) {
	t.Parallel()
	patch := `{"resourceType":"Parameters","parameter":[` + change("replace", "Observation.status", `,{"name":"value","valueCode":"amended"}`) + `]}`
	for _, tt := range []struct{ name, request, body, header, want string }{
		{"a patch", "PATCH Observation/a1", patch, "If-Match", `W/"1"`},
		{"an update that creates", "PUT Observation/fresh", strings.Replace(ofA, "a1", "fresh", 1), "If-None-Match", "*"},
	} {
		g := newGateway(t, records...)
		g.AllowsUpsert = true
		sent := ""
		g.server.OnRequest = func(r *http.Request) {
			if r.Method != http.MethodGet {
				sent = r.Header.Get(tt.header)
			}
		}
		if response := g.written(writeCase{holder: patientA, request: tt.request, body: tt.body}); response.StatusCode >= 300 || sent != tt.want {
			t.Errorf("%s: status %d, %s: %q", tt.name, response.StatusCode, tt.header, sent)
		}
	}
}

// Writes with excessive content or effects are rejected.
func TestWriteBounds(t *testing.T) {
	t.Parallel()
	all := access.Holder{Scope: "system/Observation.cruds"}
	jsonMedia := "Content-Type: application/json-patch+json"
	replace := `{"op":"replace","path":"/status","value":"amended"}`
	testWrites(t, []writeCase{
		{"a reference that names no type", all, "POST Observation", strings.Replace(ofA, "Patient/a", "?identifier=1", 1), "", 403, ""},
		{"a search of another type in a reference", all, "POST Observation", strings.Replace(ofA, "Patient/a", "Patient?identifier=1", 1), "", 403, ""},
		{"a delete of others along", all, "DELETE Observation/a1?_cascade:mode=delete", "", "", 403, ""},
		{"as many operations as may be", patientA, "PATCH Observation/a1", "[" + strings.Repeat(replace+",", 999) + replace + "]", jsonMedia, 200, "Observation/a1=amended"},
		{"too many operations", patientA, "PATCH Observation/a1", "[" + strings.Repeat(replace+",", 1000) + replace + "]", jsonMedia, 403, ""},
	})
	g := newGateway(t, records...)
	g.Limits = fhirserver.Limits{BodyBytes: 500}
	long := `[{"op":"add","path":"/note","value":[{"text":"` + strings.Repeat("x", 400) + `"}]}]`
	if got := g.written(writeCase{holder: patientA, request: "PATCH Observation/a1", body: long, header: jsonMedia}); got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a patch that comes to too much: status %d", got.StatusCode)
	}
}

// Included entries that the client has not requested are dropped.
func TestUnrequestedBackendIncludes(t *testing.T) {
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
		g.server.Handlers = map[string]http.HandlerFunc{
			"Patient": newHandler(`{"resourceType":"Bundle","type":"searchset","entry":[` + strings.Join([]string{patient, practitioner, organization, observation}, ",") + `]}`),
		}
		if got := strings.Join(g.found(patientA, "Patient"+query), " "); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

// A total that may include other patients' groups is omitted, even if the page contains none of these groups.
func TestGroupsAreNotCounted(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.server.Handlers = map[string]http.HandlerFunc{"Group": func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("page"))
		newHandler(fmt.Sprintf(`{"resourceType":"Bundle","type":"searchset","total":9,
			"link":[{"relation":"next","url":"http://backend.internal:8080/fhir/Group?page=%d"}],
			"entry":[{"resource":{"resourceType":"Group","id":"g%d","member":[{"entity":{"reference":"Patient/a"}}]}}]}`, page+1, page))(w, r)
	}}
	if text := bodyOf(t, g.get(patientA, "Group?_count=1")); strings.Contains(text, `"total"`) || !strings.Contains(text, `"id":"g0"`) || !strings.Contains(text, `"relation":"next"`) {
		t.Error(text)
	}
}

// Search parameters that would compare other resources are rejected.
func TestSearchesOfOtherResources(t *testing.T) {
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

// A FHIR server's error message is not returned, and operations do not combine the data of several patients.
func TestOperationsRevealLittle(t *testing.T) {
	t.Parallel()
	g := newOperationGateway(t)
	g.server.Handlers["Observation/a1/$meta"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"resourceType":"OperationOutcome","text":"secret"}`)
	}
	if text := bodyOf(t, g.get(patientA, "Observation/a1/$meta")); strings.Contains(text, "secret") {
		t.Error(text)
	}
	both := access.Holder{Scope: "patient/*.rs user/*.rs", Patient: "a", User: interaction.Reference{Type: "Patient", ID: "b"}, UserPatient: "b"}
	g.server.OnRequest = func(r *http.Request) { t.Errorf("unexpected request for %s", r.URL) }
	if got := g.found(both, "Observation/$lastn?patient=Patient/a&subject=Patient/b"); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

// A page link of an operation gets 404 after the site has disabled the operation.
func TestOperationPageOff(t *testing.T) {
	t.Parallel()
	g := newOperationGateway(t)
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

// A rule that allows one interaction allows neither other interactions nor the next entry.
func TestRulesAllowOnlyTheirInteraction(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("allow request.id == 'b1' && request.interaction == 'read'", "allow request.id == 'b1' && request.interaction == 'update'")
	entries := bundleEntry("GET", "Observation/b1") + "," + bundleEntry("GET", "Observation/a1")
	text := bodyOf(t, g.written(writeCase{holder: nobody, request: "POST ", body: `{"resourceType":"Bundle","type":"batch","entry":[` + entries + `]}`}))
	if strings.Count(text, `"status":"200`) != 1 || strings.Count(text, `"status":"403`) != 1 {
		t.Error(text)
	}
	response := g.written(writeCase{holder: nobody, request: "PUT Observation/b1", body: records[5]})
	if text := bodyOf(t, response); response.StatusCode != http.StatusOK || text != "" {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
}

// Some batches of a client with unrestricted scopes are not forwarded unchanged.
func TestUnrestrictedBatchIsRejected(t *testing.T) {
	t.Parallel()
	own := strings.Replace(records[3], `"id":"a1"`, `"id":"a2"`, 1)
	twice := `{"fullUrl":"urn:uuid:1","request":{"method":"GET","url":"Observation/a1"}}`
	for _, tt := range []struct{ name, entries string }{
		{"another id than in the path", entryWithResource("PUT", "Observation/a1", own)},
		{"a patch of another type", entryWithResource("PATCH", "Observation/a1", `{"resourceType":"Binary","contentType":"text/plain","data":"W10="}`)},
		{"a fullUrl twice", twice + "," + twice},
		{"a search with links to seal", bundleEntry("GET", "Observation?_count=1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			g.server.OnRequest = func(r *http.Request) {
				if r.Method != http.MethodGet {
					t.Errorf("unexpected request: %s %s", r.Method, r.URL)
				}
			}
			response := g.written(writeCase{holder: clinician, request: "POST ", body: `{"resourceType":"Bundle","type":"batch","entry":[` + tt.entries + `]}`})
			if text := bodyOf(t, response); strings.Contains(text, "_getpages") {
				t.Errorf("status %d: %s", response.StatusCode, text)
			}
		})
	}
}

// Results of lookups for one entry are not reused for the next.
func TestEntriesShareNoLookups(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	entries := strings.Join([]string{bundleEntry("GET", "Binary/a1"), bundleEntry("DELETE", "Observation/a1"), bundleEntry("GET", "Binary/a1")}, ",")
	response := g.written(writeCase{holder: patientA, request: "POST ", body: `{"resourceType":"Bundle","type":"batch","entry":[` + entries + `]}`})
	text := bodyOf(t, response)
	if strings.Count(text, `"status":"200`) != 1 || strings.Count(text, `"status":"404`) != 1 {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
}

// Unknown parameters are ignored only with Prefer: handling=lenient, and the response lists them. Parameters that could reveal
// more or select resources to write are never ignored.
func TestLenientHandling(t *testing.T) {
	t.Parallel()
	observations := access.Holder{Scope: "user/Observation.cruds user/Patient.rs", User: clinician.User}
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
		{"lenient, whole type", "GET Observation?mine=x", "handling=lenient", observations, 200, 3, "Observation"},
		{"lenient, an oracle", "GET Observation?_filter=x", "handling=lenient", patientA, 403, 0, ""},
		{"lenient, a server's page", "GET Observation?_getpages=x", "handling=lenient", patientA, 403, 0, ""},
		{"lenient, an unknown order", "GET Observation?_sort=mine", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, an unknown chain", "GET Observation?subject:Patient.mine=x", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, conditional delete", "DELETE Observation?_id=a1&mine=x", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, conditional update", "PUT Observation?_id=a1&mine=x", "handling=lenient", patientA, 400, 0, ""},
		{"lenient, conditional delete of a whole type", "DELETE Observation?_id=a1&mine=x", "handling=lenient", observations, 400, 0, ""},
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
			r := newRequest(method, "/fhir/R4/"+target, map[bool]string{true: "application/x-www-form-urlencoded", false: "application/fhir+json"}[method == http.MethodPost], body)
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
	// Later pages are requested without the Prefer header.
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

// If-Modified-Since applies only to covered resources (RFC 9110 §13.1.3).
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
			g.server.Handlers = map[string]http.HandlerFunc{"Observation/dated": func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Last-Modified", "Fri, 31 May 2024 10:00:00 GMT")
				newHandler(timed("dated", "a"))(w, r)
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
