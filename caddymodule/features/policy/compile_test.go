package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
)

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		from Rule
		want string // in the error
		err  error
	}{
		{"syntax", Rule{Effect: rule.Deny, Expression: "token.patient =="}, "column 17: Syntax error", errExpression},
		{"unknown variable", Rule{Effect: rule.Deny, Expression: "true || user == ''"}, "column 9: undeclared reference to 'user'", errExpression},
		{"unknown field", Rule{Effect: rule.Deny, Expression: "token.client == 'a'"}, "column 6: undefined field 'client'", errExpression},
		{"a field of another type", Rule{Effect: rule.Deny, Expression: "token.scopes == 'a'"}, "column 14: found no matching overload", errExpression},
		{"several lines", Rule{Effect: rule.Deny, Expression: "true &&\n\tnone"}, "line 2, column 2: undeclared reference", errExpression},
		{"a string", Rule{Effect: rule.Deny, Expression: "token.patient"}, "it is string, not bool", errExpression},
		{"unknown type", Rule{Effect: rule.Deny, Expression: "resource.active"}, "it is dyn, not bool", errExpression},
		{"the whole resource", Rule{Effect: rule.Deny, Expression: "true || 'id' in resource"}, "column 17: name an element", errExpression},
		{"an element by a variable", Rule{Effect: rule.Deny, Expression: "resource[request.type] == 1"}, "column 1: name an element", errExpression},
		{"regular expression", Rule{Effect: rule.Deny, Expression: "request.id.matches('(')"}, "invalid matches argument", errExpression},
		{"too long", Rule{Effect: rule.Deny, Expression: strings.Repeat("true||", maxLength) + "true"}, "expression code point size exceeds limit", errExpression},
		{"no effect", Rule{Expression: "true"}, "the effect is \"\"", errRule},
		{"a name with a space", Rule{Effect: rule.Deny, Name: "a b", Expression: "true"}, "the name may have", errRule},
		{"a long name", Rule{Effect: rule.Deny, Name: strings.Repeat("a", 65), Expression: "true"}, "the name may have", errRule},
		{"the name of another", Rule{Effect: rule.Deny, Name: "first", Expression: "true"}, "another has this name", errRule},
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

// TestCompileAll checks that one compilation reports all errors.
func TestCompileAll(t *testing.T) {
	t.Parallel()
	_, err := Compile([]Rule{{Effect: rule.Deny, Expression: "a"}, {Effect: rule.Allow, Name: "second", Expression: "b"}})
	if err == nil || !strings.Contains(err.Error(), "deny 1: ") || !strings.Contains(err.Error(), "allow second: ") {
		t.Errorf("got %v", err)
	}
}

// TestMentioned checks that the elements that a rule reads are found in its syntax tree.
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
			looks := len(s.denies.ofResource) > 0
			if got := strings.Join(s.elements, " "); got != tt.want || looks != (tt.want != "") {
				t.Errorf("got %q, %t, want %q", got, looks, tt.want)
			}
		})
	}
}
