package enforce_test

import (
	"context"
	"encoding/json"
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

// withRules adds a policy with rules of the form "deny a && b" or "allow a && b". Examples of conditions: request.type ==
// 'Patient', resource.meta.security.code != 'VIP', 'status' in request.parameters, true, resource.fails. A condition on a
// resource is met if any value of the element meets it.
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

func (p *testPolicy) ReportFailure(_ *http.Request, err error) {
	p.failed = append(p.failed, err.Error())
}

func (p *testPolicy) Evaluate(_ context.Context, r rule.Request) rule.Evaluation {
	decided, open := testResources{p.t, nil}, testResources{p.t, nil}
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
			decided.rules = append(decided.rules, of)
		}
	}
	d := decided.Evaluate(context.Background(), resource.Resource{})
	if d.Effect == rule.Deny || len(open.rules) == 0 {
		return rule.Evaluation{Decision: d}
	}
	return rule.Evaluation{Decision: d, Resources: open}
}

// evaluate returns "true", "false" or "fails" for a condition.
func (p *testPolicy) evaluate(condition string, r rule.Request) string {
	i := r.Interaction
	if name, ok := strings.CutSuffix(condition, " in request.parameters"); ok {
		isNamed := func(p smart.Parameter) bool { return "'"+p.Name+"'" == strings.TrimPrefix(name, "!") }
		return strconv.FormatBool(slices.ContainsFunc(i.Parameters, isNamed) != strings.HasPrefix(name, "!"))
	}
	if name, ok := strings.CutPrefix(condition, "request."); ok && name != "fails" {
		name, want, _ := strings.Cut(name, " ")
		return comparison(p.t, want, map[string]string{
			"type": i.Type, "id": i.ID, "interaction": i.Kind.String(), "operation": i.Operation, "method": r.Method, "compartment": i.Compartment.String(),
		}[name])
	}
	return strings.TrimPrefix(condition, "request.")
}

// comparison evaluates a comparison such as "== 'a'" on values.
func comparison(t *testing.T, want string, values ...string) string {
	operator, value, _ := strings.Cut(want, " ")
	if operator != "==" && operator != "!=" {
		t.Errorf("no operator: %q", want)
	}
	return strconv.FormatBool(slices.Contains(values, strings.Trim(value, "'")) == (operator == "=="))
}

// testResources judges resources by the rules with request conditions that are met.
type testResources struct {
	t     *testing.T
	rules []testRule
}

func (o testResources) has(e rule.Effect) bool {
	return slices.ContainsFunc(o.rules, func(r testRule) bool { return r.effect == e })
}

func (o testResources) MayDeny() bool { return o.has(rule.Deny) }

func (o testResources) MayAllow() bool { return o.has(rule.Allow) }

func (o testResources) DependsOn(element string) bool {
	return slices.ContainsFunc(o.rules, func(r testRule) bool {
		return slices.ContainsFunc(r.conditions, func(c string) bool { return strings.HasPrefix(c, "resource."+element+" ") })
	})
}

func (o testResources) DeniesType(_ context.Context, resourceType string) bool {
	return slices.ContainsFunc(o.rules, func(r testRule) bool {
		return r.effect == rule.Deny && slices.Equal(r.conditions, []string{"resource.resourceType == '" + resourceType + "'"})
	})
}

func (o testResources) Evaluate(_ context.Context, res resource.Resource) (d rule.Decision) {
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
		return comparison(o.t, want, res.Type)
	case path == "id":
		return comparison(o.t, want, res.ID)
	}
	var values []string
	for value := range res.Values(resource.Path{Elements: strings.Split(path, ".")}) {
		values = append(values, resource.Text(value))
	}
	return comparison(o.t, want, values...)
}

var (
	nobody = access.Holder{Scope: "openid"}
	// no patient, so requests pass unjudged
	reader = access.Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Practitioner", ID: "alice"}}
)

func TestPoliciesRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		holder access.Holder
		rules  string // rules, separated by semicolons
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
		{"allowed, but missing", nobody, "allow true", "Patient/c", 404},
		{"beyond one's compartment", patientA, "allow request.type == 'Patient'", "Patient/b", 200},
		{"not allowed", nobody, "allow request.type == 'Patient'", "Observation/a1", 403},
		{"not allowed by a rule that fails", nobody, "allow request.fails", "Patient/a", 403},
		{"the resource allowed", nobody, "allow resource.id == 'b'", "Patient/b", 200},
		{"beyond one's compartment by the resource", patientA, "allow resource.id == 'b'", "Patient/b", 200},
		{"one's own besides", patientA, "allow resource.id == 'b'", "Patient/a", 200},
		{"another resource allowed", nobody, "allow resource.id == 'b'", "Patient/a", 404},
		{"request allowed, resource denied", nobody, "allow request.type == 'Patient';deny resource.id == 'b'", "Patient/b", 404},
		{"resource allowed and denied", nobody, "allow resource.id == 'b';deny resource.id == 'b'", "Patient/b", 404},
		{"a version is withheld", reader, "deny resource.id == 'a'", "Patient/a/_history/1", 404},
		{"dependent on a withheld resource", patientA, "deny resource.resourceType == 'Observation'", "Binary/a1", 404},
		{"dependent on a visible resource", patientA, "deny resource.resourceType == 'Patient'", "Binary/a1", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(strings.Split(tt.rules, ";")...)
			expectStatus(t, g.get(tt.holder, tt.target), tt.status)
		})
	}
}

// A rejection contains the name of the rule. A denied resource gets the same rejection as a missing one.
func TestPoliciesText(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny false", "deny request.type == 'Device'", "deny resource.id == 'b'")
	text := func(target string) string {
		body, _ := io.ReadAll(g.get(reader, target).Body)
		return string(body)
	}
	if got := text("Device/a1"); got != "Denied by the access rule 2 of this server." {
		t.Errorf("denied: %q", got)
	}
	if withheld, missing := text("Patient/b"), text("Patient/none"); withheld != missing {
		t.Errorf("withheld: %q, missing: %q", withheld, missing)
	}
}

// The error contains the name of a rule that fails.
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

// Requests that no rule affects pass unjudged.
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
			accept := ""
			next := handler(func(w http.ResponseWriter, r *http.Request) error {
				accept = r.Header.Get("Accept")
				w.WriteHeader(http.StatusOK)
				return nil
			})
			if err := g.Serve(httptest.NewRecorder(), r, next, enforce.Bearer{Rights: access.New(reader, g.TypeRules)}); (err == nil) != tt.passes {
				t.Errorf("got %v", err)
			}
			if passed := accept == "application/fhir+xml"; passed != tt.passes {
				t.Errorf("passes: %t", passed)
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
		{"denied by a search parameter", reader, "deny 'category' in request.parameters && resource.id == 'a1'", "Observation?category=http://c|laboratory", "Observation/b1"},
		{"denied by a search parameter, on later pages", reader, "deny 'status' in request.parameters && resource.id == 'b1'", "Observation?status=final&_count=1", "Observation/a1 Observation/a2"},
		{"denied without a search parameter", reader, "deny !'status' in request.parameters", "Observation?status=final&_count=1", "Observation/a1 Observation/a2 Observation/b1"},
		{"chain through a withheld resource", reader, "deny resource.resourceType == 'Patient'", "Observation?subject:Patient.family=Brown", ""},
		{"chain through a visible resource", reader, "deny resource.resourceType == 'Patient' && resource.id == 'a'", "Observation?subject:Patient.family=Brown,Adams", "Observation/b1"},
		{"an include is withheld", reader, "deny resource.resourceType == 'Patient'", "Observation?_id=a1&_include=Observation:subject", "Observation/a1"},
		{"a match is withheld, and what it brings along", reader, "deny resource.resourceType == 'Observation'", "Observation?_id=a1&_include=Observation:subject", ""},
		{"of the system", reader, "deny resource.id == 'a2'", "?_type=Observation,Patient", "Observation/a1 Observation/b1 Patient/a Patient/b"},
		{"in a compartment", reader, "deny resource.id == 'a2';deny request.compartment != 'Patient/a'", "Patient/a/Observation", "Observation/a1"},
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

// Rules evaluate the form parameters of a search by POST.
func TestPoliciesForm(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny 'status' in request.parameters")
	for form, want := range map[string]int{"status=final": http.StatusForbidden, "_id=a1": http.StatusOK} {
		r := newRequest(http.MethodPost, "/fhir/R4/Observation/_search", "application/x-www-form-urlencoded", form)
		if got := g.send(reader, r); got.StatusCode != want {
			t.Errorf("%s: status %d", form, got.StatusCode)
		}
	}
}

// Rules judge every page.
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

// Totals do not include denied resources.
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

// A search for a total is rejected if rules allow only some of the resources.
func TestPoliciesTotalOfAllowed(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("allow resource.id == 'a1'")
	expectStatus(t, g.get(nobody, "Observation?_summary=count"), http.StatusForbidden)
}

// Rules evaluate complete resources, regardless of the requested elements.
func TestPoliciesGetCompleteResources(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"Observation?_elements=id", "Observation?_summary=true", "Observation/a1?_elements=id"} {
		g := newGateway(t, records...).withRules("deny resource.status == 'final'")
		var queries []string
		next := handler(func(w http.ResponseWriter, r *http.Request) error {
			queries = append(queries, r.URL.RawQuery)
			return g.server.ServeHTTP(w, r)
		})
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+target, nil)
		_ = g.Serve(httptest.NewRecorder(), r, next, enforce.Bearer{Rights: access.New(reader, g.TypeRules)})
		for _, query := range queries {
			if strings.Contains(query, "_elements") || strings.Contains(query, "_summary") {
				t.Errorf("%s: unexpected query %s", target, query)
			}
		}
		if len(queries) == 0 {
			t.Errorf("%s: no request", target)
		}
	}
}

