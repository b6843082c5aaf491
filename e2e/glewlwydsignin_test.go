package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/url"
	"testing"
)

// object is a JSON object.
type object = map[string]any

// configure registers the gateway as a client and adds a user.
func (p glewlwyd) configure(t *testing.T, gatewayAddress string) {
	t.Helper()
	admin := p.administrator(t)
	p.call(t, admin, http.MethodPost, "mod/plugin/", object{
		"module": "oidc", "name": "oidc", "display_name": "OpenID Connect", "order_rank": 0, "parameters": p.plugin(t),
	})
	p.call(t, admin, http.MethodPut, "mod/user/database", object{
		"display_name": "Database", "order_rank": 0, "readonly": false,
		"parameters": object{"use-glewlwyd-connection": true, "data-format": object{
			"groups":         object{"multiple": true, "read": true, "write": true},
			"email-verified": object{"multiple": false, "read": true, "write": true},
		}},
	})
	p.call(t, admin, http.MethodPut, "mod/user/database/reset", object{})
	p.call(t, admin, http.MethodPost, "user/", object{
		"username": "grace", "password": "grace-at-glewlwyd", "name": "Grace Gray", "email": "grace@clinic.example",
		"email-verified": "yes", "groups": []string{"staff", "clinicians"}, "scope": []string{"openid"}, "enabled": true,
	})
	p.call(t, admin, http.MethodPost, "client/", object{
		"client_id": "gateway", "confidential": true, "password": "gateway-at-glewlwyd", "enabled": true,
		"redirect_uri":       []string{"https://" + gatewayAddress + "/oauth2/callback/glewlwyd"},
		"authorization_type": []string{"code"}, "token_endpoint_auth_method": []string{"client_secret_basic"},
		"scope": []string{},
	})
}

// plugin returns the configuration of Glewlwyd's OpenID Connect plugin. It enables the code flow with PKCE.
func (p glewlwyd) plugin(t *testing.T) object {
	t.Helper()
	key := newKey(t)
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	parameters := object{
		"iss": p.issuer(), "jwt-type": "rsa", "jwt-key-size": "256", "jwks-show": true,
		"key": string(private), "cert": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		"access-token-duration": 3600, "refresh-token-duration": 3600, "code-duration": 600, "refresh-token-rolling": true,
		"pkce-required": true, "pkce-allowed": true, "pkce-method-plain-allowed": false,
		"auth-type-code-enabled": true, "auth-type-code-revoke-replayed": true, "auth-type-id-token-enabled": true,
		"subject-type": "public", "allowed-scope": []string{"openid"}, "scope": []any{}, "additional-parameters": []any{},
		"name-claim": "mandatory", "email-claim": "mandatory", "scope-claim": "no",
		"name-claim-scope": []any{}, "email-claim-scope": []any{}, "scope-claim-scope": []any{},
		"claims": []object{
			{"name": "memberOf", "user-property": "groups", "type": "string", "mandatory": true, "on-demand": false, "scope": []string{"openid"}},
			{
				"name": "email_verified", "user-property": "email-verified", "type": "boolean", "mandatory": true, "on-demand": false,
				"boolean-value-true": "yes", "boolean-value-false": "no", "scope": []string{"openid"},
			},
		},
	}
	for _, without := range []string{
		"allow-non-oidc", "auth-type-token-enabled", "auth-type-none-enabled", "auth-type-password-enabled",
		"auth-type-client-enabled", "auth-type-device-enabled", "auth-type-refresh-enabled", "session-management-allowed",
		"request-parameter-allow", "introspection-revocation-allowed", "register-client-allowed", "oauth-dpop-allowed",
		"resource-allowed", "oauth-rar-allowed", "oauth-par-allowed", "oauth-ciba-allowed", "oauth-fapi-allow-jarm",
	} {
		parameters[without] = false
	}
	return parameters
}

// Signing in at Glewlwyd works. The test sends the requests that the scripts on Glewlwyd's pages send.
func TestGlewlwyd(t *testing.T) {
	provider := startGlewlwyd(t)
	address := mustFreeAddress(t)
	provider.configure(t, address)
	g := federatedGateway(t, "gateway-glewlwyd", address, []string{
		idpBlock("glewlwyd", provider.issuer(), "gateway", "gateway-at-glewlwyd",
			"name Glewlwyd", "scopes openid", "claim groups memberOf", "claim preferred_username email",
			"allow group clinicians"),
	})
	grace := g.newPerson(t)
	signedIn := g.federated(t, "glewlwyd", func(start string) *url.URL {
		page := grace.walk(t, start, provider.address+"/login.html", nil)
		provider.signIn(t, grace.client, "grace", "grace-at-glewlwyd")
		provider.call(t, grace.client, http.MethodPut, "auth/grant/gateway", object{"scope": "openid"})
		return grace.walk(t, page.Query().Get("callback_url")+"&g_continue", appCallback, nil)
	})
	signedIn.check(t, g, provider.issuer(), "grace", claims{
		Name: "Grace Gray", PreferredUsername: "grace@clinic.example", Email: "grace@clinic.example", EmailVerified: true,
	})
}
