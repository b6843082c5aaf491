package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

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
