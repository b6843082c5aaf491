package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// NewKeys returns the client's public keys, or nil.
func (c *Client) NewKeys(logger *slog.Logger, transport http.RoundTripper) (*relyingparty.KeySet, error) {
	switch {
	case c.JWKSURI != "":
		return relyingparty.NewKeySet(relyingparty.KeySetConfig{Issuer: "client " + c.ID, URI: c.JWKSURI, Transport: transport, Exact: true, Logger: logger})
	case len(c.JWKS) > 0:
		return relyingparty.NewInlineKeySet(c.JWKS)
	}
	return nil, nil
}

// checkKeys refuses more than one authentication method, and private keys.
func (c *Client) checkKeys() (err error) {
	secret, jwks, uri := c.Secret != "" || c.SecretSHA256 != nil && !c.RequestObjects.KeysOnly, len(c.JWKS) > 0, c.JWKSURI != ""
	switch {
	case secret && jwks, secret && uri, jwks && uri:
		return errors.New("has more than one of secret, jwks and jwks_uri: how it authenticates must be one way alone")
	case HoldsPrivateKey(c.JWKS):
		return errors.New("jwks holds a private key: register the public part alone, and make a new key")
	}
	if c.AssertionAlgorithm != "" && !slices.Contains(AssertionAlgorithms, jose.SignatureAlgorithm(c.AssertionAlgorithm)) {
		return fmt.Errorf("token_endpoint_auth_signing_alg %q is not one of %q", c.AssertionAlgorithm, AssertionAlgorithms)
	}
	if c.Keys == nil {
		c.Keys, err = c.NewKeys(nil, nil)
	}
	return err
}

// HoldsPrivateKey reports whether a JWK Set has a private or symmetric key, which must not leave its owner.
func HoldsPrivateKey(jwks []byte) bool {
	var set struct {
		Keys []struct {
			Private   any `json:"d"`
			Symmetric any `json:"k"`
		} `json:"keys"`
	}
	_ = json.Unmarshal(jwks, &set) // what is no JWKS is for newKeys to refuse
	for _, key := range set.Keys {
		if key.Private != nil || key.Symmetric != nil {
			return true
		}
	}
	return false
}
