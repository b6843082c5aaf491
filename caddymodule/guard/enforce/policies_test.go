package enforce_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// withRules gives a gateway rules of the form "allow expression" or "deny expression". They see a token of the client
// app, for Practitioner/alice.
func (g *gateway) withRules(rules ...string) *gateway {
	g.t.Helper()
	var all []policy.Rule
	for _, text := range rules {
		effect, expression, _ := strings.Cut(text, " ")
		all = append(all, policy.Rule{Effect: policy.Effect(effect), Expression: expression})
	}
	set, err := policy.Compile(all)
	if err != nil {
		g.t.Fatal(err)
	}
	g.Policies = enforce.Policies{Rules: set, Input: func(r *http.Request) policy.Input {
		return policy.Input{
			Token:   policy.Token{ClientID: "app", FHIRUser: "Practitioner/alice"},
			Request: policy.Request{ClientIP: r.Header.Get("Client-IP")}, Now: time.Unix(0, 0),
		}
	}}
	return g
}

var (
	nobody = access.Holder{Scope: "openid"}
	// reader is bound to nothing, so that its requests pass.
	reader = access.Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Practitioner", ID: "alice"}}
)

func TestPoliciesRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		rules  string // separated by ;
		target string
		status int
	}{
		{"no rule applies", reader, "deny request.id == 'b'", "Patient/a", 200},
		{"denied", reader, "deny request.id == 'a'", "Patient/a", 403},
		{"denied, bound", patientA, "deny request.id == 'a'", "Patient/a", 403},
		{"denied by a rule that fails", reader, "deny request.parameters['none'] == []", "Patient/a", 403},
		{"deny wins", reader, "allow true;deny true", "Patient/a", 403},
		{"withheld", reader, "deny resource.id == 'a'", "Patient/a", 404},
		{"withheld, bound", patientA, "deny resource.id == 'a'", "Patient/a", 404},
		{"withheld by a rule that fails", reader, "deny resource.none == ''", "Patient/a", 404},
		{"another is withheld", reader, "deny resource.id == 'a'", "Patient/b", 200},
		{"allowed", nobody, "allow request.type == 'Patient'", "Patient/b", 200},
		{"allowed, and still not there", nobody, "allow true", "Patient/c", 404},
		{"beyond one's compartment", patientA, "allow request.type == 'Patient'", "Patient/b", 200},
		{"not allowed", nobody, "allow request.type == 'Patient'", "Observation/a1", 403},
		{"not allowed by a rule that fails", nobody, "allow request.parameters['none'] == []", "Patient/a", 403},
		{"the resource allowed", nobody, "allow resource.id == 'b'", "Patient/b", 200},
		{"beyond one's compartment by the resource", patientA, "allow resource.id == 'b'", "Patient/b", 200},
		{"one's own besides", patientA, "allow resource.id == 'b'", "Patient/a", 200},
		{"another resource allowed", nobody, "allow resource.id == 'b'", "Patient/a", 404},
		{"withheld after all", nobody, "allow request.type == 'Patient';deny resource.id == 'b'", "Patient/b", 404},
		{"allowed and withheld", nobody, "allow resource.id == 'b';deny resource.id == 'b'", "Patient/b", 404},
		{"a version is withheld", reader, "deny resource.id == 'a'", "Patient/a/_history/1", 404},
		{"depending on what is withheld", patientA, "deny resource.resourceType == 'Observation'", "Binary/a1", 404},
		{"depending on what is there", patientA, "deny resource.resourceType == 'Patient'", "Binary/a1", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(strings.Split(tt.rules, ";")...)
			if got := g.get(tt.holder, tt.target); got.StatusCode != tt.status {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}

func TestPoliciesSearch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		rules  string
		target string
		want   string
	}{
		{"withheld", reader, "deny resource.id == 'a2'", "Observation", "Observation/a1 Observation/b1"},
		{"withheld, bound", patientA, "deny resource.id == 'a2'", "Observation", "Observation/a1"},
		{"withheld on later pages", reader, "deny resource.id == 'a2'", "Observation?_count=1", "Observation/a1 Observation/b1"},
		{"withheld by what is searched", reader, "deny 'category' in request.parameters && resource.id == 'a1'", "Observation?category=http://c|laboratory", "Observation/b1"},
		{"withheld by what is searched, on later pages", reader, "deny 'status' in request.parameters && resource.id == 'b1'", "Observation?status=final&_count=1", "Observation/a1 Observation/a2"},
		{"denied but for what is searched", reader, "deny !('status' in request.parameters)", "Observation?status=final&_count=1", "Observation/a1 Observation/a2 Observation/b1"},
		{"a chain over what is withheld", reader, "deny resource.resourceType == 'Patient'", "Observation?subject:Patient.family=Brown", ""},
		{"a chain over what is not", reader, "deny resource.resourceType == 'Patient' && resource.id == 'a'", "Observation?subject:Patient.family=Brown,Adams", "Observation/b1"},
		{"an include is withheld", reader, "deny resource.resourceType == 'Patient'", "Observation?_id=a1&_include=Observation:subject", "Observation/a1"},
		{"a match is withheld, and what it brings along", reader, "deny resource.resourceType == 'Observation'", "Observation?_id=a1&_include=Observation:subject", ""},
		{"of the system", reader, "deny resource.id == 'a2'", "?_type=Observation,Patient", "Observation/a1 Observation/b1 Patient/a Patient/b"},
		{"in a compartment", reader, "deny resource.id == 'a2' || request.compartment != 'Patient/a'", "Patient/a/Observation", "Observation/a1"},
		{"allowed", nobody, "allow request.interaction == 'search-type'", "Observation", "Observation/a1 Observation/a2 Observation/b1"},
		{"some allowed", nobody, "allow resource.status == 'final' && resource.id != 'a2'", "Observation", "Observation/a1 Observation/b1"},
		{"some allowed on later pages", nobody, "allow resource.id != 'a2'", "Observation?_count=1", "Observation/a1 Observation/b1"},
		{"some allowed besides one's own", patientA, "allow resource.id == 'b1'", "Observation", "Observation/a1 Observation/a2 Observation/b1"},
		{"an include is allowed", access.Holder{Scope: "patient/Observation.rs", Patient: "a"}, "allow resource.resourceType == 'Patient' && resource.id == 'a'", "Observation?_id=a1&_include=Observation:subject", "Observation/a1 Patient/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(strings.Split(tt.rules, ";")...)
			if got := strings.Join(g.found(tt.holder, tt.target), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestPoliciesWrite checks that rules judge what is stored and what is to be.
func TestPoliciesWrite(t *testing.T) {
	t.Parallel()
	const (
		ofA = `{"resourceType":"Observation","id":"a1","status":"amended","subject":{"reference":"Patient/a"}}`
		ofB = `{"resourceType":"Observation","id":"b1","status":"final","subject":{"reference":"Patient/b"}}`
	)
	for _, tt := range []struct {
		name           string
		holder         access.Holder
		rules          string
		method, target string
		body           string
		status         int
	}{
		{"create", clinician, "deny resource.status == 'final'", "POST", "Observation", ofA, 201},
		{"create denied", clinician, "deny resource.status == 'amended'", "POST", "Observation", ofA, 403},
		{"create denied, bound", patientA, "deny resource.status == 'amended'", "POST", "Observation", ofA, 403},
		{"create allowed", nobody, "allow request.interaction == 'create'", "POST", "Observation", ofB, 201},
		{"create allowed by the resource", patientA, "allow resource.subject.reference == 'Patient/b'", "POST", "Observation", ofB, 201},
		{"create not allowed by the resource", patientA, "allow resource.status == 'draft'", "POST", "Observation", ofB, 403},
		{"update", clinician, "deny resource.status == 'draft'", "PUT", "Observation/a1", ofA, 200},
		{"update to what is denied", clinician, "deny resource.status == 'amended'", "PUT", "Observation/a1", ofA, 403},
		{"update of what is withheld", clinician, "deny resource.status == 'final'", "PUT", "Observation/a1", ofA, 404},
		{"update beyond one's compartment", patientA, "allow resource.subject.reference == 'Patient/b'", "PUT", "Observation/b1", ofB, 200},
		{"delete", clinician, "deny resource.status == 'draft'", "DELETE", "Observation/a1", "", 204},
		{"delete denied", clinician, "deny request.method == 'DELETE'", "DELETE", "Observation/a1", "", 403},
		{"delete of what is withheld", clinician, "deny resource.status == 'final'", "DELETE", "Observation/a1", "", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(strings.Split(tt.rules, ";")...)
			r := httptest.NewRequest(tt.method, "/fhir/R4/"+tt.target, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "application/fhir+json")
			if got := g.send(tt.holder, r); got.StatusCode != tt.status {
				said, _ := io.ReadAll(got.Body)
				t.Errorf("status %d, want %d: %s", got.StatusCode, tt.status, said)
			}
		})
	}
}

// TestPoliciesHistory checks that each version is judged.
func TestPoliciesHistory(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny resource.status == 'final'")
	g.server.Put(`{"resourceType":"Observation","id":"a1","status":"amended","subject":{"reference":"Patient/a"}}`)
	var b bundle
	if err := json.NewDecoder(g.get(reader, "Observation/a1/_history").Body).Decode(&b); err != nil || len(b.Entry) != 1 {
		t.Errorf("got %+v, %v", b, err)
	}
	for _, target := range []string{"Observation/_history", "_history"} {
		if got := g.get(reader, target); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", target, got.StatusCode)
		}
	}
}

// TestPoliciesForm checks that rules see the parameters of a search by POST, which nothing else has to look at.
func TestPoliciesForm(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny 'status' in request.parameters")
	for form, want := range map[string]int{"status=final": http.StatusForbidden, "_id=a1": http.StatusOK} {
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/Observation/_search", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if got := g.send(reader, r); got.StatusCode != want {
			t.Errorf("%s: status %d", form, got.StatusCode)
		}
	}
}

// TestPoliciesPages checks that rules judge each page, and not only the first.
func TestPoliciesPages(t *testing.T) {
	t.Parallel()
	for _, holder := range []access.Holder{reader, patientA} {
		g := newGateway(t, records...).withRules("deny false")
		var b bundle
		if err := json.NewDecoder(g.get(holder, "Observation?_count=1").Body).Decode(&b); err != nil || b.next() == "" {
			t.Fatalf("%+v, %v", b, err)
		}
		g.withRules("deny request.type == 'Observation'")
		if got := g.get(holder, b.next()); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", holder.Scope, got.StatusCode)
		}
	}
}

