package conformance

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

func g10Plan() testPlan {
	return testPlan{
		name:     "Inferno: (g)(10), errors and tokens",
		text:     "Tests without an id of their own are named by group and number.",
		variants: alone(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "g10_smart_invalid_aud-Test02", checks: "another `aud`: no code", run: moduleInvalidAudience},
			{id: "g10_smart_invalid_token_request_stu2-Test03", checks: "an invalid code: 400", run: moduleInvalidCode},
			{id: "g10_smart_invalid_token_request_stu2-Test04", checks: "an invalid client id: 400 or 401", run: moduleInvalidClientID},
			{id: "smart_no_verifier_token_request", checks: "no `code_verifier`: 400 or 401", run: moduleVerifier()},
			{id: "smart_blank_verifier_token_request", checks: "a blank one: likewise", run: moduleVerifier("")},
			{id: "smart_bad_code_verifier_token_request", checks: "another one: likewise", run: moduleVerifier(strings.Repeat("another-", 8))},
			{id: "smart_plain_code_verifier_token_request", checks: "the challenge itself: likewise", run: moduleVerifier(challengeOf(codeVerifier))},
			{id: "g10_invalid_token_refresh", checks: "an invalid refresh token: 400 or 401", run: moduleInvalidRefresh},
			{id: "g10_smart_scopes", checks: "scopes of SMART v1 (`patient/Condition.read`, …): all are granted", run: moduleV1Scopes},
			{id: "g10_limited_scope_grant", checks: "the person takes a resource type out: its scope is not granted, the others are", run: moduleLimitedScope},
			{id: "g10_smart_granular_scope_selection", checks: "`patient/Condition.rs` and `patient/Observation.rs` asked for: the person can give each sub-resource scope, and the whole of neither is granted", run: moduleGranularSelection},
			{id: "us_core_v610_smart_granular_scopes_1", checks: "of those asked for, the person gives the scopes of Inferno's first group, and these are granted", run: moduleGranularGroup(granularGroup1)},
			{id: "us_core_v610_smart_granular_scopes_2", checks: "likewise the second group", run: moduleGranularGroup(granularGroup2)},
			{id: "g10_unauthorized_access", checks: "a Patient without a token: 401", run: moduleUnauthorizedAccess},
			{id: "g10_token_revocation-Test01", checks: "an attestation", result: "not applicable: it is the operator's to give"},
			{id: "g10_token_revocation-Test02", checks: "after revocation: no FHIR resource", run: moduleRevokedAccess},
			{id: "g10_token_revocation-Test03", checks: "after revocation: no refresh", run: moduleRevokedRefresh},
		},
	}
}

func notBuiltPlan() testPlan {
	missing := func(id, checks, why string) testModule {
		return testModule{id: id, checks: checks, result: "not built: " + why}
	}
	return testPlan{
		name: "Inferno: what is not built",
		text: "These rows are not backed by a test.",
		modules: []testModule{
			missing("smart_ehr_launch_stu2_2", "launch from an EHR", "no EHR can register a launch"),
			missing("g10_well_known_capabilities", "among them `context-standalone-patient`, `permission-patient`, `permission-v1`, `permission-v2`", "not all capabilities are offered"),
			missing("g10_patient_context", "`patient` in the token response, and readable", "launch context"),
			missing("g10_encounter_context", "`encounter` likewise", "launch context"),
			missing("g10_smart_fine_grained_scopes", "only resources of the category come back", "granular scopes are not enforced"),
			missing("g10_restricted_resource_type_access", "what the person took out cannot be read", "the guard does not enforce resource scopes"),
		},
	}
}

var refusals = []int{http.StatusBadRequest, http.StatusUnauthorized}

func moduleInvalidAudience(p *relyingParty) {
	q := p.launch()
	q.Set("aud", "https://inferno.example/invalid_aud")
	p.refused(q, p.ask(q), "query", "invalid_request")
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

func moduleInvalidRefresh(p *relyingParty) {
	f := p.launched()
	p.refusedToken(formOfRefresh(unguessable(), ""), refusals, "invalid_grant")
	p.refusedToken(formOfRefresh(unguessable(), f.tokens.Scope), refusals, "invalid_grant")
}

// v1Types are the resource types that the scopes of the (g)(10) criterion name.
var v1Types = strings.Fields(`Medication AllergyIntolerance CarePlan CareTeam Condition Device DiagnosticReport DocumentReference
	Encounter Goal Immunization Location MedicationRequest Observation Organization Patient Practitioner Procedure Provenance
	PractitionerRole Specimen Coverage MedicationDispense ServiceRequest`)

func moduleV1Scopes(p *relyingParty) {
	scope := "launch/patient openid fhirUser offline_access"
	for _, name := range v1Types {
		scope += " patient/" + name + ".read"
	}
	q := p.launch()
	q.Set("scope", scope)
	if f := p.flowOf(q, p.ask(q)); !sameWords(f.tokens.Scope, scope) {
		p.t.Errorf("granted %q", f.tokens.Scope)
	}
}

func moduleUnauthorizedAccess(p *relyingParty) {
	if r := p.Get("/fhir/R4/Patient/1", ""); r.StatusCode != http.StatusUnauthorized {
		p.t.Errorf("status %d", r.StatusCode)
	}
}

// revoked signs in, reads, and revokes the refresh token.
func (p *relyingParty) revoked() *signInFlow {
	p.t.Helper()
	f := p.launched()
	if r := p.Get("/fhir/R4/Practitioner/alice", f.tokens.AccessToken); r.StatusCode != http.StatusOK {
		p.t.Fatalf("before: status %d", r.StatusCode)
	}
	form := url.Values{"token": {f.tokens.Refresh}, "token_type_hint": {"refresh_token"}}
	if r := p.Send(p.tokenRequest("/oauth2/revoke", form)); r.StatusCode != http.StatusOK {
		p.t.Fatalf("revocation: status %d", r.StatusCode)
	}
	return f
}

func moduleRevokedAccess(p *relyingParty) {
	r := p.Get("/fhir/R4/Practitioner/alice", p.revoked().tokens.AccessToken)
	if !slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, r.StatusCode) {
		p.t.Errorf("status %d", r.StatusCode)
	}
}

func moduleRevokedRefresh(p *relyingParty) {
	p.refusedToken(formOfRefresh(p.revoked().tokens.Refresh, ""), refusals, "invalid_grant")
}
