package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// withRules gives a gateway a policy with rules of the form "deny a && b" or "allow a && b", where each condition is like
// request.type == 'Patient', resource.meta.security.code != 'VIP', 'status' in request.parameters, true, or
// resource.fails. One of a resource is met if some value of the element meets it.
func (g *gateway) withRules(rules ...string) *gateway {
	g.t.Helper()
	p := &testPolicy{t: g.t}
	for n, text := range rules {
		effect, conditions, _ := strings.Cut(text, " ")
		p.rules = append(p.rules, testRule{strconv.Itoa(n + 1), rule.Effect(effect), strings.Split(conditions, " && ")})
	}
	g.Policies = []rule.Policy{p}
	return g
}

// testPolicy is a policy for tests.
type testPolicy struct {
	t      *testing.T
	rules  []testRule
	failed []string
}

type testRule struct {
	name       string
	effect     rule.Effect
	conditions []string
}

var errTestRule = errors.New("failed")

// Failed implements [rule.Policy].
func (p *testPolicy) Failed(_ *http.Request, err error) { p.failed = append(p.failed, err.Error()) }

// Judge implements [rule.Policy].
func (p *testPolicy) Judge(_ context.Context, r rule.Request) rule.Judgement {
	whole, open := testResources{p.t, nil}, testResources{p.t, nil}
	for _, of := range p.rules {
		onResource := func(c string) bool { return strings.Contains(c, "resource.") }
		isFalse := func(c string) bool { return !onResource(c) && p.evaluate(c, r) == "false" }
		switch {
		case slices.ContainsFunc(of.conditions, isFalse):
		case slices.ContainsFunc(of.conditions, onResource):
			of.conditions = slices.DeleteFunc(slices.Clone(of.conditions), func(c string) bool { return !onResource(c) })
			open.rules = append(open.rules, of)
		default:
			of.conditions = slices.Clone(of.conditions)
			for n, c := range of.conditions {
				of.conditions[n] = p.evaluate(c, r)
			}
			whole.rules = append(whole.rules, of)
		}
	}
	d := whole.Judge(context.Background(), resource.Resource{})
	if d.Effect == rule.Deny || len(open.rules) == 0 {
		return rule.Judgement{Decision: d}
	}
	return rule.Judgement{Decision: d, Resources: open}
}

// evaluate returns "true", "false" or "fails".
func (p *testPolicy) evaluate(condition string, r rule.Request) string {
	i := r.Interaction
	if name, ok := strings.CutSuffix(condition, " in request.parameters"); ok {
		isNamed := func(p smart.Parameter) bool { return "'"+p.Name+"'" == strings.TrimPrefix(name, "!") }
		return strconv.FormatBool(slices.ContainsFunc(i.Parameters, isNamed) != strings.HasPrefix(name, "!"))
	}
	if name, ok := strings.CutPrefix(condition, "request."); ok && name != "fails" {
		name, want, _ := strings.Cut(name, " ")
		return compared(p.t, want, map[string]string{
			"type": i.Type, "id": i.ID, "interaction": i.Kind.String(), "operation": i.Operation, "method": r.Method, "compartment": i.Compartment.String(),
		}[name])
	}
	return strings.TrimPrefix(condition, "request.")
}

// compared compares values with a text such as == 'a'.
func compared(t *testing.T, want string, values ...string) string {
	operator, value, _ := strings.Cut(want, " ")
	if operator != "==" && operator != "!=" {
		t.Errorf("no operator: %q", want)
	}
	return strconv.FormatBool(slices.Contains(values, strings.Trim(value, "'")) == (operator == "=="))
}

// testResources judges resources after the request met the conditions of the rules.
type testResources struct {
	t     *testing.T
	rules []testRule
}

func (o testResources) has(e rule.Effect) bool {
	return slices.ContainsFunc(o.rules, func(r testRule) bool { return r.effect == e })
}

// MayDeny implements [rule.Resources].
func (o testResources) MayDeny() bool { return o.has(rule.Deny) }

// MayAllow implements [rule.Resources].
func (o testResources) MayAllow() bool { return o.has(rule.Allow) }

