package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/namecheck"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Settings is the configuration of a [Client]. It has no methods, because Caddy modules embed it. It is a separate struct type,
// because Caddy's module registry finds only fields of struct types.
type Settings struct {
	// The `client_id`. Required.
	ID string `json:"id,omitempty"`

	// The app's name on pages. Default: the `client_id`.
	Name string `json:"name,omitempty"`

	// The client secret. A client that has neither a secret nor keys is public (RFC 6749 §2.1). Caddy placeholders are
	// supported. Default: none.
	Secret string `json:"secret,omitempty"`

	// The client's public keys as a JWK Set, for `private_key_jwt` (RFC 7523; SMART App Launch 2.2,
	// `client-confidential-asymmetric`). Private and symmetric keys are rejected. Cannot be combined with a secret. Default:
	// none.
	JWKS json.RawMessage `json:"jwks,omitempty"`

	// The URL of the client's JWK Set: https, or http on loopback. The set is fetched when needed and cached according to
	// `Cache-Control`. Cannot be combined with a secret or `jwks`. Default: none.
	JWKSURI string `json:"jwks_uri,omitempty"`

	// The redirect URIs: https, or http://localhost. The redirect URI of a request must match one of them exactly. Default:
	// none, so the client cannot use the authorization endpoint.
	RedirectURIs []string `json:"redirect_uris,omitempty"`

	// Marks a native app (RFC 8252). Its redirect URIs may also be `http://127.0.0.1` and `http://[::1]` at
	// any port, or have a private-use scheme such as `com.example.app:/callback`. Default: false.
	Native bool `json:"native,omitempty"`

	// The scopes that the client may be granted, in addition to openid, email, phone and profile. `offline_access` permits
	// refresh tokens; `online_access` permits refresh tokens that expire with the session. Default: none.
	Scopes []string `json:"scopes,omitempty"`

	// Compatibility options. `ignore_unknown_scopes` ignores requested scopes that are neither listed nor defined by SMART or
	// OpenID Connect, instead of rejecting the request with `invalid_scope`. `error_description` adds a description to every
	// error at the redirect URI, not only to errors of identity providers. `json_state` accepts JSON as `state`. `omit_iss`
	// omits `iss` (RFC 9207) from authorization responses. `issuer_audience` accepts assertions (RFC 7523) only if their `aud`
	// is the issuer, and not the token endpoint, which SMART App Launch specifies. `id_token_claims` adds the claims of the
	// granted scopes (OpenID Connect Core §5.4) to ID tokens of the code flow, not only to userinfo. Default: none.
	Compat []string `json:"compat,omitempty"`

	// The permitted response types: `code`, `token`, `id_token`, `id_token token`. Default: `code` if `redirect_uris` is set.
	ResponseTypes []string `json:"response_types,omitempty"`

	// Additional grant types besides the authorization code: `client_credentials`, which requires a secret or keys. Default:
	// none.
	GrantTypes []string `json:"grant_types,omitempty"`

	// The permitted sign-in methods: names of identity providers, and `local` for local users with a password. Default: all.
	IdentityProviders []string `json:"idps,omitempty"`

	// The permitted redirect targets after logout (OpenID Connect RP-Initiated Logout 1.0 §3.1). They are matched exactly, like
	// redirect URIs. Default: none.
	PostLogoutRedirectURIs []string `json:"post_logout_redirect_uris,omitempty"`

	// The URL that receives a logout token when a session ends for which the client got an ID token (OpenID Connect
	// Back-Channel Logout 1.0): https, or http://localhost. Default: none, so no logout tokens are sent.
	BackchannelLogoutURI string `json:"backchannel_logout_uri,omitempty"`

	// Lets the client introspect the tokens of all clients, as resource servers need to (RFC 7662). Default: false, so it can
	// introspect only its own tokens.
	IntrospectAll bool `json:"introspect_all,omitempty"`

	// The app's launch URL for EHRs (SMART App Launch 2.2, EHR launch): https, or http://localhost. Default: none.
	LaunchURI string `json:"launch_uri,omitempty"`

	// Marks an EHR that may register launch contexts for apps at `/oauth2/launch`: a patient, an encounter and more. The app
	// gets access to the patient that the EHR specifies. Requires a secret or keys. Default: false.
	LaunchContext bool `json:"launch_context,omitempty"`

	// Rejects authorization requests that were not pushed to `/oauth2/par` (RFC 9126). Default: false.
	RequirePushed bool `json:"require_pushed,omitempty"`

	// When to ask for consent: `required` asks each person once per set of scopes; `skip` never asks. Default: only if the
	// request contains `prompt=consent`.
	Consent string `json:"consent,omitempty"`

	// The required authentication class: `sfa` for one factor, `mfa` for two, `phr` for a passkey. People who signed in with a
	// lower class are asked for a second factor. Those who have none are rejected. Default: `sfa`.
	ACR string `json:"acr,omitempty"`

	// The signature algorithm of the client's ID tokens: `RS256`, or `ES256`, which is faster. Default: `RS256`.
	IDTokenAlgorithm string `json:"id_token_alg,omitempty"`

	// Whether authorization requests for a code must contain a `code_challenge` (RFC 7636): `required` or `optional`. Default:
	// `required` for public clients (RFC 9700 §2.1.1), `optional` for others.
	PKCE string `json:"pkce,omitempty"`

	RequestObjects RequestObjects    `json:"-"` // permitted request objects
	Transport      http.RoundTripper `json:"-"` // HTTP transport for URLs of the client; default: a clone of http.DefaultTransport
	SecretSHA256   []byte            `json:"-"` // SHA-256 of a randomly generated secret; replaces Secret

	// AllowsLocalRedirects makes the client stand for any app on the user's computer, for testing: every redirect URI that
	// satisfies [IsLocal] is accepted. Default: false.
	AllowsLocalRedirects bool `json:"-"`

	// Settings of self-registered clients (OpenID Connect Dynamic Client Registration §2, Back-Channel Logout §2.2).

	AssertionAlgorithm         string `json:"-"` // token_endpoint_auth_signing_alg; default: any algorithm listed in the discovery document
	UserinfoAlgorithm          string `json:"-"` // userinfo_signed_response_alg, one of [keyring.IDTokenAlgorithms]; default: plain JSON
	BackchannelSessionRequired bool   `json:"-"` // backchannel_logout_session_required; has no effect, because logout tokens always contain sid
	Links                      Links  `json:"-"` // URLs shown on pages
	SelfRegistered             bool   `json:"-"` // whether the client registered itself; only the digest of its secret is stored

	PendingApproval bool                 `json:"-"` // whether the client is pending approval by the operator
	Keys            *relyingparty.KeySet `json:"-"` // keys in JWKS or JWKSURI; default: set by [Client.Complete]

	secretDigest       []byte                            // nil if the client has no secret
	hasGuessableSecret bool                              // whether Secret is guessable
	allowedScopes      *boundedcache.Cache[string, bool] // cached results of AllowsScope by scope; nil: not cached

	// Generation distinguishes the client from deleted clients with the same ID. Default: the zero value, if none was deleted.
	Generation oauth2.Generation `json:"-"`
}

