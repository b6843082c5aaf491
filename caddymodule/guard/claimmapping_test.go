package guard

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// A mapped claim replaces SMART's claim. If its value is ambiguous, the token is rejected.
func TestClaimMapping(t *testing.T) {
	t.Parallel()
	context := ClaimMapping{Claims: map[string][]string{"patient": {"patient_id"}, "fhirUser": {"ext.fhir_user"}}}
	dotted := ClaimMapping{Claims: map[string][]string{"scope": {"scp", "roles"}}, Scopes: map[string][]string{
		"patient.all.read": {"patient/*.rs"}, "care.read": {"patient/*.rs", "user/Observation.rs"},
	}}
	for name, tt := range map[string]struct {
		mapping                  ClaimMapping
		claims                   map[string]any
		patient, fhirUser, scope string
		isRejected               bool
	}{
		"mapped":                  {context, map[string]any{"patient_id": "7", "ext": map[string]any{"fhir_user": "Patient/7"}}, "7", "Patient/7", "openid patient/*.rs", false},
		"SMART's claims ignored":  {context, map[string]any{"patient": "8", "fhirUser": "Patient/8"}, "", "", "openid patient/*.rs", false},
		"null":                    {context, map[string]any{"patient_id": map[string]any(nil)}, "", "", "openid patient/*.rs", false},
		"two patients":            {context, map[string]any{"patient_id": []string{"7", "8"}}, "", "", "", true},
		"list of one patient":     {context, map[string]any{"patient_id": []string{"7"}}, "", "", "", true},
		"number as patient":       {context, map[string]any{"patient_id": 7}, "", "", "", true},
		"object as patient":       {context, map[string]any{"patient_id": map[string]any{"id": "7"}}, "", "", "", true},
		"reference as patient":    {context, map[string]any{"patient_id": "Patient/7"}, "", "", "", true},
		"patient id in two cases": {context, map[string]any{"patient_id": "7", "Patient_ID": "8"}, "", "", "", true},
		"two persons":             {context, map[string]any{"ext": map[string]any{"fhir_user": []string{"Patient/7", "Patient/8"}}}, "", "", "", true},
		"person as name and path": {context, map[string]any{"ext.fhir_user": "Patient/7", "ext": map[string]any{"fhir_user": "Patient/8"}}, "", "", "", true},
		"person only as name":     {context, map[string]any{"ext.fhir_user": "Patient/7", "ext": map[string]any{"fhir_user": map[string]any(nil)}}, "", "Patient/7", "openid patient/*.rs", false},
		"null as name":            {context, map[string]any{"ext.fhir_user": map[string]any(nil), "ext": map[string]any{"fhir_user": "Patient/7"}}, "", "Patient/7", "openid patient/*.rs", false},
		"patient at two paths":    {ClaimMapping{Claims: map[string][]string{"patient": {"a.b.c"}}}, map[string]any{"a.b": map[string]any{"c": "7"}, "a": map[string]any{"b.c": "7"}}, "", "", "", true},
		"boolean as person":       {context, map[string]any{"ext": map[string]any{"fhir_user": true}}, "", "", "", true},

		"scopes mapped exactly":   {dotted, map[string]any{"scp": "patient.all.read openid patient.all.reads patient.all"}, "123", "Practitioner/alice", "patient/*.rs", false},
		"one grants several":      {dotted, map[string]any{"scp": []string{"care.read", "patient.all.read"}}, "123", "Practitioner/alice", "patient/*.rs user/Observation.rs", false},
		"SMART scope not mapped":  {dotted, map[string]any{"scp": "patient/*.cruds"}, "123", "Practitioner/alice", "", false},
		"scope claim ignored":     {dotted, map[string]any{"scope": "patient.all.read"}, "123", "Practitioner/alice", "", false},
		"scopes of a service":     {dotted, map[string]any{"roles": []string{"patient.all.read"}}, "123", "Practitioner/alice", "patient/*.rs", false},
		"roles of a person":       {dotted, map[string]any{"scp": "openid", "roles": []string{"patient.all.read"}}, "123", "Practitioner/alice", "", false},
		"empty scp":               {dotted, map[string]any{"scp": "", "roles": []string{"patient.all.read"}}, "123", "Practitioner/alice", "", false},
		"scope with a space":      {dotted, map[string]any{"roles": []string{"patient.all.read care.read"}}, "", "", "", true},
		"scopes as name and path": {ClaimMapping{Claims: map[string][]string{"scope": {"api.scp"}}}, map[string]any{"api.scp": "openid", "api": map[string]any{"scp": "user/*.rs"}}, "", "", "", true},
		"boolean as scopes":       {ClaimMapping{Claims: map[string][]string{"scope": {"roles"}}}, map[string]any{"roles": true}, "", "", "", true},
		"list with a number":      {dotted, map[string]any{"roles": []any{"patient.all.read", 7}}, "", "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &TrustedVerifier{Issuer: testIssuer, Audience: testAudience, Keys: testKeys(), Now: testVerifier().Now, Mapping: tt.mapping}
			token, err := v.Verify(t.Context(), mint{claims: tt.claims}.token(t))
			if tt.isRejected {
				wantError(t, err, http.StatusUnauthorized, "invalid_token", errMalformedToken)
				return
			}
			if err != nil || token.Patient != tt.patient || token.FHIRUser != tt.fhirUser || token.Scope != tt.scope {
				t.Errorf("%+v, %v", token, err)
			}
		})
	}
}

