package authorize_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// everything configures all stateful parts in addition to refresh tokens and identity providers.
func everything(c *authorize.Config) {
	authorizetest.EveryFlow(c)
	authorizetest.ResourceServer(c)
	authorizetest.WithEHR(c)
	c.Records = new(authorizetest.FHIRServer)
	c.Users = append(c.Users, people.User{ID: "carol", PasswordHash: "third", TOTPSecret: authorizetest.TOTPSecret})
	c.Clients[0].PostLogoutRedirectURIs = []string{authorizetest.AfterLogout}
	c.Clients = append(c.Clients, client.Client{
		ID: "careful", PKCE: client.PKCEOptional, RedirectURIs: []string{authorizetest.Callback}, Consent: client.ConsentRequired,
		Scopes: []string{"offline_access"},
	}, client.Client{
		ID: "backend", RedirectURIs: []string{authorizetest.Callback}, Scopes: []string{"system/*.rs", "offline_access"},
		GrantTypes: []string{"client_credentials", "authorization_code"}, JWKS: authorizetest.PublicKeys(jose.ES256),
	}, client.Client{
		ID: "launched", PKCE: client.PKCEOptional, RedirectURIs: []string{authorizetest.Callback}, LaunchURI: "https://app.example.org/launch",
		Scopes: []string{"launch", "patient/*.rs"},
	})
}

// posting is the request that posts a form, each time anew.
func posting(path string, form url.Values) func() *http.Request {
	return func() *http.Request { return authorizetest.PostRequest(path, form) }
}

func getting(target string) func() *http.Request {
	return func() *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }
}

func authorizing(q url.Values) func() *http.Request {
	return getting("/oauth2/authorize?" + q.Encode())
}

// asserted adds the authentication of the client that has keys.
func asserted(t testing.TB, form url.Values) url.Values {
	maps.Copy(form, authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES256, nil, nil), url.Values{"grant_type": {form.Get("grant_type")}, "scope": {form.Get("scope")}}))
	form.Del("client_id")
	return form
}

func hasStatus(status int) func(*http.Response) bool {
	return func(r *http.Response) bool { return r.StatusCode == status }
}

// leadsTo says whether a response is a redirect to an address that holds a text.
func leadsTo(text string) func(*http.Response) bool {
	return func(r *http.Response) bool { return strings.Contains(r.Header.Get("Location"), text) }
}

// document gets what is the same for all.
func document(path string) func(*authorizetest.Browser, *providertest.Provider) func() *http.Request {
	return func(*authorizetest.Browser, *providertest.Provider) func() *http.Request { return getting(path) }
}

// bearing adds an access token.
func bearing(access string, request func() *http.Request) func() *http.Request {
	return func() *http.Request {
		r := request()
		r.Header.Set("Authorization", "Bearer "+access)
		return r
	}
}

func typed(sealed, user, password string) url.Values {
	return url.Values{"request": {sealed}, "username": {user}, "password": {password}}
}

// atProvider is the answer of a provider to a person who was sent there.
func atProvider(b *authorizetest.Browser, p *providertest.Provider, change url.Values) url.Values {
	q := authorizetest.Request(change)
	q.Set("identity_provider", "hospital")
	there := authorizetest.Location(b.T, b.Get(authorizetest.Location(b.T, b.Authorize(q)).String()))
	return p.Authorize(b.T, there.String())
}
