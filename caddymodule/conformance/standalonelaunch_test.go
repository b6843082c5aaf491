package conformance

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

const (
	infernoOrigin = "https://inferno.example"
	infernoScope  = "launch/patient openid fhirUser offline_access patient/*.rs"
)

func smartDiscoveryPlan() testPlan {
	return testPlan{
		name: "Inferno: smart_discovery_stu2_2",
		text: "The SMART configuration, and who may read it.",
		modules: []testModule{
			{id: "well_known_endpoint", checks: "200, `application/json`", run: moduleWellKnown},
			{id: "well_known_capabilities_stu2", checks: "what must be there, of which type; S256 and not plain; `issuer` and `jwks_uri` for `sso-openid-connect`", run: moduleWellKnownCapabilities},
			{id: "smart_cors_well_known_endpoint", checks: "scripts of all origins may read it", run: moduleReadableByScripts("/fhir/R4/.well-known/smart-configuration")},
			{id: "smart_cors_metadata_request", checks: "and `metadata`, without a token", run: moduleReadableByScripts("/fhir/R4/metadata")},
		},
	}
}

// infernoVariant is one of Inferno's clients. It takes a pointer because newSite makes
// the keys later.
func infernoVariant(name string, client *oauthClient) variant {
	return variant{name, func(p *relyingParty) { p.client, p.pkce = *client, true }}
}

// standalonePlan is the standalone launch and what follows it.
func standalonePlan() testPlan {
	return testPlan{
		name: "Inferno: smart_standalone_launch_stu2_2, smart_openid_connect_stu2_2, smart_token_refresh_stu2_2",
		text: "Scope `" + infernoScope + "`, `aud`, PKCE, no nonce.",
		variants: []variant{
			infernoVariant("public", &infernoPublic), infernoVariant("symmetric", &infernoSymmetric),
			infernoVariant("RS384", &infernoRS384), infernoVariant("ES384", &infernoES384),
		},
		modules: []testModule{
			{id: "smart_app_redirect_stu2", checks: "the browser comes back, by GET and by POST", run: moduleAppRedirect},
			{id: "smart_code_received", checks: "`code`, and no `error`", run: moduleCodeReceived},
			{id: "smart_token_exchange_stu2_2", checks: "200 for a form with the code and the verifier", run: moduleTokenExchange},
			{id: "smart_token_response_body_stu2_2", checks: "`access_token`, `token_type`, a number `expires_in`, `scope`", run: moduleTokenResponseBody},
			{id: "smart_token_response_headers", checks: "`no-store`, `no-cache`, also on refresh", run: moduleTokenResponseHeaders},
			{id: "smart_cors_token_exchange", checks: "scripts of the client's origin may read it", run: moduleTokenExchangeByScript},
			{id: "smart_openid_decode_id_token", checks: "the ID token is a JWT", run: moduleDecodeIDToken},
			{id: "smart_openid_retrieve_configuration", checks: "200, JSON, at the token's `iss`", run: moduleRetrieveConfiguration},
			{id: "smart_openid_required_configuration_fields", checks: "seven members, RS256 among the algorithms", run: moduleRequiredConfiguration},
			{id: "smart_openid_retrieve_jwks", checks: "RSA keys that can be read", run: moduleRetrieveJWKS},
			{id: "smart_openid_token_header", checks: "RS256, the `kid` of a published key", run: moduleTokenHeader},
			{id: "smart_openid_token_payload", checks: "signature, `iss`, `sub`, `aud`, `exp`, `iat`", run: moduleTokenPayload},
			{id: "smart_openid_fhir_user_claim", checks: "`fhirUser` can be read with the token", run: moduleFHIRUser},
			{id: "smart_cors_openid_fhir_user_claim", checks: "also by scripts of the client's origin", run: moduleFHIRUser},
			{id: "smart_standalone_refresh_without_scopes", checks: "without `scope`: 200, as much as before", run: moduleTokenRefresh("")},
			{id: "smart_standalone_refresh_with_scopes", checks: "with `scope`: 200, no more than that", run: moduleTokenRefresh("openid patient/*.rs")},
			{id: "smart_token_refresh_body", checks: "`access_token`, `token_type`, `expires_in`, `scope`", run: moduleTokenRefreshBody},
		},
	}
}

func moduleWellKnown(p *relyingParty) { p.smartConfiguration() }

func (p *relyingParty) smartConfiguration() (document map[string]any) {
	p.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/.well-known/smart-configuration", nil)
	r.Header.Set("Accept", "application/json")
	p.readJSON(p.Send(r), &document)
	return document
}

func moduleWellKnownCapabilities(p *relyingParty) {
	document := p.smartConfiguration()
	for name, kind := range map[string]string{
		"authorization_endpoint": "url", "token_endpoint": "url", "introspection_endpoint": "url", "revocation_endpoint": "url", "jwks_uri": "url",
		"capabilities": "list", "grant_types_supported": "list", "code_challenge_methods_supported": "list",
	} {
		if err := checkMetadata(kind, document[name]); err != nil {
			p.t.Errorf("%s: %v", name, err)
		}
	}
	list := func(name string) []string { values, _ := document[name].([]any); return texts(values) }
	if !slices.Contains(list("grant_types_supported"), "authorization_code") || !slices.Equal(list("code_challenge_methods_supported"), []string{"S256"}) {
		p.t.Errorf("%v", document)
	}
	if !slices.Contains(list("capabilities"), "sso-openid-connect") || document["issuer"] != issuer {
		p.t.Errorf("capabilities %q, issuer %v", list("capabilities"), document["issuer"])
	}
}

