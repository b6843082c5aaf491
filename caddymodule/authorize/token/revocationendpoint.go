package token

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
)

var errForeignToken = &oauth2.Error{Code: "unauthorized_client", Description: "the token was given to another client"}

// revocationEndpoint makes void what clients no longer need.
type revocationEndpoint struct {
	*endpoint.Responder
	authenticator *client.Authenticator
	families      *families
	revocations   *revocation.Revocations
	verifier      *Verifier
}

// serve is the revocation endpoint (RFC 7009). A token that is not valid
// needs no revoking, so it is no error; that a revocation could not be stored is
// one, because the token would go on working.
func (e *revocationEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	if err := e.revokeToken(w, r); err != nil {
		e.Trail.RecordRefusal(r, audit.Event{Kind: audit.Revocation, Err: err})
		e.WriteError(w, r, err)
		return
	}
	// The body means nothing (RFC 7009 §2.2), but some clients insist on JSON.
	e.WriteJSON(w, http.StatusOK, struct{}{})
}

func (e *revocationEndpoint) revokeToken(w http.ResponseWriter, r *http.Request) error {
	p, err := oauth2.FormParameters(w, r)
	if err != nil {
		return err
	}
	client, err := e.authenticator.Authenticate(r, p)
	switch {
	case err != nil:
		return err
	case p.Get("token") == "":
		return oauth2.InvalidRequest("token is missing")
	}
	t, err := e.find(r.Context(), p.Get("token"))
	switch {
	case errors.Is(err, errInvalidToken):
		return nil
	case err != nil:
		return err
	case t.clientID() != client.ID:
		return errForeignToken
	}
	if err := e.revoke(r.Context(), t); err != nil {
		return err
	}
	e.Trail.Record(r.Context(), audit.Event{Kind: audit.Revocation, ClientID: client.ID, User: t.subject()})
	return nil
}

// revoke makes a token void; a refresh token takes its family with it.
func (e *revocationEndpoint) revoke(ctx context.Context, t *issuedToken) error {
	if t.family != nil {
		return e.families.revoke(ctx, t.family.Grant)
	}
	err := e.revocations.Revoke(ctx, t.access.ID, time.Until(t.access.Expiry.Time()))
	if err == nil && t.access.Subject != t.access.ClientID { // a client's own live for minutes
		e.revocations.LimitRevocations(ctx, t.access.Subject, t.access.ClientID, t.access.ID)
	}
	return err
}

// issuedToken is a token of ours that somebody asks about: the one or the other.
type issuedToken struct {
	access  *accessTokenClaims
	family  *refreshFamily
	current bool // of a refresh token: it is the one that can be used
}

func (t *issuedToken) clientID() string {
	if t.family != nil {
		return t.family.Grant.ClientID
	}
	return t.access.ClientID
}

func (t *issuedToken) subject() string {
	if t.family != nil {
		return t.family.Grant.User
	}
	return t.access.Subject
}

// issuedToken reads a token: errInvalidToken where it is none of ours. A refresh
// token that was followed by another still leads to its family. What kind it is
// shows in its form, so token_type_hint tells us nothing (RFC 7009 §2.1).
func (e *revocationEndpoint) find(ctx context.Context, raw string) (*issuedToken, error) {
	if familyID(raw) == "" {
		claims, err := e.verifier.verify(ctx, raw)
		return &issuedToken{access: claims}, err
	}
	f, _, err := e.families.find(ctx, raw)
	if errors.Is(err, errInvalidRefreshToken) {
		return nil, errInvalidToken
	}
	if err != nil {
		return nil, err
	}
	standing := e.families.state(f, raw)
	if standing == unknownToken {
		return nil, errInvalidToken
	}
	return &issuedToken{family: f, current: standing == currentToken}, nil
}
