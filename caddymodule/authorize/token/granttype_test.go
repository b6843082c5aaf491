package token

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// An empty grant type and a grant type without rules are rejected.
func TestEmptyGrantType(t *testing.T) {
	t.Parallel()
	c := &client.Client{ResponseTypes: client.ResponseTypes, GrantTypes: []string{"", "new"}}
	for name, g := range map[string]grantType{
		"nothing":              {},
		"a name alone":         {rules: client.GrantType{Name: "new"}},
		"no rule for clients":  {rules: client.GrantType{Name: "new"}, exchange: (*tokenEndpoint).exchangeCode},
		"no exchange function": {rules: client.GrantType{Name: "new", Allows: func(*client.Client) bool { return true }}},
		"unknown grant type":   findGrantType(oauth2.Parameters{"grant_type": {"password"}}),
	} {
		if g.checkClient(c) == nil {
			t.Errorf("%s: allowed", name)
		}
	}
}

// An empty user is rejected instead of revoking everyone's grants.
func TestEmptyUserRevokesNothing(t *testing.T) {
	t.Parallel()
	for _, clientID := range []string{"", "app"} {
		if err := new(Revoker).RevokeAppGrants(t.Context(), "", clientID); !errors.Is(err, ErrUnknownPrincipal) {
			t.Errorf("%q: %v", clientID, err)
		}
	}
}

// TestGraceByClocksThatDiffer uses a gateway with a clock behind that of the gateway that rotated the token.
func TestGraceByClocksThatDiffer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		grace time.Duration
		want  tokenState
	}{
		{"without a grace period", 0, reusedToken},
		{"within it", time.Second, retriedToken},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fs := &tokenFamilies{durable: store.NewMemory(0, 0)}
			fs.RefreshGrace, fs.Outages = test.grace, func() []store.Outage { return nil }
			f := &refreshFamily{Grant: &Grant{Family: strings.Repeat("A", familyIDSize)}, TagKey: []byte("key")}
			first := f.issueFirst(time.Now())
			f.rotate(first, time.Now().Add(time.Minute))
			if got := fs.classify(f, first); got != test.want {
				t.Errorf("state %v, want %v", got, test.want)
			}
		})
	}
}