// Parameters that could reveal denied resources are rejected.
func TestPoliciesOracle(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...).withRules("deny resource.resourceType == 'Patient' && resource.id == 'b'")
	for _, target := range []string{"Observation?_filter=a", "Observation?_sort=subject"} {
		if got := g.get(reader, target); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", target, got.StatusCode)
		}
	}
}

// Rules judge the stored version as well as the new one.
func TestPoliciesWrite(t *testing.T) {
	t.Parallel()
	const (
		ofA = `{"resourceType":"Observation","id":"a1","status":"amended","subject":{"reference":"Patient/a"}}`
		by  = `{"resourceType":"Observation","status":"final","performer":[{"reference":"Practitioner/alice"}]}`
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
		{"create about a withheld patient", clinician, "deny resource.resourceType == 'Patient'", "POST", "Observation", ofA, 403},
		{"create with a reference", clinician, "deny resource.resourceType == 'Patient'", "POST", "Observation", by, 201},
		{"create with a reference to a withheld resource", clinician, "deny resource.resourceType == 'Practitioner'", "POST", "Observation", by, 403},
		{"create denied, bound", patientA, "deny resource.status == 'amended'", "POST", "Observation", ofA, 403},
		{"create allowed", nobody, "allow request.interaction == 'create'", "POST", "Observation", ofB, 201},
		{"create allowed by the resource", patientA, "allow resource.subject.reference == 'Patient/b'", "POST", "Observation", ofB, 201},
		{"create not allowed by the resource", patientA, "allow resource.status == 'draft'", "POST", "Observation", ofB, 403},
		{"update", clinician, "deny resource.status == 'draft'", "PUT", "Observation/a1", ofA, 200},
		{"update to a denied status", clinician, "deny resource.status == 'amended'", "PUT", "Observation/a1", ofA, 403},
		{"update of a withheld resource", clinician, "deny resource.status == 'final'", "PUT", "Observation/a1", ofA, 404},
		{"update beyond one's compartment", patientA, "allow resource.subject.reference == 'Patient/b'", "PUT", "Observation/b1", ofB, 200},
		{"delete", clinician, "deny resource.status == 'draft'", "DELETE", "Observation/a1", "", 204},
		{"delete denied", clinician, "deny request.method == 'DELETE'", "DELETE", "Observation/a1", "", 403},
		{"delete of a withheld resource", clinician, "deny resource.status == 'final'", "DELETE", "Observation/a1", "", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(strings.Split(tt.rules, ";")...)
			r := newRequest(tt.method, "/fhir/R4/"+tt.target, "application/fhir+json", tt.body)
			expectStatus(t, g.send(tt.holder, r), tt.status)
		})
	}
}

// Rules judge each version of a history.
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

