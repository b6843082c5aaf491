package client

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
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

// Authenticate returns the client of a request (RFC 6749 §2.3). It must use its one
// registered method: client_secret_basic or client_secret_post, private_key_jwt, or none if
// it is public. Otherwise the error is invalid_client.
func (a *Authenticator) Authenticate(r *http.Request, p oauth2.Parameters) (*Client, error) {
	a.noteClientID(r, p)
	client, err := a.clientOf(r, p)
	if err == nil && !client.Public() {
		audit.NoteAuthenticated(r.Context())
	}
	return client, err
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
	client, err := a.Clients.Find(r.Context(), p.Get("client_id"))
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
	if c, err := a.Clients.Find(ctx, formDecoded(id)); err != nil || c != nil && c.hasSecret(formDecoded(secret)) {
		return c, err
	}
	c, err := a.Clients.Find(ctx, id)
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

// noteClientID notes for the audit trail which client a request names, even if it does not
// authenticate.
func (a *Authenticator) noteClientID(r *http.Request, p oauth2.Parameters) {
	id, _, basic := r.BasicAuth()
	if !basic {
		id = p.Get("client_id")
	}
	if client, err := a.Clients.Find(r.Context(), id); err == nil && client != nil {
		audit.FromContext(r.Context()).ClientID = id
	}
}