// TestPoliciesTotal checks that no number tells of what is withheld.
func TestPoliciesTotal(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny resource.id == 'b1'")
	if got := g.get(reader, "Observation?_summary=count"); got.StatusCode != http.StatusForbidden {
		t.Errorf("_summary=count: status %d", got.StatusCode)
	}
	for _, target := range []string{"Observation", "Observation?_total=accurate", "Observation?_count=1"} {
		var b bundle
		if err := json.NewDecoder(g.get(reader, target).Body).Decode(&b); err != nil || b.Total != nil && (*b.Total != len(b.Entry) || b.next() != "") {
			t.Errorf("%s: total %v, %v", target, b.Total, err)
		}
	}
}

// TestPoliciesOracle checks that searches for what is withheld cannot ask about other resources.
func TestPoliciesOracle(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny resource.resourceType == 'Patient' && resource.id == 'b'")
	for _, target := range []string{"Observation?_filter=a", "Observation?_sort=subject"} {
		if got := g.get(reader, target); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", target, got.StatusCode)
		}
	}
}

// TestPoliciesText checks that a refusal names the rule, and that what is withheld answers as what is not there.
func TestPoliciesText(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny false", "deny request.type == 'Device'", "deny resource.id == 'b'")
	text := func(target string) string {
		said, _ := io.ReadAll(g.get(reader, target).Body)
		return string(said)
	}
	if got := text("Device/a1"); got != "The rule 2 of this server does not allow this." {
		t.Errorf("denied: %q", got)
	}
	if withheld, missing := text("Patient/b"), text("Patient/none"); withheld != missing {
		t.Errorf("withheld: %q, missing: %q", withheld, missing)
	}
}

