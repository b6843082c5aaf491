package enforce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
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
	g.Policies = judge.Policies{Rules: set, Input: func(r *http.Request, _ *guard.Token) policy.Input {
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(tt.rule)
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+tt.target, nil)
			r.Header.Set("Accept", "application/fhir+xml")
			r.Header.Set("Client-IP", tt.address)
			next := accepted{}
			if err := g.Serve(httptest.NewRecorder(), r, &next, enforce.Bearer{Rights: access.New(reader, g.Shared)}); (err == nil) != tt.passes {
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
