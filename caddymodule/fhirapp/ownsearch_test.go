package fhirapp_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// TestFHIRUserIsSearchedThroughGuard: who somebody is at the FHIR server is asked by the site's own routes, without a
// token, and what it says of others is not believed.
func TestFHIRUserIsSearchedThroughGuard(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]string{"7,8": "Practitioner/p", "7": ""} {
		provider := providertest.Start(t, func(s *providertest.Settings) { // each its own: stores in memory are shared
			s.People = []providertest.Person{{Subject: "s", Claims: map[string]any{"number": "7,8"}}}
		})
		g, ward := newWard(t, "Practitioner/alice\n\t\t}\n\t\tidp hospital {\n\t\t\tissuer "+provider.Issuer+"\n\t\t\tclient_id "+providertest.ClientID+
			"\n\t\t\tclient_secret \""+providertest.ClientSecret+"\"\n\t\t\tfhir_user_search Practitioner identifier urn:staff number", "fhir_bearer {\n\t\t\ttest_deny type Patient\n\t\t}")
		ward.set("Practitioner", `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":{"resourceType":"Practitioner","id":"p","identifier":[{"system":"urn:staff","value":"`+number+`"}]}}]}`)
		request := url.Values{
			"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {"https://app.example.org/callback"}, "scope": {"user/*.rs"}, "identity_provider": {"hospital"},
		}
		start := g.Get("/oauth2/authorize?"+request.Encode(), "").Header.Get("Location")
		if strings.HasPrefix(start, "/") || strings.HasPrefix(start, "https://localhost:8443/") {
			start = g.Get(strings.TrimPrefix(start, "https://localhost:8443"), "").Header.Get("Location")
		}
		back := g.Get("/oauth2/callback/hospital?"+provider.Authorize(t, start).Encode(), "")
		code := authorizetest.Location(t, back).Query().Get("code")
		token := gatewaytest.Read(t, g.Post("/oauth2/token", url.Values{
			"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {"https://app.example.org/callback"}, "client_id": {"app"},
		}))
		_, access, _ := strings.Cut(token, `"access_token":"`)
		access, _, _ = strings.Cut(access, `"`)
		asked := strings.Join(ward.asked, "\n")
		if !strings.Contains(asked, "/fhir/R4/Practitioner?") || !strings.Contains(asked, `identifier=urn%3Astaff%7C7%5C%2C8`) || strings.Contains(asked, "Bearer") {
			t.Errorf("asked %q, answered %s", asked, token)
		}
		if found := strings.Contains(gatewaytest.Read(t, g.Get("/fhir/R4/Practitioner", access)), `"id":"p"`); found != (want != "") {
			t.Errorf("%s: user/ scopes open records: %t", number, found)
		}
	}
}
