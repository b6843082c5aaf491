package people_test

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	tenantA = "aaaaaaaa-1111-2222-3333-444444444444"
	tenantB = "bbbbbbbb-1111-2222-3333-444444444444"
)

// startTenants starts a provider with several tenants. Its tokens are from tenant A until setTenant selects another tenant.
func startTenants(t *testing.T) (p *providertest.Provider, setTenant func(string) func(*providertest.IDToken)) {
	t.Helper()
	p = providertest.Start(t, func(s *providertest.Settings) { s.Path = "/organizations/v2.0" })
	issuerOf := func(tenant string) string { return strings.Replace(p.Issuer, "organizations", tenant, 1) }
	setTenant = func(tenant string) func(*providertest.IDToken) {
		as := func(token *providertest.IDToken) { token.Claims["iss"], token.Claims["tid"] = issuerOf(tenant), tenant }
		p.Change(func(s *providertest.Settings) { s.IDToken = as })
		return as
	}
	p.Change(func(s *providertest.Settings) {
		s.Metadata["issuer"], s.Metadata["authorization_response_iss_parameter_supported"] = issuerOf("{tenantid}"), nil
	})
	setTenant(tenantA)
	return p, setTenant
}

func withTenants(tenants ...string) func(*people.IdentityProvider, *authorize.Config) {
	return func(idp *people.IdentityProvider, c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		idp.Tenants = tenants
	}
}

// People of two tenants with the same subject are different people, also for logout tokens.
func TestSubjectOfTwoTenants(t *testing.T) {
	t.Parallel()
	p, setTenant := startTenants(t)
	s := authorizetest.NewFederatedServer(t, p, withTenants(tenantA, tenantB))
	ofA := authorizetest.SignInFederated(t, s)
	asB := setTenant(tenantB)
	ofB := authorizetest.SignInFederated(t, s)
	if ofA.Sub == ofB.Sub {
		t.Errorf("both have the sub %s", ofA.Sub)
	}
	authorizetest.NotifyBackchannelLogout(t, s, p.LogoutToken(asB))
	if a, b := ofA.WorkingCredentials(), ofB.WorkingCredentials(); a != "all" || b == "all" {
		t.Errorf("after the logout of B: A has %s, B has %s", a, b)
	}
}

// A tenant that is no longer listed loses its access immediately, and its people cannot sign in.
func TestTenantRemoved(t *testing.T) {
	t.Parallel()
	p, _ := startTenants(t)
	kept := store.NewMemory(0, 0)
	with := func(tenants ...string) *authorize.Server {
		return authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			withTenants(tenants...)(idp, c)
			c.Store = kept
		})
	}
	b := authorizetest.NewBrowser(t, with(tenantB, tenantA))
	tokens := authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(nil))
	b.Server = with(tenantB)
	if b.Refresh(tokens.RefreshToken, nil).AccessToken != "" || b.HasSession() {
		t.Error("the person of the removed tenant still has access")
	}
	authorizetest.WantError(t, authorizetest.SignInAtProvider(b, nil), "access_denied")
}

func TestTenantsRefused(t *testing.T) {
	t.Parallel()
	const shared = "https://login.example/organizations/v2.0"
	for name, tt := range map[string]struct {
		idp  people.IdentityProvider
		want string
	}{
		"issuer of one tenant":      {people.IdentityProvider{Issuer: "https://login.example/" + tenantA + "/v2.0", Tenants: []string{tenantA}}, "organizations/v2.0"},
		"no tenant ID":              {people.IdentityProvider{Issuer: shared, Tenants: []string{"hospital.example"}}, "use the tenant ID"},
		"personal accounts":         {people.IdentityProvider{Issuer: shared, Tenants: []string{"9188040d-6c67-4c5b-b112-36a304b66dad"}}, "personal"},
		"former issuer":             {people.IdentityProvider{Issuer: shared, Tenants: []string{tenantA}, SubIssuer: "https://old.example"}, "sub_issuer"},
		"trusted addresses":         {people.IdentityProvider{Issuer: shared, Tenants: []string{tenantA}, TrustEmail: true}, "trust_email"},
		"fhir_user without tenant":  {people.IdentityProvider{Issuer: shared, Tenants: []string{tenantA}, FHIRUsers: map[string]string{"abc": "Practitioner/1"}}, "use the tenant ID, a slash"},
		"fhir_user without sub":     {people.IdentityProvider{Issuer: shared, Tenants: []string{tenantA}, FHIRUsers: map[string]string{tenantA + "/": "Practitioner/1"}}, "use the tenant ID, a slash"},
		"another idp of the tenant": {people.IdentityProvider{Issuer: shared, Tenants: []string{tenantB}}, "already uses the sub namespace"},
		"reserved parameter":        {people.IdentityProvider{Issuer: shared, RequestParameters: map[string]string{"redirect_uri": "x"}}, "sets this parameter itself"},
	} {
		c := authorizetest.Config()
		tt.idp.Key, tt.idp.ClientID = "hospital", "c"
		other := people.IdentityProvider{Key: "clinic", ClientID: "c", Issuer: "https://login.example/" + tenantB + "/v2.0"}
		c.IdentityProviders = []people.IdentityProvider{other, tt.idp}
		if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
