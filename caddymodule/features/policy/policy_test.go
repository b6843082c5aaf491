package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// If there are several identity providers, a rule about groups or claims logs a warning unless it also checks the provider.
func TestAmbiguousClaims(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, expression   string
		providers, issuers int
		warns              bool
	}{
		{"groups", "'doctors' in token.groups", 0, 2, true},
		{"claims", "'7' in token.claims['ward']", 0, 2, true},
		{"one issuer", "'doctors' in token.groups", 0, 1, false},
		{"the issuer is named", "token.issuer == 'https://h.example' && 'doctors' in token.groups", 1, 1, false},
		{"the issuer of several providers is named", "token.issuer == 'https://h.example' && 'doctors' in token.groups", 2, 0, true},
		{"the provider is named", "token.idp == 'h' && 'doctors' in token.groups", 2, 2, false},
		{"neither", "token.client_id == 'app'", 0, 2, false},
	} {
		var log bytes.Buffer
		p := Policy{Rules: []Rule{{Effect: rule.Allow, Name: "mine", Expression: tt.expression}}}
		site := bearer.Site{Providers: tt.providers, Issuers: tt.issuers, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if _, err := p.Policy(site); err != nil || strings.Contains(log.String(), "policy=mine") != tt.warns {
			t.Errorf("%s: %v, %q", tt.name, err, log.String())
		}
	}
}

// Rules have the order, names and positions of the Caddyfile. Invalid rules are rejected.
func TestSubdirectives(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ block, want, err string }{
		"rules":                 {"deny \"request.type == 'Patient'\"\nallow mine true\ndeny false", "deny , allow mine, deny ", ""},
		"an unknown field":      {"deny \"request.typo == 'x'\"", "", "deny: "},
		"an expression of text": {"deny \"'x'\"", "", "deny: "},
		"no expression":         {"deny", "", "wrong argument count"},
		"too many words":        {"allow a b c", "", "wrong argument count"},
	} {
		p := new(Policy)
		fields, repeatable := p.Subdirectives()
		d := caddyfile.NewTestDispenser("fhir_bearer {\n" + tt.block + "\n}")
		d.Next()
		err := fields.Parse(d, repeatable...)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "Testfile:2") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var rules []string
		for _, r := range p.Rules {
			rules = append(rules, string(r.Effect)+" "+r.Name)
		}
		if got := strings.Join(rules, ", "); err != nil || got != tt.want || p.Rules[1].Source.Source != "Testfile:3" {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
}

