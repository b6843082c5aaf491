package conformance

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const (
	infernoOrigin = "https://inferno.example"
	infernoScope  = "launch/patient openid fhirUser offline_access patient/*.rs"
)

// infernoVariant returns the variant of one of Inferno's clients. client is a pointer because newSite creates its keys later.
func infernoVariant(name string, client *oauthClient) variant {
	return variant{name, func(p *relyingParty) { p.client, p.pkce = *client, true }}
}

// infernoVariants returns a variant for each authentication method of Inferno's clients.
func infernoVariants() []variant {
	return []variant{
		infernoVariant("public", &infernoPublic), infernoVariant("symmetric", &infernoSymmetric),
		infernoVariant("RS384", &infernoRS384), infernoVariant("ES384", &infernoES384),
	}
}

func standalonePlan() testPlan {
	return testPlan{
		name:     "Inferno: smart_full_standalone_launch",
		text:     "Discovery, standalone launch, OpenID Connect, refresh. Scope `" + infernoScope + "`, `aud`, PKCE, no nonce.",
		variants: infernoVariants(),
		modules: slices.Concat(
			discoveryModules("launch-standalone", "context-standalone-patient", "permission-patient"),
			launchModules("standalone"), openIDModules(), refreshModules("standalone"),
		),
	}
}

// launchModules returns the modules shared by standalone launch and EHR launch.
func launchModules(kind string) []testModule {
	return []testModule{
		tlsModule(kind + "_auth_tls"),
		{id: "smart_app_redirect_stu2", checks: "the browser returns to the app, after a request by GET and by POST", run: moduleAppRedirect},
		{id: "smart_code_received", checks: "`code` and no `error`", run: moduleCodeReceived},
		tlsModule(kind + "_token_tls"),
		{id: "smart_token_exchange_stu2_2", checks: "200 for a form with the code and the verifier", run: moduleTokenExchange},
		{id: "smart_token_response_body_stu2_2", checks: "`access_token`, `token_type`, a number `expires_in`, `scope`; the launch context", run: moduleTokenResponseBody},
		{id: "smart_token_response_headers", checks: "`no-store`, `no-cache`", run: moduleTokenResponseHeaders},
		{id: "smart_cors_token_exchange", checks: "readable by scripts of the client's origin", run: moduleTokenExchangeByScript},
	}
}

// tlsModule returns a module that tests a TLS port. It is not applicable, because these tests do not open one.
func tlsModule(id string) testModule {
	return testModule{id: id, checks: "TLS 1.2 at least", result: "not run here: `TestTLSVersions`"}
}

// launch returns the authorization request of a launch: from the EHR if opensWith is set, otherwise standalone.
func (p *relyingParty) launch() url.Values {
	p.t.Helper()
	if p.opensWith == nil {
		return p.request(url.Values{"scope": {p.launchScope()}, "aud": {fhirBase}, "nonce": {""}})
	}
	opened := p.openedByEHR()
	return p.request(url.Values{"scope": {p.launchScope()}, "aud": {opened.Get("iss")}, "launch": {opened.Get("launch")}, "nonce": {""}})
}

func (p *relyingParty) launchScope() string {
	if p.opensWith == nil {
		return cmp.Or(p.scope, infernoScope)
	}
	return cmp.Or(p.scope, ehrScope)
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
	f := p.launched() // performs the remaining checks
	if !sameWords(f.tokens.Scope, p.launchScope()) || f.tokens.IDToken == "" || f.tokens.Refresh == "" {
		p.t.Errorf("%+v", f.tokens)
	}
	p.checkContext(f.tokens.launchContext)
}

func sameWords(a, b string) bool {
	return slices.Equal(slices.Sorted(strings.FieldsSeq(a)), slices.Sorted(strings.FieldsSeq(b)))
}

func moduleTokenResponseHeaders(p *relyingParty) { p.launched() } // atToken checks the headers

func moduleTokenExchangeByScript(p *relyingParty) {
	q := p.launch()
	r := p.tokenRequest("/oauth2/token", p.codeForm(p.granted(q, p.ask(q)).Get("code")))
	r.Header.Set("Origin", infernoOrigin)
	p.checkReadable(p.Send(r), infernoOrigin)
}

const (
	infernoLaunchURI = infernoOrigin + "/custom/smart/launch"
	ehrScope         = "launch openid fhirUser offline_access patient/*.rs"
	ehrStyleURL      = issuer + "/ehr-style.json"
)

// ehrClient is the EHR's client, which registers launch contexts.
var ehrClient = oauthClient{id: "ehr", secret: "ehr-secret", method: "client_secret_basic"}

// ehrContext returns the patient and encounter that are open in the EHR.
func ehrContext() url.Values {
	return url.Values{
		"user": {"alice"}, "patient": {patientID}, "encounter": {encounterID}, "intent": {"reconcile-medications"},
		"need_patient_banner": {"false"}, "smart_style_url": {ehrStyleURL}, "tenant": {"north"},
		"fhirContext": {`[{"reference":"` + practitionerReference + `","role":"https://ehr.example/role/attending"}]`},
	}
}

