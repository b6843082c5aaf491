package bearer

import (
	"encoding/json"
	"slices"
	"testing"
)

// The SMART configuration omits values that SMART does not permit and contains nothing that the discovery document does not
// imply.
func TestSMARTConfigurationOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, document                   string
		grants, challenges, capabilities []string
		offer                            AdvertisedFeatures
	}{
		{
			"much", `{
	"issuer": "ISSUER", "jwks_uri": "ISSUER/keys", "authorization_endpoint": "ISSUER/auth", "token_endpoint": "ISSUER/token",
	"introspection_endpoint": "ISSUER/introspect", "revocation_endpoint": "ISSUER/revoke", "userinfo_endpoint": "ISSUER/me",
	"scopes_supported": ["openid", "launch/patient", "patient/*.rs", "offline_access"], "response_types_supported": ["code", "token"],
	"grant_types_supported": ["authorization_code", "implicit", "refresh_token"], "code_challenge_methods_supported": ["plain", "S256"],
	"token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt", "none"]
}`,
			[]string{"authorization_code", "refresh_token"}, []string{"S256"},
			[]string{"launch-standalone", "context-standalone-patient", "sso-openid-connect", "permission-offline", "permission-patient", "permission-v2", "client-public", "client-confidential-symmetric", "client-confidential-asymmetric"}, AdvertisedFeatures{},
		},
		{"little", `{"issuer":"x"}`, []string{"authorization_code"}, []string{}, []string{"client-confidential-symmetric"}, AdvertisedFeatures{}},
		{
			"scopes of both versions", `{"scopes_supported":["user/*.read","system/Patient.rs","launch/encounter","launch","online_access"]}`, []string{"authorization_code"}, []string{},
			[]string{"context-standalone-encounter", "launch-ehr", "permission-online", "permission-user", "permission-v1", "permission-v2", "client-confidential-symmetric"}, AdvertisedFeatures{},
		},
		{"its own capabilities", `{"capabilities":["launch-ehr","client-confidential-symmetric"]}`, []string{"authorization_code"}, []string{}, []string{"launch-ehr", "client-confidential-symmetric"}, AdvertisedFeatures{}},
		{
			"configured features", `{"scopes_supported":["openid","roles"]}`, []string{"authorization_code"}, []string{},
			[]string{"launch-ehr", "permission-patient", "permission-v2", "client-confidential-symmetric"},
			AdvertisedFeatures{Capabilities: []string{"launch-ehr"}, Scopes: []string{"patient/*.rs"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body, err := convertDiscovery([]byte(tt.document), tt.offer)
			var got struct {
				Grants       []string `json:"grant_types_supported"`
				Challenges   []string `json:"code_challenge_methods_supported"`
				Capabilities []string `json:"capabilities"`
			}
			if err != nil || json.Unmarshal(body, &got) != nil {
				t.Fatalf("%s %v", body, err)
			}
			if !slices.Equal(got.Grants, tt.grants) || got.Challenges == nil || !slices.Equal(got.Challenges, tt.challenges) || !slices.Equal(got.Capabilities, tt.capabilities) {
				t.Errorf("%s", body)
			}
		})
	}
}