// Client is an app that may request tokens (RFC 6749 §2).
type Client Settings

// Links are URLs that an app registers for its users (RFC 7591 §2). Each may be "".
type Links struct {
	Logo   string `json:",omitempty"` // logo_uri: an image
	Policy string `json:",omitempty"` // policy_uri: the privacy policy
	Terms  string `json:",omitempty"` // tos_uri: the terms of service
}

// RequestObjects describes the request objects that a client may send (OpenID Connect Core §6). The zero value permits none.
type RequestObjects struct {
	Allowed   bool     `json:"-"`          // whether the operator permits request objects
	Algorithm string   `json:",omitempty"` // request_object_signing_alg; default: any, including "none"
	URIs      []string `json:",omitempty"` // request_uris: permitted URLs of request objects
	KeysOnly  bool     `json:",omitempty"` // whether the client's keys only verify request objects and do not authenticate the client

	// Required makes a signed request object mandatory. It must contain exp, nbf and aud, and expire at most 60 minutes after
	// nbf. Parameters outside the object are ignored (RFC 9101 §5, §10.5; FAPI 1.0 Advanced §5.2.2). Requires keys.
	Required bool `json:",omitempty"`
}

// AlgorithmNone is the alg of an unsigned request object.
const AlgorithmNone = "none"

