package conformance

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
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
