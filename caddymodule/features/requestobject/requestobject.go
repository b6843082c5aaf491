// Package requestobject is a feature that reads the parameters of authorization requests from request objects (OpenID Connect
// Core §6, RFC 9101). Request objects are JWTs, sent by value or, by registered clients, by reference. Without this package,
// they are rejected with request_not_supported and request_uri_not_supported, and clients that must use them cannot be
// authorized.
package requestobject

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/flow"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

func init() {
	caddy.RegisterModule(new(Reader))
	caddy.RegisterModule(new(Client))
}

// Reader reads the request objects of clients that may use them. It is always on.
type Reader struct{}

// CaddyModule returns the Caddy module information.
func (*Reader) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.request_objects", New: func() caddy.Module { return new(Reader) }}
}

// AlwaysOn implements [fhirapp.AlwaysOn].
func (*Reader) AlwaysOn() {}

// Configure implements [fhirapp.Feature].
func (r *Reader) Configure(_ *fhirapp.App, c *authorize.Config) error {
	c.Features = append(c.Features, r)
	return nil
}

// Extend implements [authorize.Feature].
func (*Reader) Extend(core *authorize.Core) error {
	core.OpenRequest = (&reader{issuer: core.Config.Issuer, fetchQueue: fairqueue.New(maxConcurrentFetches)}).resolve
	core.ExtendMetadata(func(m *authorize.Metadata) {
		has := core.Clients.ContainsFunc
		if m.RequestParameter = has(func(c *client.Client) bool { return c.RequestObjects.Allowed }); m.RequestParameter {
			m.RequestAlgorithms = client.RequestObjectAlgorithms()
		}
		m.RequestObjectRequired = has(func(c *client.Client) bool { return c.RequestObjects.Required }) &&
			!has(func(c *client.Client) bool { return len(c.ResponseTypes) > 0 && !c.RequestObjects.Required })
	})
	return nil
}