// withEHRLaunch returns the variant with launches from the EHR.
func withEHRLaunch(v variant) variant {
	return variant{v.name, func(p *relyingParty) {
		v.become(p)
		p.opensWith = ehrContext()
	}}
}

func ehrPlan() testPlan {
	var variants []variant
	for _, v := range infernoVariants() {
		variants = append(variants, withEHRLaunch(v))
	}
	return testPlan{
		name:     "Inferno: smart_full_ehr_launch",
		text:     "The same for a launch that an EHR registers at `/oauth2/launch`. Scope `" + ehrScope + "`.",
		variants: variants,
		modules: slices.Concat(
			discoveryModules("launch-ehr", "context-ehr-patient", "context-ehr-encounter", "context-banner", "context-style"),
			[]testModule{
				{id: "smart_app_launch", checks: "the EHR opens the client's launch URL, with the FHIR API as `iss`", run: moduleAppLaunch},
				{id: "smart_launch_received", checks: "the EHR sends `launch`", run: moduleLaunchReceived},
			},
			launchModules("ehr"), openIDModules(), refreshModules("ehr"),
		),
	}
}

// openedByEHR registers a launch context and returns the parameters that the EHR adds to the client's launch URL.
func (p *relyingParty) openedByEHR() url.Values {
	p.t.Helper()
	form := maps.Clone(p.opensWith)
	form.Set("app", p.client.id)
	r := p.Send(p.as(ehrClient).tokenRequest("/oauth2/launch", form))
	body := gatewaytest.ReadBody(p.t, r)
	var answer struct {
		LaunchURL string `json:"launch_url"`
	}
	err := json.Unmarshal([]byte(body), &answer)
	query, ok := strings.CutPrefix(answer.LaunchURL, infernoLaunchURI+"?")
	if r.StatusCode != http.StatusCreated || err != nil || !ok {
		p.t.Fatalf("status %d: %s", r.StatusCode, body)
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		p.t.Fatal(err)
	}
	return parameters
}

func moduleAppLaunch(p *relyingParty) {
	if iss := p.openedByEHR()["iss"]; !slices.Equal(iss, []string{fhirBase}) {
		p.t.Errorf("iss %q", iss)
	}
}

func moduleLaunchReceived(p *relyingParty) {
	first, second := p.openedByEHR()["launch"], p.openedByEHR()["launch"]
	if len(first) != 1 || estimateEntropy(first[0]) < 128 || slices.Equal(first, second) {
		p.t.Errorf("launch %q, then %q", first, second)
	}
}

// launchContext contains the launch context parameters of token and introspection responses.
type launchContext struct {
	Patient      string           `json:"patient"`
	Encounter    string           `json:"encounter"`
	Intent       string           `json:"intent"`
	NeedsBanner  *bool            `json:"need_patient_banner"`
	StyleURL     string           `json:"smart_style_url"`
	Tenant       string           `json:"tenant"`
	FHIRContexts []map[string]any `json:"fhirContext"`
}

