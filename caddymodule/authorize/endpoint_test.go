package authorize

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// The path of every endpoint has a name in package endpoint, and every name has an endpoint.
func TestEndpointsHaveNames(t *testing.T) {
	t.Parallel()
	s, err := New(Config{
		Issuer: "https://x.example", FHIRBasePath: "/fhir/R4",
		IdentityProviders: []people.IdentityProvider{{Key: "hospital", Issuer: "https://login.hospital.example", ClientID: "x", ClientSecret: "x"}},
		Clients:           []client.Client{{ID: "ehr", Secret: "x", LaunchContext: true}},
		Features:          []Feature{sourceFeature{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for path := range s.routes {
		name := endpoint.Name(path)
		if named[name] = true; !slices.Contains(endpoint.Names(), name) {
			t.Errorf("%s: %q is not among the endpoints", path, name)
		}
	}
	for _, name := range endpoint.Names() {
		if !named[name] {
			t.Errorf("endpoint %q not found", name)
		}
	}
}

// sourceFeature adds a client source.
type sourceFeature struct{ client.Source }

func (f sourceFeature) Extend(core *Core) error {
	core.Clients.Sources = append(core.Clients.Sources, f)
	return nil
}

func (sourceFeature) MostPermissive() *client.Client { return new(client.Client) }

// Routing takes time linear in the path's length. Attackers can send long paths without authentication.
func TestLongPath(t *testing.T) {
	t.Parallel()
	s := &Server{routes: map[string]http.Handler{"/oauth2/scim/hospital/": http.NotFoundHandler()}, pathPrefixes: []string{"/oauth2/scim/hospital/"}}
	for path, want := range map[string]bool{
		"/oauth2/" + strings.Repeat("a/", 1_000_000): false, "/oauth2/scim/hospital": true, "/oauth2/scim/hospital/": true,
		"/oauth2/scim/hospital/Users/1": true, "/oauth2/scim/hospitals/Users": false, "/oauth2/scim/": false, "/": false, "": false,
	} {
		if got := s.Serves(path); got != want {
			t.Errorf("%.40s: %v", path, got)
		}
	}
}
