package conformance

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// g10Plans returns the (g)(10) test kit's groups for launches and tokens, for SMART App Launch 2.2 and US Core 7.
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
		variants: singleVariant(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "g10_smart_invalid_aud-Test02", checks: "a wrong `aud`: no code", run: moduleInvalidAudience},
			{id: "g10_smart_invalid_launch_param-Test04", checks: "a `launch` that is unknown, used, or another client's: no code", run: moduleInvalidLaunch},
			{id: "g10_smart_invalid_token_request_stu2-Test03", checks: "an invalid code: 400", run: moduleInvalidCode},
			{id: "g10_smart_invalid_token_request_stu2-Test04", checks: "an invalid client id: 400 or 401", run: moduleInvalidClientID},
			{id: "smart_no_verifier_token_request", checks: "no `code_verifier`: 400 or 401", run: moduleVerifier()},
			{id: "smart_blank_verifier_token_request", checks: "a blank `code_verifier`: 400 or 401", run: moduleVerifier("")},
			{id: "smart_bad_code_verifier_token_request", checks: "a wrong `code_verifier`: 400 or 401", run: moduleVerifier(strings.Repeat("another-", 8))},
			{id: "smart_plain_code_verifier_token_request", checks: "the challenge as `code_verifier`: 400 or 401", run: moduleVerifier(authorizetest.S256(codeVerifier))},
		},
	}
}

func g10RevocationPlan() testPlan {
	return testPlan{
		name:     "Inferno: g10_token_revocation",
		text:     "The app revokes its refresh token.",
		variants: singleVariant(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "g10_token_revocation-Test01", checks: "an attestation", result: "not applicable"},
			{id: "g10_token_revocation-Test02", checks: "after revocation: no FHIR resource", run: moduleRevokedAccess},
			{id: "g10_token_revocation-Test03", checks: "after revocation: no refresh", run: moduleRevokedRefresh},
		},
	}
}

func g10AttestationsPlan() testPlan {
	const operators = "not applicable"
	return testPlan{
		name:     "Inferno: g10_visual_inspection_and_attestations",
		text:     "Attestations, some of which can be tested.",
		variants: singleVariant(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "Test01", checks: "apps for single patients can be registered", result: operators},
			{id: "Test02", checks: "apps for many patients can be registered", result: operators},
			{id: "Test03", checks: "people choose on a page what an app may access", run: moduleConsentPage},
			{id: "Test04", checks: "the page names `offline_access`", run: moduleConsentPage},
			{id: "Test05", checks: "refresh tokens valid for three months", result: operators},
			{id: "Test06", checks: "the server reports whether its tokens are valid", run: moduleIntrospectActive},
			{id: "Test07", checks: "all information is accurate", result: operators},
			{id: "Test08", checks: "only the scopes of backend services", result: operators},
			{id: "Test09", checks: "location of the documentation", result: operators},
			{id: "Test10", checks: "an app's keys are cached no longer than their `Cache-Control` allows", result: "not run here: `TestKeysFreshness`"},
			{id: "Test13", checks: "refresh tokens for native apps", result: operators},
			{id: "g10_public_url_attestation", checks: "location of the base URLs", result: operators},
			{id: "g10_tls_version_attestation", checks: "TLS 1.2 at least", result: "not run here: `TestTLSVersions`"},
			{id: "g10_refresh_token_refresh_attestation", checks: "a refresh extends a grant", result: operators},
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
	public := p.as(infernoPublic) // a client with valid credentials, but the code was issued to another client
	public.refusedToken(form, refusals, "invalid_grant")
	form.Del("client_id")
	p.exchange(form) // the rejected request did not invalidate the code
}

// moduleVerifier expects an error for a wrong or missing code_verifier.
func moduleVerifier(values ...string) func(*relyingParty) {
	return func(p *relyingParty) {
		q := p.launch()
		form := p.codeForm(p.granted(q, p.ask(q)).Get("code"))
		form["code_verifier"] = values
		p.refusedToken(form, refusals, "invalid_grant", "invalid_request")
	}
}

// revoked signs in, reads a resource, and revokes the refresh token.
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
	p.refusedToken(refreshForm(p.revoked().tokens.Refresh, ""), refusals, "invalid_grant")
}

