package caddymodule

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// Client is an application that may ask for tokens (RFC 6749 §2).
type Client struct {
	// The `client_id`. Required.
	ID string `json:"id,omitempty"`

	// The name of the app that people see. Default: the id.
	Name string `json:"name,omitempty"`

	// The client's secret. A client with neither a secret nor keys is public (RFC 6749 §2.1). Placeholders are
	// supported. Default: none.
	Secret string `json:"secret,omitempty"`

	// The client's public keys as a JWK Set, for `private_key_jwt` (RFC 7523; SMART App Launch 2.2,
	// `client-confidential-asymmetric`). Private and symmetric keys are refused, and so is a secret beside it.
	// Default: none.
	JWKS json.RawMessage `json:"jwks,omitempty"`

	// The URL of such a JWK Set: https, or http on loopback. It is fetched when needed and cached as its
	// `Cache-Control` says. Not together with a secret or `jwks`. Default: none.
	JWKSURI string `json:"jwks_uri,omitempty"`

	option.TLS

	// The redirect URIs: https, or http://localhost. A request must name one of them exactly. Default: none, so that
	// the client cannot use the authorization endpoint.
	RedirectURIs []string `json:"redirect_uris,omitempty"`

	// The client is a native app (RFC 8252): its redirect URIs may also be `http://127.0.0.1` and `http://[::1]`, at
	// any port, and have a private-use scheme, such as `com.example.app:/callback`. Default: false.
	Native bool `json:"native,omitempty"`

	// The scopes the client may be granted besides openid, email, phone and profile. `offline_access` gives it refresh
	// tokens, `online_access` ones that end with the session. Default: none.
	Scopes []string `json:"scopes,omitempty"`

	// Leave words out of a requested scope that are neither listed nor defined by SMART or OpenID Connect, instead of
	// refusing the request with `invalid_scope`. Default: false.
	IgnoreUnknownScopes bool `json:"ignore_unknown_scopes,omitempty"`

	// Send `error_description` to the redirect URI with every error. Default: only with errors of identity providers.
	ErrorDescription bool `json:"error_description,omitempty"`

	// Accept a `state` that is JSON. Default: `invalid_request`.
	JSONState bool `json:"json_state,omitempty"`

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

	// Put the claims of the granted scopes (OpenID Connect Core §5.4) into ID tokens of the code flow too, for apps
	// that do not use userinfo. Default: only userinfo has them.
	IDTokenClaims bool `json:"id_token_claims,omitempty"`

	// Whether authorization requests for a code need a `code_challenge` (RFC 7636): `required` or `optional`. Default:
	// `required` for public clients (RFC 9700 §2.1.1), `optional` for others.
	PKCE string `json:"pkce,omitempty"`

	// Accept assertions of the client (RFC 7523) only if their `aud` is the issuer. Default: the address of the token
	// endpoint too, which SMART App Launch names.
	IssuerAudience bool `json:"issuer_audience,omitempty"`

	// Let the client put authorization requests into request objects by value (OpenID Connect Core §6): unsigned, or signed
	// by a key in jwks or jwks_uri. Default: they are refused.
	RequestObjects bool `json:"request_objects,omitempty"`

	idps option.Position // in the Caddyfile
}

// resolved is the client for package authorize, with the placeholders of its secret replaced.
func (c *Client) resolved() (none authorize.Client, err error) {
	secret, err := option.ResolveSecret("secret", c.Secret)
	if err != nil {
		return none, err
	}
	resolved := c.withSecret(secret)
	resolved.Transport, err = c.TLS.Transport()
	return resolved, err
}

func (c *Client) withSecret(secret string) authorize.Client {
	return authorize.Client{
		ID: c.ID, Name: c.Name, Secret: secret, RedirectURIs: c.RedirectURIs, Native: c.Native, Scopes: c.Scopes,
		IgnoreUnknownScopes: c.IgnoreUnknownScopes, ErrorDescription: c.ErrorDescription, JSONState: c.JSONState,
		ResponseTypes: c.ResponseTypes, GrantTypes: c.GrantTypes, PKCE: c.PKCE,
		IdentityProviders: c.IdentityProviders, PostLogoutRedirectURIs: c.PostLogoutRedirectURIs,
		IntrospectAll: c.IntrospectAll, BackchannelLogoutURI: c.BackchannelLogoutURI,
		Consent: c.Consent, ACR: c.ACR, RequirePushed: c.RequirePushed, LaunchURI: c.LaunchURI, LaunchContext: c.LaunchContext,
		IssuerAudience: c.IssuerAudience,
		RequestObjects: authorize.RequestObjects{Allowed: c.RequestObjects},
		JWKS:           c.JWKS, JWKSURI: c.JWKSURI, IDTokenAlgorithm: c.IDTokenAlgorithm, ScopeClaimsInIDToken: c.IDTokenClaims,
	}
}

