package relyingparty_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const (
	tenantA = "aaaaaaaa-1111-2222-3333-444444444444"
	tenantB = "bbbbbbbb-1111-2222-3333-444444444444"
	shared  = "/organizations/v2.0"
)

// startTenants starts a provider with several tenants, whose tokens are of tenant A.
func startTenants(t *testing.T) (*providertest.Provider, *relyingparty.Provider) {
	t.Helper()
	idp := providertest.Start(t, func(s *providertest.Settings) { s.Path = shared })
	idp.Change(func(s *providertest.Settings) {
		s.Metadata["issuer"] = issuerOf(idp, "{tenantid}")
		s.Metadata["authorization_response_iss_parameter_supported"] = nil
		s.IDToken = asTenant(idp, tenantA)
	})
	return idp, newProvider(t, idp, func(c *relyingparty.Config) { c.MultiTenant = true })
}

func issuerOf(idp *providertest.Provider, tenant string) string {
	return strings.Replace(idp.Issuer, shared, "/"+tenant+"/v2.0", 1)
}

func asTenant(idp *providertest.Provider, tenant string) func(*providertest.IDToken) {
	return func(t *providertest.IDToken) { t.Claims["iss"], t.Claims["tid"] = issuerOf(idp, tenant), tenant }
}

// exchange signs in with a response that contains the given iss, if any. Entra ID sends none.
func exchange(t *testing.T, p *relyingparty.Provider, idp *providertest.Provider, issuer string) (*relyingparty.Identity, error) {
	t.Helper()
	response := providerResponse(t, p, idp, newRequest())
	response.Issuer = issuer
	return p.Exchange(t.Context(), response, newRequest())
}

func TestSubjectOfTenant(t *testing.T) {
	t.Parallel()
	idp, p := startTenants(t)
	identity, err := exchange(t, p, idp, "")
	if err != nil || identity.Issuer != idp.Issuer || identity.Subject != tenantA+"/"+providertest.Alice.Subject {
		t.Fatal(identity, err)
	}
	if tenant, sub := relyingparty.SplitSubject(identity.Subject); tenant != tenantA || sub != providertest.Alice.Subject || relyingparty.TenantIssuer(idp.Issuer, tenant) != issuerOf(idp, tenantA) {
		t.Errorf("tenant %q, sub %q", tenant, sub)
	}
	if discovered := p.DiscoveredIssuer(t.Context()); discovered != idp.Issuer {
		t.Errorf("discovered %s", discovered)
	}
	if _, err := exchange(t, p, idp, issuerOf(idp, tenantA)); err != nil {
		t.Errorf("iss of the tenant in the response: %v", err)
	}
	if _, err := exchange(t, p, idp, "https://login.attacker.example/"+tenantA+"/v2.0"); !errors.Is(err, relyingparty.ErrCallback) {
		t.Errorf("iss of another provider in the response: %v", err)
	}
}

// The iss of an ID token is the provider's for the token's own tenant.
func TestIssuerOfTenant(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ issuer, tid string }{
		"tid of another tenant": {"{server}/" + tenantA + "/v2.0", tenantB},
		"tid missing":           {"{server}/" + tenantA + "/v2.0", ""},
		"shared issuer":         {"{server}" + shared, "organizations"},
		"placeholder":           {"{server}/{tenantid}/v2.0", "{tenantid}"},
		"version 1":             {"https://sts.windows.net/" + tenantA + "/", tenantA},
		"version missing":       {"{server}/" + tenantA, tenantA},
		"another server":        {"https://login.attacker.example/" + tenantA + "/v2.0", tenantA},
		"two tenants":           {"{server}/" + tenantA + "/" + tenantA + "/v2.0", tenantA},
		"upper case":            {"{server}/" + strings.ToUpper(tenantA) + "/v2.0", strings.ToUpper(tenantA)},
		"empty":                 {"", ""},
	} {
		idp, p := startTenants(t)
		idp.Change(func(s *providertest.Settings) {
			s.IDToken = func(token *providertest.IDToken) {
				token.Claims["iss"], token.Claims["tid"] = strings.Replace(tt.issuer, "{server}", strings.TrimSuffix(idp.Issuer, shared), 1), tt.tid
			}
		})
		if identity, err := exchange(t, p, idp, ""); !errors.Is(err, relyingparty.ErrIDToken) {
			t.Errorf("%s: %+v, %v", name, identity, err)
		}
	}
}

// A key that names an issuer signs only tokens of this issuer.
func TestKeyOfTenant(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tenant string
		ok     bool
	}{"all tenants": {"{tenantid}", true}, "the tenant": {tenantA, true}, "another tenant": {tenantB, false}} {
		idp, p := startTenants(t)
		r, err := http.Get(idp.Issuer + string(providertest.Keys))
		if err != nil {
			t.Fatal(err)
		}
		var set struct{ Keys []map[string]any }
		if err := json.NewDecoder(r.Body).Decode(&set); err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		set.Keys[0]["issuer"] = issuerOf(idp, tt.tenant)
		idp.SetFault(providertest.Keys, providertest.JSON(http.StatusOK, map[string]any{"keys": set.Keys}))
		if _, err := exchange(t, p, idp, ""); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A refreshed ID token of another tenant is another person's, even if the sub is the same.
func TestRefreshOfTenant(t *testing.T) {
	t.Parallel()
	idp, p := startTenants(t)
	identity, err := exchange(t, p, idp, "")
	if err != nil {
		t.Fatal(err)
	}
	token := identity.RefreshToken
	refreshed, err := p.Refresh(t.Context(), token, identity.Subject, func(next string) { token = next })
	if err != nil || refreshed.Subject != identity.Subject {
		t.Fatal(refreshed, err)
	}
	idp.Change(func(s *providertest.Settings) { s.IDToken = asTenant(idp, tenantB) })
	if _, err = p.Refresh(t.Context(), token, identity.Subject, func(next string) { token = next }); !relyingparty.IsDenial(err) {
		t.Errorf("another tenant: %v", err)
	}
	idp.Change(func(s *providertest.Settings) {
		s.IDToken = func(token *providertest.IDToken) {
			asTenant(idp, tenantB)(token)
			providertest.ExpiredToken(token)
		}
	})
	if _, err = p.Refresh(t.Context(), token, identity.Subject, func(string) {}); !relyingparty.IsDenial(err) {
		t.Errorf("an expired token of another tenant: %v", err)
	}
}

func TestLogoutTokenOfTenant(t *testing.T) {
	t.Parallel()
	idp, p := startTenants(t)
	for name, tt := range map[string]struct {
		change  func(*providertest.IDToken)
		subject string
	}{
		"tenant A":       {asTenant(idp, tenantA), tenantA + "/" + providertest.Alice.Subject},
		"tenant B":       {asTenant(idp, tenantB), tenantB + "/" + providertest.Alice.Subject},
		"shared issuer":  {func(*providertest.IDToken) {}, ""},
		"another issuer": {providertest.WrongIssuer, ""},
		"sid alone": {func(token *providertest.IDToken) {
			asTenant(idp, tenantA)(token)
			delete(token.Claims, "sub")
			token.Claims["sid"] = "s"
		}, ""},
	} {
		token, err := p.VerifyLogoutToken(t.Context(), idp.LogoutToken(tt.change))
		if tt.subject == "" && !errors.Is(err, relyingparty.ErrLogoutToken) || tt.subject != "" && (err != nil || token.Subject != tt.subject) {
			t.Errorf("%s: %+v, %v", name, token, err)
		}
	}
}
