package policy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sample"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		from Rule
		want string // substring of the error
		err  error
	}{
		{"syntax", Rule{Effect: rule.Deny, Expression: "token.patient =="}, "column 17: Syntax error", errInvalidExpression},
		{"unknown variable", Rule{Effect: rule.Deny, Expression: "true || user == ''"}, "column 9: undeclared reference to 'user'", errInvalidExpression},
		{"unknown field", Rule{Effect: rule.Deny, Expression: "token.client == 'a'"}, "column 6: undefined field 'client'", errInvalidExpression},
		{"a field of another type", Rule{Effect: rule.Deny, Expression: "token.scopes == 'a'"}, "column 14: found no matching overload", errInvalidExpression},
		{"several lines", Rule{Effect: rule.Deny, Expression: "true &&\n\tnone"}, "line 2, column 2: undeclared reference", errInvalidExpression},
		{"a string", Rule{Effect: rule.Deny, Expression: "token.patient"}, "the result is string, not bool", errInvalidExpression},
		{"unknown type", Rule{Effect: rule.Deny, Expression: "resource.active"}, "the result is dyn, not bool", errInvalidExpression},
		{"the whole resource", Rule{Effect: rule.Deny, Expression: "true || 'id' in resource"}, "column 17: resource must be used with an element", errInvalidExpression},
		{"an element by a variable", Rule{Effect: rule.Deny, Expression: "resource[request.type] == 1"}, "column 1: resource must be used with an element", errInvalidExpression},
		{"regular expression", Rule{Effect: rule.Deny, Expression: "request.id.matches('(')"}, "invalid matches argument", errInvalidExpression},
		{"too long", Rule{Effect: rule.Deny, Expression: strings.Repeat("true||", maxLength) + "true"}, "expression code point size exceeds limit", errInvalidExpression},
		{"no effect", Rule{Expression: "true"}, "the effect \"\" is neither", errInvalidRule},
		{"a name with a space", Rule{Effect: rule.Deny, Name: "a b", Expression: "true"}, "the name must be 1 to 64", errInvalidRule},
		{"a long name", Rule{Effect: rule.Deny, Name: strings.Repeat("a", 65), Expression: "true"}, "the name must be 1 to 64", errInvalidRule},
		{"the name of another", Rule{Effect: rule.Deny, Name: "first", Expression: "true"}, "another rule has this name", errInvalidRule},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.from.Source.Source = "Caddyfile:7"
			_, err := Compile([]Rule{{Effect: rule.Allow, Name: "first", Expression: "true"}, tt.from})
			if !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "Caddyfile:7: "+string(tt.from.Effect)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Compile reports the errors of all rules at once.
func TestCompileAll(t *testing.T) {
	t.Parallel()
	_, err := Compile([]Rule{{Effect: rule.Deny, Expression: "a"}, {Effect: rule.Allow, Name: "second", Expression: "b"}})
	if err == nil || !strings.Contains(err.Error(), "deny 1: ") || !strings.Contains(err.Error(), "allow second: ") {
		t.Errorf("got %v", err)
	}
}

// The resource elements that a rule uses are found in its syntax tree.
func TestMentioned(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		expression string
		want       string
	}{
		{"resource.subject.reference == 'a'", "subject"},
		{"has(resource.meta)", "meta"},
		{"has(resource.meta.security) && resource.meta.tag == []", "meta"},
		{"resource.?code.hasValue()", "code"},
		{"resource['status'] == 'final'", "status"},
		{"resource[?'status'].orValue('') == 'final'", "status"},
		{".resource.id == ''", "id"},
		{"[1].exists(n, resource.id == 'a')", "id"},
		{"resource.b == 1 || resource.a == 2", "a b"},
		{"request.type == 'resource'", ""},
		{"{'resource': true}.resource", ""},
	} {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			s, err := Compile([]Rule{{Effect: rule.Deny, Expression: tt.expression}})
			if err != nil {
				t.Fatal(err)
			}
			looks := len(s.denyRules.resourceRules) > 0
			if got := strings.Join(s.elements, " "); got != tt.want || looks != (tt.want != "") {
				t.Errorf("got %q, %t, want %q", got, looks, tt.want)
			}
		})
	}
}

var documentedRule = regexp.MustCompile("(?s)```\n(allow|deny) ([a-z-]+) `([^`]+)`\n```")