// uscoreTypes are the resource types that apps request for the (g)(10) criterion.
var uscoreTypes = strings.Fields(`Medication AllergyIntolerance CarePlan CareTeam Condition Device DiagnosticReport DocumentReference
	Encounter Goal Immunization Location MedicationRequest Observation Organization Patient Practitioner Procedure Provenance
	PractitionerRole Specimen Coverage MedicationDispense ServiceRequest`)

// ofPatients are the types in uscoreTypes that can be searched by patient.
var ofPatients = strings.Fields(`AllergyIntolerance CarePlan CareTeam Condition Device DiagnosticReport DocumentReference Goal
	Immunization MedicationRequest Observation Procedure Encounter ServiceRequest Coverage MedicationDispense`)

// scopeOf returns scopes for all types in uscoreTypes, such as patient/Condition.rs.
func scopeOf(first, level, permission string) string {
	for _, name := range uscoreTypes {
		first += " " + level + "/" + name + "." + permission
	}
	return first
}

// g10Refresh returns the modules of g10_token_refresh_stu2 and of the group that follows it.
func g10Refresh() []testModule {
	return []testModule{
		{id: "g10_token_refresh_without_scopes", checks: "without `scope`: 200, the same scopes", run: moduleTokenRefresh("")},
		{id: "g10_token_refresh_body_without_scopes", checks: "`access_token`, `token_type`, `expires_in`, `scope`", run: moduleTokenRefreshBody("")},
		{id: "g10_token_refresh_with_scopes", checks: "with `scope`: 200, only those scopes", run: moduleTokenRefresh("openid")},
		{id: "g10_token_refresh_body_with_scopes", checks: "`access_token`, `token_type`, `expires_in`, `scope`", run: moduleTokenRefreshBody("openid")},
		{id: "g10_token_refresh-g10_patient_context", checks: "`patient` after a refresh, and the Patient is readable", run: moduleRefreshedPatient},
		{id: "g10_invalid_token_refresh", checks: "an invalid refresh token: 400 or 401", run: moduleInvalidRefresh},
	}
}

func g10StandalonePlan() testPlan {
	return testPlan{
		name:     "Inferno: g10_smart_standalone_patient_app",
		text:     "The group's modules beyond the standalone launch.",
		variants: singleVariant(infernoVariant("", &infernoSymmetric).become),
		modules: slices.Concat([]testModule{
			{
				id: "g10_smart_well_known_capabilities", checks: "the capabilities for patients' apps, among them `context-standalone-patient`, `permission-patient`, `permission-v1`, `permission-v2`",
				run: moduleCapabilities("launch-standalone", "client-public", "context-standalone-patient", "permission-patient"),
			},
			{id: "g10_smart_scopes", checks: "scopes of SMART v1 and v2 (`patient/Condition.read`, `patient/Condition.rs`, …): all are granted", run: modulePatientScopes},
			{id: "g10_unauthorized_access", checks: "a Patient without a token: 401", run: moduleUnauthorizedAccess},
			{id: "g10_patient_context", checks: "`patient` in the token response, and the Patient is readable", run: modulePatientContext},
			{id: "g10_unrestricted_resource_type_access", checks: "all types of US Core can be searched by patient", run: moduleUnrestrictedAccess},
		}, g10Refresh()),
	}
}

func g10LimitedPlan() testPlan {
	return testPlan{
		name:     "Inferno: g10_smart_limited_app",
		text:     "The person deselects resource types on the consent page.",
		variants: singleVariant(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "g10_patient_context", checks: "`patient` in the token response, and the Patient is readable", run: moduleLimitedPatient},
			{id: "g10_limited_scope_grant", checks: "scopes for deselected types are not granted; the others are", run: moduleLimitedScope},
			{id: "g10_restricted_resource_type_access", checks: "searches of types that were not granted: 401 or 403", run: moduleRestrictedAccess},
		},
	}
}

