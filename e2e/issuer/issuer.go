// Package issuer issues tokens for load tests. Gateways trust it as an external authorization server.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer serves its discovery document and public key on loopback until Close is called.
type Issuer struct {
	*httptest.Server
	signer jose.Signer
}

// New starts an issuer with a new key.
func New() (*Issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	i := new(Issuer)
	signing := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}
	if i.signer, err = jose.NewSigner(signing, (&jose.SignerOptions{}).WithType("at+jwt")); err != nil {
		return nil, err
	}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var document any = map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/jwks"}
		if r.URL.Path == "/jwks" {
			document = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "ES256", Use: "sig"}}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document)
	}))
	return i, nil
}

// Token returns an access token of a practitioner for the audience "fhir", valid for one hour. patient may be "".
func (i *Issuer) Token(clientID, id, scope, patient string) string {
	return i.TokenFor("1", clientID, id, scope, patient)
}

// TokenFor is like Token, but for the person with the given subject.
func (i *Issuer) TokenFor(subject, clientID, id, scope, patient string) string {
	token, err := jwt.Signed(i.signer).Claims(map[string]any{
		"iss": i.URL, "sub": subject, "aud": "fhir", "client_id": clientID, "jti": id, "scope": scope, "patient": patient,
		"fhirUser": "Practitioner/1", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}).Serialize()
	if err != nil {
		panic(err)
	}
	return token
}
