package authorizetest

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

const (
	// TokenURL is the aud of assertions.
	TokenURL = Issuer + "/oauth2/token"

	// AssertionType is the client_assertion_type of RFC 7523.
	AssertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// AssertionKeys are one private key for each algorithm; the kid is the algorithm's name.
var AssertionKeys = sync.OnceValue(func() map[jose.SignatureAlgorithm]crypto.Signer {
	rsaKey := josetest.NewRSA()
	return map[jose.SignatureAlgorithm]crypto.Signer{
		jose.RS256: rsaKey, jose.RS384: rsaKey, jose.PS256: rsaKey, jose.RS512: rsaKey,
		jose.ES256: josetest.NewEC(elliptic.P256()), jose.ES384: josetest.NewEC(elliptic.P384()), jose.EdDSA: josetest.NewEd25519(),
	}
})

// PublicKeys is a JWK Set of [AssertionKeys].
func PublicKeys(algorithms ...jose.SignatureAlgorithm) []byte {
	var set jose.JSONWebKeySet
	for _, alg := range algorithms {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: AssertionKeys()[alg].Public(), KeyID: string(alg), Algorithm: string(alg), Use: "sig"})
	}
	document, err := json.Marshal(set)
	if err != nil {
		panic(err)
	}
	return document
}

// NewBackend makes a server with a client, backend, that has keys.
func NewBackend(t testing.TB, change func(*client.Client)) *authorize.Server {
	client := client.Client{
		ID: "backend", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"},
		JWKS: PublicKeys(jose.RS256, jose.RS384, jose.ES256, jose.ES384, jose.PS256, jose.EdDSA, jose.RS512),
	}
	if change != nil {
		change(&client)
	}
	return New(t, func(c *authorize.Config) { c.Clients = append(c.Clients, client) })
}

// Assertion signs what a client says of itself. Claims and header members that
// are nil are left out.
func Assertion(t testing.TB, alg jose.SignatureAlgorithm, claims, header map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": "backend", "sub": "backend", "aud": TokenURL, "exp": time.Now().Add(time.Minute).Unix(), "jti": rand.Text(),
	}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	allHeaders := josetest.Header{"kid": string(alg), "typ": "JWT"}
	for name, value := range header {
		allHeaders[jose.HeaderKey(name)] = value
	}
	maps.DeleteFunc(allHeaders, func(_ jose.HeaderKey, v any) bool { return v == nil })
	return josetest.SignClaims(t, jose.SigningKey{Algorithm: alg, Key: AssertionKeys()[alg]}, allHeaders, all)
}

// AssertionForm is the token request of client credentials by an assertion; change is as
// in [Request].
func AssertionForm(assertion string, change url.Values) url.Values {
	return altered(url.Values{
		"grant_type": {"client_credentials"}, "scope": {"system/*.rs"},
		"client_assertion_type": {AssertionType}, "client_assertion": {assertion},
	}, change)
}

// TryAssertion is what the token endpoint says to an app's assertion with a code that is
// none: invalid_grant, if it believes the assertion.
func TryAssertion(b *Browser, id string, alg jose.SignatureAlgorithm) string {
	b.T.Helper()
	claims := map[string]any{"iss": id, "sub": id}
	form := CodeForm("x", url.Values{
		"client_id": {id}, "client_assertion_type": {AssertionType}, "client_assertion": {Assertion(b.T, alg, claims, nil)},
	})
	return b.RequestTokens(form).Error
}
