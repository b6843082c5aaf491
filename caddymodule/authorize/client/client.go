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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Settings are the configuration of a [Client]. It has no methods, as Caddy modules embed it, and is declared as a struct,
// because Caddy's module registry finds the fields only there.
type Settings struct {
	// The `client_id`. Required.
	ID string `json:"id,omitempty"`

	// The name of the app that people see. Default: the id.
	Name string `json:"name,omitempty"`

	// The client's secret. A client with neither a secret nor keys is public (RFC 6749 §2.1). Caddy's
	// placeholders are supported. Default: none.
	Secret string `json:"secret,omitempty"`

	// The client's public keys as a JWK Set, for `private_key_jwt` (RFC 7523; SMART App Launch 2.2,
	// `client-confidential-asymmetric`). Private and symmetric keys are refused, and so is a secret beside it.
	// Default: none.
	JWKS json.RawMessage `json:"jwks,omitempty"`

	// The URL of such a JWK Set: https, or http on loopback. It is fetched when needed and cached as its
	// `Cache-Control` says. Not together with a secret or `jwks`. Default: none.
	JWKSURI string `json:"jwks_uri,omitempty"`

	// The redirect URIs: https, or http://localhost. A request must name one of them exactly. Default: none, so that
	// the client cannot use the authorization endpoint.
	RedirectURIs []string `json:"redirect_uris,omitempty"`

	// The client is a native app (RFC 8252): its redirect URIs may also be `http://127.0.0.1` and `http://[::1]`, at
	// any port, and have a private-use scheme, such as `com.example.app:/callback`. Default: false.
	Native bool `json:"native,omitempty"`

	// The scopes the client may be granted besides openid, email, phone and profile. `offline_access` gives it refresh
	// tokens, `online_access` ones that end with the session. Default: none.
	Scopes []string `json:"scopes,omitempty"`

	// What the client needs in order to work with this server. `ignore_unknown_scopes` leaves words out of a requested
	// scope that are neither listed nor defined by SMART or OpenID Connect, instead of refusing the request with
	// `invalid_scope`. `error_description` sends one to the redirect URI with every error, and not only with those of
	// identity providers. `json_state` accepts a `state` that is JSON. `omit_iss` leaves `iss` (RFC 9207) out of
	// authorization responses. `issuer_audience` accepts assertions (RFC 7523) only if their `aud` is the issuer, and
	// not the token endpoint, which SMART App Launch names. `id_token_claims` puts the claims of the granted scopes
	// (OpenID Connect Core §5.4) into ID tokens of the code flow too, and not only into userinfo. Default: none.
	Compat []string `json:"compat,omitempty"`

	// The response types that the client may use: `code`, `token`, `id_token`, `id_token token`. Default: `code` if
	// there are redirect URIs.
	ResponseTypes []string `json:"response_types,omitempty"`

	// Grant types other than the authorization code: `client_credentials`, which needs a secret or keys. Default:
	// none.
	GrantTypes []string `json:"grant_types,omitempty"`

	// How people may sign in to the client: names of identity providers, and `local` for users with a password here.
	// Default: all.
	IdentityProviders []string `json:"idps,omitempty"`

	// Where a browser may be sent after signing out (OpenID Connect RP-Initiated Logout 1.0 §3.1), matched exactly as
	// redirect URIs are. Default: none.
	PostLogoutRedirectURIs []string `json:"post_logout_redirect_uris,omitempty"`

	// Where a logout token is sent when a session ends in which the client got an ID token (OpenID Connect
	// Back-Channel Logout 1.0): https, or http://localhost. Default: none is sent.
	BackchannelLogoutURI string `json:"backchannel_logout_uri,omitempty"`

	// Let the client introspect the tokens of all clients, as a resource server must (RFC 7662). Default: only its
	// own.
	IntrospectAll bool `json:"introspect_all,omitempty"`

	// Where an EHR opens the app (SMART App Launch 2.2, EHR launch): https, or http://localhost. Default: none.
	LaunchURI string `json:"launch_uri,omitempty"`

	// The client is an EHR that may register at `/oauth2/launch` what it launches apps with: a patient, an encounter and
	// more. The app gets the patient that it names. Needs a secret or keys. Default: false.
	LaunchContext bool `json:"launch_context,omitempty"`

	// Refuse authorization requests that were not pushed to `/oauth2/par` (RFC 9126). Default: false.
	RequirePushed bool `json:"require_pushed,omitempty"`

	// Whether people are asked for consent: `required` asks each person once for each set of scopes, `skip` never.
	// Default: only if the request says `prompt=consent`.
	Consent string `json:"consent,omitempty"`

	// How people must have signed in: `sfa` with one factor, `mfa` with two, `phr` with a passkey. People who
	// signed in with less are asked for a second factor; those who have none are refused. Default: `sfa`.
	ACR string `json:"acr,omitempty"`

	// How the client's ID tokens are signed: `RS256`, or `ES256`, which is faster. Default: `RS256`.
	IDTokenAlgorithm string `json:"id_token_alg,omitempty"`

	// Whether authorization requests for a code need a `code_challenge` (RFC 7636): `required` or `optional`. Default:
	// `required` for public clients (RFC 9700 §2.1.1), `optional` for others.
	PKCE string `json:"pkce,omitempty"`

	RequestObjects RequestObjects    `json:"-"` // that it may send
	Transport      http.RoundTripper `json:"-"` // makes the requests to what it names. Default: a clone of http.DefaultTransport.
	SecretSHA256   []byte            `json:"-"` // the digest of a random secret, in place of Secret

	// Local stands for every app on the person's own computer, for trying out: it may have any
	// redirect URI that [IsLocal]. Default: false.
	Local bool `json:"-"`

	// What only clients say that register themselves (OpenID Connect Dynamic Client Registration §2, Back-Channel Logout §2.2).

	AssertionAlgorithm string `json:"-"` // token_endpoint_auth_signing_alg. Default: any that discovery lists.
	UserinfoAlgorithm  string `json:"-"` // userinfo_signed_response_alg, one of [keyring.IDTokenAlgorithms]. Default: userinfo is plain JSON.
	BackchannelSession bool   `json:"-"` // backchannel_logout_session_required. Each logout token has the sid anyway.
	Links              Links  `json:"-"` // that people are shown
	Registered         bool   `json:"-"` // it did register itself: only the digest of its secret is known

	Waits bool                 `json:"-"` // for the operator's approval
	Keys  *relyingparty.KeySet `json:"-"` // of JWKS or JWKSURI. Default: made by [Client.Complete].

	secretDigest []byte                            // nil without a secret
	guessable    bool                              // Secret is
	granted      *boundedcache.Cache[string, bool] // by scope; nil: not cached

	// Generation tells the client from earlier ones with its ID. Default: there are none.
	Generation oauth2.Generation `json:"-"`
}

