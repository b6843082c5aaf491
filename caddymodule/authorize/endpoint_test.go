package authorize

import (
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/brands"
)

// Each path that is served belongs to an endpoint that has a name.
func TestEndpointsHaveNames(t *testing.T) {
	t.Parallel()
	s, err := New(Config{
		Issuer: "https://x.example", FHIRBasePath: "/fhir/R4",
		IdentityProviders: []people.IdentityProvider{{Key: "hospital", Issuer: "https://login.hospital.example", ClientID: "x", ClientSecret: "x", SCIM: "x"}},
		UserAccessBrands:  new(brands.Bundle),
		LaunchPage:        true,
		Administration:    &Administration{Scope: "fhir-admin"},
		Clients:           []client.Client{{ID: "ehr", Secret: "x", LaunchContext: true}},
		Registration:      &client.Registration{InitialAccessToken: "x", Storage: struct{ client.Storage }{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for path := range s.routes {
		name := endpoint.Name(path)
		if named[name] = true; !slices.Contains(endpoint.Names, name) {
			t.Errorf("%s: %q is not among the endpoints", path, name)
		}
	}
	for _, name := range endpoint.Names {
		if !named[name] {
			t.Errorf("there is no endpoint %q", name)
		}
	}
}
