package e2e

import (
	"net"
	"net/http"
	"net/url"
	"testing"

	"golang.org/x/oauth2"
)

// oidcProvider is npm oidc-provider (node/provider.mjs), with the gateway as its client.
type oidcProvider struct{ issuer string }

// The provider's users.
var (
	adaTypes = url.Values{"login": {"ada"}, "pass": {"ada-at-the-provider"}, "logout": {"yes"}}
	bobTypes = url.Values{"login": {"bob"}, "pass": {"bob-at-the-provider"}, "logout": {"yes"}}
)

func startOIDCProvider(t *testing.T, name, gatewayAddress string) oidcProvider {
	t.Helper()
	address := withLoopbackIP(mustFreeAddress(t))
	_, port, _ := net.SplitHostPort(address)
	p := oidcProvider{"http://" + address}
	running, err := startProcess(name, []string{"PORT=" + port, "GATEWAY=https://" + gatewayAddress}, "node", "node/provider.mjs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.stop)
	if err := running.ready(p.isReady); err != nil {
		t.Fatalf("oidc-provider (was npm ci run in e2e/node?): %v", err)
	}
	return p
}

func (p oidcProvider) isReady() error {
	answer, err := http.Get(p.issuer + "/.well-known/openid-configuration")
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// idp returns an idp block for one of the two clients registered for the gateway.
func (p oidcProvider) idp(client string, lines ...string) string {
	return idpBlock("node-"+client, p.issuer, "gateway-"+client, "secret-of-gateway-"+client, lines...)
}

// Signing in at npm oidc-provider works with PKCE and with claims from userinfo.
func TestOIDCProvider(t *testing.T) {
	address := mustFreeAddress(t)
	provider := startOIDCProvider(t, "oidc-provider", address)
	g := federatedGateway(t, "gateway-oidc-provider", address, []string{
		provider.idp("rs256", "name \"General Hospital\"", "scopes profile email groups",
			"fhir_user ada Practitioner/ada-by-subject", "allow group clinicians"),
		provider.idp("es256", "scopes profile email groups",
			"claim name nickname", "claim fhirUser fhir_reference", "claim groups roles",
			"allow group clinicians"),
	})
	tests := []struct {
		client string
		want   claims
	}{
		{"rs256", claims{
			Name: "Ada Abbott", PreferredUsername: "ada.abbott", Email: "ada@hospital.example", EmailVerified: true,
			FHIRUser: g.issuer + "/fhir/R4/Practitioner/ada-by-subject",
		}},
		{"es256", claims{
			Name: "Addie", PreferredUsername: "ada.abbott", Email: "ada@hospital.example", EmailVerified: true,
			FHIRUser: g.issuer + "/fhir/R4/Practitioner/ada-by-claim",
		}},
	}
	for _, test := range tests {
		t.Run(test.client, func(t *testing.T) {
			signedIn := g.newPerson(t).signInBy(t, "node-"+test.client, adaTypes)
			signedIn.check(t, g, provider.issuer, "ada", test.want)
		})
		t.Run(test.client+", who is in no such group", func(t *testing.T) {
			address := g.demoApp(t, "openid").AuthCodeURL("state", withIDP("node-"+test.client))
			query := g.newPerson(t).walk(t, address, appCallback, bobTypes).Query()
			if query.Get("error") != "access_denied" || query.Get("state") != "state" || query.Has("code") {
				t.Errorf("got %s", query.Encode())
			}
		})
	}
	t.Run("the same person has the same account again", func(t *testing.T) {
		first, second := g.newPerson(t).signInBy(t, "node-rs256", adaTypes), g.newPerson(t).signInBy(t, "node-rs256", adaTypes)
		if first.verified.Subject != second.verified.Subject {
			t.Errorf("sub %q, then %q", first.verified.Subject, second.verified.Subject)
		}
	})
	t.Run("signed in, without a page or a request to the provider", func(t *testing.T) {
		ada := g.newPerson(t)
		ada.signInBy(t, "node-rs256", adaTypes)
		if end := ada.get(t, g.demoApp(t, "openid").AuthCodeURL("again", withIDP("node-rs256"))).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
	})
	t.Run("the answer of another browser is refused", func(t *testing.T) {
		start := g.demoApp(t, "openid").AuthCodeURL("state", withIDP("node-rs256"), oauth2.S256ChallengeOption(oauth2.GenerateVerifier()))
		back := g.newPerson(t).walk(t, start, g.issuer+"/oauth2/callback/", adaTypes)
		page := g.newPerson(t).get(t, back.String()).is(t, http.StatusBadRequest)
		checkPageHeaders(t, page)
	})
	t.Run("the same answer does not count twice", func(t *testing.T) {
		ada := g.newPerson(t)
		start := g.demoApp(t, "openid").AuthCodeURL("state", withIDP("node-rs256"))
		back := ada.walk(t, start, g.issuer+"/oauth2/callback/", adaTypes).String()
		if end := ada.get(t, back).location(t); !end.Query().Has("code") {
			t.Errorf("sent to %s, want a code", end)
		}
		ada.get(t, back).is(t, http.StatusBadRequest)
	})
}
