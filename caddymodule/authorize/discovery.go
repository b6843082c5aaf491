package authorize

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/flow"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/brands"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// metadata is the discovery document of OpenID Connect Discovery §3 and RFC 8414 §2.
type metadata struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	UserinfoEndpoint      string   `json:"userinfo_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"`
	IntrospectionEndpoint string   `json:"introspection_endpoint"`
	EndSessionEndpoint    string   `json:"end_session_endpoint"`
	PushedEndpoint        string   `json:"pushed_authorization_request_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint,omitempty"`
	JWKSURI               string   `json:"jwks_uri"`
	Scopes                []string `json:"scopes_supported"`
	ResponseTypes         []string `json:"response_types_supported"`
	ResponseModes         []string `json:"response_modes_supported"`
	GrantTypes            []string `json:"grant_types_supported"`
	SubjectTypes          []string `json:"subject_types_supported"`
	IDTokenAlgorithms     []string `json:"id_token_signing_alg_values_supported"`
	UserinfoAlgorithms    []string `json:"userinfo_signing_alg_values_supported,omitempty"` // beside plain JSON
	ClientAuthentication  []string `json:"token_endpoint_auth_methods_supported"`
	ClientAlgorithms      []string `json:"token_endpoint_auth_signing_alg_values_supported"`
	RevocationAuth        []string `json:"revocation_endpoint_auth_methods_supported"`
	RevocationAlgorithms  []string `json:"revocation_endpoint_auth_signing_alg_values_supported"`
	IntrospectionAuth     []string `json:"introspection_endpoint_auth_methods_supported"`
	IntrospectAlgorithms  []string `json:"introspection_endpoint_auth_signing_alg_values_supported"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`
	ACRValues             []string `json:"acr_values_supported"`
	Claims                []string `json:"claims_supported"`
	UILocales             []string `json:"ui_locales_supported"`
	ClaimsParameter       bool     `json:"claims_parameter_supported"`
	RequestParameter      bool     `json:"request_parameter_supported"`
	RequestURIParameter   bool     `json:"request_uri_parameter_supported"` // the default is true
	RequestURIsRegistered bool     `json:"require_request_uri_registration,omitempty"`
	RequestAlgorithms     []string `json:"request_object_signing_alg_values_supported,omitempty"`
	RequestObjectRequired bool     `json:"require_signed_request_object,omitempty"`
	IssuerInAnswers       bool     `json:"authorization_response_iss_parameter_supported"`
	BackchannelLogout     bool     `json:"backchannel_logout_supported"`
	BackchannelSession    bool     `json:"backchannel_logout_session_supported"`
}

// discovery serves the documents that describe this server.
type discovery struct {
	*endpoint.Responder
	omitIssuer bool
	offer      *offer
	keys       keyring.Keys
	fhirBase   string
	brands     *brands.Bundle // nil: none are published
}

