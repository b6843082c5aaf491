package client

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// What versions before have stored must be read, and what this one stores by them.
func TestStoredClientMembers(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Client{ID: "x", Registered: true})
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ACR", "AssertionAlgorithm", "BackchannelLogoutURI", "Consent", "GrantTypes", "ID", "IDTokenAlgorithm", "IdentityProviders", "IntrospectAll",
		"JWKS", "JWKSURI", "Name", "Native", "PKCE", "PostLogoutRedirectURIs", "RedirectURIs", "RequirePushed", "ResponseTypes",
		"ScopeClaimsInIDToken", "Scopes", "Secret",
	}
	if got := slices.Sorted(maps.Keys(members)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
