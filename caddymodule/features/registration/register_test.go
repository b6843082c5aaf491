package registration_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/registration"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// clientStorage is an in-memory [registration.Storage].
type clientStorage struct {
	providertest.Storage

	Loaded []string // keys passed to Load
}

// Load implements [registration.Storage].
func (s *clientStorage) Load(ctx context.Context, key string) ([]byte, error) {
	s.Loaded = append(s.Loaded, key)
	return s.Storage.Load(ctx, key)
}

// initialAccessToken is the bearer token that registration requests must contain.
const initialAccessToken = "initial-access-token"

// registering returns a configuration change that enables registration.
func registering(storage *clientStorage) func(*authorize.Config) {
	return func(c *authorize.Config) {
		c.Features = append(c.Features, &registration.Registration{
			InitialAccessToken: initialAccessToken, Scopes: []string{"user/*.rs", "demo.read"}, MaxClients: 3,
			Storage: storage, Folder: "fhir/clients/x",
		})
	}
}

// clientMetadata returns the metadata of an app with changes: a value replaces a member, nil removes it.
func clientMetadata(change map[string]any) map[string]any {
	m := map[string]any{"redirect_uris": []string{authorizetest.Callback}, "client_name": "Newcomer", "scope": "openid user/*.rs"}
	maps.Copy(m, change)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

// registrationResponse is the response of the registration endpoint (RFC 7591 §3.2.1).
type registrationResponse struct {
	ID              string          `json:"client_id"`                       // client_id
	Secret          string          `json:"client_secret"`                   // client_secret, if the client has one
	IssuedAt        int64           `json:"client_id_issued_at"`             // issue time in seconds since 1970
	Expires         *int64          `json:"client_secret_expires_at"`        // expiry of Secret; 0 means never
	AccessToken     string          `json:"registration_access_token"`       // token for the client configuration endpoint
	URI             string          `json:"registration_client_uri"`         // address of the client configuration endpoint
	Scope           string          `json:"scope"`                           // scopes that the client may be granted
	Method          string          `json:"token_endpoint_auth_method"`      // authentication method
	Redirects       []string        `json:"redirect_uris"`                   // redirect URIs
	GrantTypes      []string        `json:"grant_types"`                     // grant types that the client may use
	Algorithm       string          `json:"token_endpoint_auth_signing_alg"` // signing algorithm of client assertions
	JWKSURI         string          `json:"jwks_uri"`                        // address of the key set
	Name            string          `json:"client_name"`                     // display name
	ApplicationType string          `json:"application_type"`                // web or native
	Error           string          `json:"error"`                           // error code
	JWKS            json.RawMessage `json:"jwks"`                            // key set
}

// register sends metadata to the registration endpoint. If token is not empty, it is sent as the initial access token.
func register(b *authorizetest.Browser, metadata any, token string) (*http.Response, registrationResponse) {
	b.T.Helper()
	return sendMetadata(b, http.MethodPost, authorizetest.Issuer+"/oauth2/register", token, metadata)
}

// updateClient sends metadata to a client's configuration endpoint (RFC 7592 §2.2).
func updateClient(b *authorizetest.Browser, c registrationResponse, metadata any) (*http.Response, registrationResponse) {
	b.T.Helper()
	return sendMetadata(b, http.MethodPut, c.URI, c.AccessToken, metadata)
}

func sendMetadata(b *authorizetest.Browser, method, uri, token string, metadata any) (*http.Response, registrationResponse) {
	b.T.Helper()
	response := b.Send(metadataRequest(b, method, uri, token, metadata))
	return response, authorizetest.Decode[registrationResponse](b.T, response)
}

// metadataRequest returns a request with metadata. If token is not empty, it is sent as a bearer token.
func metadataRequest(b *authorizetest.Browser, method, uri, token string, metadata any) *http.Request {
	b.T.Helper()
	text, err := json.Marshal(metadata)
	authorizetest.NoError(b.T, err)
	r := httptest.NewRequest(method, strings.TrimPrefix(uri, authorizetest.Issuer), bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// manageClient reads or deletes a registration (RFC 7592).
func manageClient(b *authorizetest.Browser, method, uri, token string) *http.Response {
	r := httptest.NewRequest(method, strings.TrimPrefix(uri, authorizetest.Issuer), nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return b.Send(r)
}

// registeringWith returns a configuration change that enables registration with changed options.
func registeringWith(change func(*registration.Registration)) func(*authorize.Config) {
	return func(c *authorize.Config) {
		registering(new(clientStorage))(c)
		change(optionsOf(c))
		c.Features = append(c.Features, fakeRequestObjects{})
	}
}

// optionsOf returns the options of the feature that [registering] added.
func optionsOf(c *authorize.Config) *registration.Registration {
	return c.Features[len(c.Features)-1].(*registration.Registration)
}

// fakeRequestObjects replaces the requestobject feature. It accepts the parameters of request objects without verifying
// signatures.
type fakeRequestObjects struct{}

func (fakeRequestObjects) Extend(core *authorize.Core) error {
	core.OpenRequest = func(ctx context.Context, c *client.Client, p oauth2.Parameters) (oauth2.Parameters, error) {
		object := []byte(p.Get("request"))
		if uri := p.Get("request_uri"); uri != "" && slices.Contains(c.RequestObjects.URIs, uri) {
			var err error
			if object, err = relyingparty.Fetch(ctx, c.Transport, uri, 1<<16); err != nil {
				return p, &oauth2.Error{Code: "invalid_request_uri", Err: err}
			}
		}
		var inside map[string]any
		if parts := strings.Split(string(object), "."); len(parts) == 3 {
			text, _ := base64.RawURLEncoding.DecodeString(parts[1])
			_ = json.Unmarshal(text, &inside)
		}
		opened := oauth2.Parameters{"client_id": {c.ID}}
		for name, value := range inside {
			if text, ok := value.(string); ok && name != "aud" && c.RequestObjects.Allowed {
				opened[name] = []string{text}
			}
		}
		return opened, nil
	}
	return nil
}

// withSecret is the metadata of an app with a secret.
var withSecret = map[string]any{"token_endpoint_auth_method": "client_secret_post"}
