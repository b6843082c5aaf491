package conformance

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// discoveryModules are smart_discovery_stu2_2, with which each group of Inferno's suite begins: the SMART
// configuration, and who may read it. The group's capabilities must be there too.
func discoveryModules(capabilities ...string) []testModule {
	return []testModule{
		{id: "well_known_endpoint", checks: "200, `application/json`", run: moduleWellKnown},
		{id: "well_known_capabilities_stu2", checks: "what must be there, of which type; S256 and not plain; `issuer` and `jwks_uri` for `sso-openid-connect`; the capabilities of the group", run: moduleWellKnownCapabilities(capabilities)},
		{id: "smart_cors_well_known_endpoint", checks: "scripts of all origins may read it", run: moduleReadableByScripts("/fhir/.well-known/smart-configuration")},
		{id: "smart_cors_metadata_request", checks: "and `metadata`, without a token", run: moduleReadableByScripts("/fhir/metadata")},
	}
}

func moduleWellKnown(p *relyingParty) { p.smartConfiguration() }

func (p *relyingParty) smartConfiguration() (document map[string]any) {
	p.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/fhir/.well-known/smart-configuration", nil)
	r.Header.Set("Accept", "application/json")
	p.readJSON(p.Send(r), &document)
	return document
}

func moduleWellKnownCapabilities(capabilities []string) func(*relyingParty) {
	return func(p *relyingParty) {
		p.checkWellKnown()
		p.checkCapabilities(append(capabilities, "sso-openid-connect"))
	}
}

// checkCapabilities checks that the SMART configuration announces capabilities.
func (p *relyingParty) checkCapabilities(wanted []string) {
	p.t.Helper()
	offered, _ := p.smartConfiguration()["capabilities"].([]any)
	for _, name := range wanted {
		if !slices.Contains(texts(offered), name) {
			p.t.Errorf("no capability %s", name)
		}
	}
}

func (p *relyingParty) checkWellKnown() {
	p.t.Helper()
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
	if document["issuer"] != issuer {
		p.t.Errorf("issuer %v", document["issuer"])
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

// openIDModules are smart_openid_connect_stu2_2.
func openIDModules() []testModule {
	return []testModule{
		{id: "smart_openid_decode_id_token", checks: "the ID token is a JWT", run: moduleDecodeIDToken},
		{id: "smart_openid_retrieve_configuration", checks: "200, JSON, at the token's `iss`", run: moduleRetrieveConfiguration},
		{id: "smart_openid_required_configuration_fields", checks: "seven members, RS256 among the algorithms", run: moduleRequiredConfiguration},
		{id: "smart_openid_retrieve_jwks", checks: "RSA keys that can be read", run: moduleRetrieveJWKS},
		{id: "smart_openid_token_header", checks: "RS256, the `kid` of a published key", run: moduleTokenHeader},
		{id: "smart_openid_token_payload", checks: "signature, `iss`, `sub`, `aud`, `exp`, `iat`", run: moduleTokenPayload},
		{id: "smart_openid_fhir_user_claim", checks: "`fhirUser` can be read with the token", run: moduleFHIRUser},
		{id: "smart_cors_openid_fhir_user_claim", checks: "also by scripts of the client's origin", run: moduleFHIRUser},
	}
}

// refreshModules are smart_token_refresh_stu2, which each kind of launch runs twice.
func refreshModules(kind string) (modules []testModule) {
	for _, way := range []struct{ name, checks, scope string }{
		{"without", "without `scope`: 200, as much as before, for the same launch context", ""},
		{"with", "with `scope`: 200, no more than that, for the same launch context", "openid patient/*.rs"},
	} {
		group := "smart_" + kind + "_refresh_" + way.name + "_scopes-"
		modules = append(
			modules,
			testModule{id: group + "smart_token_refresh_stu2", checks: way.checks, run: moduleTokenRefresh(way.scope)},
			testModule{id: group + "smart_token_refresh_body", checks: "`access_token`, `token_type`, `expires_in`, `scope`", run: moduleTokenRefreshBody(way.scope)},
			testModule{id: group + "smart_token_response_headers", checks: "`no-store`, `no-cache`", run: moduleTokenRefreshBody(way.scope)}, // atToken checks them
		)
	}
	return modules
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
	if got := p.resource(response); got.Type+"/"+got.ID != practitionerReference {
		p.t.Errorf("%+v", got)
	}
}

func moduleTokenRefresh(scope string) func(*relyingParty) {
	return func(p *relyingParty) {
		f := p.launched()
		want := cmp.Or(scope, f.tokens.Scope)
		got := p.exchange(formOfRefresh(f.tokens.Refresh, scope))
		if !sameWords(got.Scope, want) || !reflect.DeepEqual(got.launchContext, f.tokens.launchContext) {
			p.t.Errorf("%+v, wanted the scope %q", got, want)
		}
	}
}

func moduleTokenRefreshBody(scope string) func(*relyingParty) {
	return func(p *relyingParty) {
		f := p.launched()
		got := p.exchange(formOfRefresh(f.tokens.Refresh, scope)) // checks the rest
		if got.Scope == "" || got.AccessToken == f.tokens.AccessToken {
			p.t.Errorf("%+v", got)
		}
	}
}
