package enforce_test

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/gctest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// prefixSealing seals by prefixing the binding.
type prefixSealing struct{}

func (prefixSealing) Seal(_ context.Context, text, binding string) (string, error) {
	return hex.EncodeToString([]byte(binding + "\x00" + text)), nil
}

func (prefixSealing) Unseal(_ context.Context, sealed, binding string, _ time.Duration) (string, error) {
	opened, err := hex.DecodeString(sealed)
	text, ok := strings.CutPrefix(string(opened), binding+"\x00")
	if err != nil || !ok {
		return "", errors.New("not sealed")
	}
	return text, nil
}

type pageStates struct{ states sync.Map }

func (s *pageStates) PutState(_ context.Context, _, key string, state []byte, _ time.Duration) error {
	s.states.Store(key, state)
	return nil
}

func (s *pageStates) GetState(_ context.Context, key string) ([]byte, error) {
	if state, ok := s.states.Load(key); ok {
		return state.([]byte), nil
	}
	return nil, enforce.ErrNoPageState
}

// gateway is an enforcer in front of a FHIR server.
type gateway struct {
	t *testing.T
	*enforce.Enforcer
	server *fhirtest.Server
	next   message.NextHandler // replaces the FHIR server; may be nil
}

func newGateway(t *testing.T, resources ...string) *gateway {
	t.Helper()
	return &gateway{t, &enforce.Enforcer{
		Base: "/fhir/R4", BaseURL: "https://gateway.example/fhir/R4", TypeRules: access.NewTypeRules(nil), Sealing: prefixSealing{}, PageStates: &pageStates{},
	}, fhirtest.New(resources...), nil}
}

