package bearer

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/scopeoption"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// smartConfiguration serves the SMART configuration (SMART App Launch 2.2, Conformance) of a FHIR API with another issuer as
// its authorization server. A nil value serves nothing.
type smartConfiguration struct {
	path       string
	discovery  *relyingparty.Discovery
	advertised AdvertisedFeatures
}

// AdvertisedFeatures contains SMART features that an issuer's discovery document omits (SMART App Launch 2.2, Conformance).
type AdvertisedFeatures struct {
	// The capabilities in addition to those implied by the discovery document, such as `launch-ehr` or `context-ehr-patient`.
	// Default: none.
	Capabilities []string `json:"capabilities,omitempty"`

	// The supported scopes. Default: those in the discovery document.
	Scopes []string `json:"scopes,omitempty"`
}

func parseAdvertised(to **AdvertisedFeatures) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		*to = new(AdvertisedFeatures)
		return option.Block{
			"capability": option.Words(&(*to).Capabilities, nil),
			"scope":      scopeoption.Words(&(*to).Scopes, smart.CheckScope),
		}.Parse(d)
	}
}

// newSMARTConfiguration returns the first trusted issuer's SMART configuration, or nil with an app or no trusted issuer.
func newSMARTConfiguration(at apiLocation, trusted []trustedKeys, advertised *AdvertisedFeatures) *smartConfiguration {
	if at.issuer != "" || len(trusted) == 0 {
		return nil
	}
	return &smartConfiguration{at.path + "/.well-known/smart-configuration", trusted[0].discovery, *cmp.Or(advertised, new(AdvertisedFeatures))}
}

func (s *smartConfiguration) matches(r *http.Request) bool { return s != nil && r.URL.Path == s.path }

func (s *smartConfiguration) serve(w http.ResponseWriter, r *http.Request) error {
	return serveDocument(w, r, func(ctx context.Context) ([]byte, error) {
		body, err := s.discovery.Text(ctx)
		if err != nil {
			return nil, err
		}
		return convertDiscovery(body, s.advertised)
	})
}

