package conformance

import (
	"net/http"
	"net/http/httptest"
	"slices"
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