// Client is an app that may ask for tokens (RFC 6749 §2).
type Client Settings

// Links are addresses that an app registers for people (RFC 7591 §2). Each may be "".
type Links struct {
	Logo   string `json:",omitempty"` // logo_uri: an image
	Policy string `json:",omitempty"` // policy_uri: what the app does with people's data
	Terms  string `json:",omitempty"` // tos_uri: what people must agree to
}

// RequestObjects says which request objects a client may send (OpenID Connect Core §6). A zero
// value: none.
type RequestObjects struct {
	Allowed   bool     `json:"-"`          // by the operator
	Algorithm string   `json:",omitempty"` // request_object_signing_alg. Default: any, and none.
	URIs      []string `json:",omitempty"` // request_uris: where the client may have one fetched
	KeysOnly  bool     `json:",omitempty"` // the client's keys sign request objects, and do not authenticate it

	// Required refuses requests that are not in a signed request object with exp, nbf and aud, which expires at most
	// 60 minutes after nbf, and ignores parameters beside the object (RFC 9101 §5, §10.5;
	// FAPI 1.0 Advanced §5.2.2). Needs keys.
	Required bool `json:",omitempty"`
}

// Unsigned is the alg of a request object without a signature.
const Unsigned = "none"

// RequestObjectAlgorithms returns the algorithms of request objects.
func RequestObjectAlgorithms() []string {
	return append([]string{Unsigned}, AlgorithmNames(AssertionAlgorithms)...)
}

// AlgorithmNames returns the names of algorithms as JSON documents list them.
func AlgorithmNames(algorithms []jose.SignatureAlgorithm) []string {
	names := make([]string, len(algorithms))
	for i, alg := range algorithms {
		names[i] = string(alg)
	}
	return names
}

// FetchLogo returns what is at the logo_uri, up to a number of bytes.
func (c *Client) FetchLogo(ctx context.Context, most int) ([]byte, error) {
	return relyingparty.Fetch(ctx, c.Transport, c.Links.Logo, most)
}