// send sends a request with the holder's token. An error becomes a response with its status and description.
func (g *gateway) send(h access.Holder, r *http.Request) *http.Response {
	g.t.Helper()
	w := httptest.NewRecorder()
	h.Parameters = g.Parameters
	rights := access.New(h, g.TypeRules)
	next := g.next
	if next == nil {
		next = g.server
	}
	err := g.Serve(w, r, next, enforce.Bearer{Rights: rights, Binding: h.Scope + " " + h.Patient + " " + h.User.String()})
	if err == nil {
		return w.Result()
	}
	refused, ok := errors.AsType[*guard.Error](err)
	if !ok {
		g.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	w = httptest.NewRecorder()
	w.WriteHeader(refused.Status)
	w.WriteString(refused.Description)
	return w.Result()
}

func newRequest(method, path, contentType, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return r
}

// get sends a GET request to a link, or to a target below the FHIR base.
func (g *gateway) get(h access.Holder, target string) *http.Response {
	g.t.Helper()
	target = strings.TrimPrefix(target, "https://gateway.example")
	if !strings.HasPrefix(target, "/fhir/R4") {
		target = "/fhir/R4/" + target
	}
	return g.send(h, httptest.NewRequest(http.MethodGet, target, nil))
}

// bundle contains the tested members of a Bundle.
type bundle struct {
	ResourceType string
	Total        *int
	Link         []struct{ Relation, URL string }
	Entry        []struct {
		FullURL  string
		Resource struct{ ResourceType, ID string }
		Search   struct{ Mode string }
	}
}

func (b bundle) next() string {
	for _, l := range b.Link {
		if l.Relation == "next" {
			return l.URL
		}
	}
	return ""
}

func mustDecode[T any](t *testing.T, response *http.Response) (v T) {
	t.Helper()
	if err := json.NewDecoder(response.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// expectStatus fails the test and logs the body if the response has a different status.
func expectStatus(t *testing.T, got *http.Response, want int) {
	t.Helper()
	if got.StatusCode != want {
		text, _ := io.ReadAll(got.Body)
		t.Errorf("status %d, want %d: %s", got.StatusCode, want, text)
	}
}

// found returns the sorted references of all matches of a search, from all pages.
func (g *gateway) found(h access.Holder, target string) []string {
	g.t.Helper()
	var all []string
	for range 50 {
		response := g.get(h, target)
		var b bundle
		if err := json.NewDecoder(response.Body).Decode(&b); err != nil || response.StatusCode != http.StatusOK {
			g.t.Fatalf("%s: status %d, %v", target, response.StatusCode, err)
		}
		for _, e := range b.Entry {
			all = append(all, e.Resource.ResourceType+"/"+e.Resource.ID)
		}
		if target = b.next(); target == "" {
			slices.Sort(all)
			return all
		}
	}
	g.t.Fatal("the pages do not end")
	return nil
}

// Holders for several tests.
var (
	clinician = access.Holder{Scope: "user/*.cruds", User: interaction.Reference{Type: "Practitioner", ID: "alice"}}
	patientA  = access.Holder{Scope: "patient/*.cruds", Patient: "a"}
)

var records = []string{
	`{"resourceType":"Patient","id":"a","name":[{"family":"Adams"}]}`,
	`{"resourceType":"Patient","id":"b","name":[{"family":"Brown"}]}`,
	`{"resourceType":"Practitioner","id":"alice","name":[{"family":"Alder"}]}`,
	`{"resourceType":"Observation","id":"a1","status":"final","category":[{"coding":[{"system":"http://c","code":"laboratory"}]}],"subject":{"reference":"Patient/a"},"performer":[{"reference":"Practitioner/alice"}]}`,
	`{"resourceType":"Observation","id":"a2","status":"final","category":[{"coding":[{"system":"http://c","code":"vital-signs"}]}],"subject":{"reference":"Patient/a"}}`,
	`{"resourceType":"Observation","id":"b1","status":"final","category":[{"coding":[{"system":"http://c","code":"laboratory"}]}],"subject":{"reference":"Patient/b"}}`,
	`{"resourceType":"Device","id":"a1","patient":{"reference":"Patient/a"}}`,
	`{"resourceType":"Device","id":"b1","patient":{"reference":"Patient/b"}}`,
	`{"resourceType":"Device","id":"free"}`,
	`{"resourceType":"Binary","id":"a1","contentType":"text/plain","securityContext":{"reference":"Observation/a1"}}`,
	`{"resourceType":"Binary","id":"b1","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}`,
	`{"resourceType":"Binary","id":"free","contentType":"text/plain"}`,
}

func TestRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		status int
	}{
		{"own patient", patientA, "Patient/a", 200},
		{"another patient", patientA, "Patient/b", 404},
		{"nobody", patientA, "Patient/c", 404},
		{"own record", patientA, "Observation/a1", 200},
		{"another's record", patientA, "Observation/b1", 404},
		{"a shared type", patientA, "Practitioner/alice", 200},
		{"own device", patientA, "Device/a1", 200},
		{"another's device", patientA, "Device/b1", 404},
		{"unassigned device", patientA, "Device/free", 200},
		{"a binary of an own record", patientA, "Binary/a1", 200},
		{"a binary of another's record", patientA, "Binary/b1", 404},
		{"a binary of unknown context", patientA, "Binary/free", 404},
		{"no permission", access.Holder{Scope: "patient/*.cuds", Patient: "a"}, "Patient/a", 403},
		{"no patient in context", access.Holder{Scope: "patient/*.rs"}, "Patient/a", 403},
		{"another type", access.Holder{Scope: "patient/Observation.rs", Patient: "a"}, "Patient/a", 403},
		{"a clinician", clinician, "Observation/b1", 200},
		{"a patient's user scope, own", access.Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Patient", ID: "a"}, UserPatient: "a"}, "Observation/a1", 200},
		{"a patient's user scope, another's", access.Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Patient", ID: "a"}, UserPatient: "a"}, "Observation/b1", 404},
		{"user scope without a user", access.Holder{Scope: "user/*.rs"}, "Observation/a1", 403},
		{"one's own record by fhirUser", access.Holder{Scope: "openid fhirUser", User: interaction.Reference{Type: "Practitioner", ID: "alice"}}, "Practitioner/alice", 200},
		{"another's record by fhirUser", access.Holder{Scope: "openid fhirUser", User: interaction.Reference{Type: "Patient", ID: "a"}}, "Patient/b", 404},
		{"openid alone", access.Holder{Scope: "openid", User: interaction.Reference{Type: "Patient", ID: "a"}}, "Patient/a", 403},
		{"within a constraint", access.Holder{Scope: "patient/Observation.r?category=http://c|laboratory", Patient: "a"}, "Observation/a1", 200},
		{"outside a constraint", access.Holder{Scope: "patient/Observation.r?category=http://c|laboratory", Patient: "a"}, "Observation/a2", 404},
		{"the context of one scope with the constraint of another", access.Holder{Scope: "user/Observation.r?category=http://c|vital-signs patient/Observation.r?category=http://c|laboratory", Patient: "a", User: clinician.User}, "Observation/b1", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expectStatus(t, newGateway(t, records...).get(tt.holder, tt.target), tt.status)
		})
	}
}

// searchCase is a search with the expected references, or the status of a rejection.
type searchCase struct {
	name   string
	holder access.Holder
	target string
	want   string
}

// testSearches tests searches on one server with compartment searches and on one without.
func testSearches(t *testing.T, resources []string, tests []searchCase) {
	t.Helper()
	for _, tt := range tests {
		for _, byCompartment := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, compartment_search %v", tt.name, byCompartment), func(t *testing.T) {
				g := newGateway(t, resources...)
				g.SupportsCompartmentSearch = byCompartment
				g.server.OnRequest = func(r *http.Request) {
					if !byCompartment && strings.Count(r.URL.Path, "/") > strings.Count("/fhir/R4/Type/id", "/") {
						t.Errorf("unexpected compartment search %s", r.URL.Path)
					}
				}
				if got := g.foundOrStatus(tt.holder, tt.target); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		}
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	testSearches(t, records, []searchCase{
		{"own records", patientA, "Observation", "Observation/a1 Observation/a2"},
		{"own patient", patientA, "Patient", "Patient/a"},
		{"another's", patientA, "Observation?subject=Patient/b", ""},
		{"shared", patientA, "Practitioner", "Practitioner/alice"},
		{"own and free devices", patientA, "Device", "Device/a1 Device/free"},
		{"pages", patientA, "Device?_count=1", "Device/a1 Device/free"},
		{"a constraint", access.Holder{Scope: "patient/Observation.s?category=http://c|laboratory", Patient: "a"}, "Observation", "Observation/a1"},
		{"constraints add up", access.Holder{Scope: "patient/Observation.s?category=http://c|laboratory patient/Observation.s?category=http://c|vital-signs", Patient: "a"}, "Observation", "Observation/a1 Observation/a2"},
		{"each once", access.Holder{Scope: "patient/Observation.s?category=http://c|laboratory patient/Observation.s?status=final", Patient: "a"}, "Observation", "Observation/a1 Observation/a2"},
		{"several types", patientA, "?_type=Patient,Observation", "Observation/a1 Observation/a2 Patient/a"},
		{"included", patientA, "Observation?_include=Observation:subject&_id=a1", "Observation/a1 Patient/a"},
		{"revincluded", patientA, "Patient?_revinclude=Observation:subject", "Observation/a1 Observation/a2 Patient/a"},
		{"included through a hidden resource", access.Holder{Scope: "patient/Practitioner.rs patient/Observation.rs", Patient: "a"}, "Practitioner?_revinclude=Observation:performer&_include:iterate=Observation:subject", "Observation/a1 Practitioner/alice"},
		{"compartment", patientA, "Patient/a/Observation", "Observation/a1 Observation/a2"},
		{"a clinician", clinician, "Observation", "Observation/a1 Observation/a2 Observation/b1"},
		{"a clinician's pages", clinician, "Observation?_count=1", "Observation/a1 Observation/a2 Observation/b1"},
	})
}

// Only some request bodies can be judged; others are rejected.
func TestBody(t *testing.T) {
	t.Parallel()
	const own = `{"resourceType":"Observation","status":"final","subject":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name, target, media, encoding, body string
		status                              int
	}{
		{"FHIR JSON", "Observation", "application/fhir+json", "", own, 201},
		{"JSON", "Observation", "application/json;charset=UTF-8", "", own, 201},
		{"not compressed", "Observation", "application/fhir+json", "identity", own, 201},
		{"compressed", "Observation", "application/fhir+json", "gzip", own, 415},
		{"XML", "Observation", "application/fhir+xml", "", own, 415},
		{"no type", "Observation", "", "", own, 415},
		{"another charset", "Observation", "application/fhir+json; charset=utf-16", "", own, 415},
		{"as long as may be", "Observation", "application/fhir+json", "", own + strings.Repeat(" ", 200-len(own)), 201},
		{"too long", "Observation", "application/fhir+json", "", own + strings.Repeat(" ", 201-len(own)), 413},
		{"a form", "Observation/_search", "application/x-www-form-urlencoded", "", "_id=a1", 200},
		{"form labeled as JSON", "Observation/_search", "application/fhir+json", "", "_id=a1", 415},
		{"a parameter that is refused in a form", "Observation/_search", "application/x-www-form-urlencoded", "", "_filter=x", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			g.Limits = fhirserver.Limits{BodyBytes: 200}
			r := newRequest(http.MethodPost, "/fhir/R4/"+tt.target, tt.media, tt.body)
			r.Header.Set("Content-Encoding", tt.encoding)
			expectStatus(t, g.send(patientA, r), tt.status)
		})
	}
}

// Requests outside of the base path are not sent to the FHIR server.
func TestBase(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	g.server.OnRequest = func(r *http.Request) { t.Errorf("unexpected request for %s", r.URL.Path) }
	for _, path := range []string{"/fhir/R40/Observation/a1", "/fhir/R4Observation/a1", "/fhir", "/Observation/a1"} {
		got := g.send(access.Holder{Scope: "system/*.rs"}, httptest.NewRequest(http.MethodGet, path, nil))
		if got.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d", path, got.StatusCode)
		}
	}
}

// The error for an invalid search body is the same as for an invalid query.
func TestSearchBody(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	r := newRequest(http.MethodPost, "/fhir/R4/Observation/_search", "application/fhir+json", "code=x")
	response := g.send(patientA, r)
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(string(text), "application/x-www-form-urlencoded") {
		t.Errorf("%d %s", response.StatusCode, text)
	}
}

// Judged responses are JSON. Requests for other formats are rejected before they have any effect.
func TestAccept(t *testing.T) {
	t.Parallel()
	const xml = "application/fhir+xml"
	for _, tt := range []struct {
		name, request, accept, body string
		status                      int
	}{
		{"nothing", "GET Observation/a1", "", "", 200},
		{"what cannot be read", "GET Observation/a1", ";", "", 200},
		{"anything", "GET Observation/a1", "*/*", "", 200},
		{"any application", "GET Observation/a1", "application/*;q=0.1", "", 200},
		{"FHIR JSON", "GET Observation/a1", "application/fhir+json; fhirVersion=4.0", "", 200},
		{"JSON", "GET Observation/a1", "application/json", "", 200},
		{"HAPI's client", "GET Observation/a1", "application/fhir+xml;q=1.0, application/fhir+json;q=1.0, application/xml+fhir;q=0.9", "", 200},
		{"XML", "GET Observation/a1", xml, "", 406},
		{"XML, and JSON never", "GET Observation/a1", xml + ", application/fhir+json;q=0", "", 406},
		{"Turtle", "GET Observation/a1", "text/turtle", "", 406},
		{"JSON by parameter", "GET Observation/a1?_format=application/fhir%2Bjson", xml, "", 200},
		{"XML by parameter", "GET Observation/a1?_format=xml", "application/fhir+json", "", 406},
		{"XML by a form", "POST Observation/_search", "*/*", "_format=xml", 406},
		{"a version", "GET Observation/a1/_history/1", xml, "", 406},
		{"a history", "GET Observation/a1/_history", xml, "", 406},
		{"a search", "GET Observation", xml, "", 406},
		{"an operation", "GET Patient/a/$everything", xml, "", 406},
		{"a write", "POST Observation", xml, observation("", "Patient/a", ""), 406},
		{"a deletion", "DELETE Observation/a1", xml, "", 406},
		{"a batch", "POST ", xml, fmt.Sprintf(batchOf, "batch", ""), 406},
		{"another's record", "GET Observation/b1", xml, "", 406},
		{"none's record", "GET Observation/none", xml, "", 406},
		{"a Binary in XML", "GET Binary/a1", xml, "", 406},
		{"a Binary in XML by parameter", "GET Binary/a1?_format=xml", "", "", 406},
		{"a Binary as it is, in XML", "GET Binary/a1", "text/xml", "", 200},
		{"Binaries", "GET Binary", "application/pdf", "", 406},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, writable...)
			g.server.OnRequest = func(r *http.Request) {
				if tt.status == 406 {
					t.Errorf("%s %s reaches the server", r.Method, r.URL)
				}
			}
			method, target, _ := strings.Cut(tt.request, " ")
			r := httptest.NewRequest(method, "/fhir/R4/"+target, strings.NewReader(tt.body))
			r.Header.Set("Accept", tt.accept)
			r.Header.Set("Content-Type", "application/fhir+json")
			if strings.HasSuffix(target, "_search") {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			if got := g.send(patientA, r).StatusCode; got != tt.status {
				t.Errorf("status %d", got)
			}
		})
	}
}

// A page link negotiates its format in the same way as a search.
func TestAcceptOfPage(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	next := g.nextOf(g.get(patientA, "Observation?_count=1"))
	r := httptest.NewRequest(http.MethodGet, strings.TrimPrefix(next, "https://gateway.example"), nil)
	r.Header.Set("Accept", "application/fhir+xml")
	if got := g.send(patientA, r).StatusCode; got != 406 || next == "" {
		t.Errorf("%s: %d", next, got)
	}
}

// Scopes to read everything permit no writes.
func TestReadersWriteNothing(t *testing.T) {
	t.Parallel()
	const changed = `{"resourceType":"Observation","id":"b1","status":"amended","subject":{"reference":"Patient/b"}}`
	for _, scope := range []string{"system/*.rs", "system/Observation.rs"} {
		g := newGateway(t, records...)
		g.server.OnRequest = func(r *http.Request) { t.Errorf("%s: unexpected request: %s %s", scope, r.Method, r.URL) }
		for _, request := range []string{"DELETE Observation/b1", "PUT Observation/b1", "POST Observation", "PATCH Observation/b1", "DELETE Observation?_id=b1", "PUT Observation?_id=b1"} {
			got := g.written(writeCase{holder: access.Holder{Scope: scope}, request: request, body: changed})
			if got.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s: status %d", scope, request, got.StatusCode)
			}
		}
	}
}

// The form of a search by POST is judged.
func TestFormIsRead(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	r := newRequest(http.MethodPost, "/fhir/R4/Observation/_search", "application/x-www-form-urlencoded", "_include=Observation:subject")
	response := g.send(access.Holder{Scope: "system/Observation.rs"}, r)
	if text := bodyOf(t, response); response.StatusCode != http.StatusOK || strings.Contains(text, `"resourceType":"Patient"`) {
		t.Errorf("status %d: %s", response.StatusCode, text)
	}
}

// A disabled operation is rejected for every token.
func TestOperationOff(t *testing.T) {
	t.Parallel()
	off, err := operation.ParseOperation("$meta", "off")
	if err != nil {
		t.Fatal(err)
	}
	g := newOperationGateway(t, off)
	for _, h := range []access.Holder{clinician, patientA} {
		if got := g.get(h, "Observation/a1/$meta"); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", h.Scope, got.StatusCode)
		}
	}
}

// Some resources belong to a patient because of the resources that they refer to.
func TestNeeded(t *testing.T) {
	t.Parallel()
	binary := func(id, context string) string {
		return `{"resourceType":"Binary","id":"` + id + `","securityContext":{"reference":"` + context + `"}}`
	}
	both := access.Holder{Scope: "patient/*.r user/*.r", Patient: "a", User: interaction.Reference{Type: "Patient", ID: "b"}, UserPatient: "b"}
	resources := append([]string{
		binary("patient", "Patient/a"), binary("record", "Observation/a1"), binary("another", "Observation/b1"),
		binary("binary", "Binary/record"), binary("nothing", "Observation/none"), binary("shared", "Practitioner/alice"),
		binary("swapped", "Observation/swapped"), binary("unheard", "Unheard/a1"), binary("dots", "Observation/.."),
	}, records...)
	for _, tt := range []struct {
		name, target string
		holder       access.Holder
		status       int
	}{
		{"the patient's", "patient", patientA, 200},
		{"a record's", "record", patientA, 200},
		{"another's record's", "another", patientA, 404},
		{"what depends on another in turn", "binary", patientA, 404},
		{"missing resource", "nothing", patientA, 404},
		{"shared resource", "shared", patientA, 200},
		{"resource swapped by the server", "swapped", patientA, 404},
		{"a type that FHIR does not have", "unheard", patientA, 404},
		{"a dot segment", "dots", patientA, 404},
		{"a record of the other of two patients", "another", both, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, resources...)
			own := newHandler(`{"resourceType":"Observation","id":"a1","subject":{"reference":"Patient/a"}}`)
			g.server.Handlers = map[string]http.HandlerFunc{"Observation/swapped": own, "Unheard/a1": own, "Observation/..": own, "Observation": own}
			expectStatus(t, g.get(tt.holder, "Binary/"+tt.target), tt.status)
		})
	}
}

// A Provenance with targets in two patients' records is accessible to neither patient.
func TestProvenanceOfTwo(t *testing.T) {
	t.Parallel()
	provenance := func(id, first, second string) string {
		return `{"resourceType":"Provenance","id":"` + id + `","target":[{"reference":"` + first + `"},{"reference":"` + second + `"}]}`
	}
	g := newGateway(t, append(slices.Clone(writable), provenance("own", "Patient/a", "Observation/a1"), provenance("patients", "Patient/a", "Patient/b"),
		provenance("record", "Patient/a", "Observation/b1"), provenance("records", "Observation/a1", "Observation/b1"))...)
	for id, want := range map[string]int{"own": 200, "patients": 404, "record": 404, "records": 404} {
		for _, at := range []string{"", "/_history/1", "/_history"} {
			if got := g.get(patientA, "Provenance/"+id+at).StatusCode; got != want {
				t.Errorf("%s%s: %d", id, at, got)
			}
		}
	}
	for _, target := range []string{"Provenance?patient=Patient/a", "Observation?_id=a1&_revinclude=Provenance:target", "Patient?_revinclude=Provenance:target"} {
		body, _ := io.ReadAll(g.get(patientA, target).Body)
		if text := string(body); !strings.Contains(text, `"own"`) || strings.Contains(text, `"patients"`) || strings.Contains(text, `"record"`) || strings.Contains(text, `"records"`) {
			t.Errorf("%s: %s", target, text)
		}
	}
}

// storeMovedObservation stores an Observation that belongs to patients b, a, b and a, in this order.
func storeMovedObservation(g *gateway) {
	for _, patient := range []string{"b", "a", "b", "a"} {
		g.server.Put(`{"resourceType":"Observation","id":"moved","status":"final","subject":{"reference":"Patient/` + patient + `"}}`)
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		target string
		want   string // patients of the returned versions, or the status
	}{
		{"one's own versions", patientA, "Observation/moved/_history", "aa"},
		{"another's versions", access.Holder{Scope: "patient/*.r", Patient: "b"}, "Observation/moved/_history", "bb"},
		{"without a patient", access.Holder{Scope: "patient/*.r", Patient: "c"}, "Observation/moved/_history", "404"},
		{"missing resource", patientA, "Observation/none/_history", "404"},
		{"another's resource", patientA, "Observation/b1/_history", "404"},
		{"without all elements", patientA, "Observation/moved/_history?_elements=subject&_summary=count", "aa"},
		{"pages", patientA, "Observation/moved/_history?_count=1", "aa"},
		{"pages, the first of which is another's", access.Holder{Scope: "patient/*.r", Patient: "b"}, "Observation/moved/_history?_count=1", "404"},
		{"a page of the server's", patientA, "Observation/moved/_history?_getpages=0", "403"},
		{"a whole grant", clinician, "Observation/moved/_history", "abab"},
		{"a whole grant, pages", clinician, "Observation/moved/_history?_count=1", "abab"},
		{"to search is not to read", access.Holder{Scope: "patient/*.s", Patient: "a"}, "Observation/moved/_history", "403"},
		{"of a type", patientA, "Observation/_history", "403"},
		{"of all types", patientA, "_history", "403"},
		{"of a type, within a constraint", access.Holder{Scope: "user/Observation.rs?status=final", User: clinician.User}, "Observation/_history", "403"},
		{"of all types, for one", access.Holder{Scope: "user/Observation.rs", User: clinician.User}, "_history", "403"},
		{"of another type", access.Holder{Scope: "user/Observation.rs", User: clinician.User}, "Encounter/_history", "403"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...)
			storeMovedObservation(g)
			if got := g.patients(tt.holder, tt.target); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// patients returns the patients of the versions on all pages of a history, or the status of the rejection.
func (g *gateway) patients(h access.Holder, target string) string {
	g.t.Helper()
	all := ""
	for target != "" {
		response := g.get(h, target)
		if response.StatusCode != http.StatusOK {
			return response.Status[:3]
		}
		var b struct {
			bundle
			Entry []struct {
				Resource struct{ Subject struct{ Reference string } }
				Request  struct{ URL string }
			}
		}
		if err := json.NewDecoder(response.Body).Decode(&b); err != nil {
			g.t.Fatal(err)
		}
		if h.Scope == patientA.Scope && b.Total != nil {
			g.t.Errorf("a total of %d", *b.Total)
		}
		for _, e := range b.Entry {
			all += cmp.Or(strings.TrimPrefix(e.Resource.Subject.Reference, "Patient/"), "-")
		}
		target = b.next()
	}
	return all
}

// Deletions are omitted from a history because they do not identify the resource's owner.
func TestHistoryOfDeletions(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	storeMovedObservation(g)
	g.send(clinician, httptest.NewRequest(http.MethodDelete, "/fhir/R4/Observation/moved", nil))
	if got := g.patients(patientA, "Observation/moved/_history"); got != "aa" {
		t.Errorf("got %q", got)
	}
}

// The history of a resource omits versions of any other resource that the FHIR server returns.
func TestHistoryOfAnother(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	next := respondInPieces([]byte(`{"resourceType":"Bundle","type":"history","entry":[{"resource":{"resourceType":"Observation","id":"other","subject":{"reference":"Patient/a"}}}]}`))
	err := g.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation/o/_history", nil), next, enforce.Bearer{Rights: access.New(patientA, g.TypeRules)})
	if refused, ok := errors.AsType[*guard.Error](err); !ok || refused.Status != http.StatusNotFound {
		t.Errorf("got %v", err)
	}
}

// Versions have public addresses, whichever base URL the FHIR server's responses contain.
func TestHistoryAddresses(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		"http://10.0.0.1/api/Observation/o/_history/1": "https://gateway.example/fhir/R4/Observation/o/_history/1",
		"Observation/o/_history/1":                     "https://gateway.example/fhir/R4/Observation/o/_history/1",
		"http://10.0.0.1/api/job":                      "",
	} {
		g := newGateway(t)
		g.server.Handlers = map[string]http.HandlerFunc{"Observation/o/_history": newHandler(`{"resourceType":"Bundle","type":"history","entry":[
			{"resource":{"resourceType":"Observation","id":"o","subject":{"reference":"Patient/a"}},"response":{"status":"201","location":"` + location + `"}}]}`)}
		var b struct {
			Entry []struct{ Response struct{ Location string } }
		}
		if err := json.NewDecoder(g.get(patientA, "Observation/o/_history").Body).Decode(&b); err != nil || len(b.Entry) != 1 || b.Entry[0].Response.Location != want {
			t.Errorf("%s: %+v, %v", location, b, err)
		}
	}
}
