package signin_test

import (
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// gold is a provider that says gold of two factors, and then signs in by each of these acr.
func gold(t *testing.T, acr ...string) *authorizetest.Provider {
	t.Helper()
	return authorizetest.Start(t, func(s *authorizetest.Settings) {
		s.Metadata = map[string]any{"claims_parameter_supported": true}
		s.IDToken = func(token *authorizetest.IDToken) {
			token.Claims["acr"], acr = acr[0], acr[1:]
		}
	})
}

// golden makes a client require a class, at a provider whose gold is mapped.
func golden(required string) func(*people.IdentityProvider, *authorize.Config) {
	return func(idp *people.IdentityProvider, c *authorize.Config) {
		idp.ACRMap = map[string]string{"gold": "mfa"}
		c.Clients[0].ACR = required
	}
}

const essentialGold = `{"id_token":{"acr":{"essential":true,"value":"gold"}}}`

// The class that is demanded goes to the provider in its words, and as an essential claim if it must
// be met; what does not reach it is refused.
func TestProviderIsAskedForClass(t *testing.T) {
	t.Parallel()
	essential := url.Values{"claims": {`{"id_token":{"acr":{"essential":true,"value":"mfa"}}}`}}
	for name, tt := range map[string]struct {
		required  string
		change    url.Values
		acr       string // that the provider says
		wantError string
		values    string // asked of the provider
		claims    string
	}{
		"nothing":                    {"", nil, "silver", "", "", ""},
		"one factor":                 {"sfa", nil, "silver", "", "", ""},
		"the client requires two":    {"mfa", nil, "gold", "", "gold", essentialGold},
		"and gets one":               {"mfa", nil, "silver", "unmet_authentication_requirements", "gold", essentialGold},
		"our word from the provider": {"mfa", nil, "mfa", "unmet_authentication_requirements", "gold", essentialGold},
		"an essential claim":         {"", essential, "gold", "", "gold", essentialGold},
		"and it is not met":          {"", essential, "silver", "unmet_authentication_requirements", "gold", essentialGold},
		"acr_values":                 {"", url.Values{"acr_values": {"mfa"}}, "silver", "", "gold", ""},
		"and words of the provider":  {"mfa", url.Values{"acr_values": {"platinum mfa"}}, "gold", "", "gold platinum", essentialGold},
		"a passkey":                  {"phr", nil, "gold", "unmet_authentication_requirements", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gold(t, tt.acr)
			b := servertest.NewBrowser(t, servertest.NewFederated(t, p, golden(tt.required)))
			servertest.Equal(t, servertest.Federate(b, tt.change).Query().Get("error"), tt.wantError)
			asked := p.Requests(authorizetest.Authorization)
			servertest.Equal(t, len(asked), 1, "times at the provider")
			servertest.Equal(t, asked[0].Form.Get("acr_values"), tt.values)
			servertest.Equal(t, asked[0].Form.Get("claims"), tt.claims)
		})
	}
}

// A session with less than is demanded goes to the provider again, and not in circles.
func TestStepUpAtProvider(t *testing.T) {
	t.Parallel()
	asked := url.Values{"acr_values": {"mfa"}}
	for name, tt := range map[string]struct {
		required string
		change   url.Values
		acr      string // at the second sign-in
		want     string
		times    int // at the provider
	}{
		"met":                               {"mfa", nil, "gold", "", 2},
		"not met":                           {"mfa", nil, "silver", "unmet_authentication_requirements", 2},
		"silently":                          {"mfa", url.Values{"prompt": {"none"}}, "gold", "", 2},
		"only asked, and met":               {"", asked, "gold", "", 2},
		"only asked, and not met":           {"", asked, "silver", "", 2},
		"only asked, and silently":          {"", url.Values{"acr_values": {"mfa"}, "prompt": {"none"}}, "silver", "", 1},
		"asked for what is not his to give": {"", url.Values{"acr_values": {"phr"}}, "silver", "", 1},
		"what no provider can show":         {"phr", nil, "gold", "unmet_authentication_requirements", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gold(t, "silver", tt.acr)
			b := servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				golden(tt.required)(idp, c)
				lenient := c.Clients[0]
				lenient.ID, lenient.ACR = "any", ""
				c.Clients = append(c.Clients, lenient)
			}))
			if code := servertest.Federate(b, url.Values{"client_id": {"any"}}).Query().Get("code"); code == "" {
				t.Fatal("no sign-in")
			}
			answer := servertest.Federate(b, tt.change)
			servertest.Equal(t, answer.Query().Get("error"), tt.want)
			servertest.Equal(t, len(p.Requests(authorizetest.Authorization)), tt.times, "times at the provider")
			if tt.acr == "gold" && tt.want == "" {
				servertest.Equal(t, b.Claims(b.Redeem(answer).IDToken)["acr"], any("mfa"))
			}
		})
	}
}
