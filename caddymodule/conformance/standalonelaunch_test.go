package conformance

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const (
	infernoOrigin = "https://inferno.example"
	infernoScope  = "launch/patient openid fhirUser offline_access patient/*.rs"
)

// infernoVariant is one of Inferno's clients. It takes a pointer because newSite makes
// the keys later.
func infernoVariant(name string, client *oauthClient) variant {
	return variant{name, func(p *relyingParty) { p.client, p.pkce = *client, true }}
}

// infernoVariants are the ways in which Inferno's clients prove who they are.
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

// launchModules are those that both kinds of launch have.
func launchModules(kind string) []testModule {
	return []testModule{
		overTLS(kind + "_auth_tls"),
		{id: "smart_app_redirect_stu2", checks: "the browser comes back, by GET and by POST", run: moduleAppRedirect},
		{id: "smart_code_received", checks: "`code`, and no `error`", run: moduleCodeReceived},
		overTLS(kind + "_token_tls"),
		{id: "smart_token_exchange_stu2_2", checks: "200 for a form with the code and the verifier", run: moduleTokenExchange},
		{id: "smart_token_response_body_stu2_2", checks: "`access_token`, `token_type`, a number `expires_in`, `scope`; the launch context", run: moduleTokenResponseBody},
		{id: "smart_token_response_headers", checks: "`no-store`, `no-cache`", run: moduleTokenResponseHeaders},
		{id: "smart_cors_token_exchange", checks: "scripts of the client's origin may read it", run: moduleTokenExchangeByScript},
	}
}

// overTLS is a module about a port, which no test here opens.
func overTLS(id string) testModule {
	return testModule{id: id, checks: "TLS 1.2 at least", result: "not run here: `TestTLSVersions`"}
}

// launch is the authorization request of a launch: from the EHR, if that has something open for the client.
func (p *relyingParty) launch() url.Values {
	p.t.Helper()
	if p.opensWith == nil {
		return p.request(url.Values{"scope": {p.launchScope()}, "aud": {fhirBase}, "nonce": {""}})
	}
	opened := p.openedByEHR()
	return p.request(url.Values{"scope": {p.launchScope()}, "aud": {opened.Get("iss")}, "launch": {opened.Get("launch")}, "nonce": {""}})
}

// launchScope is the scope of a launch.
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
	f := p.launched() // checks the rest
	if !sameWords(f.tokens.Scope, p.launchScope()) || f.tokens.IDToken == "" || f.tokens.Refresh == "" {
		p.t.Errorf("%+v", f.tokens)
	}
	p.checkContext(f.tokens.launchContext)
}

func sameWords(a, b string) bool {
	return slices.Equal(slices.Sorted(strings.FieldsSeq(a)), slices.Sorted(strings.FieldsSeq(b)))
}

func moduleTokenResponseHeaders(p *relyingParty) { p.launched() } // atToken checks them

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

// ehrClient is the EHR. It registers what it opens apps with.
var ehrClient = oauthClient{id: "ehr", secret: "ehr-secret", method: "client_secret_basic"}

// ehrContext is the patient and encounter open in the EHR.
func ehrContext() url.Values {
	return url.Values{
		"user": {"alice"}, "patient": {patientID}, "encounter": {encounterID}, "intent": {"reconcile-medications"},
		"need_patient_banner": {"false"}, "smart_style_url": {ehrStyleURL}, "tenant": {"north"},
		"fhirContext": {`[{"reference":"` + practitionerReference + `","role":"https://ehr.example/role/attending"}]`},
	}
}

// fromEHR has the EHR open the client of a variant.
func fromEHR(v variant) variant {
	return variant{v.name, func(p *relyingParty) {
		v.become(p)
		p.opensWith = ehrContext()
	}}
}

func ehrPlan() testPlan {
	var variants []variant
	for _, v := range infernoVariants() {
		variants = append(variants, fromEHR(v))
	}
	return testPlan{
		name:     "Inferno: smart_full_ehr_launch",
		text:     "Likewise, opened by an EHR that registers the launch at `/oauth2/launch`. Scope `" + ehrScope + "`.",
		variants: variants,
		modules: slices.Concat(
			discoveryModules("launch-ehr", "context-ehr-patient", "context-ehr-encounter", "context-banner", "context-style"),
			[]testModule{
				{id: "smart_app_launch", checks: "the EHR opens the client's launch URL, with the FHIR API as `iss`", run: moduleAppLaunch},
				{id: "smart_launch_received", checks: "and with `launch`", run: moduleLaunchReceived},
			},
			launchModules("ehr"), openIDModules(), refreshModules("ehr"),
		),
	}
}

// openedByEHR are the parameters of the client's launch URL as the EHR opens it.
func (p *relyingParty) openedByEHR() url.Values {
	p.t.Helper()
	form := maps.Clone(p.opensWith)
	form.Set("app", p.client.id)
	r := p.Send(p.as(ehrClient).tokenRequest("/oauth2/launch", form))
	body := gatewaytest.Read(p.t, r)
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
	if len(first) != 1 || bitsOf(first[0]) < 128 || slices.Equal(first, second) {
		p.t.Errorf("launch %q, then %q", first, second)
	}
}

// launchContext is a client's launch context in token and introspection responses.
type launchContext struct {
	Patient      string           `json:"patient"`
	Encounter    string           `json:"encounter"`
	Intent       string           `json:"intent"`
	NeedsBanner  *bool            `json:"need_patient_banner"`
	StyleURL     string           `json:"smart_style_url"`
	Tenant       string           `json:"tenant"`
	FHIRContexts []map[string]any `json:"fhirContext"`
}

// checkContext checks that a launch context is what the EHR registered, or what the person has.
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