// Client lets a client send authorization requests in request objects by value (OpenID Connect Core §6), either unsigned or
// signed with a key in its jwks or jwks_uri.
type Client struct {
	// Whether request objects are required and must be signed (RFC 9101 §10.5). They must contain `exp`, `nbf` and `aud`, and
	// expire at most 60 minutes after `nbf`. Parameters outside the request object are ignored, except SMART's `aud`. Requires
	// jwks or jwks_uri. Default: false.
	Required bool `json:"required,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*Client) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.client.request_objects", New: func() caddy.Module { return new(Client) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	request_objects [required]
func (c *Client) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"request_objects": func(d *caddyfile.Dispenser) error {
		if d.CountRemainingArgs() == 0 {
			return nil
		}
		return option.SingleValue("required", &c.Required)(d)
	}}, nil
}

// ConfigureClient implements [fhirapp.ClientFeature].
func (c *Client) ConfigureClient(to *client.Client) {
	to.RequestObjects.Allowed, to.RequestObjects.Required = true, c.Required
}

var (
	_ fhirapp.AlwaysOn      = (*Reader)(nil)
	_ authorize.Feature     = (*Reader)(nil)
	_ option.Feature        = (*Client)(nil)
	_ fhirapp.ClientFeature = (*Client)(nil)
)

const (
	maxConcurrentFetches = 16               // maximum number of concurrent fetches of request objects
	leeway               = 30 * time.Second // allowed clock skew of clients
)

// maxLifetime is the maximum time from nbf to exp of a required request object (FAPI 1.0 Advanced §5.2.2).
const maxLifetime = time.Hour

// reader reads request objects by value and by reference. It fetches only registered addresses, with the transport of the
// client's registration (RFC 9700 §4.10).
type reader struct {
	issuer     string
	fetchQueue *fairqueue.Queue // limits concurrent fetches fairly by client
}

// resolve implements [flow.OpenRequest].
func (o *reader) resolve(ctx context.Context, c *client.Client, p oauth2.Parameters) (oauth2.Parameters, error) {
	object, err := o.loadObject(ctx, c, p)
	if err != nil {
		return withErrorParameters(p, p.Get("request")), err
	}
	merged, err := o.verifyAndMerge(ctx, c, p, object)
	if err != nil {
		return withErrorParameters(p, object), err
	}
	return merged, nil
}

// loadObject returns the request object in the request or at its request_uri.
func (o *reader) loadObject(ctx context.Context, c *client.Client, p oauth2.Parameters) (string, error) {
	value, reference := p.Get("request"), p.Get("request_uri")
	switch {
	case !c.RequestObjects.Allowed:
		return "", flow.RejectRequestObject(p)
	case value != "" && reference != "":
		return "", oauth2.InvalidRequest("request and request_uri must not be used together")
	case value != "":
		return value, nil
	}
	release, err := o.fetchQueue.Acquire(ctx, c.ID)
	if err != nil {
		return "", &oauth2.Error{Code: "temporarily_unavailable", Description: "too many request objects are being fetched", Err: err}
	}
	defer release()
	return fetchObject(ctx, c, reference)
}

// objectClaims are the claims of RFC 9101 §4 that are not request parameters.
type objectClaims struct {
	Issuer    string           `json:"iss"`
	Subject   string           `json:"sub"`
	Audience  jwt.Audience     `json:"aud"`
	Expiry    *jwt.NumericDate `json:"exp"`
	NotBefore *jwt.NumericDate `json:"nbf"`
}

func (o *reader) verifyAndMerge(ctx context.Context, c *client.Client, p oauth2.Parameters, object string) (oauth2.Parameters, error) {
	text, err := verifyObject(ctx, c, object)
	if err != nil {
		return nil, err
	}
	var claims objectClaims
	objectParameters := map[string]json.RawMessage{}
	if err := strictjson.Unmarshal(text, &objectParameters); err != nil {
		return nil, invalidObject("the claims of the request object are not a JSON object with unique names", err)
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return nil, invalidObject("iss, sub, aud, exp or nbf in the request object is malformed", err)
	}
	if err := claims.check(c.ID, o.issuer); err != nil {
		return nil, err
	}
	if c.RequestObjects.Required {
		if objectParameters["client_id"] == nil {
			return nil, invalidObject("client_id is missing in the request object", nil)
		}
		if err := claims.checkLifetime(); err != nil {
			return nil, err
		}
		return mergeParameters(p, oauth2.Parameters{"client_id": {c.ID}, "aud": p["aud"]}, objectParameters)
	}
	return mergeParameters(p, p, objectParameters)
}

// check checks the optional claims (OpenID Connect Core §6.1). It rejects an object with the client_id as sub, because it
// could be a client assertion (RFC 9101 §10.8).
func (c *objectClaims) check(clientID, issuer string) error {
	now := time.Now()
	switch {
	case c.Issuer != "" && c.Issuer != clientID:
		return invalidObject("iss in the request object must be the client_id", nil)
	case c.Subject == clientID:
		return invalidObject("sub in the request object must not be the client_id", nil)
	case len(c.Audience) > 0 && !slices.Contains(c.Audience, issuer):
		return invalidObject("aud in the request object must be the issuer; send SMART's aud as a separate parameter", nil)
	case c.Expiry != nil && !now.Before(c.Expiry.Time().Add(leeway)):
		return invalidObject("the request object has expired", nil)
	case c.NotBefore != nil && c.NotBefore.Time().After(now.Add(leeway)):
		return invalidObject("the request object is not yet valid (nbf)", nil)
	}
	return nil
}

// checkLifetime requires exp, nbf and aud in a request object, and an exp at most 60 minutes after nbf. check compares aud.
func (c *objectClaims) checkLifetime() error {
	switch {
	case c.Expiry == nil || c.NotBefore == nil || len(c.Audience) == 0:
		return invalidObject("exp, nbf or aud is missing in the request object", nil)
	case c.Expiry.Time().Sub(c.NotBefore.Time()) > maxLifetime:
		return invalidObject("exp in the request object must be at most 60 minutes after nbf", nil)
	}
	return nil
}

// mergeParameters replaces the parameters of the request by those in the request object. client_id and response_type must be
// the same in both (OpenID Connect Core §6.1). The aud in the request object is the audience of the JWT; SMART's aud is a
// parameter outside the request object.
func mergeParameters(p, base oauth2.Parameters, objectParameters map[string]json.RawMessage) (oauth2.Parameters, error) {
	all := url.Values(maps.Clone(base))
	for _, name := range flow.RequestParameters {
		raw, present := objectParameters[name]
		if !present || name == "aud" {
			continue
		}
		value, err := parameterValue(name, raw)
		switch mustMatch := name == "client_id" || name == "response_type"; {
		case err != nil:
			return nil, err
		case name == "request" || name == "request_uri":
			return nil, invalidObject("a request object must not contain request or request_uri", nil)
		case mustMatch && p.Get(name) != "" && p.Get(name) != value:
			return nil, invalidObject("client_id and response_type in the request object must match the request parameters", nil)
		}
		all.Set(name, value)
	}
	all.Del("request")
	all.Del("request_uri")
	return oauth2.ReadCheckedQuery(oauth2.Parameters(all).EncodeSelected(flow.RequestParameters...))
}

// parameterValue returns the value of a parameter in a request object: a string, or JSON for parameters such as max_age and
// claims.
func parameterValue(name string, raw json.RawMessage) (value string, err error) {
	switch raw[0] {
	case '"':
		err = json.Unmarshal(raw, &value)
	case '{', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		value = string(raw)
	default:
		err = invalidObject(name+" in the request object must be a string, a number or an object", nil)
	}
	return value, err
}

// withErrorParameters adds the response_mode and state of a rejected request object, so that the client receives the error. The
// object is unverified, so nothing else in it is used, and these two parameters are used only for the error.
func withErrorParameters(p oauth2.Parameters, object string) oauth2.Parameters {
	_, rest, _ := strings.Cut(object, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	var claims struct {
		Mode  string `json:"response_mode"`
		State string `json:"state"`
	}
	if err != nil || strictjson.Unmarshal(text, &claims) != nil {
		return p
	}
	p = maps.Clone(p)
	for name, value := range map[string]string{"response_mode": claims.Mode, "state": claims.State} {
		if len(p[name]) == 0 && value != "" {
			p[name] = []string{value}
		}
	}
	return p
}

// maxRequestObject is the maximum size in bytes of a fetched request object.
const maxRequestObject = 64 << 10

// invalidRequestURI returns the error of a request_uri that cannot be used (OpenID Connect Core §3.1.2.6).
func invalidRequestURI(description string, cause error) error {
	return &oauth2.Error{Code: "invalid_request_uri", Description: description, Err: cause}
}

// invalidObject returns the error of an invalid request object (OpenID Connect Core §3.1.2.6).
func invalidObject(description string, cause error) error {
	return &oauth2.Error{Code: "invalid_request_object", Description: description, Err: cause}
}

// fetchObject returns the request object at a registered request_uri.
func fetchObject(ctx context.Context, c *client.Client, uri string) (string, error) {
	address, _, _ := strings.Cut(uri, "#") // the fragment may be a hash of the object (OpenID Connect Core §6.2)
	registered := func(other string) bool { other, _, _ = strings.Cut(other, "#"); return other == address }
	if !slices.ContainsFunc(c.RequestObjects.URIs, registered) {
		return "", invalidRequestURI("request_uri is not registered in request_uris", nil)
	}
	object, err := relyingparty.Fetch(ctx, c.Transport, address, maxRequestObject)
	if err != nil {
		return "", invalidRequestURI("request_uri could not be fetched", err)
	}
	return strings.TrimSpace(string(object)), nil
}

// verifyObject verifies the signature of a request object and returns its claims as JSON. An unsigned object is accepted if the
// client has not registered an algorithm.
func verifyObject(ctx context.Context, c *client.Client, object string) ([]byte, error) {
	parts := strings.Split(object, ".")
	var header struct {
		Algorithm string   `json:"alg"`
		Type      string   `json:"typ"`
		Critical  []string `json:"crit"`
	}
	if len(parts) != 3 || client.DecodeJWTPart(parts[0], &header) != nil {
		return nil, invalidObject("the request object is not a JWT", nil)
	}
	typ := strings.ToLower(strings.TrimPrefix(header.Type, "application/"))
	registered := c.RequestObjects.Algorithm
	switch {
	case registered != "" && header.Algorithm != registered:
		return nil, invalidObject("alg of the request object does not match the client's request_object_signing_alg", nil)
	case !slices.Contains([]string{"", "jwt", "oauth-authz-req+jwt"}, typ) || len(header.Critical) > 0:
		return nil, invalidObject("typ of the request object must be oauth-authz-req+jwt or JWT, and crit is not supported", nil)
	case header.Algorithm == client.AlgorithmNone && c.RequestObjects.Required:
		return nil, invalidObject("the request object must be signed, as required for this client", nil)
	case header.Algorithm == client.AlgorithmNone && parts[2] != "":
		return nil, invalidObject("a request object with alg none must have no signature", nil)
	case header.Algorithm == client.AlgorithmNone:
		claims, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			err = invalidObject("the request object is not a JWT", err)
		}
		return claims, err
	}
	return verifySignature(ctx, c, object, jose.SignatureAlgorithm(header.Algorithm))
}

func verifySignature(ctx context.Context, c *client.Client, object string, alg jose.SignatureAlgorithm) ([]byte, error) {
	if c.Keys == nil || !slices.Contains(client.AssertionAlgorithms, alg) {
		return nil, invalidObject("the client has no keys, or alg of the request object is not supported", nil)
	}
	claims, err := c.Keys.VerifySignature(ctx, object)
	switch {
	case errors.Is(err, relyingparty.ErrSignature), errors.Is(err, relyingparty.ErrUnknownKey):
		return nil, invalidObject("the signature of the request object does not match a registered key with this kid and alg", err)
	case err != nil:
		return nil, invalidObject("the client's keys could not be fetched from jwks_uri", err)
	}
	return claims, nil
}
