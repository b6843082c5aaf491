package relyingparty

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"golang.org/x/oauth2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/signaturealg"
)

// Config configures the gateway as a client of an identity provider.
type Config struct {
	Issuer       string        // issuer URL with https, or http on loopback; see [CheckIssuer]. Required.
	ClientID     string        // client_id assigned by the provider. Required.
	ClientSecret string        // secret assigned by the provider. Empty for a public client.
	AssertionKey *AssertionKey // key for signing JWTs that replace the client secret. Default: none.
	Scopes       []string      // scopes to request; openid is always added. Default: openid, profile, email.

	// RedirectURI is the URI to which the provider redirects the browser. Each provider has a different URI, so that a response
	// of one provider cannot be mistaken for that of another (RFC 9700 §4.4). Required.
	RedirectURI string

	// IDTokenAlgorithms are the signature algorithms of ID tokens (the client's id_token_signed_response_alg), logout tokens
	// and security events. Default: those in both [AlgorithmNames] and the provider's id_token_signing_alg_values_supported.
	IDTokenAlgorithms []string

	// MultiTenant means that Issuer is the issuer common or organizations, which the tenants of Entra ID share. ID tokens
	// contain the issuer of the person's tenant. [Identity.Subject] starts with the tenant. Default: false.
	MultiTenant bool

	// SkipUserinfo disables requests to the userinfo endpoint. Default: false.
	SkipUserinfo bool

	// GraphURL is the base URL of Microsoft Graph. The groups are fetched there if Entra ID omits them from the ID token
	// because there are too many. Default: they are not fetched.
	GraphURL string

	// ResponseMode is the response_mode of authentication requests, such as form_post. Default: none.
	ResponseMode string

	// SelectAccount reports that the provider supports prompt=select_account, even if discovery does not list it. Default:
	// false.
	SelectAccount bool

	// Timeout is the timeout of each request, from connecting to the last byte of the response. Default: [DefaultTimeout].
	Timeout time.Duration

	// Transport sends the requests. Default: a clone of http.DefaultTransport.
	Transport http.RoundTripper

	// RequestOfflineAccess requests a refresh token that outlives the person's session at the provider (OpenID Connect Core
	// §11), if the provider supports it. IsGoogle uses Google's parameter for this. If there is no refresh token, the access
	// token is introspected.
	RequestOfflineAccess, IsGoogle bool

	// Logger receives warnings about failures that callers do not see because a previous document or previous keys remain in
	// use. Default: none.
	Logger *slog.Logger
}

// newKeyInterval is the minimum time between two requests for a provider's keys. It is short, so that sign-in works with a new
// key. This is safe because ID tokens are received directly from the provider, so nobody else can send unknown kids. For
// events, see [Provider.VerifySecurityEvent].
const newKeyInterval = time.Second

// Provider is an identity provider with the gateway as its client. It is safe for concurrent use. It does not store the state
// of individual sign-ins.
type Provider struct {
	config   Config
	client   client
	metadata *document[*metadata]
	keys     *KeySet
}

// New returns the Provider for a configuration without performing I/O. The discovery document is fetched on first use and then
// hourly. If that fails, the previous document remains in use; if there is none, it is fetched again after 1 s, 2 s, 4 s, … 1
// min.
func New(c Config) (*Provider, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, err
	}
	if c.ClientID == "" {
		return nil, errors.New("client_id is missing")
	}
	if c.MultiTenant {
		if err := CheckSharedIssuer(c.Issuer); err != nil {
			return nil, err
		}
	}
	if _, err := parseAbsolute(c.RedirectURI); err != nil {
		return nil, fmt.Errorf("redirect URI: %w", err)
	}
	for _, name := range c.IDTokenAlgorithms {
		if !slices.Contains(AlgorithmNames(), name) {
			return nil, fmt.Errorf("unsupported id_token_alg %q: use one of %q", name, AlgorithmNames())
		}
	}
	c.Scopes = slices.Clone(c.Scopes)
	if len(c.Scopes) == 0 {
		c.Scopes = []string{"openid", "profile", "email"}
	}
	if !slices.Contains(c.Scopes, "openid") {
		c.Scopes = append([]string{"openid"}, c.Scopes...)
	}
	p, onFailure := &Provider{config: c, client: newClient(c.Transport, c.Timeout)}, newFailureLogger(c.Logger, c.Issuer)
	p.metadata = newMetadata(c.Issuer, c.documentIssuer(), p.client, onFailure)
	p.keys = newKeySet(p.client, newKeyInterval, onFailure, p.signInMetadata)
	p.keys.checksIssuer = c.MultiTenant
	return p, nil
}

