package signin_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// The rows of the interface's §7 about providers, each reached by a real fault,
// and everything else that can go wrong there, which is server_error without a
// word.
func TestFederatedErrors(t *testing.T) {
	t.Parallel()
	type change = func(*testing.T, *authorizetest.Provider)
	fail := func(at authorizetest.Endpoint, fault authorizetest.Fault) change {
		return func(_ *testing.T, p *authorizetest.Provider) { p.Fail(at, fault) }
	}
	tamper := func(with func(*authorizetest.IDToken)) change {
		return func(_ *testing.T, p *authorizetest.Provider) {
			p.Change(func(s *authorizetest.Settings) { s.IDToken = with })
		}
	}
	declined := func(code string) change {
		return func(_ *testing.T, p *authorizetest.Provider) {
			p.Change(func(s *authorizetest.Settings) { s.AuthorizationError = code })
		}
	}
	const token, keys = authorizetest.Token, authorizetest.Keys
	tests := []struct {
		name               string
		change             change
		error, description string
	}{
		{"SYN dropped", func(t *testing.T, p *authorizetest.Provider) { p.Drop(t, token) }, "invalid_request", "Timeout occurred in calling IdP token endpoint"},
		{"accepted and silent", fail(token, authorizetest.Silent), "invalid_request", "Timeout occurred in calling IdP token endpoint"},
		{"JWKS hanging", fail(keys, authorizetest.Silent), "invalid_request", "Timeout in calling jwks uri"},
		{"JWKS stalled", fail(keys, authorizetest.Stall), "invalid_request", "Timeout in calling jwks uri"},
		{"500", fail(token, authorizetest.Status(500)), "invalid_request", "General Hospital Error - 500 error getting token"},
		{"400 with JSON error", fail(token, authorizetest.ErrorResponse(400, "invalid_grant")), "invalid_request", "General Hospital Error - 400 error getting token"},
		{"HTML instead of JSON", fail(token, authorizetest.HTML), "invalid_request", "General Hospital Error - 200 error getting token"},
		{"RST at once", fail(token, authorizetest.ResetAtOnce), "invalid_request", "Connection reset"},
		{"RST in the middle", fail(token, authorizetest.Reset), "invalid_request", "Connection reset"},
		{"body stalled", fail(token, authorizetest.Stall), "invalid_request", "Read timed out"},
		{"10 MB of JSON", fail(token, authorizetest.Huge), "server_error", ""},
		{"discovery down", fail(authorizetest.Discovery, authorizetest.Status(503)), "server_error", ""},
		{"discovery reset", fail(authorizetest.Discovery, authorizetest.ResetAtOnce), "invalid_request", "Connection reset"},
		{"unknown kid", tamper(authorizetest.UnknownKey), "server_error", ""},
		{"alg none", tamper(authorizetest.AlgorithmNone), "server_error", ""},
		{"HS256 with the public key", tamper(authorizetest.HS256WithPublicKey), "server_error", ""},
		{"wrong nonce", tamper(authorizetest.WrongNonce), "server_error", ""},
		{"wrong audience", tamper(authorizetest.WrongAudience), "server_error", ""},
		{"wrong issuer", tamper(authorizetest.WrongIssuer), "server_error", ""},
		{"expired", tamper(authorizetest.Expired), "server_error", ""},
		{"azp of another", tamper(authorizetest.OtherAuthorizedParty), "server_error", ""},
		{"the person said no", declined("access_denied"), "access_denied", ""},
		{"prompt none, and not signed in there", declined("login_required"), "login_required", ""},
		{"an error about us", declined("invalid_scope"), "server_error", ""},
		{"an error with markup", declined("<script>"), "server_error", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := authorizetest.Start(t)
			tt.change(t, p)
			b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
				idp.Timeout = 10 * time.Second
				if strings.Contains(tt.description, "imed out") || strings.Contains(tt.description, "Timeout") {
					idp.Timeout = time.Second // the case waits for it
				}
			}))
			q := servertest.Federate(b, nil).Query()
			if q.Get("error") != tt.error || q.Get("error_description") != tt.description || len(q["error_description"]) > 1 {
				t.Errorf("error %q, description %q; want %q, %q", q.Get("error"), q["error_description"], tt.error, tt.description)
			}
			if q.Get("state") != "s" || q.Has("code") || b.Cookies["__Host-fhir-session"] != "" {
				t.Errorf("parameters %v, cookies %v", q, b.Cookies)
			}
		})
	}
}