// checkAddress returns a check of a URI whose error names the option.
func checkAddress(option string) func(uri string) error {
	return func(uri string) error {
		if err := authorize.CheckRedirectURI(uri); err != nil {
			return fmt.Errorf("%s %w", option, err)
		}
		return nil
	}
}

// parse reads a client.
func (c *Client) parse(d *caddyfile.Dispenser, checkID func(string) error) error {
	if err := c.parseOptions(d, checkID); err != nil {
		return err
	}
	core := c.withSecret(c.Secret)
	return option.WithLine(d, core.Complete(authorize.GrantTypes()))
}

// parseOptions reads a client that may be incomplete.
func (c *Client) parseOptions(d *caddyfile.Dispenser, checkID func(string) error) error {
	if err := option.Word(&c.ID, checkID)(d); err != nil {
		return err
	}
	fields := option.Block{
		"name":            option.Word(&c.Name, nil),
		"secret":          option.Word(&c.Secret, option.CheckPlaceholders),
		"redirect_uri":    option.Words(&c.RedirectURIs, checkAddress("redirect_uri")),
		"native":          option.Bareword(&c.Native),
		"scope":           option.Scopes(&c.Scopes, authorize.CheckScope),
		"response_type":   option.Words(&c.ResponseTypes, option.OneOf(authorize.ResponseTypes...)),
		"grant_type":      option.Words(&c.GrantTypes, option.OneOf(authorize.GrantTypes().Configurable()...)),
		"pkce":            option.Word(&c.PKCE, option.OneOf(authorize.PKCERequired, authorize.PKCEOptional)),
		"par":             option.Only("required", &c.RequirePushed),
		"consent":         option.Word(&c.Consent, option.OneOf(authorize.ConsentRequired, authorize.ConsentSkip)),
		"acr":             option.Word(&c.ACR, option.OneOf(oauth2.ACRValues...)),
		"idp":             c.parseProviders,
		"introspect":      option.Only("all", &c.IntrospectAll),
		"jwks":            c.parseJWKS,
		"jwks_uri":        option.Word(&c.JWKSURI, nil),
		"launch_uri":      option.Word(&c.LaunchURI, checkAddress("launch_uri")),
		"launch_context":  option.Bareword(&c.LaunchContext),
		"id_token_claims": option.Bareword(&c.IDTokenClaims),
		"request_objects": option.Bareword(&c.RequestObjects),

		"assertion_audience": option.Only("issuer", &c.IssuerAudience),
		"id_token_alg":       option.Word(&c.IDTokenAlgorithm, option.OneOf("RS256", "ES256")),

		"post_logout_redirect_uri": option.Words(&c.PostLogoutRedirectURIs, checkAddress("post_logout_redirect_uri")),
		"error_description":        option.Bareword(&c.ErrorDescription),
		"json_state":               option.Bareword(&c.JSONState),
		"ignore_unknown_scopes":    option.Bareword(&c.IgnoreUnknownScopes),
		"backchannel_logout_uri":   option.Word(&c.BackchannelLogoutURI, authorize.CheckBackchannelLogoutURI),
	}
	maps.Copy(fields, c.TLS.Subdirectives())
	return fields.Parse(d)
}

// parseProviders reads the names of providers. They may be defined later, so the line is kept for errors.
func (c *Client) parseProviders(d *caddyfile.Dispenser) error {
	c.idps = option.PositionOf(d)
	return option.Words(&c.IdentityProviders, nil)(d)
}

// parseJWKS reads a JWK Set, or a file with one, whose contents become part of the configuration.
func (c *Client) parseJWKS(d *caddyfile.Dispenser) error {
	var text string
	if err := option.Word(&text, nil)(d); err != nil {
		return err
	}
	set := []byte(text)
	if !strings.HasPrefix(text, "{") {
		var err error
		if set, err = os.ReadFile(text); err != nil {
			return d.Errf("jwks: %v", err)
		}
	}
	if !json.Valid(set) {
		return d.Errf("jwks %s is not JSON", text)
	}
	c.JWKS = set
	return nil
}
