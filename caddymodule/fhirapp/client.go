package fhirapp

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/scopeoption"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Client is an application that can request tokens (RFC 6749 §2).
type Client struct {
	client.Settings

	option.TLS

	// The features of the client, by the names of their modules. Default: none.
	FeaturesRaw caddy.ModuleMap `json:"features,omitempty" caddy:"namespace=fhir.client"`

	idpsPosition option.Position // position of the subdirective idps, for errors
}

// resolve returns the client for package authorize and replaces placeholders in its secret.
func (c *Client) resolve() (zero client.Client, err error) {
	resolved, err := c.Literal()
	if err != nil {
		return zero, err
	}
	if resolved.Secret, err = option.ResolveSecret("secret", c.Secret); err != nil {
		return zero, err
	}
	config, err := c.TLS.ClientConfig()
	resolved.Transport = relyingparty.Transport(config)
	return resolved, err
}

// Literal returns the client for package authorize, with its features. Placeholders are not replaced.
func (c *Client) Literal() (client.Client, error) {
	core := client.Client(c.Settings)
	return core, configureClient(&core, c.FeaturesRaw)
}

// uriCheck returns a function that checks a URI. Its error contains the name of the option.
func uriCheck(option string) func(uri string) error {
	return func(uri string) error {
		if err := client.CheckAnyRedirectURI(uri); err != nil {
			return fmt.Errorf("%s %w", option, err)
		}
		return nil
	}
}

// parse parses a client.
func (c *Client) parse(d *caddyfile.Dispenser, checkID func(string) error) error {
	if err := c.ParseOptions(d, checkID); err != nil {
		return err
	}
	core, err := c.Literal()
	if err == nil {
		err = core.Complete(token.GrantTypes())
	}
	return option.WithLine(d, err)
}

// ParseOptions parses a possibly incomplete client: a client_id and a block. checkID, if not nil, checks the client_id.
func (c *Client) ParseOptions(d *caddyfile.Dispenser, checkID func(string) error) error {
	if err := option.Word(&c.ID, checkID)(d); err != nil {
		return err
	}
	fields := option.Block{
		"name":           option.Word(&c.Name, nil),
		"secret":         option.Word(&c.Secret, option.CheckPlaceholders),
		"redirect_uri":   option.Words(&c.RedirectURIs, uriCheck("redirect_uri")),
		"native":         option.Flag(&c.Native),
		"scope":          scopeoption.Words(&c.Scopes, smart.CheckScope),
		"response_type":  option.Words(&c.ResponseTypes, option.OneOf(client.ResponseTypes...)),
		"grant_type":     option.Words(&c.GrantTypes, option.OneOf(token.GrantTypes().ConfigurableNames()...)),
		"pkce":           option.Word(&c.PKCE, option.OneOf(client.PKCERequired, client.PKCEOptional)),
		"par":            option.SingleValue("required", &c.RequirePushed),
		"consent":        option.Word(&c.Consent, option.OneOf(client.ConsentRequired, client.ConsentSkip)),
		"acr":            option.Word(&c.ACR, option.OneOf(oauth2.ACRValues...)),
		"idp":            c.parseProviders,
		"introspect":     option.SingleValue("all", &c.IntrospectAll),
		"jwks":           c.parseJWKS,
		"jwks_uri":       option.Word(&c.JWKSURI, nil),
		"launch_uri":     option.Word(&c.LaunchURI, uriCheck("launch_uri")),
		"launch_context": option.Flag(&c.LaunchContext),
		"compat":         option.Words(&c.Compat, option.OneOf(client.CompatOptions...)),

		"id_token_alg": option.Word(&c.IDTokenAlgorithm, option.OneOf("RS256", "ES256")),

		"post_logout_redirect_uri": option.Words(&c.PostLogoutRedirectURIs, uriCheck("post_logout_redirect_uri")),
		"backchannel_logout_uri":   option.Word(&c.BackchannelLogoutURI, client.CheckBackchannelLogoutURI),
	}
	maps.Copy(fields, c.TLS.Subdirectives())
	features := fields.Features(clientFeatures)
	err := fields.Parse(d, features.Repeatable()...)
	c.FeaturesRaw = features.Raw()
	return err
}

// parseProviders parses the names of identity providers. They may be defined later, so their position is stored for errors.
func (c *Client) parseProviders(d *caddyfile.Dispenser) error {
	c.idpsPosition = option.PositionOf(d)
	return option.Words(&c.IdentityProviders, nil)(d)
}

// parseJWKS parses a JWK Set, given inline or as the name of a file. The content of the file is copied into the configuration.
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
		return d.Errf("jwks: %s is not valid JSON", text)
	}
	c.JWKS = set
	return nil
}
