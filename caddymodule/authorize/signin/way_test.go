package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// Where the browser is sent that asks to sign in.
func TestWayToSignIn(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	two := func(c *authorize.Config) {
		clinic := servertest.Hospital(p)
		clinic.Key, clinic.Name = "clinic", "Clinic"
		c.IdentityProviders = append(c.IdentityProviders, clinic)
	}
	noUsers := func(c *authorize.Config) { c.Users = nil }
	only := func(keys ...string) func(*authorize.Config) {
		return func(c *authorize.Config) { c.Clients[0].IdentityProviders = keys }
	}
	tests := []struct {
		name   string
		change []func(*authorize.Config)
		asked  url.Values
		path   string // or the error
	}{
		{"users and a provider: the page", nil, nil, "/oauth2/login"},
		{"no users and one provider: straight there", []func(*authorize.Config){noUsers}, nil, "/oauth2/login/hospital"},
		{"no users and two providers: the page", []func(*authorize.Config){noUsers, two}, nil, "/oauth2/login"},
		{"the request names one", []func(*authorize.Config){two}, servertest.ByProvider("clinic"), "/oauth2/login/clinic"},
		{"the request names none that there is", []func(*authorize.Config){two}, servertest.ByProvider("bakery"), "invalid_request"},
		{"the client has one: straight there", []func(*authorize.Config){two, only("clinic")}, nil, "/oauth2/login/clinic"},
		{"the client has one, the request names another", []func(*authorize.Config){two, only("clinic")}, servertest.ByProvider("hospital"), "invalid_request"},
		{"the client has one and local users: the page", []func(*authorize.Config){two, only("clinic", "local")}, nil, "/oauth2/login"},
		{"the client has local users alone: the page", []func(*authorize.Config){two, only("local")}, nil, "/oauth2/login"},
		{"the hinted address is of a provider's domain", nil, url.Values{"login_hint": {"x@Hospital.example"}}, "/oauth2/login/hospital"},
		{"the hinted address is of a provider's domain, the request names the page", nil, url.Values{"login_hint": {"x@hospital.example"}, "identity_provider": {"local"}}, "/oauth2/login"},
		{"the hinted address is of another domain", nil, url.Values{"login_hint": {"x@home.example"}}, "/oauth2/login"},
		{"the hinted address has two @", nil, url.Values{"login_hint": {"x@y@hospital.example"}}, "/oauth2/login"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				idp.Domains = []string{"hospital.example"}
				for _, change := range tt.change {
					change(c)
				}
			}))
			u := servertest.Location(t, b.Authorize(servertest.Request(tt.asked)))
			if got := u.Query().Get("error"); got != tt.path && u.Path != tt.path {
				t.Errorf("sent to %s", u)
			}
		})
	}
}

func TestSignInPageOffersProviders(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.Name = "A & B <i>" }))
	page := servertest.Body(t, b.Get(servertest.Location(t, b.Authorize(servertest.Request(nil))).RequestURI()))
	if !strings.Contains(page, "A &amp; B &lt;i&gt;") || !strings.Contains(page, `href="/oauth2/login/hospital?request=`) {
		t.Errorf("the page: %s", page)
	}
}

// The pages' forms may lead to a client or provider on loopback, and to https.
func TestFormAction(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, nil))
	for redirect, want := range map[string]string{
		servertest.Callback:              "form-action 'self' https: " + p.Issuer,
		"http://localhost:3000/callback": "form-action 'self' https: http://localhost:3000 " + p.Issuer,
	} {
		page := b.Get(servertest.Location(t, b.Authorize(servertest.Request(url.Values{"redirect_uri": {redirect}}))).RequestURI())
		if got := page.Header.Get("Content-Security-Policy"); !strings.HasSuffix(got, want) {
			t.Errorf("%s: policy %q, want %q", redirect, got, want)
		}
	}
}

// An address of the provider's domain leads there from the page, whatever was
// typed as a password.
func TestTypedAddressLeadsToProvider(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Domains = []string{"hospital.example"}
	}))
	r := b.SignIn(servertest.Request(nil), "Alice@Hospital.Example ", "")
	if r.StatusCode != http.StatusSeeOther || !strings.HasPrefix(r.Header.Get("Location"), "/oauth2/login/hospital?") {
		t.Fatalf("status %d, Location %q", r.StatusCode, r.Header.Get("Location"))
	}
	away := servertest.Location(t, b.Get(r.Header.Get("Location")))
	servertest.Equal(t, away.Query().Get("login_hint"), "Alice@Hospital.Example")
}

// A session counts for a client that allows the way it began, and for a request
// that does not name another.
func TestSessionServesAllowedClients(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	server := servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Clients[2].IdentityProviders = []string{"local"}
		c.Clients[2].PKCE = client.PKCEOptional
	})
	b := servertest.NewBrowser(t, server)
	servertest.Federate(b, nil)
	for name, tt := range map[string]struct {
		asked url.Values
		path  string
	}{
		"a client that allows all":      {nil, "/callback"},
		"a client for local users":      {url.Values{"client_id": {"strict"}}, "/oauth2/login"},
		"a request that names it":       {servertest.ByProvider("hospital"), "/callback"},
		"a request that names the page": {servertest.ByProvider("local"), "/oauth2/login"},
	} {
		servertest.Equal(t, servertest.Location(t, b.Authorize(servertest.Request(tt.asked))).Path, tt.path, name)
	}
}

// The way to a provider that a client does not allow is closed, link or no link.
func TestProviderThatClientDoesNotAllow(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Clients[0].IdentityProviders = []string{"local"}
	}))
	sealed := servertest.Location(t, b.Authorize(servertest.Request(nil))).Query().Get("request")
	u := servertest.Location(t, b.Get("/oauth2/login/hospital?request="+url.QueryEscape(sealed)))
	servertest.WantError(t, u, "access_denied")
}
