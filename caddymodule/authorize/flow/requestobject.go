package flow

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

const (
	fetchesAtOnce       = 16               // of request objects
	requestObjectLeeway = 30 * time.Second // for clients' clocks
)

// requestObjects reads request objects (OpenID Connect Core §6, RFC 9101), by value and by
// reference. Only an address that the client registered is fetched, by the transport of its
// registration (RFC 9700 §4.10).
type requestObjects struct {
	issuer  string
	clients *client.Registry
	turns   *fairqueue.Queue // of fetches, by client
}

// open returns the parameters of a request with those of its request object in their places
// (OpenID Connect Core §6.3.3). If it refuses the object, it returns with the error those by
// which that is to be sent.
func (o *requestObjects) open(ctx context.Context, p oauth2.Parameters) (oauth2.Parameters, error) {
	if p.Get("request") == "" && p.Get("request_uri") == "" {
		return p, nil
	}
	c, err := o.clients.Find(ctx, p.Get("client_id"))
	if c == nil || err != nil {
		return p, err
	}
	object, err := o.object(ctx, c, p)
	if err != nil {
		return withUnverified(p, p.Get("request")), err
	}
	assembled, err := o.assemble(ctx, c, p, object)
	if err != nil {
		return withUnverified(p, object), err
	}
	return assembled, nil
}

// object returns the request object of a request.
func (o *requestObjects) object(ctx context.Context, c *client.Client, p oauth2.Parameters) (string, error) {
	value, reference := p.Get("request"), p.Get("request_uri")
	switch {
	case value != "" && !c.RequestObjects.Allowed:
		return "", &oauth2.Error{Code: "request_not_supported", Description: "request objects are not accepted"}
	case !c.RequestObjects.Allowed:
		return "", &oauth2.Error{Code: "request_uri_not_supported", Description: "the request_uri is not one that this server gave"}
	case value != "" && reference != "":
		return "", oauth2.InvalidRequest("send request or request_uri, not both")
	case value != "":
		return value, nil
	}
	leave, err := o.turns.Enter(ctx, c.ID)
	if err != nil {
		return "", &oauth2.Error{Code: "temporarily_unavailable", Description: "too many request objects are being fetched", Err: err}
	}
	defer leave()
	return c.FetchRequestObject(ctx, reference)
}

// requestObjectClaims are those of RFC 9101 §4 that are no parameters.
type requestObjectClaims struct {
	Issuer    string           `json:"iss"`
	Subject   string           `json:"sub"`
	Audience  jwt.Audience     `json:"aud"`
	Expiry    *jwt.NumericDate `json:"exp"`
	NotBefore *jwt.NumericDate `json:"nbf"`
}

func (o *requestObjects) assemble(ctx context.Context, c *client.Client, p oauth2.Parameters, object string) (oauth2.Parameters, error) {
	text, err := c.OpenRequestObject(ctx, object)
	if err != nil {
		return nil, err
	}
	var claims requestObjectClaims
	inside := map[string]json.RawMessage{}
	if err := strictjson.Unmarshal(text, &inside); err != nil {
		return nil, client.InvalidRequestObject("the request object holds no JSON object, or a name twice", err)
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return nil, client.InvalidRequestObject("iss, sub, aud, exp or nbf of the request object is malformed", err)
	}
	if err := claims.check(c.ID, o.issuer); err != nil {
		return nil, err
	}
	if c.RequestObjects.Required {
		if inside["client_id"] == nil {
			return nil, client.InvalidRequestObject("the request object must have client_id", nil)
		}
		if err := claims.checkLifetime(); err != nil {
			return nil, err
		}
		return overlay(p, oauth2.Parameters{"client_id": {c.ID}, "aud": p["aud"]}, inside)
	}
	return overlay(p, p, inside)
}

// check checks what is there: none of it must be (OpenID Connect Core §6.1). An object whose
// subject is the client could be its assertion (RFC 9101 §10.8).
func (c *requestObjectClaims) check(clientID, issuer string) error {
	now := time.Now()
	switch {
	case c.Issuer != "" && c.Issuer != clientID:
		return client.InvalidRequestObject("iss of the request object must be the client_id", nil)
	case c.Subject == clientID:
		return client.InvalidRequestObject("sub of the request object must not be the client_id", nil)
	case len(c.Audience) > 0 && !slices.Contains(c.Audience, issuer):
		return client.InvalidRequestObject("aud of the request object must be the issuer; SMART's aud belongs beside it", nil)
	case c.Expiry != nil && !now.Before(c.Expiry.Time().Add(requestObjectLeeway)):
		return client.InvalidRequestObject("the request object has expired", nil)
	case c.NotBefore != nil && c.NotBefore.Time().After(now.Add(requestObjectLeeway)):
		return client.InvalidRequestObject("nbf of the request object is still to come", nil)
	}
	return nil
}

// checkLifetime checks what must be there in a request object of a client that has to send one: it is for this server, and
// nobody can use it for long.
func (c *requestObjectClaims) checkLifetime() error {
	switch {
	case c.Expiry == nil || c.NotBefore == nil || len(c.Audience) == 0:
		return client.InvalidRequestObject("the request object must have exp, nbf and aud", nil)
	case c.Expiry.Time().Sub(c.NotBefore.Time()) > client.MaxRequestObjectLifetime:
		return client.InvalidRequestObject("exp of the request object must be at most 60 minutes after nbf", nil)
	}
	return nil
}

// overlay puts the parameters of a request object in place of those beside it that count. client_id and
// response_type must be the same in both places (OpenID Connect Core §6.1). The aud of the object
// is that of a JWT; SMART's is read beside it.
func overlay(p, counting oauth2.Parameters, inside map[string]json.RawMessage) (oauth2.Parameters, error) {
	all := url.Values(maps.Clone(counting))
	for _, name := range requestParameters {
		raw, there := inside[name]
		if !there || name == "aud" {
			continue
		}
		value, err := parameterOf(name, raw)
		switch fixed := name == "client_id" || name == "response_type"; {
		case err != nil:
			return nil, err
		case name == "request" || name == "request_uri":
			return nil, client.InvalidRequestObject("a request object must hold no other", nil)
		case fixed && p.Get(name) != "" && p.Get(name) != value:
			return nil, client.InvalidRequestObject("client_id and response_type of the request object must be those beside it", nil)
		}
		all.Set(name, value)
	}
	all.Del("request")
	all.Del("request_uri")
	return oauth2.QueryParameters(oauth2.Parameters(all).Keep(requestParameters...))
}

// parameterOf is the value of a parameter that a request object holds: a text, or in JSON, as
// max_age and claims are.
func parameterOf(name string, raw json.RawMessage) (value string, err error) {
	switch raw[0] {
	case '"':
		err = json.Unmarshal(raw, &value)
	case '{', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		value = string(raw)
	default:
		err = client.InvalidRequestObject(name+" of the request object must be a string, a number or an object", nil)
	}
	return value, err
}

// withUnverified adds response_mode and state of a request object that is refused, so that the
// error arrives where the client waits for it. Nobody has verified the object, so nothing else in
// it counts, and these two for the error alone.
func withUnverified(p oauth2.Parameters, object string) oauth2.Parameters {
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