// The current version decides for all versions: a label that is added later protects earlier versions, even if the resource has
// been deleted since.
func TestPoliciesCurrentVersion(t *testing.T) {
	t.Parallel()
	const (
		plain  = `{"resourceType":"Patient","id":"star","name":[{"family":"Smithson"}]}`
		vip    = `{"resourceType":"Patient","id":"star","name":[{"family":"Smithson"}],"meta":{"security":[{"code":"VIP"}]}}`
		rule   = "deny resource.meta.security.code == 'VIP'"
		remove = ""
	)
	for _, tt := range []struct {
		name     string
		versions []string
		want     []int // status of the history, then of each version
	}{
		{"never labelled", []string{plain, plain}, []int{200, 200, 200}},
		{"labelled later", []string{plain, vip}, []int{404, 404, 404}},
		{"labelled, then deleted", []string{plain, vip, remove}, []int{404, 404, 404, 404}},
		{"deleted without a label", []string{plain, remove}, []int{200, 200, 404}},
		{"labelled once", []string{vip, plain}, []int{200, 404, 200}},
		{"labelled, deleted and stored again", []string{plain, vip, remove, plain}, []int{200, 200, 404, 404, 200}},
	} {
		for _, holder := range []access.Holder{reader, {Scope: "patient/*.rs", Patient: "star"}, {Scope: "system/*.rs"}} {
			t.Run(tt.name+" "+holder.Scope, func(t *testing.T) {
				t.Parallel()
				g := newGateway(t).withRules(rule)
				for _, text := range tt.versions {
					if text == remove {
						g.server.Delete("Patient/star")
					} else {
						g.server.Put(text)
					}
				}
				targets := []string{"Patient/star/_history"}
				for n := range tt.versions {
					targets = append(targets, "Patient/star/_history/"+strconv.Itoa(n+1))
				}
				for n, target := range targets {
					if got := g.get(holder, target); got.StatusCode != tt.want[n] {
						t.Errorf("%s: status %d, want %d", target, got.StatusCode, tt.want[n])
					}
					batch := `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"` + target + `"}}]}`
					text, _ := io.ReadAll(g.send(holder, requestOf("POST ", batch)).Body)
					if hidden := !strings.Contains(string(text), "Smithson"); hidden != (tt.want[n] == http.StatusNotFound) {
						t.Errorf("%s in a batch: %s", target, text)
					}
				}
			})
		}
	}
}

// A link to a page of a history gets 404 after the current version is denied.
func TestPoliciesHistoryPage(t *testing.T) {
	t.Parallel()
	g := newGateway(t, `{"resourceType":"Patient","id":"star"}`, `{"resourceType":"Patient","id":"star","active":true}`).
		withRules("deny resource.meta.security.code == 'VIP'")
	var b bundle
	if err := json.NewDecoder(g.get(reader, "Patient/star/_history?_count=1").Body).Decode(&b); err != nil || b.next() == "" {
		t.Fatalf("%+v, %v", b, err)
	}
	if got := g.get(reader, b.next()); got.StatusCode != http.StatusOK {
		t.Errorf("before: status %d", got.StatusCode)
	}
	g.server.Put(`{"resourceType":"Patient","id":"star","meta":{"security":[{"code":"VIP"}]}}`)
	if got := g.get(reader, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("after: status %d", got.StatusCode)
	}
}

// If the current version is denied, an old version that a versioned reference includes is omitted.
func TestPoliciesIncludedVersion(t *testing.T) {
	t.Parallel()
	g := newGateway(t, `{"resourceType":"Patient","id":"star"}`, `{"resourceType":"Patient","id":"star","meta":{"security":[{"code":"VIP"}]}}`).
		withRules("deny resource.meta.security.code == 'VIP'")
	g.server.Handlers = map[string]http.HandlerFunc{"Observation": newHandler(`{"resourceType":"Bundle","type":"searchset","entry":[
		{"resource":{"resourceType":"Observation","id":"o","subject":{"reference":"Patient/star/_history/1"}},"search":{"mode":"match"}},
		{"resource":{"resourceType":"Patient","id":"star"},"search":{"mode":"include"}}]}`)}
	if got := strings.Join(g.found(reader, "Observation?_include=Observation:subject"), " "); got != "Observation/o" {
		t.Errorf("got %q", got)
	}
}

// Rules judge each entry of a batch as a separate request. They reject a transaction that contains a denied entry.
func TestPoliciesBatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, kind, rule, want string }{
		{"withheld", "batch", "deny request.type == 'Patient' && resource.id == 'b'", "200 404"},
		{"denied", "batch", "deny request.id == 'b'", "200 403"},
		{"denied as a whole", "batch", "deny request.interaction == 'bundle'", "403"},
		{"denied in a transaction", "transaction", "deny request.id == 'b'", "403"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, records...).withRules(tt.rule)
			body := `{"resourceType":"Bundle","type":"` + tt.kind + `","entry":[{"request":{"method":"GET","url":"Patient/a"}},{"request":{"method":"GET","url":"Patient/b"}}]}`
			r := newRequest(http.MethodPost, "/fhir/R4", "application/fhir+json", body)
			response := g.send(clinician, r)
			var b struct {
				Entry []struct{ Response struct{ Status string } }
			}
			var statuses []string
			if json.NewDecoder(response.Body).Decode(&b) == nil {
				for _, e := range b.Entry {
					statuses = append(statuses, e.Response.Status[:3])
				}
			}
			if len(statuses) == 0 {
				statuses = []string{strconv.Itoa(response.StatusCode)}
			}
			if got := strings.Join(statuses, " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
