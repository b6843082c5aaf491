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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// ClientStorage is a client.Storage in memory.
type ClientStorage struct {
	authorizetest.Storage

	Loaded []string // the keys of what was loaded
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
	ID              string          `json:"client_id"`                       // the client_id
	Secret          string          `json:"client_secret"`                   // the client_secret of a client that has one
	IssuedAt        int64           `json:"client_id_issued_at"`             // when, in seconds since 1970
	Expires         *int64          `json:"client_secret_expires_at"`        // when Secret expires; 0: never
	AccessToken     string          `json:"registration_access_token"`       // for the client configuration endpoint
	URI             string          `json:"registration_client_uri"`         // that of the client configuration endpoint
	Scope           string          `json:"scope"`                           // what the client may have
	Method          string          `json:"token_endpoint_auth_method"`      // how the client authenticates
	Redirects       []string        `json:"redirect_uris"`                   // its redirect URIs
	GrantTypes      []string        `json:"grant_types"`                     // its grant types
	Algorithm       string          `json:"token_endpoint_auth_signing_alg"` // what its assertions must be signed by
	JWKSURI         string          `json:"jwks_uri"`                        // where its keys are
	Name            string          `json:"client_name"`                     // what people see
	ApplicationType string          `json:"application_type"`                // web or native
	Error           string          `json:"error"`                           // the error code
	JWKS            json.RawMessage `json:"jwks"`                            // its keys
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
