package enforce_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// challengedRequests are a request for each interaction, with a type <T>.
var challengedRequests = []string{
	"GET <T>/x", "GET <T>/x/_history/1", "GET <T>/x/_history", "GET <T>/_history", "GET _history",
	"GET <T>", "GET <T>?_id=x", "POST <T>/_search", "GET Patient/a/<T>", "GET ?_type=<T>", "GET <T>?_summary=count",
	"POST <T>", "POST <T> If-None-Exist: _id=x", "PUT <T>/x", "PUT <T>?_id=x", "PATCH <T>/x", "PATCH <T>?_id=x", "DELETE <T>/x", "DELETE <T>?_id=x",
	"GET <T>/x/$meta", "GET <T>/x/$everything", "GET <T>/$lastn?patient=Patient/a", "GET <T>/$docref?patient=a", "POST <T>/$validate", "GET <T>/$expand", "GET <T>/$unheard",
	"GET $export?_type=<T>", "GET Patient/$export?_type=<T>",
}

// challengedScopes are scopes of a token with patient a, and a practitioner or patient c as its user.
var challengedScopes = []string{
	"", "openid fhirUser", "patient/*.rs", "patient/*.cruds", "patient/*.r patient/*.s", "patient/*.r", "patient/*.s", "patient/Patient.r",
	"patient/<T>.r", "patient/<T>.s", "patient/<T>.r patient/<T>.s", "patient/*.s patient/<T>.r", "patient/<T>.cud", "patient/<T>.u patient/<T>.rs", "patient/<T>.rs?_id=x",
	"patient/*.read", "patient/*.write", "user/*.rs", "user/<T>.cruds", "user/*.r user/<T>.s", "user/Patient.rs patient/Patient.rs", "user/*.cruds?_id=x",
	"system/*.rs", "system/*.cruds", "system/<T>.rs", "system/<T>.r system/*.s", "system/Patient.cruds", "system/<T>.cruds?_id=x",
}

var slow = flag.Bool("slow", false, "test every combination")

// everyCase are the types that differ in their rules. Of the others, each request and each set of scopes is tested with a
// seventh of them, unless -slow is set.
var everyCase = []string{"Patient", "Observation", "Binary", "Bundle", "Provenance", "Group", "Device", "Practitioner", "Subscription", "ValueSet", "Library", "Task"}

