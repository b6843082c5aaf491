package authorize

import (
	"slices"
	"testing"
)

// Each path that is served belongs to an endpoint that has a name.
func TestEndpointsHaveNames(t *testing.T) {
	s, err := New(Config{
		Issuer: "https://x.example", FHIRBasePath: "/fhir/R4",
		IdentityProviders: []IdentityProvider{{Key: "hospital", Issuer: "https://login.hospital.example", ClientID: "x", ClientSecret: "x"}},
		Registration:      &Registration{InitialAccessToken: "x", Storage: struct{ ClientStorage }{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for path := range s.routes {
		name := Endpoint(path)
		if named[name] = true; !slices.Contains(Endpoints, name) {
			t.Errorf("%s: %q is not among the endpoints", path, name)
		}
	}
	for _, name := range Endpoints {
		if !named[name] {
			t.Errorf("there is no endpoint %q", name)
		}
	}
}
