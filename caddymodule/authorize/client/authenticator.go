package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// ErrNoClientID says that a request does not name its client.
var ErrNoClientID = oauth2.InvalidClient("client_id is missing")

var (
	errUnknownClient = oauth2.InvalidClient("unknown client, or wrong client secret")
	errTwoMethods    = oauth2.InvalidRequest("authenticate the client in one way alone")
)

// Authenticator authenticates clients.
type Authenticator struct {
	Issuer  string           // an audience of assertions
	Clients *Registry        // that requests can come from
	Durable store.Store      // holds the used assertions
	Limiter *lockout.Limiter // counts wrong secrets
	Logger  *slog.Logger     // gets failures to release an assertion

	// UnnamedClient returns the client of a token request without a client_id, or [ErrNoClientID].
	UnnamedClient func(context.Context, oauth2.Parameters) (*Client, error)
}

// Form reads the form of a request (RFC 6749 §2.3), and notes for the audit trail which client the request names, even if
// the form is refused or the client does not authenticate.
func (a *Authenticator) Form(w http.ResponseWriter, r *http.Request) (oauth2.Parameters, error) {
	p, err := oauth2.FormParameters(w, r)
	a.noteClient(r, p)
	return p, err
}

// Authenticate returns the client of a request (RFC 6749 §2.3). It must use its one
// registered method: client_secret_basic or client_secret_post, private_key_jwt, or none if
// it is public. Otherwise the error is invalid_client.
func (a *Authenticator) Authenticate(r *http.Request, p oauth2.Parameters) (*Client, error) {
	client, err := a.clientOf(r, p)
	if err != nil {
		return nil, err
	}
	audit.NoteClient(r.Context(), client.ID)
	switch {
	case client.Waits:
		return nil, errNotApproved
	case !client.Public():
		audit.NoteAuthenticated(r.Context())
	}
	return client, nil
}

func (a *Authenticator) clientOf(r *http.Request, p oauth2.Parameters) (*Client, error) {
	basic := len(r.Header.Values("Authorization")) > 0
	secret := p.Get("client_secret")
	assertion := p.Get("client_assertion") != "" || p.Get("client_assertion_type") != ""
	switch {
	case assertion && (basic || secret != ""):
		return nil, errTwoMethods
	case assertion:
		return a.authenticateAssertion(r, p)
	case basic:
		return a.authenticateBasic(r, p)
	case p.Get("client_id") == "" && r.URL.Path == endpoint.Token:
		return a.UnnamedClient(r.Context(), p)
	case p.Get("client_id") == "":
		return nil, ErrNoClientID
	}
	client, err := a.Clients.named(r.Context(), p.Get("client_id"))
	if err != nil {
		return nil, err
	}
	switch {
	case secret != "":
		if client != nil && !client.hasSecret(secret) {
			client = nil
		}
		return a.checkSecret(r, p.Get("client_id"), client)
	case client == nil || !client.Public():
		return nil, errUnknownClient
	}
	return client, nil
}

// checkSecret counts an attempt with a secret. The client is nil if the secret was wrong.
func (a *Authenticator) checkSecret(r *http.Request, named string, client *Client) (*Client, error) {
	err := error(errUnknownClient)
	if client != nil {
		err = nil
	}
	if err := a.Limiter.AttemptSecret(r, named, err, client == nil || client.guessable); err != nil {
		return nil, err
	}
	return client, nil
}

func (a *Authenticator) authenticateBasic(r *http.Request, p oauth2.Parameters) (*Client, error) {
	id, secret, ok := r.BasicAuth()
	switch {
	case !ok || len(r.Header.Values("Authorization")) > 1:
		return nil, oauth2.InvalidClient("the Authorization header is not one of HTTP Basic")
	case p.Get("client_secret") != "":
		return nil, errTwoMethods
	}
	client, err := a.clientByBasic(r.Context(), id, secret)
	if err == nil && secret != "" {
		client, err = a.checkSecret(r, formDecoded(id), client)
	}
	switch sent := p.Get("client_id"); {
	case err != nil:
		return nil, err
	case client == nil:
		return nil, errUnknownClient
	case sent != "" && sent != client.ID:
		return nil, oauth2.InvalidRequest("client_id is not the client that authenticated")
	}
	return client, nil
}

// clientByBasic tries the credentials form-decoded (RFC 6749 §2.3.1), and then as they are,
// because many clients do not encode them.
func (a *Authenticator) clientByBasic(ctx context.Context, id, secret string) (*Client, error) {
	if c, err := a.Clients.named(ctx, formDecoded(id)); err != nil || c != nil && c.hasSecret(formDecoded(secret)) {
		return c, err
	}
	c, err := a.Clients.named(ctx, id)
	if err != nil || c != nil && c.hasSecret(secret) {
		return c, err
	}
	return nil, nil
}