// RequestObjectAlgorithms returns the supported algorithms of request objects.
func RequestObjectAlgorithms() []string {
	return append([]string{AlgorithmNone}, AlgorithmNames(AssertionAlgorithms)...)
}

// AlgorithmNames returns the names of algorithms for JSON documents.
func AlgorithmNames(algorithms []jose.SignatureAlgorithm) []string {
	names := make([]string, len(algorithms))
	for i, alg := range algorithms {
		names[i] = string(alg)
	}
	return names
}

// FetchLogo fetches the image at logo_uri. The maximum size is maxBytes.
func (c *Client) FetchLogo(ctx context.Context, maxBytes int) ([]byte, error) {
	return relyingparty.Fetch(ctx, c.Transport, c.Links.Logo, maxBytes)
}

// Values of [Settings].Consent.
const (
	ConsentRequired = "required" // ask each person once per set of scopes
	ConsentSkip     = "skip"     // never ask, not even for prompt=consent
)

// Values of [Settings].PKCE.
const (
	PKCERequired = "required" // reject requests for a code that have no code_challenge (RFC 7636)
	PKCEOptional = "optional" // let the client decide
)

// Options of [Settings].Compat, described there.
const (
	CompatIgnoreUnknownScopes = "ignore_unknown_scopes"
	CompatErrorDescription    = "error_description"
	CompatJSONState           = "json_state"
	CompatOmitIssuer          = "omit_iss"
	CompatIssuerAudience      = "issuer_audience"
	CompatIDTokenClaims       = "id_token_claims"
)

// CompatOptions lists all options of [Settings].Compat.
var CompatOptions = []string{CompatIgnoreUnknownScopes, CompatErrorDescription, CompatJSONState, CompatOmitIssuer, CompatIssuerAudience, CompatIDTokenClaims}

// HasCompat reports whether Compat contains an option.
func (c *Client) HasCompat(option string) bool { return slices.Contains(c.Compat, option) }

// IsPublic reports whether the client cannot authenticate (RFC 6749 §2.1).
func (c *Client) IsPublic() bool {
	return c.Secret == "" && c.SecretSHA256 == nil && (c.RequestObjects.KeysOnly || len(c.JWKS) == 0 && c.JWKSURI == "")
}

// DisplayName returns the client's name for pages: Name, or by default the ID.
func (c *Client) DisplayName() string { return cmp.Or(c.Name, c.ID) }

// LaunchURL returns the URL that launches the app at a FHIR server with a launch handle; "" if the app has no launch URL.
func (c *Client) LaunchURL(fhirBase, handle string) string {
	u, err := url.Parse(c.LaunchURI)
	if c.LaunchURI == "" || err != nil {
		return ""
	}
	q := u.Query()
	q.Set("iss", fhirBase)
	q.Set("launch", handle)
	u.RawQuery = q.Encode()
	return u.String()
}

// RequiresConsent reports whether the client requires consent before any grant.
func (c *Client) RequiresConsent() bool { return c.Consent == ConsentRequired }

// IsInterceptable reports whether another app on the same device could receive a response sent to a redirect URI (RFC 8252
// §8.6).
func IsInterceptable(redirectURI string) bool {
	u, err := url.Parse(redirectURI)
	return err != nil || IsPrivateUse(redirectURI) || IsLoopback(u.Hostname())
}

// RequiresConfirmation reports whether the user must confirm requests for a code, because another app could intercept it.
func (c *Client) RequiresConfirmation() bool {
	return c.IsPublic() && slices.ContainsFunc(c.RedirectURIs, IsInterceptable)
}

// RequiresPKCE reports whether a request for a code must contain a code_challenge.
func (c *Client) RequiresPKCE() bool {
	return c.PKCE == PKCERequired || c.PKCE == "" && c.IsPublic()
}

// AllowsResponseType reports whether the client may use a response_type.
func (c *Client) AllowsResponseType(responseType string) bool {
	return slices.Contains(c.ResponseTypes, responseType)
}

