package fhirapp

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// wardPolicies let in doctors of ward 7.
const wardPolicies = `
			test_require idp ""
			test_require groups doctors
			test_require ward 7
			test_deny none x`

// TestPoliciesOfOtherIssuers: groups and claims are those of the token, also nested ones, and missing ones are empty.
func TestPoliciesOfOtherIssuers(t *testing.T) {
	t.Parallel()
	k := gatewaytest.NewIssuer(t)
	names := "\n\t\t\ttoken_claim groups realm_access.roles\n\t\t\ttoken_claim ward hospital.ward\n\t\t\ttoken_claim none"
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\ttrust "+k.URL+names+wardPolicies+"\n\t\t}\n"))
	for _, tt := range []struct {
		name   string
		claims map[string]any
		status int
	}{
		{"both", map[string]any{"realm_access": map[string]any{"roles": []string{"x", "doctors"}}, "hospital": map[string]any{"ward": 7}}, http.StatusBadGateway},
		{"no ward", map[string]any{"realm_access": map[string]any{"roles": []string{"doctors"}}}, http.StatusForbidden},
		{"another ward", map[string]any{"realm_access": map[string]any{"roles": []string{"doctors"}}, "hospital": map[string]any{"ward": "8"}}, http.StatusForbidden},
		{"another claim of groups", map[string]any{"groups": []string{"doctors"}, "hospital": map[string]any{"ward": "7"}}, http.StatusForbidden},
		{"none", nil, http.StatusForbidden},
		{"a claim of another form", map[string]any{"realm_access": map[string]any{"roles": []string{"doctors"}}, "hospital": map[string]any{"ward": "7"}, "none": map[string]any{}}, http.StatusForbidden},
	} {
		claims := map[string]any{
			"iss": k.URL, "sub": "u1", "aud": "https://localhost:8443/fhir/R4", "azp": "c1", "scope": "user/*.rs", "fhirUser": "Practitioner/1",
			"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "typ": "Bearer",
		}
		maps.Copy(claims, tt.claims)
		token := k.Sign(t, claims)
		for range 2 { // verified, and remembered
			if r := g.Get("/fhir/R4/Patient", token); r.StatusCode != tt.status {
				t.Errorf("%s: status %d, want %d", tt.name, r.StatusCode, tt.status)
			}
		}
	}
}

// TestPoliciesOfOwnPeople: groups and claims are those of the person now, not those of when the token was issued.
func TestPoliciesOfOwnPeople(t *testing.T) {
	t.Parallel()
	keys := gatewaytest.Folder(t)
	guarded := func(user, policy string) *gateway {
		return newGatewayAt(t, gatewaytest.ExampleText(t, "fhir_bearer\n", "fhir_bearer {"+policy+"\n\t\t}\n", "phone +15550100\n", "phone +15550100\n"+user), keys)
	}
	const doctors, lacksWard = "\n\t\t\ttest_require idp local\n\t\t\ttest_require groups doctors", "\n\t\t\ttoken_claim ward\n\t\t\ttest_require ward 7"
	token := guarded("", doctors).Token()
	for _, tt := range []struct {
		name, user, policy string
		status             int
	}{
		{"a member", "\t\t\tgroup nurses doctors\n", doctors, http.StatusBadGateway},
		{"a member no longer", "\t\t\tgroup nurses\n", doctors, http.StatusForbidden},
		{"without a claim", "", lacksWard, http.StatusForbidden},
	} {
		if r := guarded(tt.user, tt.policy).Get("/fhir/R4/Patient", token); r.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, r.StatusCode, tt.status)
		}
	}
}
