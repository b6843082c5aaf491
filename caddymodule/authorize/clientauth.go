package authorize

import (
	"context"
	"net/http"
	"net/url"
)

var (
	errUnknownClient = invalidClient("unknown client, or wrong client secret")
	errTwoMethods    = invalidRequest("authenticate the client in one way alone")
)

// authenticateClient finds the client of a request and has it prove who it is,
// in the one way that is registered: client_secret_basic or client_secret_post
// with a secret, private_key_jwt with keys, none for public clients (RFC 6749
// §2.3).
func (s *Server) authenticateClient(r *http.Request, p parameters) (*Client, error) {
	client, err := s.clientOf(r, p)
	if err == nil && !client.Public() {
		noteProven(r.Context())
	}
	return client, err
}

func (s *Server) clientOf(r *http.Request, p parameters) (*Client, error) {
	basic := len(r.Header.Values("Authorization")) > 0
	secret := p.get("client_secret")
	assertion := p.get("client_assertion") != "" || p.get("client_assertion_type") != ""
	switch {
	case assertion && (basic || secret != ""):
		return nil, errTwoMethods
	case assertion:
		return s.authenticateAssertion(r, p)
	case basic:
		return s.authenticateBasic(r, p)
	case p.get("client_id") == "" && r.URL.Path == pathToken && p.get("grant_type") == "refresh_token":
		return s.refreshClient(r.Context(), p)
	case p.get("client_id") == "":
		return nil, invalidClient("client_id is missing")
	}
	client, err := s.client(r.Context(), p.get("client_id"))
	if err != nil {
		return nil, err
	}
	if client == nil || (secret != "" || !client.Public()) && !client.secretIs(secret) {
		return nil, errUnknownClient
	}
	return client, nil
}

func (s *Server) authenticateBasic(r *http.Request, p parameters) (*Client, error) {
	id, secret, ok := r.BasicAuth()
	switch {
	case !ok || len(r.Header.Values("Authorization")) > 1:
		return nil, invalidClient("the Authorization header is not one of HTTP Basic")
	case p.get("client_secret") != "":
		return nil, errTwoMethods
	}
	client, err := s.clientByBasic(r.Context(), id, secret)
	switch {
	case err != nil:
		return nil, err
	case client == nil:
		return nil, errUnknownClient
	}
	if sent := p.get("client_id"); sent != "" && sent != client.ID {
		return nil, invalidRequest("client_id is not the client that authenticated")
	}
	return client, nil
}

// clientByBasic tries the credentials form-decoded, as RFC 6749 §2.3.1 has
// them, and then as they are, as many clients send them.
func (s *Server) clientByBasic(ctx context.Context, id, secret string) (*Client, error) {
	decodedID, err1 := url.QueryUnescape(id)
	decodedSecret, err2 := url.QueryUnescape(secret)
	if err1 == nil && err2 == nil {
		if c, err := s.client(ctx, decodedID); err != nil || c != nil && c.secretIs(decodedSecret) {
			return c, err
		}
	}
	if decodedID == id && decodedSecret == secret {
		return nil, nil
	}
	c, err := s.client(ctx, id)
	if err != nil || c != nil && c.secretIs(secret) {
		return c, err
	}
	return nil, nil
}
