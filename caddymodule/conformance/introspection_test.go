package conformance

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func introspectionPlan() testPlan {
	return testPlan{
		name: "Inferno: smart_token_introspection_stu2_2",
		text: "The last four have no ids of their own, so they are named by group and number. The client authenticates here; Inferno asks\n" +
			"about the unknown token without that, which RFC 7662 §2.1 refuses (401).",
		variants: alone(infernoVariant("", &infernoSymmetric).become),
		modules: slices.Concat(discoveryModules("launch-standalone"), launchModules("standalone"), []testModule{
			{id: "smart_token_introspection_request_group-Test01", checks: "an active token: 200, JSON; by client secret, and by an access token", run: moduleIntrospectActive},
			{id: "smart_token_introspection_request_group-Test02", checks: "an unknown token: 200, JSON; nobody, and a client that may not ask, learn nothing", run: moduleIntrospectInvalid},
			{id: "smart_token_introspection_response_group-Test01", checks: "`active`, `client_id`, `scope`, `exp` and `patient` as in the token response, `iss`, `sub` and `fhirUser` as in the ID token; the context of an EHR launch", run: moduleIntrospectContext},
			{id: "smart_token_introspection_response_group-Test02", checks: "`active: false`, and nothing else", run: moduleIntrospectInvalid},
		}),
	}
}

// introspected asks about a token as the resource server, which may ask about any.
func (p *relyingParty) introspected(token, bearer string) (answer map[string]any) {
	p.t.Helper()
	resourceServer := p.as(oauthClient{id: "resource-server", secret: "resource-secret", method: "client_secret_basic"})
	r := resourceServer.tokenRequest("/oauth2/introspect", url.Values{"token": {token}})
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	p.readJSON(p.Send(r), &answer)
	return answer
}

func moduleIntrospectActive(p *relyingParty) { p.checkIntrospection(p.launched()) }

// moduleIntrospectContext introspects the tokens of both kinds of launch.
func moduleIntrospectContext(p *relyingParty) {
	p.checkIntrospection(p.launched())
	p.opensWith = ehrContext()
	f := p.launched()
	p.checkIntrospection(f)
	p.checkContext(contextOf(p, p.introspected(f.tokens.Refresh, "")))
}

// checkIntrospection compares what is said of an access token with the token response.
func (p *relyingParty) checkIntrospection(f *signInFlow) {
	p.t.Helper()
	for _, bearer := range []string{"", f.tokens.AccessToken} {
		got := p.introspected(f.tokens.AccessToken, bearer)
		scope, _ := got["scope"].(string)
		if got["active"] != true || got["client_id"] != p.client.id || !sameWords(scope, f.tokens.Scope) || got["exp"] != f.id["exp"] {
			p.t.Errorf("%v", got)
		}
		for _, name := range []string{"iss", "sub", "fhirUser"} {
			if got[name] == nil || got[name] != f.id[name] {
				p.t.Errorf("%s %v, in the ID token %v", name, got[name], f.id[name])
			}
		}
		p.checkContext(contextOf(p, got))
	}
}

// contextOf is the launch context among the claims of an introspection response.
func contextOf(p *relyingParty, claims map[string]any) (c launchContext) {
	p.t.Helper()
	text, err := json.Marshal(claims)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func moduleIntrospectInvalid(p *relyingParty) {
	if got := p.introspected("invalid_token_value", ""); len(got) != 1 || got["active"] != false {
		p.t.Errorf("%v", got)
	}
	r := httptest.NewRequest(http.MethodPost, "/oauth2/introspect", strings.NewReader("token=invalid_token_value"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if got := p.Send(r).StatusCode; got != http.StatusUnauthorized {
		p.t.Errorf("by nobody: status %d", got)
	}
	token := p.launched().tokens.AccessToken
	body := gatewaytest.Read(p.t, p.Send(p.as(secondClient).tokenRequest("/oauth2/introspect", url.Values{"token": {token}})))
	var got map[string]any
	if err := json.Unmarshal([]byte(body), &got); err != nil || got["active"] == true {
		p.t.Errorf("by a client whose token it is not: %s", body)
	}
}