func g10PractitionerPlan() testPlan {
	v := withEHRLaunch(infernoVariant("", &infernoSymmetric))
	return testPlan{
		name: "Inferno: g10_smart_ehr_practitioner_app",
		text: "Launched by the EHR, with `user/` scopes.",
		variants: singleVariant(func(p *relyingParty) {
			v.become(p)
			p.scope = scopeOf("launch openid fhirUser offline_access", "user", "rs")
		}),
		modules: slices.Concat([]testModule{
			{
				id: "g10_smart_well_known_capabilities", checks: "the capabilities for EHRs, among them `context-ehr-patient`, `context-ehr-encounter`, `context-banner`, `context-style`",
				run: moduleCapabilities("launch-ehr", "context-banner", "context-style", "context-ehr-patient", "context-ehr-encounter", "permission-user"),
			},
			{id: "g10_smart_scopes", checks: "scopes of SMART v1 and v2 (`user/Condition.read`, `user/Condition.rs`, …): all are granted", run: moduleUserScopes},
			{id: "g10_unauthorized_access", checks: "a Patient without a token: 401", run: moduleUnauthorizedAccess},
			{id: "g10_patient_context", checks: "`patient` in the token response, and the Patient is readable", run: modulePatientContext},
			{id: "g10_encounter_context_us_core_7", checks: "`encounter` in the token response, and the Encounter is readable", run: moduleEncounterContext},
			{id: "g10_smart_style_url", checks: "`smart_style_url`, which returns JSON", run: moduleStyleURL},
			{id: "g10_smart_need_patient_banner", checks: "`need_patient_banner`, also if false", run: moduleNeedsBanner},
		}, g10Refresh()),
	}
}

func g10EHRPatientPlan() testPlan {
	v := withEHRLaunch(infernoVariant("", &infernoSymmetric))
	return testPlan{
		name: "Inferno: g10_ehr_patient_launch_stu2_2",
		text: "Launched by the EHR, with a scope for the Patient resource only.",
		variants: singleVariant(func(p *relyingParty) {
			v.become(p)
			p.scope = "launch openid fhirUser offline_access patient/Patient.rs"
		}),
		modules: []testModule{
			{id: "g10_patient_context", checks: "`patient` in the token response, and the Patient is readable", run: modulePatientContext},
			{id: "g10_patient_scope", checks: "`patient/Patient.rs` is granted, for this patient only", run: modulePatientScope},
		},
	}
}

func moduleCapabilities(names ...string) func(*relyingParty) {
	return func(p *relyingParty) {
		p.checkCapabilities(append(
			names, "client-confidential-symmetric", "client-confidential-asymmetric", "sso-openid-connect", "permission-offline",
			"authorize-post", "permission-v1", "permission-v2",
		))
	}
}

func modulePatientScopes(p *relyingParty) {
	for _, permission := range []string{"read", "rs"} {
		p.scope = scopeOf("launch/patient openid fhirUser offline_access", "patient", permission)
		p.checkGranted()
	}
}

func moduleUserScopes(p *relyingParty) {
	for _, permission := range []string{"read", "rs"} {
		p.scope = scopeOf("launch openid fhirUser offline_access", "user", permission)
		p.checkGranted()
	}
}

// checkGranted launches the app and checks that the token response grants all requested scopes.
func (p *relyingParty) checkGranted() *signInFlow {
	p.t.Helper()
	f := p.launched()
	if !sameWords(f.tokens.Scope, p.scope) {
		p.t.Errorf("granted %q", f.tokens.Scope)
	}
	return f
}

func moduleUnauthorizedAccess(p *relyingParty) {
	if r := p.Get("/fhir/Patient/"+patientID, ""); r.StatusCode != http.StatusUnauthorized {
		p.t.Errorf("status %d", r.StatusCode)
	}
}

func modulePatientContext(p *relyingParty) {
	f := p.launched()
	p.checkRecord(f.tokens.AccessToken, "Patient/"+f.tokens.Patient)
}

func moduleEncounterContext(p *relyingParty) {
	f := p.launched()
	p.checkRecord(f.tokens.AccessToken, "Encounter/"+f.tokens.Encounter)
}