// SigningAlgorithm returns the algorithm of the client's ID tokens.
func (c *Client) SigningAlgorithm() jose.SignatureAlgorithm {
	return cmp.Or(jose.SignatureAlgorithm(c.IDTokenAlgorithm), keyring.IDTokenAlgorithm)
}

// hasSecret compares digests, so that timing reveals neither the length of the secret nor the position of the first difference.
func (c *Client) hasSecret(secret string) bool {
	return c.secretDigest != nil && MatchesDigest(c.secretDigest, secret)
}

// ResponseTypes lists the response types of RFC 6749 §3.1.1 and OpenID Connect Core §3.2.2.1.
var ResponseTypes = []string{"code", "token", "id_token", "id_token token"}

// AllowsRedirectURI reports whether a redirect URI is registered. It must be identical, except for
// the port of a native app on loopback (RFC 8252 §7.3).
func (c *Client) AllowsRedirectURI(uri string) bool {
	if slices.Contains(c.RedirectURIs, uri) || c.AllowsLocalRedirects && IsLocal(uri) {
		return true
	}
	requested, ok := trimLoopbackPort(uri)
	return ok && c.Native && slices.ContainsFunc(c.RedirectURIs, func(registered string) bool {
		allowed, ok := trimLoopbackPort(registered)
		return ok && allowed == requested
	})
}

// Complete sets defaults. It returns an error for a client that is invalid or insecure, or lists a grant type not in grants.
func (c *Client) Complete(grants GrantTypes) error {
	if err := namecheck.Check(c.ID); err != nil {
		return fmt.Errorf("client %q: client_id %w", c.ID, err)
	}
	if len(c.ResponseTypes) == 0 && len(c.RedirectURIs) > 0 {
		c.ResponseTypes = []string{"code"}
	}
	if c.Secret != "" {
		c.secretDigest, c.hasGuessableSecret = DigestSecret(c.Secret), IsGuessable(c.Secret)
	} else if c.SecretSHA256 != nil {
		c.secretDigest = c.SecretSHA256
	}
	for _, check := range []func() error{c.checkKeys, c.checkRequestObjects, c.checkRedirectURIs, c.checkFlows, func() error { return grants.checkClient(c) }} {
		if err := check(); err != nil {
			return fmt.Errorf("client %q: %w", c.ID, err)
		}
	}
	return nil
}

func (c *Client) checkRequestObjects() error {
	switch {
	case !c.RequestObjects.Required:
		return nil
	case c.Keys == nil:
		return errors.New("required request objects must be signed: configure jwks or jwks_uri")
	case c.RequestObjects.Algorithm == AlgorithmNone:
		return errors.New("required request objects must be signed: request_object_signing_alg must not be none")
	}
	return nil
}

func (c *Client) checkRedirectURIs() error {
	check := CheckRedirectURI
	if c.Native {
		check = CheckNativeRedirectURI
	}
	for _, uri := range c.RedirectURIs {
		if err := check(uri); err != nil {
			return fmt.Errorf("redirect_uri %w", err)
		}
	}
	for _, uri := range c.PostLogoutRedirectURIs {
		if err := check(uri); err != nil {
			return fmt.Errorf("post_logout_redirect_uri %w", err)
		}
	}
	if c.LaunchURI != "" {
		if err := check(c.LaunchURI); err != nil {
			return fmt.Errorf("launch_uri %w", err)
		}
	}
	if c.BackchannelLogoutURI != "" {
		return CheckBackchannelLogoutURI(c.BackchannelLogoutURI)
	}
	return nil
}

