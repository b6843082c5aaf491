package requestobject

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// maxRequestObject bounds a request object that is fetched, in bytes.
const maxRequestObject = 64 << 10

// errRequestURI is the answer to a request_uri that leads nowhere (OpenID Connect Core §3.1.2.6).
func errRequestURI(description string, cause error) error {
	return &oauth2.Error{Code: "invalid_request_uri", Description: description, Err: cause}
}

// invalid is the answer to a request object that is at fault (OpenID Connect Core
// §3.1.2.6).
func invalid(description string, cause error) error {
	return &oauth2.Error{Code: "invalid_request_object", Description: description, Err: cause}
}

// fetch returns the request object at a request_uri that the client registered.
func fetch(ctx context.Context, c *client.Client, uri string) (string, error) {
	address, _, _ := strings.Cut(uri, "#") // the fragment may be a hash (OpenID Connect Core §6.2)
	registered := func(other string) bool { other, _, _ = strings.Cut(other, "#"); return other == address }
	if !slices.ContainsFunc(c.RequestObjects.URIs, registered) {
		return "", errRequestURI("request_uri is not one that the client registered in request_uris", nil)
	}
	object, err := relyingparty.Fetch(ctx, c.Transport, address, maxRequestObject)
	if err != nil {
		return "", errRequestURI("request_uri could not be fetched", err)
	}
	return strings.TrimSpace(string(object)), nil
}

// verified returns the claims of a request object, in JSON, once its signature is
// verified; or as they are, if it has none and the client did not register another algorithm.
func verified(ctx context.Context, c *client.Client, object string) ([]byte, error) {
	parts := strings.Split(object, ".")
	var header struct {
		Algorithm string   `json:"alg"`
		Type      string   `json:"typ"`
		Critical  []string `json:"crit"`
	}
	if len(parts) != 3 || decodePart(parts[0], &header) != nil {
		return nil, invalid("the request object is no JWT", nil)
	}
	typ := strings.ToLower(strings.TrimPrefix(header.Type, "application/"))
	registered := c.RequestObjects.Algorithm
	switch {
	case registered != "" && header.Algorithm != registered:
		return nil, invalid("alg of the request object is not the client's request_object_signing_alg", nil)
	case !slices.Contains([]string{"", "jwt", "oauth-authz-req+jwt"}, typ) || len(header.Critical) > 0:
		return nil, invalid("typ of the request object must be oauth-authz-req+jwt or JWT, and it may have no crit", nil)
	case header.Algorithm == client.Unsigned && c.RequestObjects.Required:
		return nil, invalid("the request object must be signed: the client requires it", nil)
	case header.Algorithm == client.Unsigned && parts[2] != "":
		return nil, invalid("a request object with alg none must have no signature", nil)
	case header.Algorithm == client.Unsigned:
		claims, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			err = invalid("the request object is no JWT", err)
		}
		return claims, err
	}
	return verifySignature(ctx, c, object, jose.SignatureAlgorithm(header.Algorithm))
}

func decodePart(part string, to any) error {
	decoded, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return strictjson.Unmarshal(decoded, to)
}

func verifySignature(ctx context.Context, c *client.Client, object string, alg jose.SignatureAlgorithm) ([]byte, error) {
	if c.Keys == nil || !slices.Contains(client.AssertionAlgorithms, alg) {
		return nil, invalid("the client has no keys, or alg is not one of request_object_signing_alg_values_supported", nil)
	}
	claims, err := c.Keys.VerifySignature(ctx, object)
	switch {
	case errors.Is(err, relyingparty.ErrSignature), errors.Is(err, relyingparty.ErrUnknownKey):
		return nil, invalid("the request object is not signed by a registered key with this kid and alg", err)
	case err != nil:
		return nil, invalid("the keys of the client cannot be had at its jwks_uri", err)
	}
	return claims, nil
}