func modulePatientScope(p *relyingParty) {
	f := p.checkGranted()
	if r := p.Get("/fhir/Patient/inferno-bob", f.tokens.AccessToken); r.StatusCode == http.StatusOK {
		p.t.Error("another patient can be read")
	}
}

func moduleStyleURL(p *relyingParty) {
	var style map[string]any
	p.readJSON(p.Get(strings.TrimPrefix(p.launched().tokens.StyleURL, issuer), ""), &style)
}

func moduleNeedsBanner(p *relyingParty) {
	if p.launched().tokens.NeedsBanner == nil {
		p.t.Error("no need_patient_banner")
	}
}

func moduleRefreshedPatient(p *relyingParty) {
	got := p.exchange(refreshForm(p.launched().tokens.Refresh, ""))
	p.checkRecord(got.AccessToken, "Patient/"+got.Patient)
}

func moduleInvalidRefresh(p *relyingParty) {
	f := p.launched()
	p.refusedToken(refreshForm(randomSecret(), ""), refusals, "invalid_grant")
	p.refusedToken(refreshForm(randomSecret(), f.tokens.Scope), refusals, "invalid_grant")
}

func moduleUnrestrictedAccess(p *relyingParty) {
	p.scope = scopeOf("launch/patient openid fhirUser offline_access", "patient", "rs")
	token := p.checkGranted().tokens.AccessToken
	for _, name := range ofPatients {
		if status := p.Get("/fhir/"+name+"?patient="+patientID, token).StatusCode; status != http.StatusOK {
			p.t.Errorf("%s: status %d", name, status)
		}
	}
}

const limitedScope = "openid launch/patient patient/Patient.rs patient/Condition.rs"

// limited launches the app. On the consent page, the user deselects observations.
func (p *relyingParty) limited() *signInFlow {
	p.t.Helper()
	p.scope = limitedScope + " patient/Observation.rs"
	offered := false
	f := p.selecting(p.launch(), func(box string) bool {
		isObservation := strings.HasPrefix(box, "patient/Observation.rs")
		offered = offered || isObservation
		return !isObservation
	})
	if !offered {
		p.t.Error("observations cannot be taken out")
	}
	return f
}

func moduleLimitedScope(p *relyingParty) {
	if f := p.limited(); !sameWords(f.tokens.Scope, limitedScope) {
		p.t.Errorf("granted %q", f.tokens.Scope)
	}
}

func moduleLimitedPatient(p *relyingParty) {
	f := p.limited()
	p.checkRecord(f.tokens.AccessToken, "Patient/"+f.tokens.Patient)
}

func moduleRestrictedAccess(p *relyingParty) {
	token := p.limited().tokens.AccessToken
	for _, name := range ofPatients {
		want := []int{http.StatusUnauthorized, http.StatusForbidden}
		if name == "Condition" {
			want = []int{http.StatusOK}
		}
		if status := p.Get("/fhir/"+name+"?patient="+patientID, token).StatusCode; !slices.Contains(want, status) {
			p.t.Errorf("%s: status %d", name, status)
		}
	}
}

// moduleConsentPage checks that the consent page has a checkbox for each scope that the user may refuse.
func moduleConsentPage(p *relyingParty) {
	var boxes []string
	p.selecting(p.launch(), func(box string) bool {
		boxes = append(boxes, box)
		return true
	})
	for _, scope := range []string{"offline_access", "patient/*.rs"} {
		if !slices.ContainsFunc(boxes, func(box string) bool { return strings.HasPrefix(box, scope) }) {
			p.t.Errorf("no box for %s: %q", scope, boxes)
		}
	}
}