// LooksAt implements [rule.Resources].
func (o testResources) LooksAt(element string) bool {
	return slices.ContainsFunc(o.rules, func(r testRule) bool {
		return slices.ContainsFunc(r.conditions, func(c string) bool { return strings.HasPrefix(c, "resource."+element+" ") })
	})
}

// DeniesType implements [rule.Resources].
func (o testResources) DeniesType(_ context.Context, resourceType string) bool {
	return slices.ContainsFunc(o.rules, func(r testRule) bool {
		return r.effect == rule.Deny && slices.Equal(r.conditions, []string{"resource.resourceType == '" + resourceType + "'"})
	})
}

// Judge implements [rule.Resources].
func (o testResources) Judge(_ context.Context, res resource.Resource) (d rule.Decision) {
	for _, effect := range []rule.Effect{rule.Deny, rule.Allow} {
		for _, r := range o.rules {
			if r.effect != effect {
				continue
			}
			is := "true"
			for _, c := range r.conditions {
				if is == "true" {
					is = o.evaluate(c, res)
				}
			}
			switch {
			case is == "fails" && effect == rule.Deny:
				return rule.Decision{Effect: effect, Rule: r.name, Err: fmt.Errorf("rule %s: %w", r.name, errTestRule)}
			case is == "fails":
				d.Err = fmt.Errorf("rule %s: %w", r.name, errTestRule)
			case is == "true":
				return rule.Decision{Effect: effect, Rule: r.name}
			}
		}
	}
	return d
}

func (o testResources) evaluate(condition string, res resource.Resource) string {
	path, ok := strings.CutPrefix(condition, "resource.")
	path, want, compares := strings.Cut(path, " ")
	switch {
	case !ok:
		return condition
	case !compares:
		return path
	case path == "resourceType":
		return compared(o.t, want, res.Type)
	case path == "id":
		return compared(o.t, want, res.ID)
	}
	var values []string
	for value := range res.Values(resource.Path{Elements: strings.Split(path, ".")}) {
		values = append(values, resource.Text(value))
	}
	return compared(o.t, want, values...)
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
		{"denied by a rule that fails", reader, "deny request.fails", "Patient/a", 403},
		{"deny wins", reader, "allow true;deny true", "Patient/a", 403},
		{"withheld", reader, "deny resource.id == 'a'", "Patient/a", 404},
		{"withheld, bound", patientA, "deny resource.id == 'a'", "Patient/a", 404},
		{"withheld by a rule that fails", reader, "deny resource.fails", "Patient/a", 404},
		{"another is withheld", reader, "deny resource.id == 'a'", "Patient/b", 200},
		{"allowed", nobody, "allow request.type == 'Patient'", "Patient/b", 200},
		{"allowed, and still not there", nobody, "allow true", "Patient/c", 404},
		{"beyond one's compartment", patientA, "allow request.type == 'Patient'", "Patient/b", 200},
		{"not allowed", nobody, "allow request.type == 'Patient'", "Observation/a1", 403},
		{"not allowed by a rule that fails", nobody, "allow request.fails", "Patient/a", 403},
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
		{"deny", "deny request.fails", "rule 1: failed"},
		{"allow", "allow request.fails", "rule 1: failed"},
		{"deny a resource", "deny resource.fails", "rule 1: failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(tt.rule)
			g.get(patientA, "Patient/a")
			if failed := g.Policies[0].(*testPolicy).failed; !slices.Equal(failed, []string{tt.want}) {
				t.Errorf("got %q", failed)
			}
		})
	}
}

// TestPoliciesPassing checks that requests with which no rule has to do pass as they are.
func TestPoliciesPassing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rule, target string
		passes             bool
	}{
		{"a rule over the request", "deny request.id == 'b'", "Patient/a", true},
		{"a rule over the resources of other requests", "deny request.method == 'PUT' && resource.id == 'b'", "Patient/a", true},
		{"a rule over the resources of this request", "deny request.method == 'GET' && resource.id == 'b'", "Patient/a", false},
		{"a rule that allows more", "allow resource.id == 'b'", "Patient/a", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(tt.rule)
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+tt.target, nil)
			r.Header.Set("Accept", "application/fhir+xml")
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