// documentedRules returns the rules of a documentation page by name.
func documentedRules(t *testing.T, page string) map[string]*Set {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]*Set{}
	for _, found := range documentedRule.FindAllStringSubmatch(string(text), -1) {
		set, err := Compile([]Rule{{Effect: rule.Effect(found[1]), Name: found[2], Expression: found[3]}})
		if err != nil {
			t.Fatal(err)
		}
		sets[found[2]] = set
	}
	return sets
}

// fixedPolicy evaluates requests with a fixed token and time.
type fixedPolicy struct {
	t     *testing.T
	set   *Set
	token Token
	now   time.Time
}

func (p fixedPolicy) Evaluate(ctx context.Context, r rule.Request) rule.Evaluation {
	in := newInput(r, nil)
	in.Token, in.Now = p.token, p.now
	return p.set.Evaluate(ctx, in)
}

func (p fixedPolicy) ReportFailure(_ *http.Request, err error) { p.t.Error(err) }

// guardedServer is a FHIR server behind a guard with a policy.
type guardedServer struct {
	t        *testing.T
	enforcer *enforce.Enforcer
	store    *sample.Store
}

func newGuardedServer(t *testing.T, p fixedPolicy, records ...[]byte) guardedServer {
	t.Helper()
	store, err := sample.NewStore(records...)
	if err != nil {
		t.Fatal(err)
	}
	if p.t = t; p.set == nil {
		t.Fatal("rule not found")
	}
	return guardedServer{t, &enforce.Enforcer{Base: "/fhir/R4", TypeRules: enforce.NewTypeRules(nil), Policies: []rule.Policy{p}}, store}
}

// ServeHTTP implements the next handler: the FHIR server.
func (g guardedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	(&sample.Server{Base: "/fhir/R4", Store: g.store}).ServeHTTP(w, r)
	return nil
}

// get returns the status and body of a response.
func (g guardedServer) get(h enforce.Holder, target string) (int, []byte) {
	g.t.Helper()
	w := httptest.NewRecorder()
	err := g.enforcer.Serve(w, httptest.NewRequest(http.MethodGet, "/fhir/R4/"+target, nil), g, enforce.Bearer{Rights: enforce.NewRights(h, g.enforcer.TypeRules)})
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		return refusal.Status, nil
	} else if err != nil {
		g.t.Fatal(err)
	}
	return w.Code, w.Body.Bytes()
}

// found returns the references of the resources found by a search.
func (g guardedServer) found(h enforce.Holder, target string) []string {
	g.t.Helper()
	status, body := g.get(h, target)
	var b struct {
		Entry []struct {
			Resource struct{ ResourceType, ID string }
		}
	}
	if err := json.Unmarshal(body, &b); err != nil {
		g.t.Fatalf("%s: status %d, %v", target, status, err)
	}
	found := []string{}
	for _, e := range b.Entry {
		found = append(found, e.Resource.ResourceType+"/"+e.Resource.ID)
	}
	slices.Sort(found)
	return found
}

// reader may read everything.
var reader = enforce.Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Practitioner", ID: "alice"}}

// labelled are resources with security labels, and one without labels.
var labelled = [][]byte{
	[]byte(`{"resourceType":"Patient","id":"a","name":[{"family":"Adams"}],"meta":{"security":[{"display":"no code"},{"system":"http://terminology.hl7.org/CodeSystem/v3-ActCode","code":"VIP"}]}}`),
	[]byte(`{"resourceType":"Patient","id":"b","name":[{"family":"Brown"}]}`),
	[]byte(`{"resourceType":"DocumentReference","id":"note","subject":{"reference":"Patient/b"},"meta":{"security":[{"code":"PSYTHPN"}]}}`),
	[]byte(`{"resourceType":"DocumentReference","id":"letter","subject":{"reference":"Patient/b"},"meta":{"security":[{"code":"R"}]}}`),
	[]byte(`{"resourceType":"Observation","id":"b1","status":"final","subject":{"reference":"Patient/b"}}`),
}