func g10SubScopesPlan() testPlan {
	return testPlan{
		name:     "Inferno: (g)(10), sub-scopes",
		text:     "Scopes by category, such as `patient/Condition.rs?category=…|problem-list-item`.",
		variants: singleVariant(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "g10_smart_granular_scope_selection", checks: "`patient/Condition.rs` and `patient/Observation.rs` requested: the person can grant each sub-resource scope instead of the whole", run: moduleGranularSelection},
			{id: "us_core_v610_smart_granular_scopes_1", checks: "the person grants the scopes of Inferno's first group; exactly these are granted", run: moduleGranularGroup(granularGroup1)},
			{id: "us_core_v610_smart_granular_scopes_2", checks: "the person grants the scopes of Inferno's second group; exactly these are granted", run: moduleGranularGroup(granularGroup2)},
			{id: "g10_us_core_7_smart_fine_grained_scopes_stu2_2-Group01", checks: "four categories are granted: searches find them, and nothing else is readable", run: moduleSubScopes("encounter-diagnosis", "health-concern", "laboratory", "social-history")},
			{id: "g10_us_core_7_smart_fine_grained_scopes_stu2_2-Group02", checks: "four other categories are granted: searches find them, and nothing else is readable", run: moduleSubScopes("problem-list-item", "vital-signs", "survey", "sdoh")},
		},
	}
}

// moduleSubScopes requests the scopes of the categories with the given codes, and checks searches and reads with them.
func moduleSubScopes(codes ...string) func(*relyingParty) {
	return func(p *relyingParty) {
		p.scope = "launch/patient openid fhirUser offline_access patient/Patient.rs"
		granted := map[string][]string{}
		for _, c := range categories {
			if slices.Contains(codes, c.code) {
				p.scope += " patient/" + c.resourceType + ".rs?category=" + c.system + "|" + c.code
				granted[c.resourceType] = append(granted[c.resourceType], "inferno-"+c.code)
			}
		}
		q := p.launch() // scopes that the user refused in earlier modules are refused until the user grants them again
		q.Set("scope", p.scope)
		p.selecting(q, func(string) bool { return true })
		token := p.checkGranted().tokens.AccessToken
		for resourceType, want := range granted {
			if got := p.found(token, resourceType); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				p.t.Errorf("found %q, wanted %q", got, want)
			}
		}
		for _, c := range categories {
			r := p.Get("/fhir/"+c.resourceType+"/inferno-"+c.code, token)
			if readable := r.StatusCode == http.StatusOK; readable != slices.Contains(codes, c.code) {
				p.t.Errorf("%s: status %d", c.code, r.StatusCode)
			}
		}
	}
}

// found returns the sorted ids of the patient's resources of a type that a search returns.
func (p *relyingParty) found(token, resourceType string) (ids []string) {
	p.t.Helper()
	var bundle struct {
		Entry []struct{ Resource fhirResource }
	}
	r := p.Get("/fhir/"+resourceType+"?patient="+patientID, token)
	body := gatewaytest.ReadBody(p.t, r)
	if err := json.Unmarshal([]byte(body), &bundle); err != nil || r.StatusCode != http.StatusOK {
		p.t.Fatalf("status %d, %v: %s", r.StatusCode, err, body)
	}
	for _, e := range bundle.Entry {
		ids = append(ids, e.Resource.ID)
	}
	slices.Sort(ids)
	return ids
}

// fhirResource contains the members that all resources share.
type fhirResource struct {
	Type string `json:"resourceType"`
	ID   string `json:"id"`
}

// resource decodes the resource in a response, which must have status 200.
func (p *relyingParty) resource(r *http.Response) (resource fhirResource) {
	p.t.Helper()
	body := gatewaytest.ReadBody(p.t, r)
	if err := json.Unmarshal([]byte(body), &resource); err != nil || r.StatusCode != http.StatusOK {
		p.t.Errorf("status %d, %v: %s", r.StatusCode, err, body)
	}
	return resource
}

func (p *relyingParty) checkRecord(token, reference string) {
	p.t.Helper()
	if got := p.resource(p.Get("/fhir/"+reference, token)); got.Type+"/"+got.ID != reference {
		p.t.Errorf("%+v, wanted %s", got, reference)
	}
}

const (
	conditionCategory   = "?category=http://terminology.hl7.org/CodeSystem/condition-category|"
	observationCategory = "?category=http://terminology.hl7.org/CodeSystem/observation-category|"
	usCoreCodes         = "?category=http://hl7.org/fhir/us/core/CodeSystem/"
)

