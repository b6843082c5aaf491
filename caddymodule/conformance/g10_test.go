package conformance

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// g10Plans are the (g)(10) test kit's groups on launches and tokens, for SMART App Launch 2.2 and US Core 7.
func g10Plans() []testPlan {
	return []testPlan{
		g10StandalonePlan(), g10LimitedPlan(), g10PractitionerPlan(), g10EHRPatientPlan(), g10InvalidRequestsPlan(),
		g10SubScopesPlan(), g10RevocationPlan(), g10AttestationsPlan(),
	}
}

func g10InvalidRequestsPlan() testPlan {
	return testPlan{
		name:     "Inferno: (g)(10), invalid requests",
		text:     "Tests without an id of their own are named by group and number.",
		variants: alone(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "g10_smart_invalid_aud-Test02", checks: "another `aud`: no code", run: moduleInvalidAudience},
			{id: "g10_smart_invalid_launch_param-Test04", checks: "an unknown `launch`, one used before, one for another client: no code", run: moduleInvalidLaunch},
			{id: "g10_smart_invalid_token_request_stu2-Test03", checks: "an invalid code: 400", run: moduleInvalidCode},
			{id: "g10_smart_invalid_token_request_stu2-Test04", checks: "an invalid client id: 400 or 401", run: moduleInvalidClientID},
			{id: "smart_no_verifier_token_request", checks: "no `code_verifier`: 400 or 401", run: moduleVerifier()},
			{id: "smart_blank_verifier_token_request", checks: "a blank one: likewise", run: moduleVerifier("")},
			{id: "smart_bad_code_verifier_token_request", checks: "another one: likewise", run: moduleVerifier(strings.Repeat("another-", 8))},
			{id: "smart_plain_code_verifier_token_request", checks: "the challenge itself: likewise", run: moduleVerifier(challengeOf(codeVerifier))},
		},
	}
}

func g10RevocationPlan() testPlan {
	return testPlan{
		name:     "Inferno: g10_token_revocation",
		text:     "The app revokes its refresh token.",
		variants: alone(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "g10_token_revocation-Test01", checks: "an attestation", result: "not applicable: it is the operator's to give"},
			{id: "g10_token_revocation-Test02", checks: "after revocation: no FHIR resource", run: moduleRevokedAccess},
			{id: "g10_token_revocation-Test03", checks: "after revocation: no refresh", run: moduleRevokedRefresh},
		},
	}
}

func g10AttestationsPlan() testPlan {
	const operators = "not applicable: it is the operator's to give"
	return testPlan{
		name:     "Inferno: g10_visual_inspection_and_attestations",
		text:     "Attestations, of which some can be checked.",
		variants: alone(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "Test01", checks: "apps for single patients can be registered", result: operators},
			{id: "Test02", checks: "apps for many patients can be registered", result: operators},
			{id: "Test03", checks: "people choose on a page what an app may see", run: moduleConsentPage},
			{id: "Test04", checks: "and are told there of `offline_access`", run: moduleConsentPage},
			{id: "Test05", checks: "refresh tokens for three months", result: operators},
			{id: "Test06", checks: "the server tells whether a token of its own is valid", run: moduleIntrospectActive},
			{id: "Test07", checks: "all information is accurate", result: operators},
			{id: "Test08", checks: "no more than the scopes of backend services", result: operators},
			{id: "Test09", checks: "where the documentation is", result: operators},
			{id: "Test10", checks: "an app's keys are cached no longer than their `Cache-Control` says", result: "not run here: `TestKeysFreshness`"},
			{id: "Test13", checks: "refresh tokens for native apps", result: operators},
			{id: "g10_public_url_attestation", checks: "where the base URLs are", result: operators},
			{id: "g10_tls_version_attestation", checks: "TLS 1.2 at least", result: "not run here: `TestTLSVersions`"},
			{id: "g10_refresh_token_refresh_attestation", checks: "a refresh lets a grant last longer", result: operators},
			{id: "g10_bulk_v2_since_attestation", checks: "`_since` of exports", result: "not applicable: exports are the FHIR server's"},
		},
	}
}

var refusals = []int{http.StatusBadRequest, http.StatusUnauthorized}

func moduleInvalidAudience(p *relyingParty) {
	q := p.launch()
	q.Set("aud", "https://inferno.example/invalid_aud")
	p.refused(q, p.ask(q), "query", "invalid_request")
}

func moduleInvalidLaunch(p *relyingParty) {
	p.opensWith = ehrContext()
	unknown, used := p.launch(), p.launch()
	unknown.Set("launch", "INVALID_LAUNCH_PARAM")
	p.refused(unknown, p.ask(unknown), "query", "invalid_request")
	p.flowOf(used, p.ask(used))
	p.refused(used, p.ask(used), "query", "invalid_request")
	another := p.as(infernoPublic)
	q := another.launch()
	q.Set("launch", p.openedByEHR().Get("launch"))
	another.refused(q, another.ask(q), "query", "invalid_request")
}

func moduleInvalidCode(p *relyingParty) {
	q := p.launch()
	p.granted(q, p.ask(q))
	p.refusedToken(p.codeForm("BAD_CODE"), badRequest, "invalid_grant")
}

func moduleInvalidClientID(p *relyingParty) {
	q := p.launch()
	form := p.codeForm(p.granted(q, p.ask(q)).Get("code"))
	bad := p.client
	bad.id = "BAD_CLIENT_ID"
	p.as(bad).refusedToken(form, refusals, "invalid_client")
	public := p.as(infernoPublic) // and a good one, to whom the code was not given
	public.refusedToken(form, refusals, "invalid_grant")
	form.Del("client_id")
	p.exchange(form) // none of that used the code up
}

// moduleVerifier sends a wrong code_verifier, or none.
func moduleVerifier(values ...string) func(*relyingParty) {
	return func(p *relyingParty) {
		q := p.launch()
		form := p.codeForm(p.granted(q, p.ask(q)).Get("code"))
		form["code_verifier"] = values
		p.refusedToken(form, refusals, "invalid_grant", "invalid_request")
	}
}

// revoked signs in, reads, and revokes the refresh token.
func (p *relyingParty) revoked() *signInFlow {
	p.t.Helper()
	f := p.launched()
	if r := p.Get("/fhir/"+practitionerReference, f.tokens.AccessToken); r.StatusCode != http.StatusOK {
		p.t.Fatalf("before: status %d", r.StatusCode)
	}
	form := url.Values{"token": {f.tokens.Refresh}, "token_type_hint": {"refresh_token"}}
	if r := p.Send(p.tokenRequest("/oauth2/revoke", form)); r.StatusCode != http.StatusOK {
		p.t.Fatalf("revocation: status %d", r.StatusCode)
	}
	return f
}

func moduleRevokedAccess(p *relyingParty) {
	r := p.Get("/fhir/"+practitionerReference, p.revoked().tokens.AccessToken)
	if !slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, r.StatusCode) {
		p.t.Errorf("status %d", r.StatusCode)
	}
}

func moduleRevokedRefresh(p *relyingParty) {
	p.refusedToken(formOfRefresh(p.revoked().tokens.Refresh, ""), refusals, "invalid_grant")
}