// Verifiers that share a cache never share a token if their mappings differ, because the patient could differ.
func TestClaimMappingIsPartOfCacheKey(t *testing.T) {
	t.Parallel()
	raw, cache := mint{claims: map[string]any{"patient_id": "7"}}.token(t), NewTokenCache(10)
	for _, tt := range []struct {
		mapping ClaimMapping
		patient string
	}{{ClaimMapping{}, "123"}, {ClaimMapping{Claims: map[string][]string{"patient": {"patient_id"}}}, "7"}, {ClaimMapping{Claims: map[string][]string{"fhirUser": {"patient_id"}}}, "123"}} {
		v := &TrustedVerifier{Issuer: testIssuer, Audience: testAudience, Keys: testKeys(), Now: testVerifier().Now, Cache: cache, Mapping: tt.mapping}
		if token, err := v.Verify(t.Context(), raw); err != nil || token.Patient != tt.patient {
			t.Errorf("%s: %+v, %v", &tt.mapping, token, err)
		}
		i := testIntrospector(respondWith(`{"active":true,"sub":"u","aud":"` + testAudience + `","patient":"123","patient_id":"7"}`))
		i.Audience, i.Cache, i.Mapping = testAudience, cache, tt.mapping
		if token, err := i.Verify(t.Context(), "opaque"); err != nil || token.Patient != tt.patient {
			t.Errorf("%s: introspected %+v, %v", &tt.mapping, token, err)
		}
	}
}

// A claim that is mapped to the scopes does not turn an ID token into an access token: ID tokens contain roles, too.
func TestMappedScopesAcceptNoIDToken(t *testing.T) {
	t.Parallel()
	v := &TrustedVerifier{Issuer: testIssuer, Audience: "api", Keys: testKeys(), Now: testVerifier().Now, Mapping: ClaimMapping{Claims: map[string][]string{"scope": {"roles"}}}}
	claims := map[string]any{"aud": "api", "client_id": "api", "scope": nil, "roles": []string{"system/*.rs"}}
	_, err := v.Verify(t.Context(), mint{header: map[jose.HeaderKey]any{"typ": "JWT"}, claims: claims}.token(t))
	wantError(t, err, http.StatusUnauthorized, "invalid_token", errTokenType)
	claims["client_id"] = "service"
	if token, err := v.Verify(t.Context(), mint{header: map[jose.HeaderKey]any{"typ": "JWT"}, claims: claims}.token(t)); err != nil || token.Scope != "system/*.rs" {
		t.Error(token, err)
	}
}

func TestCheckClaimMapping(t *testing.T) {
	t.Parallel()
	claims := func(pairs ...string) (m ClaimMapping) {
		m.Claims = map[string][]string{}
		for pair := range slices.Chunk(pairs, 2) {
			m.Claims[pair[0]] = strings.Fields(pair[1])
		}
		return m
	}
	for name, tt := range map[string]struct {
		mapping ClaimMapping
		problem string
	}{
		"empty":               {ClaimMapping{}, ""},
		"all":                 {claims("patient", "p", "fhirUser", "u", "scope", "scp roles"), ""},
		"two patients":        {claims("patient", "a b"), "one name"},
		"two persons":         {claims("fhirUser", "a b"), "one name"},
		"no name":             {claims("scope", ""), "one or more"},
		"empty name":          {ClaimMapping{Claims: map[string][]string{"scope": {"scp", ""}}}, "one or more"},
		"unknown claim":       {claims("sub", "uid"), "claim sub"},
		"issuer's form":       {ClaimMapping{Scopes: map[string][]string{"patient/all": {"patient/*.rs"}}}, ""},
		"issuer's scope":      {ClaimMapping{Scopes: map[string][]string{"a b": {"patient/*.rs"}}}, "not a valid scope"},
		"malformed own scope": {ClaimMapping{Scopes: map[string][]string{"a": {"patient/*.sr"}}}, "not a valid SMART scope"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := tt.mapping.Check(); (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Error(err)
			}
		})
	}
}