func (c *Client) checkFlows() error {
	for _, scope := range c.Scopes {
		if err := smart.CheckScope(scope); err != nil {
			return err
		}
	}
	for _, option := range c.Compat {
		if !slices.Contains(CompatOptions, option) {
			return fmt.Errorf("compat %q is not one of %q", option, CompatOptions)
		}
	}
	for _, t := range c.ResponseTypes {
		if !slices.Contains(ResponseTypes, t) {
			return fmt.Errorf("response_type %q is not one of %q", t, ResponseTypes)
		}
	}
	if alg := jose.SignatureAlgorithm(c.UserinfoAlgorithm); alg != "" && !slices.Contains(keyring.IDTokenAlgorithms, alg) {
		return fmt.Errorf("userinfo_signed_response_alg %q is not supported: use RS256 or ES256", alg)
	}
	if alg := c.SigningAlgorithm(); !slices.Contains(keyring.IDTokenAlgorithms, alg) {
		return fmt.Errorf("id_token_alg %q is not supported: use RS256 or ES256", alg)
	}
	if !slices.Contains([]string{"", PKCERequired, PKCEOptional}, c.PKCE) {
		return fmt.Errorf("pkce %q is not supported: use %s or %s", c.PKCE, PKCERequired, PKCEOptional)
	}
	if !slices.Contains([]string{"", ConsentRequired, ConsentSkip}, c.Consent) {
		return fmt.Errorf("consent %q is not supported: use %s or %s", c.Consent, ConsentRequired, ConsentSkip)
	}
	if len(c.ResponseTypes) > 0 && len(c.RedirectURIs) == 0 {
		return errors.New("response_type requires at least one redirect_uri")
	}
	switch {
	case c.ACR != "" && !slices.Contains(oauth2.ACRValues, c.ACR):
		return fmt.Errorf("acr %q is not one of %q", c.ACR, oauth2.ACRValues)
	case !c.IsPublic():
	case c.IntrospectAll:
		return errors.New("introspect requires a secret, jwks or jwks_uri")
	case c.LaunchContext:
		return errors.New("launch_context requires a secret, jwks or jwks_uri")
	}
	return nil
}

// Scopes that request a refresh token (SMART App Launch 2.2).
const (
	OfflineAccess = "offline_access" // refresh token remains valid after the session ends
	OnlineAccess  = "online_access"  // refresh token expires with the session
)

const maxCachedScopes = 1000 // per client

// AllowsScope reports whether all parts of a scope can currently be granted to the client. The result is cached, because
// computing it takes longer than the rest of a request.
func (c *Client) AllowsScope(scope string) bool {
	if c.allowedScopes == nil {
		return c.computeAllowsScope(scope)
	}
	allowed, ok := c.allowedScopes.Get(scope)
	if !ok {
		allowed = c.computeAllowsScope(scope)
		c.allowedScopes.Put(scope, allowed, 0)
	}
	return allowed
}

func (c *Client) computeAllowsScope(scope string) bool {
	granted, err := c.GrantScope(scope)
	return err == nil && slices.Equal(granted, strings.Fields(scope))
}

// GrantScope returns the part of a requested scope that the client may be granted (RFC 6749 §3.3). If there is none, the error
// is invalid_scope.
func (c *Client) GrantScope(requested string) ([]string, error) {
	lenient := c.HasCompat(CompatIgnoreUnknownScopes)
	scopes, err := smart.ParseScopes(requested)
	if err == nil {
		scopes, err = filterKnownTypes(scopes, lenient)
	}
	if err == nil {
		scopes, err = smart.GrantPartially(scopes, slices.Concat(smart.ReservedScopes, c.Scopes), lenient)
	}
	if err != nil {
		return nil, oauth2.InvalidScope(err)
	}
	return scopes, nil
}

// filterKnownTypes omits scopes for types that FHIR R4 does not define, or returns an error unless omitUnknown is set.
func filterKnownTypes(scopes []string, omitUnknown bool) (kept []string, err error) {
	for _, scope := range scopes {
		parsed, ok := smart.ParseResourceScope(scope)
		switch {
		case !ok || parsed.Type == smart.AnyType || interaction.IsType(parsed.Type):
			kept = append(kept, scope)
		case !omitUnknown:
			return nil, &smart.UnlistedError{Scope: scope}
		}
	}
	return kept, nil
}

// IsSystemScope reports whether a scope is for backend services.
func IsSystemScope(scope string) bool { return strings.HasPrefix(scope, "system/") }

// CanRefresh reports whether the client can get refresh tokens.
func (c *Client) CanRefresh() bool {
	return c.AllowsResponseType("code") && (slices.Contains(c.Scopes, OfflineAccess) || slices.Contains(c.Scopes, OnlineAccess))
}

