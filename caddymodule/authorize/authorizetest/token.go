package authorizetest

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// Verifier is the code_verifier for requests with [PKCE].
const Verifier = "a-code-verifier-that-is-43-characters-long-."

// CodeForm returns the token request for a code, altered by change as in [Request].
func CodeForm(code string, change url.Values) url.Values {
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code},
		"redirect_uri": {Callback}, "client_id": {"app"},
	}
	return applyChanges(form, change)
}

// Tokens signs alice in and returns the tokens for her authorization code.
func (b *Browser) Tokens(change url.Values) TokenResponse {
	b.T.Helper()
	response := b.Post("/oauth2/token", CodeForm(b.Code(change), nil))
	if response.StatusCode != http.StatusOK {
		b.T.Fatalf("token endpoint: status %d: %s", response.StatusCode, Body(b.T, response))
	}
	return Decode[TokenResponse](b.T, response)
}

// TokenResponse is a response from the token endpoint.
type TokenResponse struct {
	AccessToken  string `json:"access_token"`      // empty in an error response
	TokenType    string `json:"token_type"`        // always Bearer
	ExpiresIn    int    `json:"expires_in"`        // lifetime of the access token in seconds
	Scope        string `json:"scope"`             // granted scope
	IDToken      string `json:"id_token"`          // only with the scope openid
	RefreshToken string `json:"refresh_token"`     // only with the scope offline_access or online_access
	Error        string `json:"error"`             // error code
	Description  string `json:"error_description"` // error description
}

// RequestTokens sends a token request.
func (b *Browser) RequestTokens(form url.Values) TokenResponse {
	b.T.Helper()
	return Decode[TokenResponse](b.T, b.Post("/oauth2/token", form))
}

// Redeem redeems the code in a redirect.
func (b *Browser) Redeem(redirect *url.URL) TokenResponse {
	b.T.Helper()
	return b.RequestTokens(CodeForm(redirect.Query().Get("code"), nil))
}

// TokensWithSession returns tokens for the user who is already signed in.
func TokensWithSession(b *Browser) TokenResponse {
	b.T.Helper()
	return b.RequestTokens(CodeForm(b.CodeWithSession(nil), nil))
}

// Refresh sends a refresh token and returns the response; change is as in [Request].
func (b *Browser) Refresh(token string, change url.Values) TokenResponse {
	b.T.Helper()
	return b.RequestTokens(RefreshForm(token, change))
}

// RefreshForm returns the token request for a refresh token, altered by change as in [Request].
func RefreshForm(token string, change url.Values) url.Values {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}, "client_id": {"app"}}
	return applyChanges(form, change)
}

// WithOfflineAccess adds the scope offline_access, which requests a refresh token, to the changes of a [Request].
func WithOfflineAccess(change url.Values) url.Values {
	q := url.Values{"scope": {"openid user/*.rs offline_access"}, "nonce": {"n"}}
	maps.Copy(q, change)
	return q
}

// Userinfo sends a request to the UserInfo endpoint with an access token.
func (b *Browser) Userinfo(token string) *http.Response {
	r := PostRequest("/oauth2/userinfo", nil)
	r.Method = http.MethodGet
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.Send(r)
}

// IsTokenValid reports whether the UserInfo endpoint accepts an access token.
func (b *Browser) IsTokenValid(access string) bool {
	return b.Userinfo(access).StatusCode == http.StatusOK
}

// CheckTokensInvalid checks that the refresh token and the access tokens are no longer valid.
func CheckTokensInvalid(b *Browser, refresh string, access ...string) {
	b.T.Helper()
	if got := b.Refresh(refresh, nil); got.Error != "invalid_grant" || got.AccessToken != "" {
		b.T.Errorf("refresh token not rejected with invalid_grant: %+v", got)
	}
	for i, token := range access {
		if b.IsTokenValid(token) {
			b.T.Errorf("access token %d still works", i)
		}
	}
}

// SendTokenForm posts a token to path. If secret is empty, it identifies a public client by client_id.
func SendTokenForm(b *Browser, path, token, client, secret string) *http.Response {
	form := url.Values{"token": {token}}
	if secret == "" {
		form.Set("client_id", client)
	}
	r := PostRequest(path, form)
	if secret != "" {
		r.SetBasicAuth(client, secret)
	}
	return b.Send(r)
}