// Values of [Client].Consent.
const (
	ConsentRequired = "required" // asks each person once for each set of scopes
	ConsentSkip     = "skip"     // never asks, not even if the request does
)

// Values of [Client].PKCE.
const (
	PKCERequired = "required" // refuses requests for a code without a code_challenge (RFC 7636)
	PKCEOptional = "optional" // leaves it to the client
)

// Words of [Client].Compat, which describes them.
const (
	IgnoreUnknownScopes = "ignore_unknown_scopes"
	ErrorDescription    = "error_description"
	JSONState           = "json_state"
	OmitIssuer          = "omit_iss"
	IssuerAudience      = "issuer_audience"
	IDTokenClaims       = "id_token_claims"
)

// CompatWords are all words of [Client].Compat.
var CompatWords = []string{IgnoreUnknownScopes, ErrorDescription, JSONState, OmitIssuer, IssuerAudience, IDTokenClaims}

// HasCompat reports whether a word is in Compat.
func (c *Client) HasCompat(word string) bool { return slices.Contains(c.Compat, word) }

// Public reports whether the client cannot authenticate (RFC 6749 §2.1).
func (c *Client) Public() bool {
	return c.Secret == "" && c.SecretSHA256 == nil && (c.RequestObjects.KeysOnly || len(c.JWKS) == 0 && c.JWKSURI == "")
}

// Title returns the name to show to people.
func (c *Client) Title() string { return cmp.Or(c.Name, c.ID) }

// LaunchURL returns the app's launch URL for a launch of a FHIR API, or "" if it has none.
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

// RequiresConsent reports whether people must consent before the client gets anything.
func (c *Client) RequiresConsent() bool { return c.Consent == ConsentRequired }

// IsInterceptable reports whether another app on a device could receive what is sent to a
// redirect URI (RFC 8252 §8.6).
func IsInterceptable(redirectURI string) bool {
	u, err := url.Parse(redirectURI)
	return err != nil || IsPrivateUse(redirectURI) || IsLoopback(u.Hostname())
}

// AsksToContinue reports whether people are asked to continue each time that the client wants
// a code, because another app could have it.
func (c *Client) AsksToContinue() bool {
	return c.Public() && slices.ContainsFunc(c.RedirectURIs, IsInterceptable)
}

// RequiresPKCE reports whether a request for a code needs a code_challenge.
func (c *Client) RequiresPKCE() bool {
	return c.PKCE == PKCERequired || c.PKCE == "" && c.Public()
}

// AllowsResponseType reports whether the client may use a response_type.
func (c *Client) AllowsResponseType(responseType string) bool {
	return slices.Contains(c.ResponseTypes, responseType)
}

// SigningAlgorithm returns the algorithm of the client's ID tokens.
func (c *Client) SigningAlgorithm() jose.SignatureAlgorithm {
	return cmp.Or(jose.SignatureAlgorithm(c.IDTokenAlgorithm), keyring.IDTokenAlgorithm)
}

// hasSecret compares digests, so that timing reveals neither the length of the secret nor
// the first difference.
func (c *Client) hasSecret(secret string) bool {
	return c.secretDigest != nil && SameDigest(c.secretDigest, secret)
}

// ResponseTypes are those of RFC 6749 §3.1.1 and OpenID Connect Core §3.2.2.1.
var ResponseTypes = []string{"code", "token", "id_token", "id_token token"}

// AllowsRedirectURI reports whether a redirect URI is registered. It must be equal, except
// for the port of a native app on loopback (RFC 8252 §7.3).
func (c *Client) AllowsRedirectURI(uri string) bool {
	if slices.Contains(c.RedirectURIs, uri) || c.Local && IsLocal(uri) {
		return true
	}
	asked, ok := withoutPort(uri)
	return ok && c.Native && slices.ContainsFunc(c.RedirectURIs, func(registered string) bool {
		listening, ok := withoutPort(registered)
		return ok && listening == asked
	})
}