// TestChallenge is over all types, interactions and many sets of scopes: a challenge never names a scope that the token has,
// and a client that gets the scopes it is told of gets an answer, or a refusal without a challenge.
func TestChallenge(t *testing.T) {
	t.Parallel()
	practitioner, patient := clinician.User, interaction.Reference{Type: "Patient", ID: "c"}
	for k, resourceType := range interaction.Types() {
		t.Run(resourceType, func(t *testing.T) {
			t.Parallel()
			c := challenges{t: t, text: ownOf(resourceType), done: map[string]*guard.Error{}}
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

// challenges are the refusals of requests about one type.
type challenges struct {
	t    *testing.T
	g    *gateway
	text string                  // a resource of the type
	done map[string]*guard.Error // by holder and request
}

// check sends a request, and again with each scope that a challenge names, until there is no challenge any more.
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
		if again := c.of(more, line); again != nil && errors.Is(again.Err, message.ErrScope) && again.Scope == "" {
			c.t.Errorf("%s under %q: %s does not help: %s", line, h.Scope, wanted, again.Description)
		}
		c.check(more, line, step+1)
	}
}

// of is the refusal of a request; nil if it is answered.
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
	r := httptest.NewRequest(method, "/fhir/R4/"+target, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", "application/fhir+json")
	if header != "" {
		r.Header.Set("If-None-Exist", header)
	}
	if strings.Contains(target, "$export") {
		r.Header.Set("Prefer", "respond-async")
	}
	err := g.Serve(httptest.NewRecorder(), r, g.server, enforce.Bearer{Rights: access.New(h, g.Shared)})
	refusal, _ := errors.AsType[*guard.Error](err)
	return refusal
}

// ownOf is a resource of a type that is patient a's, as far as its type says whose it is.
func ownOf(resourceType string) string {
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
	names, _ := compartment.Patient(resourceType)
	return slices.Clone(names)
}

// others are resources that patient a may not know of, one or more for each rule by which a type is judged. In place of
// no stands the id.
var others = map[string]string{
	"in the compartment":               `{"resourceType":"Observation","id":"no","status":"final","subject":{"reference":"Patient/b"}}`,
	"a Patient":                        `{"resourceType":"Patient","id":"no","name":[{"family":"Brown"}]}`,
	"a List":                           `{"resourceType":"List","id":"no","status":"current","mode":"working","subject":{"reference":"Patient/b"},"entry":[{"item":{"reference":"Observation/a1"}}]}`,
	"a DocumentReference":              `{"resourceType":"DocumentReference","id":"no","status":"current","subject":{"reference":"Patient/b"},"content":[{"attachment":{"url":"Binary/b1"}}]}`,
	"a Group with others":              `{"resourceType":"Group","id":"no","type":"person","actual":true,"member":[{"entity":{"reference":"Patient/a"}},{"entity":{"reference":"Patient/b"}}]}`,
	"a Device":                         `{"resourceType":"Device","id":"no","patient":{"reference":"Patient/b"}}`,
	"a Binary of a record":             `{"resourceType":"Binary","id":"no","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}`,
	"a Binary of a patient":            `{"resourceType":"Binary","id":"no","contentType":"text/plain","securityContext":{"reference":"Patient/b"}}`,
	"a Binary of nothing there":        `{"resourceType":"Binary","id":"no","contentType":"text/plain","securityContext":{"reference":"Observation/gone"}}`,
	"a Binary of nobody":               `{"resourceType":"Binary","id":"no","contentType":"text/plain"}`,
	"a Provenance":                     `{"resourceType":"Provenance","id":"no","recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/alice"}}],"target":[{"reference":"Observation/b1"}]}`,
	"a Provenance of several":          `{"resourceType":"Provenance","id":"no","recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/alice"}}],"target":[{"reference":"Observation/b1"},{"reference":"Observation/a1"},{"reference":"Device/b1"}]}`,
	"a Provenance of a patient":        `{"resourceType":"Provenance","id":"no","recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/alice"}}],"target":[{"reference":"Patient/b"}]}`,
	"a document":                       `{"resourceType":"Bundle","id":"no","type":"document","entry":[{"resource":{"resourceType":"Composition","id":"c","subject":{"reference":"Patient/b"}}}]}`,
	"a collection":                     `{"resourceType":"Bundle","id":"no","type":"collection","entry":[{"resource":{"resourceType":"Binary","id":"k","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}},{"resource":{"resourceType":"Observation","id":"k","status":"final","subject":{"reference":"Patient/a"}}}]}`,
	"outside of compartments":          `{"resourceType":"Library","id":"no","status":"active"}`,
	"a record that others are part of": `{"resourceType":"Observation","id":"no","status":"final","subject":{"reference":"Patient/a"},"contained":[{"resourceType":"Observation","id":"x","status":"final","subject":{"reference":"Patient/b"}}]}`,
}

// askings are requests about a resource of which the type is T and the id I; what is after the first blank line is a body.
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

// TestAsksAlike checks that what another patient has, and what is not there, has the FHIR server asked as often and for
// the like: else how long the answer takes would tell which it is.
func TestAsksAlike(t *testing.T) {
	t.Parallel()
	holders := map[string]access.Holder{
		"patient": patientA,
		"two patients": {
			Scope: "patient/*.cruds user/*.cruds", Patient: "a", User: interaction.Reference{Type: "Patient", ID: "c"}, UserPatient: "c",
		},
		"constraint": {Scope: "patient/*.cruds?_id=no,absent", Patient: "a"},
	}
	for kind, text := range others {
		for name, asking := range askings {
			t.Run(kind+": "+name, func(t *testing.T) {
				t.Parallel()
				for of, holder := range holders {
					hidden, absent := askedFor(t, holder, text, asking, "no"), askedFor(t, holder, text, asking, "absent")
					if !slices.Equal(hidden, absent) {
						t.Errorf("%s: there: %q\nabsent: %q", of, hidden, absent)
					}
				}
			})
		}
	}
}

// TestAsksMoreOfOwn is over what is told by how often the FHIR server is asked, as docs/evidence/guard.md says: how many of the
// patient's own records a Provenance names before one of another's.
func TestAsksMoreOfOwn(t *testing.T) {
	t.Parallel()
	for targets, want := range map[string]int{
		`{"reference":"Observation/b1"},{"reference":"Observation/a1"}`:                                2,
		`{"reference":"Observation/a1"},{"reference":"Observation/b1"}`:                                3,
		`{"reference":"Observation/a1"},{"reference":"Observation/a2"},{"reference":"Observation/b1"}`: 4,
	} {
		text := `{"resourceType":"Provenance","id":"no","target":[` + targets + `]}`
		if got := askedFor(t, access.Holder{Scope: "patient/Provenance.r patient/Observation.r", Patient: "a"}, text, "GET T/I", "no"); len(got) != want+1 {
			t.Errorf("%s: %q, want %d requests", targets, got, want)
		}
	}
}

// askedFor is what the server is asked when somebody asks about a resource of the kind of a text, by its id or another,
// and what they are answered.
func askedFor(t *testing.T, h access.Holder, text, asking, id string) (kinds []string) {
	t.Helper()
	g := newGateway(t, append(slices.Clip(records), `{"resourceType":"Patient","id":"c"}`)...)
	for range 3 {
		g.server.Put(text) // several versions
	}
	g.server.Seen = func(r *http.Request) {
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

// resourcesFor are resources of patient a that a search finds: they have what its parameters say.
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

// costRow is a line of the table: a search, and the requests that it takes on one page and on three, before and now.
var costRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9]+) \\| ([0-9]+) \\| ([0-9]+) \\| ([0-9]+) \\|$")

// TestRequestsOfApps measures what docs/evidence/guard.md says of the searches of SMART apps: the columns "now".
func TestRequestsOfApps(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/evidence/guard.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := costRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Errorf("%d rows, want 20 at least", len(rows))
	}
	for _, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			t.Parallel()
			if one, three := requestsOf(t, row[1]); one != row[3] || three != row[5] {
				t.Errorf("takes %s and %s requests, the table has %s and %s", one, three, row[3], row[5])
			}
		})
	}
}

// requestsOf counts the requests of a search of seven resources on one page, and on three.
func requestsOf(t *testing.T, search string) (one, three string) {
	t.Helper()
	g := newGateway(t, resourcesFor(t, search, 7)...)
	g.server.Put(`{"resourceType":"Patient","id":"a"}`)
	g.server.Answers = map[string]http.HandlerFunc{"Patient/a/$everything": answering(searchset("Patient/a"))}
	requests := 0
	g.server.Seen = func(*http.Request) { requests++ }
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

// TestConfinedByApp checks which parameters of an app's confine a search, so that one is enough, and that no others do.
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
			g, asked := newGateway(t, chart...), 0
			g.server.Seen = func(*http.Request) { asked++ }
			for _, found := range g.found(patientA, search) {
				if found == "Observation/b1" {
					t.Errorf("finds %s", found)
				}
			}
			if asked != want {
				t.Errorf("%d requests, want %d", asked, want)
			}
		})
	}
}