// serveDocument serves a public document that may be derived from a trusted issuer's discovery document.
func serveDocument(w http.ResponseWriter, r *http.Request, document func(context.Context) ([]byte, error)) error {
	w, isPreflight := crossorigin.Public.HandlePreflight(w, r)
	switch {
	case isPreflight:
		return nil
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		return caddyhttp.Error(http.StatusMethodNotAllowed, fmt.Errorf("method %s not allowed for a metadata document", r.Method))
	}
	body, err := document(r.Context())
	if err != nil {
		return caddyhttp.Error(http.StatusServiceUnavailable, fmt.Errorf("fetching the discovery document of the trusted issuer: %w", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=600")
	_, err = w.Write(body)
	return err
}

// convertDiscovery converts an issuer's discovery document to a SMART configuration.
func convertDiscovery(discovery []byte, advertised AdvertisedFeatures) ([]byte, error) {
	var c smart.Configuration
	if err := json.Unmarshal(discovery, &c); err != nil {
		return nil, err
	}
	c.Capabilities = append(c.Capabilities, advertised.Capabilities...)
	if len(advertised.Scopes) > 0 {
		c.Scopes = advertised.Scopes
	}
	// The SMART configuration lists only grant types of the token endpoint, and not the challenge method plain.
	c.GrantTypes = removeWord(c.GrantTypes, "implicit")
	c.ChallengeMethods = removeWord(c.ChallengeMethods, "plain")
	if len(c.GrantTypes) == 0 {
		c.GrantTypes = []string{"authorization_code"} // default of OpenID Connect Discovery §3
	}
	if len(c.ClientAuthentication) == 0 {
		c.ClientAuthentication = []string{"client_secret_basic"} // default of OpenID Connect Discovery §3
	}
	c.Capabilities = impliedCapabilities(&c)
	return json.Marshal(c)
}

// removeWord returns the list without the given word. The result is never nil.
func removeWord(list []string, word string) []string {
	return slices.DeleteFunc(append([]string{}, list...), func(w string) bool { return w == word })
}

// scopeLevels returns the levels (patient, user, system) and the SMART versions of the resource scopes in a list.
func scopeLevels(scopes []string) (levels, versions []string) {
	for _, scope := range scopes {
		resource, ok := smart.ParseResourceScope(scope)
		switch {
		case !ok:
			continue
		case resource.IsV1:
			versions = append(versions, "v1")
		default:
			versions = append(versions, "v2")
		}
		levels = append(levels, resource.Level)
	}
	return levels, versions
}

// impliedCapabilities returns the capabilities that a discovery document contains or implies.
func impliedCapabilities(c *smart.Configuration) []string {
	implied := append([]string{}, c.Capabilities...)
	levels, versions := scopeLevels(c.Scopes)
	for _, of := range []struct {
		capability string
		list       []string
		word       string
	}{
		{"launch-standalone", c.Scopes, "launch/patient"},
		{"context-standalone-patient", c.Scopes, "launch/patient"},
		{"context-standalone-encounter", c.Scopes, "launch/encounter"},
		{"launch-ehr", c.Scopes, "launch"},
		{"sso-openid-connect", c.Scopes, "openid"},
		{"permission-offline", c.Scopes, "offline_access"},
		{"permission-online", c.Scopes, "online_access"},
		{"permission-patient", levels, "patient"},
		{"permission-user", levels, "user"},
		{"permission-v1", versions, "v1"},
		{"permission-v2", versions, "v2"},
		{"client-public", c.ClientAuthentication, "none"},
		{"client-confidential-symmetric", c.ClientAuthentication, "client_secret_basic"},
		{"client-confidential-symmetric", c.ClientAuthentication, "client_secret_post"},
		{"client-confidential-asymmetric", c.ClientAuthentication, "private_key_jwt"},
	} {
		if slices.Contains(of.list, of.word) && !slices.Contains(implied, of.capability) {
			implied = append(implied, of.capability)
		}
	}
	return implied
}

// protectedResource serves the metadata of a FHIR API that accepts tokens of other issuers (RFC 9728). It serves them below the
// base and, if the site routes it to fhir_bearer, at the well-known path. A nil value serves nothing.
type protectedResource struct {
	base    string // path of the API
	url     string // URL of the API; "" until it is known
	issuers []string
}

// newProtectedResource returns the metadata, or nil if there is an app, which serves them itself, or no known issuer.
func newProtectedResource(at apiLocation, trusted []TrustedIssuer, introspection *Introspection) *protectedResource {
	p := &protectedResource{base: at.path}
	for _, t := range trusted {
		p.issuers = append(p.issuers, t.Issuer)
	}
	if introspection != nil && introspection.Issuer != "" {
		p.issuers = append(p.issuers, introspection.Issuer)
	}
	if at.issuer != "" || len(p.issuers) == 0 {
		return nil
	}
	return p
}

func (p *protectedResource) matches(r *http.Request) bool {
	return p != nil && p.url != "" && (r.URL.Path == p.base+oauth2.ProtectedResourcePath || r.URL.Path == oauth2.ProtectedResourcePath+p.base)
}

func (p *protectedResource) serve(w http.ResponseWriter, r *http.Request) error {
	return serveDocument(w, r, func(context.Context) ([]byte, error) {
		return json.Marshal(map[string]any{"resource": p.url, "authorization_servers": p.issuers, "bearer_methods_supported": []string{"header"}})
	})
}

// setURL sets the URL of the API, which challenges need in order to link to the metadata.
func (g *gate) setURL(url string) {
	if g.resource != nil && url != "" {
		g.resource.url, g.location.resource = url, url+oauth2.ProtectedResourcePath
	}
}

// newMetadata returns the changes to be made to the FHIR server's CapabilityStatement, or nil if scopes are off.
func newMetadata(e *scopeEnforcer, at apiLocation, app App, hasCORS bool) *capability.Metadata {
	if e == nil {
		return nil
	}
	x := e.enforcer
	changes := capability.Changes{BaseURL: x.BaseURL, CORS: hasCORS, Operations: x.Operations}
	if app != nil {
		changes.OAuth = app.OAuthURIs()
	}
	return &capability.Metadata{Base: at.path, Changes: changes, Limit: x.Limits.ResponseBytes, Memory: x.Memory, Network: requester.NetworkOf, LocalOperations: localOperations}
}

// localOperations returns the operations that fhir_expand handles for this request.
func localOperations(r *http.Request) []capability.LocalOperation {
	all, ok := caddyhttp.GetVar(r.Context(), fhirbase.LocalOperationsVar).(bool)
	if !ok {
		return nil
	}
	return capability.TerminologyOperations(all)
}