// granularScopes maps the names of checkboxes to the scopes that users must be able to select.
var granularScopes = map[string]string{
	"Condition.rs problem-list-item":   conditionCategory + "problem-list-item",
	"Condition.rs health-concern":      usCoreCodes + "condition-category|health-concern",
	"Condition.rs encounter-diagnosis": conditionCategory + "encounter-diagnosis",
	"Observation.rs laboratory":        observationCategory + "laboratory",
	"Observation.rs vital-signs":       observationCategory + "vital-signs",
	"Observation.rs social-history":    observationCategory + "social-history",
	"Observation.rs survey":            observationCategory + "survey",
	"Observation.rs sdoh":              usCoreCodes + "us-core-category|sdoh",
	"Observation.rs clinical-test":     usCoreCodes + "us-core-observation-category|clinical-test",
}

// Inferno's groups of granular scopes (SMART App Launch with fine-grained scopes).
var (
	granularGroup1 = []string{"Condition.rs encounter-diagnosis", "Condition.rs health-concern", "Observation.rs laboratory", "Observation.rs social-history"}
	granularGroup2 = []string{"Condition.rs problem-list-item", "Observation.rs vital-signs", "Observation.rs survey", "Observation.rs sdoh"}
)

const resourceLevelScope = "launch/patient openid fhirUser offline_access patient/Condition.rs patient/Observation.rs patient/Patient.rs"

// selecting submits the consent page with only the wanted checkboxes selected.
func (p *relyingParty) selecting(q url.Values, wanted func(box string) bool) *signInFlow {
	p.t.Helper()
	p.flowOf(q, p.ask(q)) // signs in, so that the next request shows the patient picker
	q.Set("prompt", "consent")
	picker := p.Get("/oauth2/authorize?"+q.Encode(), "").Header.Get("Location") // the patient picker, which lists only one patient
	page := p.Get(p.Get(picker, "").Header.Get("Location"), "")
	form := authorizetest.ReadForm(gatewaytest.ReadBody(p.t, page))
	for name := range form.Fields {
		if box, ok := strings.CutPrefix(name, "may "); ok && !wanted(box) {
			form.Fields.Del(name)
		}
	}
	form.Fields.Set("decision", "allow")
	return p.flowOf(q, p.follow(p.Post(form.Action, form.Fields)))
}

// moduleGranularSelection grants each sub-resource scope separately.
func moduleGranularSelection(p *relyingParty) {
	for wanted, query := range granularScopes {
		resource, _, _ := strings.Cut(wanted, " ")
		q := p.launch()
		q.Set("scope", resourceLevelScope)
		f := p.selecting(q, func(box string) bool {
			_, part, isPart := strings.Cut(box, " ")
			return !isPart || strings.HasSuffix(wanted, " "+part) || !strings.HasPrefix(box, "patient/"+resource)
		})
		want := strings.Replace(resourceLevelScope, "patient/"+resource, "patient/"+resource+query, 1)
		if !sameWords(f.tokens.Scope, want) {
			p.t.Errorf("%s: granted %q", wanted, f.tokens.Scope)
		}
		if again := p.exchange(refreshForm(f.tokens.Refresh, "")); again.Scope != f.tokens.Scope {
			p.t.Errorf("%s: refreshed as %q", wanted, again.Scope)
		}
	}
}

// moduleGranularGroup requests all sub-resource scopes. The user grants only those in group.
func moduleGranularGroup(group []string) func(*relyingParty) {
	return func(p *relyingParty) {
		scope, selected := "openid launch/patient", map[string]bool{}
		for name, query := range granularScopes {
			resource, _, _ := strings.Cut(name, " ")
			scope += " patient/" + resource + query
		}
		want := "openid launch/patient"
		for _, name := range group {
			resource, _, _ := strings.Cut(name, " ")
			want += " patient/" + resource + granularScopes[name]
			selected["patient/"+resource+granularScopes[name]] = true
		}
		q := p.launch()
		q.Set("scope", scope)
		if f := p.selecting(q, func(box string) bool { return selected[box] }); !sameWords(f.tokens.Scope, want) {
			p.t.Errorf("granted %q, wanted %q", f.tokens.Scope, want)
		}
	}
}
