package providertest

import (
	"crypto"
	"net/http"

	"github.com/go-jose/go-jose/v4"
)

// discovery is OpenID Connect Discovery §4.
func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	document := map[string]any{
		"issuer":                                p.Issuer,
		"response_types_supported":              []string{"code"},
		"subject_types_supported":               []string{"public"},
		"scopes_supported":                      []string{"openid", "profile", "email"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"code_challenge_methods_supported":      []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post"},

		"authorization_response_iss_parameter_supported": true,
	}
	for e, name := range metadataNames {
		document[name] = p.Issuer + string(e)
	}
	for name, value := range p.current().Metadata {
		if document[name] = value; value == nil {
			delete(document, name)
		}
	}
	writeJSON(w, http.StatusOK, document)
}

// keys is the JWK Set (RFC 7517 §5).
func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	s := p.current()
	key := jose.JSONWebKey{Key: s.key().Key.(crypto.Signer).Public(), KeyID: s.KeyID, Algorithm: s.KeyAlgorithm, Use: "sig"}
	writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key}})
}