func moduleReadableByScripts(path string) func(*relyingParty) {
	return func(p *relyingParty) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Origin", "https://somebody.example")
		p.checkReadable(p.Send(r), "https://somebody.example")
	}
}

// checkReadable checks that a response is 200, and that scripts of an origin may read it.
func (p *relyingParty) checkReadable(r *http.Response, origin string) {
	p.t.Helper()
	if got := r.Header.Get("Access-Control-Allow-Origin"); r.StatusCode != http.StatusOK || got != origin && got != "*" {
		p.t.Errorf("status %d, Access-Control-Allow-Origin %q", r.StatusCode, got)
	}
}

// launch is the authorization request of a standalone launch.
func (p *relyingParty) launch() url.Values {
	return p.request(url.Values{"scope": {infernoScope}, "aud": {fhirBase}, "nonce": {""}})
}

func (p *relyingParty) launched() *signInFlow {
	p.t.Helper()
	q := p.launch()
	return p.flowOf(q, p.ask(q))
}

func moduleAppRedirect(p *relyingParty) {
	q := p.launch()
	p.granted(q, p.ask(q))
	q = p.launch()
	p.granted(q, p.follow(p.Post("/oauth2/authorize", q)))
}

func moduleCodeReceived(p *relyingParty) {
	q := p.launch()
	if got := p.granted(q, p.ask(q)); got.Get("code") == "" {
		p.t.Errorf("%v", got)
	}
}

func moduleTokenExchange(p *relyingParty) { p.launched() }

func moduleTokenResponseBody(p *relyingParty) {
	f := p.launched() // checks the rest
	if !sameWords(f.tokens.Scope, infernoScope) || f.tokens.IDToken == "" || f.tokens.Refresh == "" {
		p.t.Errorf("%+v", f.tokens)
	}
}

func sameWords(a, b string) bool {
	return slices.Equal(slices.Sorted(strings.FieldsSeq(a)), slices.Sorted(strings.FieldsSeq(b)))
}

func moduleTokenResponseHeaders(p *relyingParty) {
	f := p.launched() // atToken checks them
	p.exchange(formOfRefresh(f.tokens.Refresh, ""))
}

func moduleTokenExchangeByScript(p *relyingParty) {
	q := p.launch()
	r := p.tokenRequest("/oauth2/token", p.codeForm(p.granted(q, p.ask(q)).Get("code")))
	r.Header.Set("Origin", infernoOrigin)
	p.checkReadable(p.Send(r), infernoOrigin)
}

func moduleDecodeIDToken(p *relyingParty) {
	if token := p.launched().tokens.IDToken; strings.Count(token, ".") != 2 {
		p.t.Errorf("%q", token)
	}
}

func moduleRetrieveConfiguration(p *relyingParty) {
	f := p.launched()
	path, _ := strings.CutPrefix(f.id["iss"].(string), "https://localhost:8443")
	var document map[string]any
	p.readJSON(p.Get(path+"/.well-known/openid-configuration", ""), &document)
	if document["issuer"] != f.id["iss"] {
		p.t.Errorf("issuer %v", document["issuer"])
	}
}

func moduleRequiredConfiguration(p *relyingParty) {
	document := p.discovery()
	for _, name := range []string{
		"issuer", "authorization_endpoint", "token_endpoint", "jwks_uri", "response_types_supported", "subject_types_supported",
		"id_token_signing_alg_values_supported",
	} {
		if err := checkMetadata(metadataKinds[name], document[name]); err != nil {
			p.t.Errorf("%s: %v", name, err)
		}
	}
	if algorithms := texts(document["id_token_signing_alg_values_supported"].([]any)); !slices.Contains(algorithms, "RS256") {
		p.t.Errorf("%q", algorithms)
	}
}

func moduleRetrieveJWKS(p *relyingParty) { p.checkKeys() }

func moduleTokenHeader(p *relyingParty) {
	_, header := p.verified(p.launched().tokens.IDToken) // finds the key by kid
	if header.Algorithm != string(jose.RS256) {
		p.t.Errorf("alg %s", header.Algorithm)
	}
}

func moduleTokenPayload(p *relyingParty) { p.launched() }

func moduleFHIRUser(p *relyingParty) {
	f := p.launched()
	fhirUser, _ := f.id["fhirUser"].(string)
	path, ok := strings.CutPrefix(fhirUser, issuer)
	if !ok {
		p.t.Fatalf("fhirUser %q", fhirUser)
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+f.tokens.AccessToken)
	r.Header.Set("Origin", infernoOrigin)
	response := p.Send(r)
	p.checkReadable(response, infernoOrigin)
	var resource struct{ ResourceType, ID string }
	if err := json.NewDecoder(response.Body).Decode(&resource); err != nil || resource.ResourceType+"/"+resource.ID != "Practitioner/alice" {
		p.t.Errorf("%+v, %v", resource, err)
	}
}

func moduleTokenRefresh(scope string) func(*relyingParty) {
	return func(p *relyingParty) {
		f := p.launched()
		want := scope
		if want == "" {
			want = f.tokens.Scope
		}
		if got := p.exchange(formOfRefresh(f.tokens.Refresh, scope)); !sameWords(got.Scope, want) {
			p.t.Errorf("scope %q, wanted %q", got.Scope, want)
		}
	}
}

func moduleTokenRefreshBody(p *relyingParty) {
	f := p.launched()
	got := p.exchange(formOfRefresh(f.tokens.Refresh, "")) // checks the rest
	if got.Scope == "" || got.AccessToken == f.tokens.AccessToken {
		p.t.Errorf("%+v", got)
	}
}