// signInMetadata returns the discovery document, or an error if the provider does not support sign-in.
func (p *Provider) signInMetadata(ctx context.Context) (*metadata, error) {
	m, err := p.metadata.get(ctx)
	if err != nil {
		return nil, err
	}
	if len(p.config.IDTokenAlgorithms) > 0 {
		restricted := *m
		restricted.Algorithms = p.config.IDTokenAlgorithms
		m = &restricted
	}
	return m, m.checkSignIn()
}

// Check returns an error if the provider's discovery document cannot be fetched, does not support sign-in or the gateway's client
// authentication, or does not support refresh tokens although revalidation needs them.
func (p *Provider) Check(ctx context.Context) error {
	m, err := p.signInMetadata(ctx)
	if err == nil {
		_, err = p.oauthConfig(m)
	}
	if err != nil || !p.config.RequestOfflineAccess || len(m.GrantTypes) == 0 || slices.Contains(m.GrantTypes, "refresh_token") {
		return err
	}
	return errors.New("grant_types_supported does not contain refresh_token, so sign-ins cannot be revalidated and apps get no offline_access: enable refresh tokens at the provider, or set revalidate off")
}

// oauthConfig returns a new configuration for each use, because an oauth2.Config contains a cache.
func (p *Provider) oauthConfig(m *metadata) (*oauth2.Config, error) {
	secret, err := p.config.clientSecret()
	if err != nil {
		return nil, fmt.Errorf("signing the client's JWT: %w", err)
	}
	style, err := authStyle(m.AuthenticationMethods, secret)
	return &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: secret,
		RedirectURL: p.config.RedirectURI, Scopes: p.config.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: m.AuthorizationEndpoint, TokenURL: m.TokenEndpoint, AuthStyle: style},
	}, err
}

// offlineAccess is the scope for [Config.RequestOfflineAccess].
const offlineAccess = "offline_access"

// scopes returns the scopes to request. After a sign-in with offline_access, Keycloak ends the person's session unless the
// session existed before. Therefore, this scope is requested from Keycloak only if longLived is true.
func (c *Config) scopes(m *metadata, longLived bool) []string {
	if !c.RequestOfflineAccess || !slices.Contains(m.Scopes, offlineAccess) || slices.Contains(c.Scopes, offlineAccess) || m.isKeycloak() && !longLived {
		return c.Scopes
	}
	return append(slices.Clip(c.Scopes), offlineAccess)
}

func (m *metadata) isKeycloak() bool {
	return strings.HasSuffix(m.AuthorizationEndpoint, "/protocol/openid-connect/auth")
}

// mayRequestOfflineAccess reports whether a refresh token expires with the session but a longer-lived one could be requested.
func (c *Config) mayRequestOfflineAccess(m *metadata, longLived bool) bool {
	return len(c.scopes(m, longLived)) < len(c.scopes(m, true))
}

// outlivesSession reports whether the requested refresh token outlives the person's session (OpenID Connect Core §11).
func (c *Config) outlivesSession(m *metadata, longLived bool) bool {
	return c.RequestOfflineAccess && c.IsGoogle || slices.Contains(c.scopes(m, longLived), offlineAccess)
}

// authStyle returns the client authentication method according to token_endpoint_auth_methods_supported. By default, x/oauth2
// would try both methods, but sending a code twice revokes the tokens issued for it (RFC 6749 §4.1.2).
func authStyle(methods []string, secret string) (oauth2.AuthStyle, error) {
	switch {
	case secret == "":
		return oauth2.AuthStyleInParams, nil // sends only client_id
	case len(methods) == 0 || slices.Contains(methods, "client_secret_basic"):
		return oauth2.AuthStyleInHeader, nil
	case slices.Contains(methods, "client_secret_post"):
		return oauth2.AuthStyleInParams, nil
	}
	return 0, fmt.Errorf("%w: token_endpoint_auth_methods_supported contains neither client_secret_basic nor client_secret_post, but %.200q: allow a client secret for the gateway's client at the provider", ErrMetadata, methods)
}

