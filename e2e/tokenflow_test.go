package e2e

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
)

// With response_type=token, the access token is in the fragment of the redirect URI.
func TestTokenFlow(t *testing.T) {
	tests := []struct {
		name, scope string
		wantIDToken bool
	}{
		{"with openid", "openid user/*.rs", true},
		{"without openid", "user/*.rs", false},
		{"no scope means openid", "", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request := url.Values{
				"response_type": {"token"}, "client_id": {"demo-app"}, "redirect_uri": {callback},
				"state": {"xyz +/%"}, "nonce": {"a-nonce"},
			}
			if test.scope != "" {
				request.Set("scope", test.scope)
			}
			end := example.newPerson(t).signIn(t, example.issuer+"/oauth2/authorize?"+request.Encode())
			if end.RawQuery != "" {
				t.Errorf("query %q, want none", end.RawQuery)
			}
			response := fragmentOf(t, end)
			for name, want := range map[string]string{"token_type": "bearer", "expires_in": "3600", "state": "xyz +/%"} {
				if got := response.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			if response.Has("refresh_token") || response.Has("code") {
				t.Errorf("a code or a refresh token in %s", end)
			}
			if response.Has("id_token") != test.wantIDToken {
				t.Fatalf("id_token there: %t, want %t", response.Has("id_token"), test.wantIDToken)
			}
			if test.wantIDToken {
				checkImplicitIDToken(t, response)
			}
			example.expand(t, response.Get("access_token"), "http://hl7.org/fhir/ValueSet/administrative-gender").is(t, http.StatusOK)
		})
	}
}

// checkImplicitIDToken checks the requirements of OpenID Connect Core §3.2.2.10 except for the signature. The ID token must be
// bound to the request and to the access token.
func checkImplicitIDToken(t *testing.T, response url.Values) {
	t.Helper()
	idToken, err := example.provider(t).Verifier(&oidc.Config{ClientID: "demo-app"}).Verify(example.context(t), response.Get("id_token"))
	if err != nil {
		t.Fatal(err)
	}
	if err := idToken.VerifyAccessToken(response.Get("access_token")); err != nil {
		t.Errorf("at_hash: %v", err)
	}
	if idToken.Nonce != "a-nonce" || idToken.Subject != userName {
		t.Errorf("nonce %q, sub %q", idToken.Nonce, idToken.Subject)
	}
}
