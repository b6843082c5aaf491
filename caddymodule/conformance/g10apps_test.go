package conformance

import (
	"net/http"
	"slices"
	"strings"
)

// uscoreTypes are the resource types that the (g)(10) criterion has apps ask for.
var uscoreTypes = strings.Fields(`Medication AllergyIntolerance CarePlan CareTeam Condition Device DiagnosticReport DocumentReference
	Encounter Goal Immunization Location MedicationRequest Observation Organization Patient Practitioner Procedure Provenance
	PractitionerRole Specimen Coverage MedicationDispense ServiceRequest`)

// ofPatients are those of them that are searched by patient.
var ofPatients = strings.Fields(`AllergyIntolerance CarePlan CareTeam Condition Device DiagnosticReport DocumentReference Goal
	Immunization MedicationRequest Observation Procedure Encounter ServiceRequest Coverage MedicationDispense`)

// scopeOf is a scope for all these types, such as patient/Condition.rs.
func scopeOf(first, level, permission string) string {
	for _, name := range uscoreTypes {
		first += " " + level + "/" + name + "." + permission
	}
	return first
}

// g10Refresh are the modules of g10_token_refresh_stu2, and what follows it.
func g10Refresh() []testModule {
	return []testModule{
		{id: "g10_token_refresh_without_scopes", checks: "without `scope`: 200, as much as before", run: moduleTokenRefresh("")},
		{id: "g10_token_refresh_body_without_scopes", checks: "`access_token`, `token_type`, `expires_in`, `scope`", run: moduleTokenRefreshBody("")},
		{id: "g10_token_refresh_with_scopes", checks: "with `scope`: 200, no more than that", run: moduleTokenRefresh("openid")},
		{id: "g10_token_refresh_body_with_scopes", checks: "likewise", run: moduleTokenRefreshBody("openid")},
		{id: "g10_token_refresh-g10_patient_context", checks: "`patient` after a refresh, and readable", run: moduleRefreshedPatient},
		{id: "g10_invalid_token_refresh", checks: "an invalid refresh token: 400 or 401", run: moduleInvalidRefresh},
	}
}

func g10StandalonePlan() testPlan {
	return testPlan{
		name:     "Inferno: g10_smart_standalone_patient_app",
		text:     "What the group has beside the modules of the standalone launch.",
		variants: alone(infernoVariant("", &infernoSymmetric).become),
		modules: slices.Concat([]testModule{
			{
				id: "g10_smart_well_known_capabilities", checks: "those for patients' apps, among them `context-standalone-patient`, `permission-patient`, `permission-v1`, `permission-v2`",
				run: moduleCapabilities("launch-standalone", "client-public", "context-standalone-patient", "permission-patient"),
			},
			{id: "g10_smart_scopes", checks: "scopes of SMART v1 and v2 (`patient/Condition.read`, `patient/Condition.rs`, …): all are granted", run: modulePatientScopes},
			{id: "g10_unauthorized_access", checks: "a Patient without a token: 401", run: moduleUnauthorizedAccess},
			{id: "g10_patient_context", checks: "`patient` in the token response, and readable", run: modulePatientContext},
			{id: "g10_unrestricted_resource_type_access", checks: "all types of US Core can be searched by patient", run: moduleUnrestrictedAccess},
		}, g10Refresh()),
	}
}

func g10LimitedPlan() testPlan {
	return testPlan{
		name:     "Inferno: g10_smart_limited_app",
		text:     "The person takes resource types out, on the consent page.",
		variants: alone(infernoVariant("", &infernoSymmetric).become),
		modules: []testModule{
			{id: "g10_patient_context", checks: "`patient` in the token response, and readable", run: moduleLimitedPatient},
			{id: "g10_limited_scope_grant", checks: "the scope of the type that is taken out is not granted, the others are", run: moduleLimitedScope},
			{id: "g10_restricted_resource_type_access", checks: "of the types that are not granted, nothing can be searched: 401 or 403", run: moduleRestrictedAccess},
		},
	}
}

func g10PractitionerPlan() testPlan {
	v := fromEHR(infernoVariant("", &infernoSymmetric))
	return testPlan{
		name: "Inferno: g10_smart_ehr_practitioner_app",
		text: "Opened by the EHR, with scopes for all that the practitioner may see.",
		variants: alone(func(p *relyingParty) {
			v.become(p)
			p.scope = scopeOf("launch openid fhirUser offline_access", "user", "rs")
		}),
		modules: slices.Concat([]testModule{
			{
				id: "g10_smart_well_known_capabilities", checks: "those for EHRs, among them `context-ehr-patient`, `context-ehr-encounter`, `context-banner`, `context-style`",
				run: moduleCapabilities("launch-ehr", "context-banner", "context-style", "context-ehr-patient", "context-ehr-encounter", "permission-user"),
			},
			{id: "g10_smart_scopes", checks: "scopes of SMART v1 and v2 (`user/Condition.read`, `user/Condition.rs`, …): all are granted", run: moduleUserScopes},
			{id: "g10_unauthorized_access", checks: "a Patient without a token: 401", run: moduleUnauthorizedAccess},
			{id: "g10_patient_context", checks: "`patient` in the token response, and readable", run: modulePatientContext},
			{id: "g10_encounter_context_us_core_7", checks: "`encounter` likewise", run: moduleEncounterContext},
			{id: "g10_smart_style_url", checks: "`smart_style_url`, where there is JSON", run: moduleStyleURL},
			{id: "g10_smart_need_patient_banner", checks: "`need_patient_banner`, also if it is false", run: moduleNeedsBanner},
		}, g10Refresh()),
	}
}

func g10EHRPatientPlan() testPlan {
	v := fromEHR(infernoVariant("", &infernoSymmetric))
	return testPlan{
		name: "Inferno: g10_ehr_patient_launch_stu2_2",
		text: "Opened by the EHR, with a scope for the patient alone.",
		variants: alone(func(p *relyingParty) {
			v.become(p)
			p.scope = "launch openid fhirUser offline_access patient/Patient.rs"
		}),
		modules: []testModule{
			{id: "g10_patient_context", checks: "`patient` in the token response, and readable", run: modulePatientContext},
			{id: "g10_patient_scope", checks: "`patient/Patient.rs` is granted, and for no other patient", run: modulePatientScope},
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

// checkGranted launches, and checks that all scopes are granted.
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
	got := p.exchange(formOfRefresh(p.launched().tokens.Refresh, ""))
	p.checkRecord(got.AccessToken, "Patient/"+got.Patient)
}

func moduleInvalidRefresh(p *relyingParty) {
	f := p.launched()
	p.refusedToken(formOfRefresh(unguessable(), ""), refusals, "invalid_grant")
	p.refusedToken(formOfRefresh(unguessable(), f.tokens.Scope), refusals, "invalid_grant")
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

// limited launches; on the consent page, the person takes observations out.
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

// moduleConsentPage checks that the page has a box for each scope that may be refused.
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