// metadataLifetime is how long a discovery document is fresh.
const metadataLifetime = time.Hour

// AlgorithmNames returns the names of the accepted signature algorithms.
func AlgorithmNames() []string {
	names := make([]string, len(signaturealg.Asymmetric))
	for i, algorithm := range signaturealg.Asymmetric {
		names[i] = string(algorithm)
	}
	return names
}

// metadata contains part of the discovery document (OpenID Connect Discovery §3, RFC 8414 §2, RFC 9207 §3, RP-Initiated Logout
// §2.1).
type metadata struct {
	Issuer                string `json:"issuer"`
	AuthorizationEndpoint string `json:"authorization_endpoint"`
	TokenEndpoint         string `json:"token_endpoint"`
	UserInfoEndpoint      string `json:"userinfo_endpoint"`
	EndSessionEndpoint    string `json:"end_session_endpoint"`
	RevocationEndpoint    string `json:"revocation_endpoint"`
	IntrospectionEndpoint string `json:"introspection_endpoint"`
	JWKSURI               string `json:"jwks_uri"`

	// After parsing, Algorithms and UserinfoAlgorithms contain only algorithms in [signaturealg.Asymmetric].
	Algorithms            []string `json:"id_token_signing_alg_values_supported"`
	UserinfoAlgorithms    []string `json:"userinfo_signing_alg_values_supported"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`
	Scopes                []string `json:"scopes_supported"`
	GrantTypes            []string `json:"grant_types_supported"`
	AuthenticationMethods []string `json:"token_endpoint_auth_methods_supported"`
	ClaimsParameter       bool     `json:"claims_parameter_supported"`
	PromptValues          []string `json:"prompt_values_supported"`
	SendsIssuer           bool     `json:"authorization_response_iss_parameter_supported"`
}

// supportsPKCE reports whether the provider supports the method S256 (RFC 7636 §4.2).
func (m *metadata) supportsPKCE() bool { return slices.Contains(m.ChallengeMethods, "S256") }

// newMetadata returns the discovery document of an issuer, which must contain documentIssuer.
func newMetadata(issuer, documentIssuer string, c client, onFailure func(error)) *document[*metadata] {
	return &document[*metadata]{
		interval: minRequestInterval, onFailure: onFailure,
		fetch: func(ctx context.Context) (*metadata, time.Duration, error) {
			body, err := discoveryText(ctx, c, issuer)
			if err != nil {
				return nil, 0, err
			}
			m, err := parseMetadata(body, documentIssuer)
			return m, metadataLifetime, err
		},
	}
}

func discoveryText(ctx context.Context, c client, issuer string) ([]byte, error) {
	address := strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
	body, _, err := c.get(ctx, discoveryEndpoint, address, nil)
	return body, err
}

// parseMetadata parses a discovery document and checks the members that are always required. The issuer must be exactly the
// requested issuer (OpenID Connect Discovery §4.3).
func parseMetadata(body []byte, issuer string) (*metadata, error) {
	m := new(metadata)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	switch {
	case m.Issuer == issuer:
	case strings.Contains(m.Issuer, tenantPlaceholder):
		return nil, fmt.Errorf("%w: the issuer has several tenants: use the issuer of one tenant, or list the tenants in tenants", ErrMetadata)
	default:
		return nil, fmt.Errorf("%w: issuer is %q, not %q", ErrMetadata, m.Issuer, issuer)
	}
	if m.JWKSURI == "" {
		return nil, fmt.Errorf("%w: jwks_uri is missing", ErrMetadata)
	}
	err := checkEndpoints(issuer,
		namedEndpoint{"authorization_endpoint", m.AuthorizationEndpoint},
		namedEndpoint{"token_endpoint", m.TokenEndpoint},
		namedEndpoint{"userinfo_endpoint", m.UserInfoEndpoint},
		namedEndpoint{"end_session_endpoint", m.EndSessionEndpoint},
		namedEndpoint{"jwks_uri", m.JWKSURI},
	)
	if err != nil {
		return nil, err
	}
	return m, m.setAlgorithms()
}