// If the token lacks a configured claim, rules see the claim without values. Other claims are not visible to rules.
func TestNewInput(t *testing.T) {
	t.Parallel()
	token := &guard.Token{Issuer: "https://h.example", Subject: "u1", ClientID: "c1", Scope: "openid user/*.rs", FHIRUser: "Practitioner/1"}
	token.IDP, token.Groups, token.Claims = "h", []string{"doctors"}, map[string][]string{"ward": {"7"}, "other": {"x"}}
	i, err := interaction.Parse("GET", "Patient/1/Observation", "code=a&code=b", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:4"
	in := newInput(rule.Request{ClientRequest: r, Token: token, Method: "GET", Interaction: i}, []string{"ward", "unit"})
	for expression, want := range map[string]bool{
		"token.issuer == 'https://h.example' && token.subject == 'u1' && token.client_id == 'c1' && token.fhir_user == 'Practitioner/1'": true,
		"token.scopes == ['openid', 'user/*.rs'] && token.idp == 'h' && 'doctors' in token.groups":                                       true,
		"token.claims['ward'] == ['7'] && token.claims['unit'] == []":                                                                    true,
		"'other' in token.claims": false,
		"request.interaction == 'search-compartment' && request.compartment == 'Patient/1' && request.type == 'Observation'": true,
		"request.parameters['code'] == ['a', 'b'] && request.method == 'GET' && request.client_ip == '10.1.2.3'":             true,
		"now > timestamp('2026-01-01T00:00:00Z')": true,
	} {
		d := mustCompile(t, "allow "+expression).Evaluate(t.Context(), in).Decision
		if d.Err != nil || (d.Effect == rule.Allow) != want {
			t.Errorf("%s: %+v", expression, d)
		}
	}
	if none := newInput(rule.Request{ClientRequest: r, Interaction: i}, []string{"ward"}); none.Token.Subject != "" || !slices.Equal(none.Request.Parameters["code"], []string{"a", "b"}) {
		t.Errorf("without a token: %+v", none)
	}
}

// For unread claims, the log contains their names and the person. Other errors are logged without their text.
func TestUnreadIsLogged(t *testing.T) {
	t.Parallel()
	repl := caddy.NewReplacer()
	repl.Set("http.auth.user.id", "alice")
	r := httptest.NewRequest("GET", "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl))
	var log bytes.Buffer
	failed := (&Policy{logger: slog.New(slog.NewTextHandler(&log, nil))}).ReportFailure
	failed(r, fmt.Errorf("rule vip: %w: ward", tokenclaim.ErrUnreadClaims))
	if text := log.String(); !strings.Contains(text, "user=alice") || !strings.Contains(text, "rule vip: ") || !strings.Contains(text, "ward") {
		t.Errorf("%q", text)
	}
	log.Reset()
	if failed(r, errors.New("rule vip: secret")); strings.Contains(log.String(), "secret") {
		t.Errorf("%q", log.String())
	}
}

// mustCompile compiles rules of the form "allow expression" or "deny expression".
func mustCompile(t testing.TB, rules ...string) *Set {
	t.Helper()
	var all []Rule
	for _, text := range rules {
		effect, expression, _ := strings.Cut(text, " ")
		all = append(all, Rule{Effect: rule.Effect(effect), Expression: expression})
	}
	s, err := Compile(all)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustParse(t testing.TB, text string) resource.Resource {
	t.Helper()
	res, err := resource.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// evaluate returns the decision for a resource.
func evaluate(ctx context.Context, j rule.Evaluation, res resource.Resource) rule.Decision {
	if j.Resources == nil {
		return rule.Decision{}
	}
	return j.Resources.Evaluate(ctx, res)
}

// input returns the input of most tests.
func input() Input {
	return Input{
		Token: Token{Issuer: "https://issuer.example", Subject: "alice", ClientID: "app", Scopes: []string{"openid", "user/*.rs"}, FHIRUser: "Practitioner/alice"},
		Request: Request{
			Interaction: "search-type", Type: "Observation", Method: "GET", ClientIP: "10.1.2.3",
			Parameters: map[string][]string{"code": {"a", "b"}},
		},
		Now: time.Date(2026, 9, 21, 22, 30, 0, 0, time.FixedZone("", 2*3600)), // a Monday
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		rules string // rules, separated by semicolons
		want  rule.Decision
		fails bool
	}{
		{"no rule applies", "allow false;deny false", rule.Decision{}, false},
		{"allow", "allow false;allow true;allow true", rule.Decision{Effect: rule.Allow, Rule: "2"}, false},
		{"deny", "deny false;deny true", rule.Decision{Effect: rule.Deny, Rule: "2"}, false},
		{"deny wins", "allow true;deny true", rule.Decision{Effect: rule.Deny, Rule: "2"}, false},
		{"a failing deny denies", "allow true;deny request.parameters['none'] == []", rule.Decision{Effect: rule.Deny, Rule: "2"}, true},
		{"a failing allow does not allow", "allow request.parameters['none'] == []", rule.Decision{}, true},
		{"another allow does", "allow request.parameters['none'] == [];allow true", rule.Decision{Effect: rule.Allow, Rule: "2"}, true},
		{"too costly a deny denies", "deny [1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, [1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4,5,6,7,8,9,0].all(e, token.subject == 'alice')))))", rule.Decision{Effect: rule.Deny, Rule: "1"}, true},
		{"token", "allow token.issuer == 'https://issuer.example' && token.subject == 'alice' && token.client_id == 'app' && 'openid' in token.scopes && token.fhir_user == 'Practitioner/alice' && token.patient == '' && !has(token.patient)", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"request", "allow request.interaction == 'search-type' && request.type == 'Observation' && request.id == '' && request.operation == '' && request.method == 'GET' && request.parameters['code'] == ['a', 'b']", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"now", "allow now.getHours('Europe/Berlin') == 22 && now.getHours() == 20 && now.getDayOfWeek() == 1 && now < timestamp('2027-01-01T00:00:00Z')", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"an address", "allow cidr('10.0.0.0/8').containsIP(request.client_ip)", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"a denial leaves nothing open", "deny true;deny resource.a == 1;allow resource.a == 1", rule.Decision{Effect: rule.Deny, Rule: "1"}, false},
		{"undecided deny and allow", "deny resource.a == 1;allow resource.a == 1", rule.Decision{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := mustCompile(t, strings.Split(tt.rules, ";")...).Evaluate(t.Context(), new(input()))
			if j.Effect == rule.Deny && j.Resources != nil {
				t.Error("rules are left open")
			}
			got := j.Decision
			if got.Effect != tt.want.Effect || got.Rule != tt.want.Rule || (got.Err != nil) != tt.fails {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// If a rule depends on an unread claim, a deny rule denies and an allow rule does not allow. Other rules are not affected.
func TestUnread(t *testing.T) {
	t.Parallel()
	deny, fails := rule.Decision{Effect: rule.Deny, Rule: "1"}, true
	for _, tt := range []struct {
		rule  string
		want  rule.Decision
		fails bool
	}{
		{"deny 'contractors' in token.groups", deny, fails},
		{"deny !('doctors' in token.groups)", deny, fails},
		{"allow 'doctors' in token.groups", rule.Decision{}, fails},
		{"allow !('contractors' in token.groups)", rule.Decision{}, fails},
		{"deny token.?groups.orValue([]).exists(g, g == 'x')", deny, fails},
		{"deny has(token.groups) && size(token.groups) > 3", deny, fails},
		{"deny token.claims['ward'] == ['9']", deny, fails},
		{"deny token.claims.?ward.orValue([]) == ['9']", deny, fails},
		{"deny token.claims['wa' + 'rd'] == ['9']", deny, fails},
		{"deny token.claims.exists(name, 'x' in token.claims[name])", deny, fails},
		{"deny resource.a == 1 && '9' in token.claims['ward']", deny, fails},
		{"allow resource.a == 1 && !('9' in token.claims['ward'])", rule.Decision{}, fails},
		{"deny 'x' in token.claims['unit']", rule.Decision{}, false},
		{"allow 'u' in token.claims['unit']", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"deny token.client_id == 'other' && 'x' in token.groups", rule.Decision{}, false},
		{"allow token.client_id == 'app' || 'x' in token.groups", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"deny resource.a == 2 && 'x' in token.groups", rule.Decision{}, false},
	} {
		in := input()
		in.UnreadClaims, in.Token.Claims = []string{"ward", "groups"}, map[string][]string{"ward": nil, "unit": {"u"}}
		j := mustCompile(t, tt.rule).Evaluate(t.Context(), &in)
		got := j.Decision
		if got.Effect == "" && got.Err == nil {
			got = evaluate(t.Context(), j, mustParse(t, `{"resourceType":"Observation","id":"a","a":1}`))
		}
		if got.Effect != tt.want.Effect || got.Rule != tt.want.Rule || (got.Err != nil) != tt.fails {
			t.Errorf("%s: got %+v, want %+v", tt.rule, got, tt.want)
		}
	}
}

// Resource rules are evaluated only if they can apply to the request.
func TestResourceRulesApply(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rule string
		deny       bool
		allow      bool
	}{
		{"deny", "deny resource.a == 1", true, false},
		{"allow", "allow resource.a == 1", false, true},
		{"a deny about another client", "deny token.client_id == 'other' && resource.a == 1", false, false},
		{"in the other order", "deny resource.a == 1 && token.client_id == 'other'", false, false},
		{"an allow about another client", "allow token.client_id == 'other' && resource.a == 1", false, false},
		{"a deny about this client", "deny token.client_id == 'app' && resource.a == 1", true, false},
		{"within a loop", "deny resource.a.exists(x, x == 1) && token.client_id == 'other'", false, false},
		{"a presence", "deny has(resource.a) && token.client_id == 'other'", false, false},
		{"true whatever the resource", "deny token.client_id == 'app' || resource.a == 1", true, false},
		{"failing", "deny request.parameters['none'] == [] && resource.a == 1", true, false},
		{"failing for any resource", "deny request.parameters['none'] == resource.a", true, false},
		{"about the request alone", "allow true", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := mustCompile(t, tt.rule).Evaluate(t.Context(), new(input()))
			r := j.Resources
			if (r != nil) != (tt.deny || tt.allow) || r != nil && (r.MayDeny() != tt.deny || r.MayAllow() != tt.allow) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

const observation = `{"resourceType":"Observation","id":"a","status":"final","component":[{"valueInteger":3},{"valueQuantity":{"value":1.5}}],` +
	`"meta":{"security":[{"code":"VIP"}]},"active":true,"off":false,"nothing":null,"big":1e400,"subject":{"reference":"Patient/\u0061"}}`

func TestResource(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		rules string
		want  rule.Decision
		fails bool
	}{
		{"no rule applies", "deny resource.status == 'draft';allow resource.status == 'draft'", rule.Decision{}, false},
		{"deny", "deny resource.status == 'final'", rule.Decision{Effect: rule.Deny, Rule: "1"}, false},
		{"allow", "allow resource.status == 'final'", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"deny wins", "allow resource.status == 'final';deny resource.id == 'a'", rule.Decision{Effect: rule.Deny, Rule: "2"}, false},
		{"no such element, deny", "deny resource.code == 'a'", rule.Decision{Effect: rule.Deny, Rule: "1"}, true},
		{"no such element, allow", "allow resource.code == 'a'", rule.Decision{}, true},
		{"another type, deny", "deny resource.status > 1", rule.Decision{Effect: rule.Deny, Rule: "1"}, true},
		{"an element that is optional", "deny resource.?code.?coding.orValue([]).exists(c, c.code == 'x')", rule.Decision{}, false},
		{"a number that does not fit, deny", "deny resource.big == 1.0", rule.Decision{Effect: rule.Deny, Rule: "1"}, true},
		{"a number that does not fit, allow", "allow resource.big == 1.0", rule.Decision{}, true},
		{"a number that does not fit, optional", "deny resource.?big.orValue(1.0) == 2.0", rule.Decision{Effect: rule.Deny, Rule: "1"}, true},
		{"security label", "deny resource.?meta.?security.orValue([]).exists(s, s.code == 'VIP')", rule.Decision{Effect: rule.Deny, Rule: "1"}, false},
		{"an integer", "allow resource.component[0].valueInteger == 3", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"a decimal", "allow resource.component[1].valueQuantity.value > 1", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"true, false and null", "allow resource.active == true && resource.off == false && resource.nothing == null", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"an escape", "allow resource.subject.reference == 'Patient/a'", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"the request too", "allow resource.resourceType == request.type", rule.Decision{Effect: rule.Allow, Rule: "1"}, false},
		{"allow by the request", "allow true;allow resource.status == 'draft'", rule.Decision{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := mustCompile(t, strings.Split(tt.rules, ";")...).Evaluate(t.Context(), new(input()))
			got := evaluate(t.Context(), j, mustParse(t, observation))
			if got.Effect != tt.want.Effect || got.Rule != tt.want.Rule || (got.Err != nil) != tt.fails {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// When the request is canceled, the evaluation stops and denies.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := mustCompile(t, "deny resource.list.exists(a, resource.list.exists(b, a + b < 0))")
	res := mustParse(t, `{"resourceType":"Basic","list":[`+strings.Repeat("1,", 50)+`1]}`)
	if got := evaluate(t.Context(), s.Evaluate(t.Context(), new(input())), res); got.Effect != "" {
		t.Fatalf("got %+v", got)
	}
	if got := evaluate(ctx, s.Evaluate(t.Context(), new(input())), res); got.Effect != rule.Deny || got.Err == nil {
		t.Errorf("got %+v", got)
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, rule := range []string{
		"deny token.client_id == 'front-desk' && request.type == 'Observation'",
		"deny token.client_id == 'other' && (now.getHours('Europe/Berlin') < 7 || now.getHours('Europe/Berlin') >= 19)",
		"deny !('user/*.rs' in token.scopes)",
		"deny token.client_id == 'other' && resource.?meta.?security.orValue([]).exists(s, s.code == 'VIP')",
	} {
		b.Run(rule[:min(len(rule), 40)], func(b *testing.B) {
			s, in := mustCompile(b, rule), input()
			b.ReportAllocs()
			for b.Loop() {
				s.Evaluate(b.Context(), &in)
			}
		})
	}
}

func BenchmarkResource(b *testing.B) {
	s := mustCompile(b, "deny resource.?meta.?security.orValue([]).exists(s, s.code == 'R')")
	j := s.Evaluate(b.Context(), new(input()))
	text := strings.Replace(observation, `"active"`, fmt.Sprintf(`"note":%q,"active"`, strings.Repeat("x", 2000)), 1)
	res := mustParse(b, text)
	b.ReportAllocs()
	for b.Loop() {
		j.Resources.Evaluate(b.Context(), res)
	}
}

func TestDeniesType(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rules  string // rules are separated by semicolons
		patients     bool   // whether all Patients are denied
		observations bool   // whether all Observations are denied
	}{
		{"by type", "deny resource.resourceType == 'Patient'", true, false},
		{"by type and token", "deny token.client_id == 'app' && resource.resourceType in ['Patient', 'Person']", true, false},
		{"by type, for another token", "deny token.client_id == 'other' && resource.resourceType == 'Patient'", false, false},
		{"by another element", "deny resource.id == 'a'", false, false},
		{"by an element that may be missing", "deny resource.status == 'final'", false, false},
		{"by type and another element", "deny resource.resourceType == 'Patient' && resource.active", false, false},
		{"by type or another element", "deny resource.resourceType == 'Patient' || resource.active", true, false},
		{"by one of two rules", "deny resource.id == 'a';deny resource.resourceType != 'Patient'", false, true},
		{"by an allow rule", "allow resource.resourceType == 'Patient'", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input()
			j := mustCompile(t, strings.Split(tt.rules, ";")...).Evaluate(t.Context(), &in)
			r := j.Resources
			if r == nil {
				r = &pendingRules{}
			}
			if patients, observations := r.DeniesType(t.Context(), "Patient"), r.DeniesType(t.Context(), "Observation"); patients != tt.patients || observations != tt.observations {
				t.Errorf("Patient %t, Observation %t", patients, observations)
			}
		})
	}
}