// "<provider name> Error - <status code> <provider error code>"
func TestGoogleError(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	p.Fail(authorizetest.Token, authorizetest.ErrorResponse(400, "invalid_grant"))
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) {
		idp.Name, idp.Google = "Google", true
	}))
	servertest.Equal(t, servertest.Federate(b, nil).Query().Get("error_description"), "Google Error - 400 invalid_grant")
}

// "The <provider name> is the idp's name, or its key where it has none."
func TestProviderWithoutName(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	p.Fail(authorizetest.Token, authorizetest.Status(502))
	b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.Name = "" }))
	servertest.Equal(t, servertest.Federate(b, nil).Query().Get("error_description"), "hospital Error - 502 error getting token")
}

// A provider that cannot be reached costs nobody the other ways to sign in. Where there
// are none, or the request wants that one, the app is told (interface §7).
func TestProviderDown(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	silent, failing := failingIssuer(t, authorizetest.ResetAtOnce), failingIssuer(t, authorizetest.Status(http.StatusBadGateway))
	tests := []struct {
		name    string
		issuer  string
		idps    []string
		request url.Values
		page    bool
	}{
		{"beside passwords", silent, nil, nil, true},
		{"answers with a failure", failing, nil, nil, true},
		{"shows a certificate that nobody trusts", untrusted.URL, nil, nil, true},
		{"beside another provider", silent, []string{"down", "hospital"}, nil, true},
		{"by the domain of an address", silent, nil, url.Values{"login_hint": {"a@clinic.example"}}, true},
		{"the client allows no other", silent, []string{"down"}, nil, false},
		{"the request wants no other", silent, nil, servertest.ByProvider("down"), false},
		{"the request wants no page", silent, nil, url.Values{"login_hint": {"a@clinic.example"}, "prompt": {"none"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := authorizetest.Start(t)
			down := people.IdentityProvider{Key: "down", Name: "The Clinic", Issuer: tt.issuer, ClientID: "c", ClientSecret: "s", Domains: []string{"clinic.example"}}
			b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
				c.IdentityProviders = []people.IdentityProvider{down, servertest.Hospital(p)}
				c.Clients[0].IdentityProviders = tt.idps
			}))
			to := servertest.Location(t, b.Authorize(servertest.Request(tt.request)))
			if to.Path == "/oauth2/login" {
				to.Path = "/oauth2/login/down" // the link on the page
			}
			response := b.Get(to.String())
			page := servertest.Body(t, response)
			if !tt.page {
				if to := servertest.Location(t, response); !strings.HasPrefix(to.String(), servertest.Callback) || to.Query().Get("error") == "" {
					t.Errorf("sent to %s", to)
				}
				return
			}
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The Clinic cannot be reached at the moment.") {
				t.Fatalf("%d: %s", response.StatusCode, page)
			}
			if tt.idps != nil {
				return
			}
			sealed := servertest.Field(t, page, "request")
			u := servertest.Location(t, b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}}))
			servertest.WantCode(t, u, "by a password")
		})
	}
}

// failingIssuer is an issuer that tells nobody where its endpoints are.
func failingIssuer(t *testing.T, fault authorizetest.Fault) string {
	t.Helper()
	p := authorizetest.Start(t)
	p.Fail(authorizetest.Discovery, fault)
	return p.Issuer
}
