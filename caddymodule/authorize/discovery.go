package authorize

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/flow"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Metadata is the discovery document (OpenID Connect Discovery §3, RFC 8414 §2).
type Metadata struct {
	Issuer                string   `json:"issuer"`                                                   // iss claim of tokens
	AuthorizationEndpoint string   `json:"authorization_endpoint"`                                   // absolute URL, like all endpoints
	TokenEndpoint         string   `json:"token_endpoint"`                                           // RFC 6749 §3.2
	UserinfoEndpoint      string   `json:"userinfo_endpoint"`                                        // OpenID Connect Core §5.3
	RevocationEndpoint    string   `json:"revocation_endpoint"`                                      // RFC 7009
	IntrospectionEndpoint string   `json:"introspection_endpoint"`                                   // RFC 7662
	EndSessionEndpoint    string   `json:"end_session_endpoint"`                                     // RP-Initiated Logout 1.0
	PushedRequestEndpoint string   `json:"pushed_authorization_request_endpoint"`                    // RFC 9126
	RegistrationEndpoint  string   `json:"registration_endpoint,omitempty"`                          // RFC 7591
	JWKSURI               string   `json:"jwks_uri"`                                                 // public signing keys
	Scopes                []string `json:"scopes_supported"`                                         // scopes that some client may be granted
	ResponseTypes         []string `json:"response_types_supported"`                                 // union over all clients
	ResponseModes         []string `json:"response_modes_supported"`                                 // query, fragment, form_post
	GrantTypes            []string `json:"grant_types_supported"`                                    // union over all clients
	SubjectTypes          []string `json:"subject_types_supported"`                                  // public: one sub for all clients
	IDTokenAlgorithms     []string `json:"id_token_signing_alg_values_supported"`                    // signature algorithms of ID tokens
	UserinfoAlgorithms    []string `json:"userinfo_signing_alg_values_supported,omitempty"`          // algorithms of signed userinfo responses
	ClientAuthentication  []string `json:"token_endpoint_auth_methods_supported"`                    // authentication methods at the token endpoint
	ClientAlgorithms      []string `json:"token_endpoint_auth_signing_alg_values_supported"`         // algorithms of assertions (RFC 7523)
	RevocationAuth        []string `json:"revocation_endpoint_auth_methods_supported"`               // authentication methods at the revocation endpoint
	RevocationAlgorithms  []string `json:"revocation_endpoint_auth_signing_alg_values_supported"`    // algorithms of assertions at the revocation endpoint
	IntrospectionAuth     []string `json:"introspection_endpoint_auth_methods_supported"`            // authentication methods at the introspection endpoint
	IntrospectAlgorithms  []string `json:"introspection_endpoint_auth_signing_alg_values_supported"` // algorithms of assertions at the introspection endpoint
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`                         // RFC 7636
	ACRValues             []string `json:"acr_values_supported"`                                     // authentication classes
	Claims                []string `json:"claims_supported"`                                         // claims about users
	UILocales             []string `json:"ui_locales_supported"`                                     // languages of the pages
	ClaimsParameter       bool     `json:"claims_parameter_supported"`                               // parameter claims (OpenID Connect Core §5.5)
	RequestParameter      bool     `json:"request_parameter_supported"`                              // whether the request parameter is supported
	RequestURIParameter   bool     `json:"request_uri_parameter_supported"`                          // always present, because the default is true
	RequestURIsRegistered bool     `json:"require_request_uri_registration,omitempty"`               // request_uris must be registered
	RequestAlgorithms     []string `json:"request_object_signing_alg_values_supported,omitempty"`    // algorithms of request objects
	RequestObjectRequired bool     `json:"require_signed_request_object,omitempty"`                  // RFC 9101 §10.5
	IssuerInResponses     bool     `json:"authorization_response_iss_parameter_supported"`           // RFC 9207
	BackchannelLogout     bool     `json:"backchannel_logout_supported"`                             // Back-Channel Logout 1.0
	BackchannelSession    bool     `json:"backchannel_logout_session_supported"`                     // logout tokens contain sid
}

// discovery serves the discovery documents.
type discovery struct {
	*endpoint.Responder
	features           *supportedFeatures
	keys               keyring.Keys
	fhirBase           string
	registration       string                       // registration endpoint, or ""
	metadataExtensions []func(*Metadata)            // extensions by features
	smartExtensions    []func(*smart.Configuration) // extensions by features
}

func (d *discovery) metadata() Metadata {
	algorithms := client.AlgorithmNames(client.AssertionAlgorithms)
	m := Metadata{
		Issuer:                d.Issuer,
		AuthorizationEndpoint: d.Issuer + endpoint.Authorize,
		TokenEndpoint:         d.Issuer + endpoint.Token,
		UserinfoEndpoint:      d.Issuer + endpoint.Userinfo,
		RevocationEndpoint:    d.Issuer + endpoint.Revoke,
		IntrospectionEndpoint: d.Issuer + endpoint.Introspect,
		EndSessionEndpoint:    d.Issuer + endpoint.Logout,
		PushedRequestEndpoint: d.Issuer + endpoint.PushedAuthorization,
		JWKSURI:               d.Issuer + endpoint.JWKS,
		RegistrationEndpoint:  d.registration,
		Scopes:                d.features.supportedScopes(),
		ResponseTypes:         []string{"code"},
		ResponseModes:         []string{flow.ModeQuery, flow.ModeFormPost},
		GrantTypes:            d.features.clients.UsableGrantTypes().Names(),
		SubjectTypes:          []string{"public"},
		IDTokenAlgorithms:     []string{string(keyring.IDTokenAlgorithm)},
		ClientAuthentication:  []string{"client_secret_basic", "client_secret_post", client.PrivateKeyJWT, "none"},
		ClientAlgorithms:      algorithms,
		RevocationAuth:        []string{"client_secret_basic", "client_secret_post", client.PrivateKeyJWT, "none"},
		RevocationAlgorithms:  algorithms,
		IntrospectionAuth:     []string{"client_secret_basic", "client_secret_post", client.PrivateKeyJWT},
		IntrospectAlgorithms:  algorithms,
		ChallengeMethods:      []string{"S256"},
		IssuerInResponses:     true,
		BackchannelLogout:     true,
		BackchannelSession:    true,
		Claims:                []string{"iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "sid", "amr", "acr"},
		UILocales:             page.Languages(),
		ClaimsParameter:       true,
		ACRValues:             oauth2.ACRValues,
	}
	m.Claims = append(m.Claims, people.ClaimsOfAllScopes()...)
	d.addClientMetadata(&m)
	for _, add := range d.metadataExtensions {
		add(&m)
	}
	return m
}

// addClientMetadata adds the entries that depend on the registered clients.
func (d *discovery) addClientMetadata(m *Metadata) {
	addIf := func(list *[]string, name string, allows func(*client.Client) bool) {
		if d.features.clients.ContainsFunc(allows) {
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

func (d *discovery) smartConfiguration() smart.Configuration {
	m := d.metadata()
	c := smart.Configuration{
		Issuer: m.Issuer, JWKSURI: m.JWKSURI,
		AuthorizationEndpoint: m.AuthorizationEndpoint, TokenEndpoint: m.TokenEndpoint,
		RevocationEndpoint: m.RevocationEndpoint, IntrospectionEndpoint: m.IntrospectionEndpoint,
		RegistrationEndpoint: m.RegistrationEndpoint,
		ClientAuthentication: m.ClientAuthentication, ClientAlgorithms: m.ClientAlgorithms,
		GrantTypes: d.features.clients.UsableGrantTypes().TokenEndpointNames(), Scopes: m.Scopes,
		ResponseTypes: m.ResponseTypes, ChallengeMethods: m.ChallengeMethods,
		Capabilities: d.features.capabilityNames(), ManagementEndpoint: m.Issuer + endpoint.Account,
	}
	for _, add := range d.smartExtensions {
		add(&c)
	}
	return c
}

// protectedResource returns the metadata of the FHIR API (RFC 9728 §2).
func (d *discovery) protectedResource() any {
	return struct {
		Resource      string   `json:"resource"`
		Servers       []string `json:"authorization_servers"`
		Scopes        []string `json:"scopes_supported"`
		BearerMethods []string `json:"bearer_methods_supported"`
	}{d.fhirBase, []string{d.Issuer}, d.features.supportedScopes(), []string{"header"}}
}

// document returns a handler that serves an immutable JSON document. The document is created on the first request, because this
// requires reading all clients, and the server may be replaced before any request.
func (d *discovery) document(content func() any) http.HandlerFunc {
	document := sync.OnceValues(func() ([]byte, error) { return json.Marshal(content()) })
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := document()
		if err != nil {
			d.WriteError(w, r, fmt.Errorf("encoding the discovery document: %w", err))
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

// publish sends a public document. Its cache lifetime is shorter than the time between publication
// and first use of a new key.
func (d *discovery) publish(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=600")
	if _, err := w.Write(body); err != nil {
		d.Logger.DebugContext(r.Context(), "response not written", "error", err)
	}
}

// supportedFeatures determines which capabilities and scopes are announced.
type supportedFeatures struct {
	clients            *client.Registry
	canQueryFHIRServer bool // whether Config.Records is set; without it, users cannot choose an encounter
	authorizePOST      bool
	supportsEHRLaunch  bool // launches by EHRs or by the launch page are possible
}

// capabilities lists the capabilities of SMART App Launch 2.2, Conformance, with their conditions. Capabilities that depend
// only on how a client is registered are announced even if no such client exists.
var capabilities = []struct {
	name string
	has  func(*supportedFeatures) bool
}{
	{"launch-standalone", always},
	{"launch-ehr", func(o *supportedFeatures) bool { return o.supportsEHRLaunch }},
	{"authorize-post", func(o *supportedFeatures) bool { return o.authorizePOST }},
	{"client-public", always},
	{"client-confidential-symmetric", always},
	{"client-confidential-asymmetric", always},
	{"sso-openid-connect", always},
	{"context-banner", func(o *supportedFeatures) bool { return o.supportsEHRLaunch }},
	{"context-style", func(o *supportedFeatures) bool { return o.supportsEHRLaunch }},
	{"context-ehr-patient", func(o *supportedFeatures) bool { return o.supportsEHRLaunch }},
	{"context-ehr-encounter", func(o *supportedFeatures) bool { return o.supportsEHRLaunch }},
	{"context-standalone-patient", func(o *supportedFeatures) bool { return o.allowsScope("launch/patient") }},
	{"context-standalone-encounter", func(o *supportedFeatures) bool { return o.canQueryFHIRServer && o.allowsScope("launch/encounter") }},
	{"permission-offline", func(o *supportedFeatures) bool { return o.allowsRefresh(client.OfflineAccess) }},
	{"permission-online", func(o *supportedFeatures) bool { return o.allowsRefresh(client.OnlineAccess) }},
	{"permission-patient", func(o *supportedFeatures) bool { return o.allowsLevel("patient") }},
	{"permission-user", func(o *supportedFeatures) bool { return o.allowsLevel("user") }},
	{"permission-v1", func(o *supportedFeatures) bool { return o.clients.ContainsFunc(hasResourceScope) }},
	{"permission-v2", func(o *supportedFeatures) bool { return o.clients.ContainsFunc(hasResourceScope) }},
}

func always(*supportedFeatures) bool { return true }

// capabilityNames returns the capabilities of this server.
func (o *supportedFeatures) capabilityNames() (names []string) {
	for _, c := range capabilities {
		if c.has(o) {
			names = append(names, c.name)
		}
	}
	return names
}

// allowsScope reports whether at least one client may be granted a scope.
func (o *supportedFeatures) allowsScope(scope string) bool {
	return o.clients.ContainsFunc(func(c *client.Client) bool { return slices.Contains(c.Scopes, scope) })
}

func (o *supportedFeatures) allowsRefresh(scope string) bool {
	return o.clients.ContainsFunc(func(c *client.Client) bool { return c.CanRefresh() && slices.Contains(c.Scopes, scope) })
}

func (o *supportedFeatures) allowsLevel(level string) bool {
	return o.clients.ContainsFunc(func(c *client.Client) bool {
		return slices.ContainsFunc(c.Scopes, func(scope string) bool { return levelOf(scope) == level })
	})
}

func hasResourceScope(c *client.Client) bool {
	return slices.ContainsFunc(c.Scopes, func(scope string) bool { return levelOf(scope) != "" })
}

// levelOf returns the level of a resource scope, or "" for other scopes.
func levelOf(scope string) string {
	if !strings.Contains(scope, "/") {
		return ""
	}
	resource, _ := smart.ParseResourceScope(scope)
	return resource.Level
}

// maxScopes is the maximum length of scopes_supported, which may be incomplete (SMART App Launch 2.2, Conformance).
const maxScopes = 200

// supportedScopes returns the scopes that at least one client may be granted: special scopes first, then wildcards, then all
// others.
func (o *supportedFeatures) supportedScopes() []string {
	scopes := append(slices.Clone(smart.ReservedScopes), "fhirUser")
	for _, special := range []struct {
		scope    string
		isListed bool
	}{
		{"launch", o.supportsEHRLaunch && o.allowsScope("launch")},
		{"launch/encounter", o.allowsScope("launch/encounter") && (o.canQueryFHIRServer || o.supportsEHRLaunch)},
		{client.OfflineAccess, o.allowsRefresh(client.OfflineAccess)},
		{client.OnlineAccess, o.allowsRefresh(client.OnlineAccess)},
	} {
		if special.isListed {
			scopes = append(scopes, special.scope)
		}
	}
	wildcards, others := o.clientScopes()
	for _, scope := range slices.Concat(wildcards, others) {
		if len(scopes) < maxScopes && !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// clientScopes returns the scopes of all clients and the wildcards that include them. Wildcards are included because a client
// that requests one is granted its listed scopes.
func (o *supportedFeatures) clientScopes() (wildcards, others []string) {
	wildcardSet, otherSet := map[string]bool{}, map[string]bool{}
	o.clients.ContainsFunc(func(c *client.Client) bool {
		for _, scope := range c.Scopes {
			resource, isResource := smart.ParseResourceScope(scope)
			switch {
			case hasCondition(scope):
				continue
			case isResource:
				resource.Type, resource.Query = smart.AnyType, ""
				wildcardSet[resource.String()] = true
			}
			otherSet[scope] = true
		}
		return false // continue with the next client
	})
	return slices.Sorted(maps.Keys(wildcardSet)), slices.Sorted(maps.Keys(otherSet))
}

// hasCondition reports whether granting a scope requires more than registering it for a client.
func hasCondition(scope string) bool {
	return slices.Contains([]string{"launch", "launch/encounter", client.OfflineAccess, client.OnlineAccess}, scope)
}