// checkContext checks that a launch context is the one from the EHR or, for a standalone launch, the user's only patient.
func (p *relyingParty) checkContext(got launchContext) {
	p.t.Helper()
	want := launchContext{Patient: patientID}
	if ehr := p.opensWith; ehr != nil {
		needsBanner := false
		want = launchContext{
			Patient: ehr.Get("patient"), Encounter: ehr.Get("encounter"), Intent: ehr.Get("intent"), NeedsBanner: &needsBanner,
			StyleURL: ehr.Get("smart_style_url"), Tenant: ehr.Get("tenant"),
		}
		if err := json.Unmarshal([]byte(ehr.Get("fhirContext")), &want.FHIRContexts); err != nil {
			p.t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(got, want) {
		p.t.Errorf("launch context %+v, wanted %+v", got, want)
	}
}

// discoveryModules returns the modules of smart_discovery_stu2_2, which begin each group of Inferno's suite. They check the
// SMART configuration, its CORS headers, and the group's capabilities.
func discoveryModules(capabilities ...string) []testModule {
	return []testModule{
		{id: "well_known_endpoint", checks: "200, `application/json`", run: moduleWellKnown},
		{id: "well_known_capabilities_stu2", checks: "required members and their types; S256 but not plain; `issuer` and `jwks_uri` for `sso-openid-connect`; the group's capabilities", run: moduleWellKnownCapabilities(capabilities)},
		{id: "smart_cors_well_known_endpoint", checks: "readable by scripts of any origin", run: moduleReadableByScripts("/fhir/.well-known/smart-configuration")},
		{id: "smart_cors_metadata_request", checks: "`metadata`, without a token, readable by scripts of any origin", run: moduleReadableByScripts("/fhir/metadata")},
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

// checkCapabilities checks that the SMART configuration lists the wanted capabilities.
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

// checkReadable checks that a response has status 200 and that its CORS headers allow the origin.
func (p *relyingParty) checkReadable(r *http.Response, origin string) {
	p.t.Helper()
	if got := r.Header.Get("Access-Control-Allow-Origin"); r.StatusCode != http.StatusOK || got != origin && got != "*" {
		p.t.Errorf("status %d, Access-Control-Allow-Origin %q", r.StatusCode, got)
	}
}

// openIDModules returns the modules of smart_openid_connect_stu2_2.
func openIDModules() []testModule {
	return []testModule{
		{id: "smart_openid_decode_id_token", checks: "the ID token is a JWT", run: moduleDecodeIDToken},
		{id: "smart_openid_retrieve_configuration", checks: "200, JSON, at the token's `iss`", run: moduleRetrieveConfiguration},
		{id: "smart_openid_required_configuration_fields", checks: "seven members, RS256 among the algorithms", run: moduleRequiredConfiguration},
		{id: "smart_openid_retrieve_jwks", checks: "readable RSA keys", run: moduleRetrieveJWKS},
		{id: "smart_openid_token_header", checks: "RS256, the `kid` of a published key", run: moduleTokenHeader},
		{id: "smart_openid_token_payload", checks: "signature, `iss`, `sub`, `aud`, `exp`, `iat`", run: moduleTokenPayload},
		{id: "smart_openid_fhir_user_claim", checks: "the `fhirUser` resource is readable with the token", run: moduleFHIRUser},
		{id: "smart_cors_openid_fhir_user_claim", checks: "the `fhirUser` resource is readable by scripts of the client's origin", run: moduleFHIRUser},
	}
}

// refreshModules returns the modules of smart_token_refresh_stu2, which run twice for each kind of launch.
func refreshModules(kind string) (modules []testModule) {
	for _, way := range []struct{ name, checks, scope string }{
		{"without", "without `scope`: 200, the same scopes and launch context", ""},
		{"with", "with `scope`: 200, only those scopes, the same launch context", "openid patient/*.rs"},
	} {
		group := "smart_" + kind + "_refresh_" + way.name + "_scopes-"
		modules = append(
			modules,
			testModule{id: group + "smart_token_refresh_stu2", checks: way.checks, run: moduleTokenRefresh(way.scope)},
			testModule{id: group + "smart_token_refresh_body", checks: "`access_token`, `token_type`, `expires_in`, `scope`", run: moduleTokenRefreshBody(way.scope)},
			testModule{id: group + "smart_token_response_headers", checks: "`no-store`, `no-cache`", run: moduleTokenRefreshBody(way.scope)}, // atToken checks the headers
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
	_, header := p.verified(p.launched().tokens.IDToken) // verified selects the key by its kid
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
		got := p.exchange(refreshForm(f.tokens.Refresh, scope))
		if !sameWords(got.Scope, want) || !reflect.DeepEqual(got.launchContext, f.tokens.launchContext) {
			p.t.Errorf("%+v, wanted the scope %q", got, want)
		}
	}
}

func moduleTokenRefreshBody(scope string) func(*relyingParty) {
	return func(p *relyingParty) {
		f := p.launched()
		got := p.exchange(refreshForm(f.tokens.Refresh, scope)) // performs the remaining checks
		if got.Scope == "" || got.AccessToken == f.tokens.AccessToken {
			p.t.Errorf("%+v", got)
		}
	}
}

func introspectionPlan() testPlan {
	return testPlan{
		name:     "Inferno: smart_token_introspection_stu2_2",
		text:     "The last four modules have no ids and are named by group and number. The client authenticates here; Inferno asks about the unknown token without authentication, which RFC 7662 §2.1 forbids (401).",
		variants: singleVariant(infernoVariant("", &infernoSymmetric).become),
		modules: slices.Concat(discoveryModules("launch-standalone"), launchModules("standalone"), []testModule{
			{id: "smart_token_introspection_request_group-Test01", checks: "an active token: 200, JSON; by client secret, and by an access token", run: moduleIntrospectActive},
			{id: "smart_token_introspection_request_group-Test02", checks: "an unknown token: 200, JSON; unauthenticated and unauthorized callers learn nothing", run: moduleIntrospectInvalid},
			{id: "smart_token_introspection_response_group-Test01", checks: "`active`, `client_id`, `scope`, `exp` and `patient` as in the token response, `iss`, `sub` and `fhirUser` as in the ID token; the context of an EHR launch", run: moduleIntrospectContext},
			{id: "smart_token_introspection_response_group-Test02", checks: "`active: false` and no other member", run: moduleIntrospectInvalid},
		}),
	}
}

// introspected introspects a token with the resource server's credentials, which permit introspection of any token.
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

// checkIntrospection checks that the introspection of an access token agrees with the token response.
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

// contextOf returns the launch context from an introspection response.
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
		p.t.Errorf("without client authentication: status %d", got)
	}
	token := p.launched().tokens.AccessToken
	body := gatewaytest.ReadBody(p.t, p.Send(p.as(secondClient).tokenRequest("/oauth2/introspect", url.Values{"token": {token}})))
	var got map[string]any
	if err := json.Unmarshal([]byte(body), &got); err != nil || got["active"] == true {
		p.t.Errorf("by another client: %s", body)
	}
}