// Claims verifies the signature of a token with the published keys and returns its claims.
func (b *Browser) Claims(token string) map[string]any {
	b.T.Helper()
	keys := Decode[jose.JSONWebKeySet](b.T, b.Get("/.well-known/jwks.json"))
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		b.T.Fatal(err)
	}
	claims := map[string]any{}
	if err := parsed.Claims(keys, &claims); err != nil {
		b.T.Fatal(err)
	}
	return claims
}

// S256 returns the code_challenge of a code_verifier (RFC 7636 §4.2).
func S256(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// PKCE returns the request parameters for [Verifier].
func PKCE() url.Values {
	return url.Values{"code_challenge_method": {"S256"}, "code_challenge": {S256(Verifier)}}
}

// AlterLetter changes a letter in the middle of a text. Changing the last letter of base64url might have no effect.
func AlterLetter(text string) string {
	b := []byte(text)
	if i := len(b) / 2; b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}

// CheckIDToken checks an ID token and access token issued to app for alice.
func CheckIDToken(b *Browser, idToken, accessToken, nonce string) {
	b.T.Helper()
	id, access := b.Claims(idToken), b.Claims(accessToken)
	for name, want := range map[string]any{"iss": Issuer, "sub": "alice", "aud": "app"} {
		if id[name] != want {
			b.T.Errorf("ID token %s = %v, want %v", name, id[name], want)
		}
	}
	if got, _ := id["nonce"].(string); got != nonce {
		b.T.Errorf("ID token nonce = %q, want %q", got, nonce)
	}
	if id["exp"].(float64)-id["iat"].(float64) != 3600 {
		b.T.Errorf("ID token valid from %v to %v, want a lifetime of one hour", id["iat"], id["exp"])
	}
	if id["at_hash"] == nil || id["auth_time"] == nil || id["email"] != nil {
		b.T.Errorf("ID token has wrong claims: %v", id)
	}
	if access["aud"] != FHIRBase || access["sub"] != "alice" || access["client_id"] != "app" || access["jti"] == "" {
		b.T.Errorf("access token has wrong claims: %v", access)
	}
}

const (
	// TokenURL is the URL of the token endpoint, the audience of client assertions.
	TokenURL = Issuer + "/oauth2/token"

	// AssertionType is the client_assertion_type of JWTs (RFC 7523 §2.2).
	AssertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// AssertionKeys returns one private key for each algorithm. The kid is the name of the algorithm.
var AssertionKeys = sync.OnceValue(func() map[jose.SignatureAlgorithm]crypto.Signer {
	rsaKey := josetest.NewRSA()
	return map[jose.SignatureAlgorithm]crypto.Signer{
		jose.RS256: rsaKey, jose.RS384: rsaKey, jose.PS256: rsaKey, jose.RS512: rsaKey,
		jose.ES256: josetest.NewEC(elliptic.P256()), jose.ES384: josetest.NewEC(elliptic.P384()), jose.EdDSA: josetest.NewEd25519(),
	}
})

// PublicKeys returns a JWK Set of [AssertionKeys].
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

// NewBackendServer returns a server with the client backend, which authenticates with its keys.
func NewBackendServer(t testing.TB, change func(*client.Client)) *authorize.Server {
	client := client.Client{
		ID: "backend", GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"},
		JWKS: PublicKeys(jose.RS256, jose.RS384, jose.ES256, jose.ES384, jose.PS256, jose.EdDSA, jose.RS512),
	}
	if change != nil {
		change(&client)
	}
	return New(t, func(c *authorize.Config) { c.Clients = append(c.Clients, client) })
}

// Assertion returns a signed client assertion. nil claims and header members are omitted.
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

// AssertionForm returns a client credentials request with an assertion, altered by change as in [Request].
func AssertionForm(assertion string, change url.Values) url.Values {
	return applyChanges(url.Values{
		"grant_type": {"client_credentials"}, "scope": {"system/*.rs"},
		"client_assertion_type": {AssertionType}, "client_assertion": {assertion},
	}, change)
}

// TryAssertion sends a client assertion with an invalid authorization code and returns the error. The error invalid_grant means
// that the assertion was accepted.
func TryAssertion(b *Browser, id string, alg jose.SignatureAlgorithm) string {
	b.T.Helper()
	claims := map[string]any{"iss": id, "sub": id}
	form := CodeForm("x", url.Values{
		"client_id": {id}, "client_assertion_type": {AssertionType}, "client_assertion": {Assertion(b.T, alg, claims, nil)},
	})
	return b.RequestTokens(form).Error
}