// TestPoliciesFailed checks that rules that fail are reported by name.
func TestPoliciesFailed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, rule, want string }{
		{"deny", "deny request.parameters['none'] == []", "rule 1: no such key: none"},
		{"allow", "allow request.parameters['none'] == []", "rule 1: no such key: none"},
		{"deny a resource", "deny resource.none == ''", "rule 1: no such key: none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(tt.rule)
			var failed []string
			g.Policies.Failed = func(_ *http.Request, err error) { failed = append(failed, err.Error()) }
			g.get(patientA, "Patient/a")
			if !slices.Equal(failed, []string{tt.want}) {
				t.Errorf("got %q", failed)
			}
		})
	}
}

// TestPoliciesPassing checks that requests with which no rule has to do pass as they are.
func TestPoliciesPassing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rule, target, address string
		passes                      bool
	}{
		{"a rule over the request", "deny request.id == 'b'", "Patient/a", "", true},
		{"a rule over another client's resources", "deny token.client_id == 'other' && resource.id == 'b'", "Patient/a", "", true},
		{"a rule over this client's resources", "deny token.client_id == 'app' && resource.id == 'b'", "Patient/a", "", false},
		{"a rule over resources that are asked for from outside", "deny request.client_ip != '10.0.0.1' && resource.id == 'b'", "Patient/a", "10.0.0.1", true},
		{"a rule that allows more", "allow resource.id == 'b'", "Patient/a", "", true},
		{"capabilities, which are public", "deny true", "metadata", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(tt.rule)
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+tt.target, nil)
			r.Header.Set("Accept", "application/fhir+xml")
			r.Header.Set("Client-IP", tt.address)
			next := accepted{}
			if err := g.Serve(httptest.NewRecorder(), r, &next, access.New(reader, g.Shared), ""); (err == nil) != tt.passes {
				t.Errorf("got %v", err)
			}
			if passed := next.accept == "application/fhir+xml"; passed != tt.passes {
				t.Errorf("passes: %t", passed)
			}
		})
	}
}

// accepted is a server that notes what it should answer with.
type accepted struct{ accept string }

func (a *accepted) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	a.accept = r.Header.Get("Accept")
	w.WriteHeader(http.StatusOK)
	return nil
}
