package registration

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
)

// Stored clients keep their members: others could not be read by other gateways during an upgrade. Nothing that a client registers is lost.
func TestStoredClientMembers(t *testing.T) {
	t.Parallel()
	registration := &Registration{RequestObjects: true, Scopes: []string{"user/*.rs"}}
	client, err := registration.newClient(&clientMetadata{
		RedirectURIs: []string{"https://app.example/cb"}, ApplicationType: applicationNative, Method: "client_secret_basic", Algorithm: "ES384",
		JWKS: json.RawMessage(`{"keys":[]}`), JWKSURI: "https://app.example/jwks", Name: "App", LogoURI: "https://app.example/logo",
		PolicyURI: "https://app.example/policy", TermsURI: "https://app.example/terms", PostLogoutRedirectURIs: []string{"https://app.example/bye"},
		RequirePushed: true, UserinfoAlgorithm: "RS256", RequestAlgorithm: "ES256", RequestURIs: []string{"https://app.example/r"}, RequireRequestObject: true,
		BackchannelLogoutURI: "https://app.example/logout", BackchannelSession: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	client.ID = "x"
	text, err := (&registered{Client: client}).text()
	if err != nil {
		t.Fatal(err)
	}
	var stored struct {
		Client map[string]json.RawMessage `json:"client"`
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"AssertionAlgorithm", "BackchannelLogoutURI", "BackchannelSession", "ID", "JWKS", "JWKSURI", "Links", "Name", "Native", "PostLogoutRedirectURIs",
		"RedirectURIs", "RequestObjects", "RequirePushed", "ResponseTypes", "Scopes", "UserinfoAlgorithm",
	}
	if got := slices.Sorted(maps.Keys(stored.Client)); !slices.Equal(got, want) || string(stored.Client["JWKS"]) != `"eyJrZXlzIjpbXX0="` {
		t.Errorf("%q, %s, want %q", got, stored.Client["JWKS"], want)
	}
	if read, err := parseRegistered(text); err != nil || !reflect.DeepEqual(read.Client, client) {
		t.Errorf("%+v, %v, want %+v", read, err, client)
	}
}