// formDecoded returns a text form-decoded, or as it is if it is not encoded.
func formDecoded(text string) string {
	if decoded, err := url.QueryUnescape(text); err == nil {
		return decoded
	}
	return text
}

// noteClient notes the first client that a request names: by HTTP Basic, client_id, or the unverified sub or iss of its
// assertion.
func (a *Authenticator) noteClient(r *http.Request, p oauth2.Parameters) {
	id, _, _ := r.BasicAuth()
	claimed := []string{formDecoded(id), id, p.Get("client_id")}
	if _, claims, err := decodeAssertion(p.Get("client_assertion")); err == nil {
		claimed = append(claimed, claims.Subject, claims.Issuer)
	}
	for _, id := range claimed {
		if a.Clients.Note(r.Context(), id) {
			return
		}
	}
}

// authenticateAssertion is private_key_jwt (RFC 7523 §2.2, OpenID Connect Core §9,
// SMART App Launch 2.2, Asymmetric Authentication).
func (a *Authenticator) authenticateAssertion(r *http.Request, p oauth2.Parameters) (*Client, error) {
	if p.Get("client_assertion_type") != assertionType {
		return nil, oauth2.InvalidRequest("client_assertion_type must be " + assertionType)
	}
	raw := p.Get("client_assertion")
	client, claims, err := a.assertingClient(r.Context(), raw)
	switch {
	case err != nil:
		return nil, err
	case p.Get("client_id") != "" && p.Get("client_id") != client.ID:
		return nil, oauth2.InvalidRequest("client_id is not the client that authenticated")
	}
	if err := verifyAssertion(r.Context(), client.Keys, raw); err != nil {
		return nil, err
	}
	audiences := []string{a.Issuer}
	if !client.HasCompat(IssuerAudience) {
		audiences = append(audiences, a.Issuer+endpoint.Token, a.Issuer+r.URL.Path)
	}
	now := store.Now(a.Durable) // the same at all gateways, until the entry of the jti expires
	if err := claims.check(client.ID, audiences, now); err != nil {
		return nil, err
	}
	return client, a.useAssertion(r.Context(), claims, now)
}

// assertingClient returns the claims of an assertion, and the client that they name. The
// signature is not checked yet.
func (a *Authenticator) assertingClient(ctx context.Context, raw string) (*Client, *assertionClaims, error) {
	header, claims, err := decodeAssertion(raw)
	if err != nil {
		return nil, nil, err
	}
	client, err := a.Clients.named(ctx, claims.Subject)
	switch {
	case err != nil:
		return nil, nil, err
	case client == nil || client.Keys == nil || client.RequestObjects.KeysOnly:
		return nil, nil, invalidAssertion("no client with this sub has keys here")
	case !slices.Contains(AssertionAlgorithms, header.Algorithm):
		return nil, nil, invalidAssertion("alg is not one of those that token_endpoint_auth_signing_alg_values_supported lists")
	case client.AssertionAlgorithm != "" && header.Algorithm != jose.SignatureAlgorithm(client.AssertionAlgorithm):
		return nil, nil, invalidAssertion("alg is not the client's token_endpoint_auth_signing_alg")
	case header.Type != "" && !strings.EqualFold(header.Type, "JWT"):
		return nil, nil, invalidAssertion("typ must be JWT")
	case header.KeySet != "" && header.KeySet != client.JWKSURI:
		return nil, nil, invalidAssertion("jku is not the address of keys that is registered")
	}
	return client, claims, nil
}

// useAssertion accepts each jti once (RFC 7523 §3), across restarts and gateways. It can be
// sent again if the request fails with a server error.
func (a *Authenticator) useAssertion(ctx context.Context, c *assertionClaims, now time.Time) error {
	key, mark := store.Key("assertion", c.Subject+"\x00"+c.ID), oauth2.RandomBytes(8)
	err := a.Durable.Add(ctx, key, mark, c.Expiry.Time().Sub(now)+assertionLeeway)
	switch {
	case errors.Is(err, store.ErrExists):
		return invalidAssertion("jti was used already")
	case err == nil, errors.Is(err, store.ErrUnavailable): // it may be stored all the same
		audit.FromContext(ctx).Release = func(ctx context.Context) {
			if err := a.releaseAssertion(context.WithoutCancel(ctx), key, mark); err != nil {
				a.Logger.ErrorContext(ctx, "the client assertion of a request that failed may stay used", "error", err)
			}
		}
	}
	return err
}

// releaseAssertion forgets an assertion if it was used with this mark, and not before.
func (a *Authenticator) releaseAssertion(ctx context.Context, key string, mark []byte) error {
	held, err := a.Durable.Get(ctx, key)
	if err == nil && bytes.Equal(held, mark) {
		err = a.Durable.Delete(ctx, key)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