type namedEndpoint struct{ name, address string }

// checkEndpoints checks the URLs of endpoints. It ignores empty URLs, because the provider does not have these endpoints.
func checkEndpoints(issuer string, endpoints ...namedEndpoint) error {
	for _, e := range endpoints {
		if e.address != "" {
			if err := checkEndpoint(e.name, e.address, issuer); err != nil {
				return err
			}
		}
	}
	return nil
}

// setAlgorithms removes unsupported algorithms and sets defaults: RS256 for ID tokens (OpenID Connect Core §15.1), and the
// algorithms of ID tokens for userinfo.
func (m *metadata) setAlgorithms() error {
	if len(m.Algorithms) == 0 {
		m.Algorithms = []string{string(jose.RS256)}
	}
	isUnsupported := func(name string) bool {
		return !slices.Contains(signaturealg.Asymmetric, jose.SignatureAlgorithm(name))
	}
	m.Algorithms = slices.DeleteFunc(m.Algorithms, isUnsupported)
	if len(m.Algorithms) == 0 {
		return fmt.Errorf("%w: id_token_signing_alg_values_supported contains no supported asymmetric algorithm", ErrMetadata)
	}
	if m.UserinfoAlgorithms = slices.DeleteFunc(m.UserinfoAlgorithms, isUnsupported); len(m.UserinfoAlgorithms) == 0 {
		m.UserinfoAlgorithms = m.Algorithms
	}
	return nil
}

// checkSignIn checks the members that are required only for sign-in.
func (m *metadata) checkSignIn() error {
	if m.AuthorizationEndpoint == "" || m.TokenEndpoint == "" {
		return fmt.Errorf("%w: authorization_endpoint or token_endpoint is missing", ErrMetadata)
	}
	return nil
}

// DiscoveredIssuer returns the issuer in the provider's current discovery document, or "" if there is no document. If it
// differs from the configured issuer, the provider or the configuration is wrong, so responses from the provider must not be
// used for any person.
func (p *Provider) DiscoveredIssuer(ctx context.Context) string {
	body, err := discoveryText(ctx, p.client, p.config.Issuer)
	var m metadata
	if err != nil || json.Unmarshal(body, &m) != nil {
		return ""
	}
	if m.Issuer == p.config.documentIssuer() {
		return p.config.Issuer
	}
	return m.Issuer
}

// CheckIssuer returns an error unless the issuer is an https URL (or http on loopback) that consists of a host and optionally a
// path (OpenID Connect Discovery §3).
func CheckIssuer(issuer string) error {
	u, err := parseAbsolute(issuer)
	if err != nil {
		return fmt.Errorf("issuer: %w", err)
	}
	if base, isDiscovery := strings.CutSuffix(issuer, "/.well-known/openid-configuration"); isDiscovery {
		return fmt.Errorf("issuer %q is the URL of the discovery document: use the value of issuer in it, usually %s", issuer, base)
	}
	if strings.Contains(issuer, "?") {
		return fmt.Errorf("issuer %q must be https://host, with an optional path", issuer)
	}
	if u.Scheme != "https" && !isLoopbackHTTP(u) {
		return fmt.Errorf("issuer %q must use https, or http on loopback", issuer)
	}
	return nil
}

// checkEndpoint returns an error unless an endpoint's URL uses https or, if the issuer does too, http on loopback.
func checkEndpoint(name, endpoint, issuer string) error {
	u, err := parseAbsolute(endpoint)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMetadata, name, err)
	}
	if u.Scheme != "https" && !(strings.HasPrefix(issuer, "http:") && isLoopbackHTTP(u)) {
		return fmt.Errorf("%w: %s %q must use https", ErrMetadata, name, endpoint)
	}
	return nil
}

// parseAbsolute parses an absolute URL. It rejects fragments, and credentials, which could disguise the host.
func parseAbsolute(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "" || u.Hostname() == "" || u.User != nil || strings.Contains(address, "#") {
		return nil, fmt.Errorf("%q must be an absolute URL without user and fragment", address)
	}
	return u, nil
}

func isLoopbackHTTP(u *url.URL) bool {
	return u.Scheme == "http" && httporigin.IsLoopback(u.Hostname())
}