func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	const hospital = "https://hospital.example"
	var (
		monday   = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
		early    = time.Date(2026, 1, 5, 5, 59, 0, 0, time.UTC) // 6:59 in Berlin
		evening  = time.Date(2026, 1, 5, 18, 0, 0, 0, time.UTC) // 19:00 in Berlin
		saturday = time.Date(2026, 1, 3, 9, 0, 0, 0, time.UTC)
		bound    = enforce.Holder{Scope: "patient/*.cruds", Patient: "a"}
	)
	sets := documentedRules(t, "reference/policies.md")
	for _, tt := range []struct {
		rule, name string
		holder     enforce.Holder
		token      Token
		now        time.Time
		target     string
		status     int
	}{
		{"vip", "one who treats them", reader, Token{Issuer: hospital, Subject: "alice"}, monday, "Patient/a", 200},
		{"vip", "another person", reader, Token{Issuer: hospital, Subject: "carol"}, monday, "Patient/a", 404},
		{"vip", "one of that name elsewhere", reader, Token{Issuer: "https://other.example", Subject: "alice"}, monday, "Patient/a", 404},
		{"vip", "a record without labels", reader, Token{Issuer: hospital, Subject: "carol"}, monday, "Patient/b", 200},
		{"psychotherapy", "an app", reader, Token{ClientID: "app"}, monday, "DocumentReference/note", 404},
		{"psychotherapy", "the hospital's system", reader, Token{ClientID: "ehr"}, monday, "DocumentReference/note", 200},
		{"psychotherapy", "another document", reader, Token{ClientID: "app"}, monday, "DocumentReference/letter", 200},
		{"office-hours", "on a Monday", reader, Token{ClientID: "front-desk"}, monday, "Patient/a", 200},
		{"office-hours", "too early", reader, Token{ClientID: "front-desk"}, early, "Patient/a", 403},
		{"office-hours", "too late", reader, Token{ClientID: "front-desk"}, evening, "Patient/a", 403},
		{"office-hours", "on a Saturday", reader, Token{ClientID: "front-desk"}, saturday, "Patient/a", 403},
		{"office-hours", "another client", reader, Token{ClientID: "ehr"}, saturday, "Patient/a", 200},
		{"research", "a finding", reader, Token{ClientID: "research"}, monday, "Observation/b1", 200},
		{"research", "a name", reader, Token{ClientID: "research"}, monday, "Patient/b", 404},
		{"research", "another client", reader, Token{ClientID: "ehr"}, monday, "Patient/b", 200},
		{"break-glass", "without", bound, Token{ClientID: "ehr"}, monday, "Patient/b", 404},
		{"break-glass", "with", bound, Token{ClientID: "ehr", Scopes: []string{"break-glass"}}, monday, "Patient/b", 200},
		{"break-glass", "another client", bound, Token{ClientID: "app", Scopes: []string{"break-glass"}}, monday, "Patient/b", 404},
		{"break-glass", "a history", bound, Token{ClientID: "ehr", Scopes: []string{"break-glass"}}, monday, "Patient/b/_history/1", 404},
	} {
		t.Run(tt.rule+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGuardedServer(t, fixedPolicy{set: sets[tt.rule], token: tt.token, now: tt.now}, labelled...)
			if got, _ := g.get(tt.holder, tt.target); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
		})
	}
}

// Names are not revealed through other resources or includes.
func TestDocumentedResearch(t *testing.T) {
	t.Parallel()
	g := newGuardedServer(t, fixedPolicy{set: documentedRules(t, "reference/policies.md")["research"], token: Token{ClientID: "research"}}, labelled...)
	for target, want := range map[string]string{
		"Patient": "", "Observation?_include=Observation:subject": "Observation/b1",
		"?_type=Patient,Observation": "Observation/b1",
	} {
		if got := strings.Join(g.found(reader, target), " "); got != want {
			t.Errorf("%s: got %q", target, got)
		}
	}
}

// The clinician of docs/guides/sandbox.md sees exactly the documented sample records.
func TestDocumentedSandbox(t *testing.T) {
	t.Parallel()
	records, err := sample.Records()
	if err != nil {
		t.Fatal(err)
	}
	g := newGuardedServer(t, fixedPolicy{set: documentedRules(t, "guides/sandbox.md")["bruno"], token: Token{Subject: "bruno"}}, records...)
	for target, want := range map[string]int{"Patient/p02": http.StatusOK, "Patient/p01": http.StatusNotFound} {
		if got, _ := g.get(reader, target); got != want {
			t.Errorf("%s: status %d, want %d", target, got, want)
		}
	}
	for target, want := range map[string]int{"Patient?_count=100": 10, "Condition?patient=p02": 0, "Encounter?patient=p02": 3} {
		if got := len(g.found(reader, target)); got != want {
			t.Errorf("%s: %d, want %d", target, got, want)
		}
	}
}