func (d *discovery) metadata() metadata {
	algorithms := algorithmNames(client.AssertionAlgorithms)
	m := metadata{
		Issuer:                d.Issuer,
		AuthorizationEndpoint: d.Issuer + endpoint.Authorize,
		TokenEndpoint:         d.Issuer + endpoint.Token,
		UserinfoEndpoint:      d.Issuer + endpoint.Userinfo,
		RevocationEndpoint:    d.Issuer + endpoint.Revoke,
		IntrospectionEndpoint: d.Issuer + endpoint.Introspect,
		EndSessionEndpoint:    d.Issuer + endpoint.Logout,
		PushedEndpoint:        d.Issuer + endpoint.PushedAuthorization,
		JWKSURI:               d.Issuer + endpoint.JWKS,
		Scopes:                d.offer.supportedScopes(),
		ResponseTypes:         []string{"code"},
		ResponseModes:         []string{flow.ModeQuery, flow.ModeFormPost},
		GrantTypes:            d.offer.clients.Offered().Names(),
		SubjectTypes:          []string{"public"},
		IDTokenAlgorithms:     []string{string(keyring.IDTokenAlgorithm)},
		ClientAuthentication:  []string{"client_secret_basic", "client_secret_post", client.PrivateKeyJWT, "none"},
		ClientAlgorithms:      algorithms,
		RevocationAuth:        []string{"client_secret_basic", "client_secret_post", client.PrivateKeyJWT, "none"},
		RevocationAlgorithms:  algorithms,
		IntrospectionAuth:     []string{"client_secret_basic", "client_secret_post", client.PrivateKeyJWT},
		IntrospectAlgorithms:  algorithms,
		ChallengeMethods:      []string{"S256"},
		IssuerInAnswers:       !d.omitIssuer,
		BackchannelLogout:     true,
		BackchannelSession:    true,
		Claims:                []string{"iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "sid", "amr", "acr"},
		UILocales:             page.Languages(),
		ClaimsParameter:       true,
		ACRValues:             oauth2.ACRValues,
	}
	if d.offer.clients.Registrar != nil {
		m.RegistrationEndpoint = d.Issuer + endpoint.Register
		m.UserinfoAlgorithms = algorithmNames(keyring.IDTokenAlgorithms)
	}
	if m.RequestParameter = d.offer.clients.Any(func(c *client.Client) bool { return c.RequestObjects.Allowed }); m.RequestParameter {
		m.RequestAlgorithms = client.RequestObjectAlgorithms()
	}
	m.RequestObjectRequired = d.offer.clients.Any(func(c *client.Client) bool { return c.RequestObjects.Required }) &&
		!d.offer.clients.Any(func(c *client.Client) bool { return len(c.ResponseTypes) > 0 && !c.RequestObjects.Required })
	m.RequestURIParameter = d.offer.clients.Registrar != nil && d.offer.clients.Registrar.RequestObjects
	m.RequestURIsRegistered = m.RequestURIParameter
	m.Claims = append(m.Claims, people.ClaimsOfAllScopes()...)
	d.addClients(&m)
	return m
}

// addClients adds what only some clients may use.
func (d *discovery) addClients(m *metadata) {
	addIf := func(list *[]string, name string, allows func(*client.Client) bool) {
		if d.offer.clients.Any(allows) {
			*list = append(*list, name)
		}
	}
	for _, t := range client.ResponseTypes[1:] {
		addIf(&m.ResponseTypes, t, func(c *client.Client) bool { return c.AllowsResponseType(t) })
	}
	if len(m.ResponseTypes) > 1 {
		m.ResponseModes = append(m.ResponseModes, flow.ModeFragment)
	}
	addIf(&m.IDTokenAlgorithms, string(jose.ES256), func(c *client.Client) bool { return c.SigningAlgorithm() == jose.ES256 })
}

func algorithmNames(algorithms []jose.SignatureAlgorithm) []string {
	names := make([]string, len(algorithms))
	for i, alg := range algorithms {
		names[i] = string(alg)
	}
	return names
}

func (d *discovery) smartConfiguration() smart.Configuration {
	m := d.metadata()
	c := smart.Configuration{
		Issuer: m.Issuer, JWKSURI: m.JWKSURI,
		AuthorizationEndpoint: m.AuthorizationEndpoint, TokenEndpoint: m.TokenEndpoint,
		RevocationEndpoint: m.RevocationEndpoint, IntrospectionEndpoint: m.IntrospectionEndpoint,
		RegistrationEndpoint: m.RegistrationEndpoint,
		ClientAuthentication: m.ClientAuthentication, ClientAlgorithms: m.ClientAlgorithms,
		GrantTypes: d.offer.clients.Offered().AtTokenEndpoint(), Scopes: m.Scopes,
		ResponseTypes: m.ResponseTypes, ChallengeMethods: m.ChallengeMethods,
		Capabilities: d.offer.capabilityNames(),
	}
	if d.offer.serves(endpoint.Account) {
		c.ManagementEndpoint = m.Issuer + endpoint.Account
	}
	if d.brands != nil {
		c.UserAccessBrandBundle, c.UserAccessBrandIdentifier = d.fhirBase+brands.Path, d.brands.Primary()
	}
	return c
}

// protectedResource describes the FHIR API (RFC 9728 §2).
func (d *discovery) protectedResource() any {
	return struct {
		Resource      string   `json:"resource"`
		Servers       []string `json:"authorization_servers"`
		Scopes        []string `json:"scopes_supported"`
		BearerMethods []string `json:"bearer_methods_supported"`
	}{d.fhirBase, []string{d.Issuer}, d.offer.supportedScopes(), []string{"header"}}
}

// document serves a JSON document that never changes. It is made on first request: that reads all clients, and a server
// of other clients may take this one's place before.
func (d *discovery) document(content func() any) http.HandlerFunc {
	document := sync.OnceValues(func() ([]byte, error) { return json.Marshal(content()) })
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := document()
		if err != nil {
			d.WriteError(w, r, fmt.Errorf("writing a discovery document: %w", err))
			return
		}
		d.publish(w, r, body)
	}
}

func (d *discovery) jwks(w http.ResponseWriter, r *http.Request) {
	body, err := d.keys.JWKS(r.Context())
	if err != nil {
		d.WriteError(w, r, err)
		return
	}
	d.publish(w, r, body)
}

// publish sends a public document. Caches keep it for less time than a new key is published
// before it signs.
func (d *discovery) publish(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=600")
	if _, err := w.Write(body); err != nil {
		d.Logger.DebugContext(r.Context(), "answer not written", "error", err)
	}
}