// WithoutRefreshScopes returns scope without the scopes that request a refresh token, for flows that issue none (OpenID Connect
// Core §11).
func WithoutRefreshScopes(scope []string) []string {
	return slices.DeleteFunc(slices.Clone(scope), func(item string) bool {
		return item == OfflineAccess || item == OnlineAccess
	})
}

// GrantSystemScope returns the system scopes granted to a client. If none are requested, all of the client's system scopes are granted.
func (c *Client) GrantSystemScope(requested string) ([]string, error) {
	isNotSystem := func(scope string) bool { return !IsSystemScope(scope) }
	scope := slices.DeleteFunc(slices.Clone(c.Scopes), isNotSystem)
	var err error
	if requested != "" {
		scope, err = c.GrantScope(requested)
		scope = slices.DeleteFunc(scope, func(scope string) bool { return isNotSystem(scope) && smart.IsDefined(scope) })
	}
	if err == nil && (len(scope) == 0 || slices.ContainsFunc(scope, isNotSystem)) {
		err = oauth2.InvalidScope(errors.New("client_credentials permits only system scopes"))
	}
	return scope, err
}

// GrantTypeAuthorizationCode is the grant type for authorization codes, which every self-registered app uses.
const GrantTypeAuthorizationCode = "authorization_code"

// GrantType contains the rules of a grant type (RFC 6749 §1.3). The zero value is not permitted for any client.
type GrantType struct {
	Name string // value of grant_type

	// Allows reports whether a client may use the grant type at the token endpoint. nil means that no client may.
	Allows func(*Client) bool

	// IsUsable reports whether the discovery document and the client's registration list the grant type. Default: Allows.
	IsUsable func(*Client) bool

	// CheckClient returns an error for a configured client that lists the grant type in [Settings].GrantTypes without meeting
	// its requirements. nil means that configured clients cannot list the grant type.
	CheckClient func(*Client) error

	AlwaysListed bool // whether the discovery document lists the grant type even if no client can use it
	Registrable  bool // whether self-registered apps may list the grant type
}

func (g GrantType) isUsableBy(c *Client) bool {
	isUsable := g.IsUsable
	if isUsable == nil {
		isUsable = g.Allows
	}
	return isUsable != nil && isUsable(c)
}

// GrantTypes lists all grant types. Package token defines them.
type GrantTypes []GrantType

// Names returns the names of all grant types in gs.
func (gs GrantTypes) Names() []string { return gs.matchingNames(func(GrantType) bool { return true }) }

// matchingNames returns the names of the grant types for which match returns true.
func (gs GrantTypes) matchingNames(match func(GrantType) bool) (names []string) {
	for _, g := range gs {
		if match(g) {
			names = append(names, g.Name)
		}
	}
	return names
}

// TokenEndpointNames returns the names of the grant types supported at the token endpoint.
func (gs GrantTypes) TokenEndpointNames() []string {
	return gs.matchingNames(func(g GrantType) bool { return g.Allows != nil })
}

// ConfigurableNames returns the names of the grant types that an operator may list for a client.
func (gs GrantTypes) ConfigurableNames() []string {
	return gs.matchingNames(func(g GrantType) bool { return g.CheckClient != nil })
}

// RegistrableNames returns the names of the grant types that a self-registered app may list.
func (gs GrantTypes) RegistrableNames() []string {
	return gs.matchingNames(func(g GrantType) bool { return g.Registrable })
}

// NamesForClient returns the names of the grant types for the registration of a client.
func (gs GrantTypes) NamesForClient(c *Client) []string {
	return gs.matchingNames(func(g GrantType) bool { return g.Registrable && g.isUsableBy(c) })
}

// checkClient returns an error if a client lists unknown grant types, or grant types with requirements that it does not meet.
func (gs GrantTypes) checkClient(c *Client) error {
	for _, name := range c.GrantTypes {
		i := slices.IndexFunc(gs, func(g GrantType) bool { return g.Name == name && g.CheckClient != nil })
		if i < 0 {
			return fmt.Errorf("grant_type %q is not supported: use %s", name, strings.Join(gs.ConfigurableNames(), " or "))
		}
		if err := gs[i].CheckClient(c); err != nil {
			return fmt.Errorf("grant_type %s %w", name, err)
		}
	}
	return nil
}
