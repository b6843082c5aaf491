package enforce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// sealing seals by naming the binding: enough for tests of what is bound.
type sealing struct{}

func (sealing) Seal(_ context.Context, text, binding string) (string, error) {
	return strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(encode(binding + "\x00" + text)), nil
}

func (sealing) Unseal(_ context.Context, sealed, binding string, _ time.Duration) (string, error) {
	text, ok := strings.CutPrefix(decode(sealed), binding+"\x00")
	if !ok {
		return "", errors.New("not sealed")
	}
	return text, nil
}

// pageStates are stored states of pages.
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

func encode(s string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(s) {
		b.WriteByte(digits[s[i]>>4])
		b.WriteByte(digits[s[i]&15])
	}
	return b.String()
}

func decode(s string) string {
	var b strings.Builder
	for i := 0; i+1 < len(s); i += 2 {
		b.WriteByte(byte(strings.IndexByte("0123456789abcdef", s[i])<<4 | strings.IndexByte("0123456789abcdef", s[i+1])))
	}
	return b.String()
}

// gateway is an enforcer before a server.
type gateway struct {
	t *testing.T
	*enforce.Enforcer
	server *fhirtest.Server
	next   message.NextHandler // answers in place of the server, unless it is nil
}

func newGateway(t *testing.T, resources ...string) *gateway {
	t.Helper()
	return &gateway{t, &enforce.Enforcer{
		Base: "/fhir/R4", BaseURL: "https://gateway.example/fhir/R4", Shared: access.NewShared(nil), Sealing: sealing{}, PageStates: &pageStates{},
	}, fhirtest.New(resources...), nil}
}

// send has a holder's request answered. An error is answered as its status, with the description as the body.
func (g *gateway) send(h access.Holder, r *http.Request) *http.Response {
	g.t.Helper()
	w := httptest.NewRecorder()
	h.Parameters = g.Parameters
	rights := access.New(h, g.Shared)
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

// get is send for a GET below the FHIR base, or for a link.
func (g *gateway) get(h access.Holder, target string) *http.Response {
	g.t.Helper()
	target = strings.TrimPrefix(target, "https://gateway.example")
	if !strings.HasPrefix(target, "/fhir/R4") {
		target = "/fhir/R4/" + target
	}
	return g.send(h, httptest.NewRequest(http.MethodGet, target, nil))
}

// bundle is what tests look at in a Bundle.
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

// found are the references of all that a search answers, over all pages, sorted.
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

// holders that tests share.
var (
	clinician = access.Holder{Scope: "user/*.cruds", User: interaction.Reference{Type: "Practitioner", ID: "alice"}}
	patientA  = access.Holder{Scope: "patient/*.cruds", Patient: "a"}
)

// records are two patients' records.
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
		{"a device of nobody", patientA, "Device/free", 200},
		{"a binary of an own record", patientA, "Binary/a1", 200},
		{"a binary of another's record", patientA, "Binary/b1", 404},
		{"a binary of unknown context", patientA, "Binary/free", 404},
		{"no permission", access.Holder{Scope: "patient/*.cuds", Patient: "a"}, "Patient/a", 403},
		{"no patient in context", access.Holder{Scope: "patient/*.rs"}, "Patient/a", 403},
		{"another type", access.Holder{Scope: "patient/Observation.rs", Patient: "a"}, "Patient/a", 403},
		{"a clinician", clinician, "Observation/b1", 200},
		{"a patient's user scope, own", access.Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Patient", ID: "a"}, UserPatient: "a"}, "Observation/a1", 200},
		{"a patient's user scope, another's", access.Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Patient", ID: "a"}, UserPatient: "a"}, "Observation/b1", 404},
		{"user scope of nobody known", access.Holder{Scope: "user/*.rs"}, "Observation/a1", 403},
		{"one's own record by fhirUser", access.Holder{Scope: "openid fhirUser", User: interaction.Reference{Type: "Practitioner", ID: "alice"}}, "Practitioner/alice", 200},
		{"another's record by fhirUser", access.Holder{Scope: "openid fhirUser", User: interaction.Reference{Type: "Patient", ID: "a"}}, "Patient/b", 404},
		{"openid alone", access.Holder{Scope: "openid", User: interaction.Reference{Type: "Patient", ID: "a"}}, "Patient/a", 403},
		{"within a constraint", access.Holder{Scope: "patient/Observation.r?category=http://c|laboratory", Patient: "a"}, "Observation/a1", 200},
		{"outside a constraint", access.Holder{Scope: "patient/Observation.r?category=http://c|laboratory", Patient: "a"}, "Observation/a2", 404},
		{"the context of one scope with the constraint of another", access.Holder{Scope: "user/Observation.r?category=http://c|vital-signs patient/Observation.r?category=http://c|laboratory", Patient: "a", User: clinician.User}, "Observation/b1", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := newGateway(t, records...).get(tt.holder, tt.target); got.StatusCode != tt.status {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}

// searchCase is a search, and what it finds: references, or the status of a refusal.
type searchCase struct {
	name   string
	holder access.Holder
	target string
	want   string
}

// testSearches runs searches over resources, of a server that searches in compartments, and of one that does not.
func testSearches(t *testing.T, resources []string, tests []searchCase) {
	t.Helper()
	for _, tt := range tests {
		for _, byCompartment := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, compartment_search %v", tt.name, byCompartment), func(t *testing.T) {
				g := newGateway(t, resources...)
				g.CompartmentSearch = byCompartment
				g.server.Seen = func(r *http.Request) {
					if !byCompartment && strings.Count(r.URL.Path, "/") > strings.Count("/fhir/R4/Type/id", "/") {
						t.Errorf("asked %s of a server without searches in compartments", r.URL.Path)
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
		{"included over what is hidden", access.Holder{Scope: "patient/Practitioner.rs patient/Observation.rs", Patient: "a"}, "Practitioner?_revinclude=Observation:performer&_include:iterate=Observation:subject", "Observation/a1 Practitioner/alice"},
		{"compartment", patientA, "Patient/a/Observation", "Observation/a1 Observation/a2"},
		{"a clinician", clinician, "Observation", "Observation/a1 Observation/a2 Observation/b1"},
		{"a clinician's pages", clinician, "Observation?_count=1", "Observation/a1 Observation/a2 Observation/b1"},
	})
}
