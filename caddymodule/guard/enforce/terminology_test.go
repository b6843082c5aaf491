package enforce_test

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
)

// TestExpandScopesAlone checks that those scopes are for operations on terminology alone.
func TestExpandScopesAlone(t *testing.T) {
	t.Parallel()
	op, _ := operation.ParseOperation("$own", "token")
	g := operating(t, op)
	g.ExpandScopes = []string{"terminology"}
	if got := g.get(access.Holder{Scope: "openid"}, "Patient/$own"); got.StatusCode != http.StatusOK {
		t.Errorf("status %d", got.StatusCode)
	}
}

// TestExpandScopes checks that a site can have operations on terminology take scopes.
func TestExpandScopes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope string
		status      int
	}{
		{"another scope", "openid patient/*.rs", 403},
		{"the scope", "terminology", 200},
		{"a scope that covers it", "user/*.rs", 200},
		{"a scope that covers a part", "user/ValueSet.s", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := operating(t)
			g.ExpandScopes = []string{"terminology", "user/ValueSet.rs"}
			if got := g.get(access.Holder{Scope: tt.scope, Patient: "a"}, "ValueSet/$expand?url=a"); got.StatusCode != tt.status {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}
