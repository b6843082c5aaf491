package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/client"
)

// ClientStorage is a client.Storage in memory.
type ClientStorage struct {
	authorizetest.Storage

	// Loaded are the keys of what was loaded.
	Loaded []string
}

// Load implements client.Storage.
func (s *ClientStorage) Load(ctx context.Context, key string) ([]byte, error) {
	s.Loaded = append(s.Loaded, key)
	return s.Storage.Load(ctx, key)
}

// InitialAccessToken is what apps need to register themselves.
const InitialAccessToken = "initial-access-token"

// Registering lets apps register themselves.
func Registering(storage *ClientStorage) func(*authorize.Config) {
	return func(c *authorize.Config) {
		c.Registration = &client.Registration{
			InitialAccessToken: InitialAccessToken, Scopes: []string{"user/*.rs", "demo.read"}, MaxClients: 3,
			Storage: storage, Folder: "fhir/clients/x",
		}
	}
}

// ClientMetadata is that of an app; change alters it: a value replaces, nil removes.
func ClientMetadata(change map[string]any) map[string]any {
	m := map[string]any{"redirect_uris": []string{Callback}, "client_name": "Newcomer", "scope": "openid user/*.rs"}
	maps.Copy(m, change)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

// RegistrationResponse is what the registration endpoint says.
type RegistrationResponse struct {
	// ID is the client_id.
	ID string `json:"client_id"`

	// Secret is the client_secret of a client that has one.
	Secret string `json:"client_secret"`

	// IssuedAt is when, in seconds since 1970.
	IssuedAt int64 `json:"client_id_issued_at"`

	// Expires is when Secret expires; 0: never.
	Expires *int64 `json:"client_secret_expires_at"`

	// AccessToken is for the client configuration endpoint.
	AccessToken string `json:"registration_access_token"`

	// URI is that of the client configuration endpoint.
	URI string `json:"registration_client_uri"`

	// Scope is what the client may have.
	Scope string `json:"scope"`

	// Method is how the client authenticates.
	Method string `json:"token_endpoint_auth_method"`

	// Redirects are its redirect URIs.
	Redirects []string `json:"redirect_uris"`

	// GrantTypes are its grant types.
	GrantTypes []string `json:"grant_types"`

	// Algorithm is what its assertions must be signed by.
	Algorithm string `json:"token_endpoint_auth_signing_alg"`

	// JWKSURI is where its keys are.
	JWKSURI string `json:"jwks_uri"`

	// Name is what people see.
	Name string `json:"client_name"`

	// ApplicationType is web or native.
	ApplicationType string `json:"application_type"`

	// Error is the error code.
	Error string `json:"error"`

	// JWKS are its keys.
	JWKS json.RawMessage `json:"jwks"`
}

// Register sends metadata to the registration endpoint, with an initial access token
// unless that is empty.
func Register(b *Browser, metadata any, token string) (*http.Response, RegistrationResponse) {
	b.T.Helper()
	return sendMetadata(b, http.MethodPost, Issuer+"/oauth2/register", token, metadata)
}

// UpdateClient sends metadata to a client's configuration endpoint (RFC 7592 §2.2).
func UpdateClient(b *Browser, c RegistrationResponse, metadata any) (*http.Response, RegistrationResponse) {
	b.T.Helper()
	return sendMetadata(b, http.MethodPut, c.URI, c.AccessToken, metadata)
}

func sendMetadata(b *Browser, method, uri, token string, metadata any) (*http.Response, RegistrationResponse) {
	b.T.Helper()
	text, err := json.Marshal(metadata)
	if err != nil {
		b.T.Fatal(err)
	}
	r := httptest.NewRequest(method, strings.TrimPrefix(uri, Issuer), bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response := b.Send(r)
	return response, Decode[RegistrationResponse](b.T, response)
}

// ManageClient reads or deletes a registration (RFC 7592).
func ManageClient(b *Browser, method, uri, token string) *http.Response {
	r := httptest.NewRequest(method, strings.TrimPrefix(uri, Issuer), nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return b.Send(r)
}

// RegisteringWith lets apps register themselves; change alters how.
func RegisteringWith(change func(*client.Registration)) func(*authorize.Config) {
	return func(c *authorize.Config) {
		Registering(new(ClientStorage))(c)
		change(c.Registration)
	}
}

// WithSecret is metadata of an app that has a secret.
var WithSecret = map[string]any{"token_endpoint_auth_method": "client_secret_post"}
