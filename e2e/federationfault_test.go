package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// idpTimeout is the gateway's timeout for requests to a failing provider.
const idpTimeout = "1s"

// federationFault is a fault of a provider with the error that the app gets.
type federationFault struct {
	name             string
	kind             string // "oidc" or "google"
	fail             func(*testing.T, *providertest.Provider)
	err, description string
}

// failingEndpoint returns a function that makes an endpoint of the provider fail.
func failingEndpoint(e providertest.Endpoint, f providertest.Fault) func(*testing.T, *providertest.Provider) {
	return func(_ *testing.T, p *providertest.Provider) { p.SetFault(e, f) }
}

// droppingEndpoint returns a function that makes an endpoint's host drop SYNs.
func droppingEndpoint(e providertest.Endpoint) func(*testing.T, *providertest.Provider) {
	return func(t *testing.T, p *providertest.Provider) { p.DropPackets(t, e) }
}

// forgingIDToken returns a function that makes the provider issue invalid ID tokens.
func forgingIDToken(change func(*providertest.IDToken)) func(*testing.T, *providertest.Provider) {
	return func(_ *testing.T, p *providertest.Provider) {
		p.Change(func(s *providertest.Settings) { s.IDToken = change })
	}
}

// federationFaults contains a fault for each row of the error table in docs/evidence/interface.md, and faults that are not in
// the table, which cause a server_error without a description.
var federationFaults = []federationFault{
	{"token endpoint hangs", "oidc", failingEndpoint(providertest.Token, providertest.NeverRespond), "invalid_request", "Timeout occurred in calling IdP token endpoint"},
	{"token endpoint drops SYNs", "oidc", droppingEndpoint(providertest.Token), "invalid_request", "Timeout occurred in calling IdP token endpoint"},
	{"keys hang", "oidc", failingEndpoint(providertest.Keys, providertest.NeverRespond), "invalid_request", "Timeout in calling jwks uri"},
	{"keys drop SYNs", "oidc", droppingEndpoint(providertest.Keys), "invalid_request", "Timeout in calling jwks uri"},
	{"token endpoint answers 500", "oidc", failingEndpoint(providertest.Token, providertest.Status(http.StatusInternalServerError)), "invalid_request", "General Hospital Error - 500 error getting token"},
	{"token endpoint answers 400", "oidc", failingEndpoint(providertest.Token, providertest.ErrorResponse(http.StatusBadRequest, "invalid_grant")), "invalid_request", "General Hospital Error - 400 error getting token"},
	{"Google answers 400", "google", failingEndpoint(providertest.Token, providertest.ErrorResponse(http.StatusBadRequest, "invalid_grant")), "invalid_request", "Google Error - 400 invalid_grant"},
	{"Google's token endpoint hangs", "google", failingEndpoint(providertest.Token, providertest.NeverRespond), "invalid_request", "Timeout occurred in calling IdP token endpoint"},
	{"token endpoint resets", "oidc", failingEndpoint(providertest.Token, providertest.ResetConnection), "invalid_request", "Connection reset"},
	{"token endpoint resets in the middle", "oidc", failingEndpoint(providertest.Token, providertest.ResetMidResponse), "invalid_request", "Connection reset"},
	{"token endpoint stalls", "oidc", failingEndpoint(providertest.Token, providertest.StallBody), "invalid_request", "Read timed out"},
	{"token endpoint drips", "oidc", failingEndpoint(providertest.Token, providertest.DripBytes), "invalid_request", "Read timed out"},
	{"discovery hangs", "oidc", failingEndpoint(providertest.Discovery, providertest.NeverRespond), "invalid_request", "Read timed out"},
	{"HTML instead of JSON", "oidc", failingEndpoint(providertest.Token, providertest.SendHTML), "invalid_request", "General Hospital Error - 200 error getting token"},
	{"unknown key", "oidc", forgingIDToken(providertest.UnknownKey), "server_error", ""},
	{"alg none", "oidc", forgingIDToken(providertest.AlgorithmNone), "server_error", ""},
	{"wrong nonce", "oidc", forgingIDToken(providertest.WrongNonce), "server_error", ""},
	{"HS256 with the public key", "oidc", forgingIDToken(providertest.HS256WithPublicKey), "server_error", ""},
	{"wrong audience", "oidc", forgingIDToken(providertest.WrongAudience), "server_error", ""},
	{"wrong issuer", "oidc", forgingIDToken(providertest.WrongIssuer), "server_error", ""},
	{"expired", "oidc", forgingIDToken(providertest.ExpiredToken), "server_error", ""},
	{"another's azp", "oidc", forgingIDToken(providertest.OtherAuthorizedParty), "server_error", ""},
	{"10 MB of JSON", "oidc", failingEndpoint(providertest.Token, providertest.SendHugeJSON), "server_error", ""},
}

// One gateway has several failing providers, each with a different fault. The app gets the expected error for each of them.
func TestFederationFaults(t *testing.T) {
	var idps []string
	for i, fault := range federationFaults {
		provider := providertest.Start(t)
		fault.fail(t, provider)
		lines := []string{"timeout " + idpTimeout}
		if fault.kind == "oidc" {
			lines = append(lines, "name \"General Hospital\"")
		}
		idps = append(idps, idpBlock(fmt.Sprintf("fault-%d %s", i, fault.kind), provider.Issuer, providertest.ClientID, providertest.ClientSecret, lines...))
	}
	g := federatedGateway(t, "gateway-faults", mustFreeAddress(t), idps)
	app := g.demoApp(t, "openid")
	for i, fault := range federationFaults {
		t.Run(fault.name, func(t *testing.T) {
			person := g.newPerson(t)
			end := person.walk(t, app.AuthCodeURL("s t/å&te", withIDP(fmt.Sprintf("fault-%d", i))), appCallback, nil)
			query := end.Query()
			if query.Get("error") != fault.err || query.Get("error_description") != fault.description {
				t.Errorf("%s %q, want %s %q", query.Get("error"), query.Get("error_description"), fault.err, fault.description)
			}
			if query.Get("state") != "s t/å&te" || query.Get("iss") != g.issuer || query.Has("code") || end.Fragment != "" {
				t.Errorf("sent to %s", end)
			}
			for name, values := range query {
				if len(values) != 1 || !slices.Contains([]string{"error", "error_description", "state", "iss"}, name) {
					t.Errorf("%s=%q in the answer", name, values)
				}
			}
			// After a failed sign-in, the user is not signed in.
			if end := person.get(t, app.AuthCodeURL("afterwards")).location(t); end.Path != "/oauth2/login" {
				t.Errorf("afterwards sent to %s, want the sign-in page", end)
			}
		})
	}
	t.Run("chosen on our page, one that cannot be reached leads back to it", func(t *testing.T) {
		person := g.newPerson(t)
		form := person.openSignIn(t, app.AuthCodeURL("state"))
		down := slices.IndexFunc(federationFaults, func(f federationFault) bool { return f.name == "discovery hangs" })
		page := person.get(t, fmt.Sprintf("%s/oauth2/login/fault-%d?%s", g.issuer, down, form.hidden.Encode())).is(t, http.StatusServiceUnavailable)
		if !strings.Contains(string(page.body), "General Hospital can’t sign you in right now. Sign in another way") {
			t.Errorf("%s", page.body)
		}
		at, err := url.Parse(g.issuer)
		if err != nil {
			t.Fatal(err)
		}
		if end := person.submit(t, openForm(t, at, string(page.body)), userPassword).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
	})
	t.Run("and users of the gateway's own sign in as ever", func(t *testing.T) {
		g.userToken(t, "openid")
	})
}