// Complete sets defaults, and refuses a client that would not work or not be safe, or that lists
// another grant type than these.
func (c *Client) Complete(grants GrantTypes) error {
	if err := subject.Check(c.ID); err != nil {
		return fmt.Errorf("client %q: the id, which can be the sub of tokens, %w", c.ID, err)
	}
	if len(c.ResponseTypes) == 0 && len(c.RedirectURIs) > 0 {
		c.ResponseTypes = []string{"code"}
	}
	if c.Secret != "" {
		c.secretDigest, c.guessable = Digest(c.Secret), IsGuessable(c.Secret)
	} else if c.SecretSHA256 != nil {
		c.secretDigest = c.SecretSHA256
	}
	for _, check := range []func() error{c.checkKeys, c.checkRequestObjects, c.checkRedirectURIs, c.checkFlows, func() error { return grants.check(c) }} {
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
		return errors.New("required request objects must be signed, which needs jwks or jwks_uri")
	case c.RequestObjects.Algorithm == Unsigned:
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
	for _, word := range c.Compat {
		if !slices.Contains(CompatWords, word) {
			return fmt.Errorf("compat %q is not one of %q", word, CompatWords)
		}
	}
	for _, t := range c.ResponseTypes {
		if !slices.Contains(ResponseTypes, t) {
			return fmt.Errorf("response_type %q is not one of %q", t, ResponseTypes)
		}
	}
	if alg := jose.SignatureAlgorithm(c.UserinfoAlgorithm); alg != "" && !slices.Contains(keyring.IDTokenAlgorithms, alg) {
		return fmt.Errorf("userinfo_signed_response_alg %q is not known: use RS256 or ES256", alg)
	}
	if alg := c.SigningAlgorithm(); !slices.Contains(keyring.IDTokenAlgorithms, alg) {
		return fmt.Errorf("id_token_alg %q is not known: use RS256 or ES256", alg)
	}
	if !slices.Contains([]string{"", PKCERequired, PKCEOptional}, c.PKCE) {
		return fmt.Errorf("pkce %q is not known: use %s or %s", c.PKCE, PKCERequired, PKCEOptional)
	}
	if !slices.Contains([]string{"", ConsentRequired, ConsentSkip}, c.Consent) {
		return fmt.Errorf("consent %q is not known: use %s or %s", c.Consent, ConsentRequired, ConsentSkip)
	}
	if len(c.ResponseTypes) > 0 && len(c.RedirectURIs) == 0 {
		return errors.New("a response_type needs a redirect_uri")
	}
	switch {
	case c.ACR != "" && !slices.Contains(oauth2.ACRValues, c.ACR):
		return fmt.Errorf("acr %q is not one of %q", c.ACR, oauth2.ACRValues)
	case !c.Public():
	case c.IntrospectAll:
		return errors.New("introspect needs a secret, jwks or jwks_uri")
	case c.LaunchContext:
		return errors.New("launch_context needs a secret, jwks or jwks_uri")
	}
	return nil
}

// The scopes that ask for a refresh token (SMART App Launch 2.2).
const (
	OfflineAccess = "offline_access" // outlives the session
	OnlineAccess  = "online_access"  // ends with it
)

const maxGrantedScopes = 1000 // cached for each client

// AllowsScope reports whether the client could be granted all of a scope today. It caches the
// result, which takes longer to compute than the rest of a request.
func (c *Client) AllowsScope(scope string) bool {
	if c.granted == nil {
		return c.allowsScope(scope)
	}
	allowed, ok := c.granted.Get(scope)
	if !ok {
		allowed = c.allowsScope(scope)
		c.granted.Put(scope, allowed, 0)
	}
	return allowed
}

func (c *Client) allowsScope(scope string) bool {
	granted, err := c.GrantScope(scope)
	return err == nil && slices.Equal(granted, strings.Fields(scope))
}

// GrantScope returns what the client is granted of a requested scope, which may be less (RFC 6749
// §3.3). Its error is invalid_scope.
func (c *Client) GrantScope(asked string) ([]string, error) {
	lenient := c.HasCompat(IgnoreUnknownScopes)
	scopes, err := smart.ParseScopes(asked)
	if err == nil {
		scopes, err = knownTypes(scopes, lenient)
	}
	if err == nil {
		scopes, err = smart.GrantInPart(scopes, slices.Concat(smart.ReservedScopes, c.Scopes), lenient)
	}
	if err != nil {
		return nil, oauth2.InvalidScope(err)
	}
	return scopes, nil
}

// knownTypes refuses scopes for types that FHIR R4 does not have, or leaves them out.
func knownTypes(scopes []string, leaveOut bool) (known []string, err error) {
	for _, scope := range scopes {
		asked, ok := smart.ParseResourceScope(scope)
		switch {
		case !ok || asked.Type == smart.AnyType || interaction.IsType(asked.Type):
			known = append(known, scope)
		case !leaveOut:
			return nil, &smart.UnlistedError{Scope: scope}
		}
	}
	return known, nil
}

// IsSystemScope reports whether a scope is for clients that act for themselves.
func IsSystemScope(scope string) bool { return strings.HasPrefix(scope, "system/") }

// CanRefresh reports whether the client can get refresh tokens.
func (c *Client) CanRefresh() bool {
	return c.AllowsResponseType("code") && (slices.Contains(c.Scopes, OfflineAccess) || slices.Contains(c.Scopes, OnlineAccess))
}

// WithoutRefresh removes the scopes that ask for a refresh token, for flows without one
// (OpenID Connect Core §11).
func WithoutRefresh(scope []string) []string {
	return slices.DeleteFunc(slices.Clone(scope), func(word string) bool {
		return word == OfflineAccess || word == OnlineAccess
	})
}

// GrantSystemScope grants the requested scope. Default: all system scopes of the client.
func (c *Client) GrantSystemScope(asked string) ([]string, error) {
	notSystem := func(scope string) bool { return !IsSystemScope(scope) }
	scope := slices.DeleteFunc(slices.Clone(c.Scopes), notSystem)
	var err error
	if asked != "" {
		scope, err = c.GrantScope(asked)
		scope = slices.DeleteFunc(scope, func(word string) bool { return notSystem(word) && smart.IsDefined(word) })
	}
	if err == nil && (len(scope) == 0 || slices.ContainsFunc(scope, notSystem)) {
		err = oauth2.InvalidScope(errors.New("client_credentials gives system scopes alone"))
	}
	return scope, err
}

// AuthorizationCode is the grant_type of codes, which every app that registers itself uses.
const AuthorizationCode = "authorization_code"

// GrantType says which clients may use a grant_type (RFC 6749 §1.3). Its zero value is for none.
type GrantType struct {
	Name string // the grant_type

	// Allows reports whether a client may use it at the token endpoint. nil: none may.
	Allows func(*Client) bool

	// Offered reports whether a client has any use for it, so that discovery and the client's
	// registration list it. Default: Allows.
	Offered func(*Client) bool

	// Check refuses a configured client that lists it in [Client].GrantTypes and lacks what it
	// needs. nil: no configured client may list it.
	Check func(*Client) error

	Always      bool // discovery lists it whatever clients there are
	Registrable bool // apps that register themselves may list it
}

func (g GrantType) offeredTo(c *Client) bool {
	offered := g.Offered
	if offered == nil {
		offered = g.Allows
	}
	return offered != nil && offered(c)
}

// GrantTypes are all that there are. They are made in package token.
type GrantTypes []GrantType

// Names are those of all.
func (gs GrantTypes) Names() []string { return gs.names(func(GrantType) bool { return true }) }

// names are those of some.
func (gs GrantTypes) names(wanted func(GrantType) bool) (names []string) {
	for _, g := range gs {
		if wanted(g) {
			names = append(names, g.Name)
		}
	}
	return names
}

// AtTokenEndpoint are the names of those that the token endpoint gives tokens for.
func (gs GrantTypes) AtTokenEndpoint() []string {
	return gs.names(func(g GrantType) bool { return g.Allows != nil })
}

// Configurable are the names of those that an operator may list for a client.
func (gs GrantTypes) Configurable() []string {
	return gs.names(func(g GrantType) bool { return g.Check != nil })
}

// Registrable are the names of those that an app may list when it registers itself.
func (gs GrantTypes) Registrable() []string {
	return gs.names(func(g GrantType) bool { return g.Registrable })
}

// RegisteredFor are the names of those that the registration of an app lists.
func (gs GrantTypes) RegisteredFor(c *Client) []string {
	return gs.names(func(g GrantType) bool { return g.Registrable && g.offeredTo(c) })
}

// check refuses a client that lists what it may not, or could not use.
func (gs GrantTypes) check(c *Client) error {
	for _, name := range c.GrantTypes {
		i := slices.IndexFunc(gs, func(g GrantType) bool { return g.Name == name && g.Check != nil })
		if i < 0 {
			return fmt.Errorf("grant_type %q is not known: use %s", name, strings.Join(gs.Configurable(), " or "))
		}
		if err := gs[i].Check(c); err != nil {
			return fmt.Errorf("grant_type %s %w", name, err)
		}
	}
	return nil
}
