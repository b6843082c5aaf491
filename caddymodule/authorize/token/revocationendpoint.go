package token

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

type revocationEndpoint struct {
	*endpoint.Responder
	authenticator *client.Authenticator
	families      *families
	revocations   *revocation.Revocations
	verifier      *Verifier
}

// serve reports success for an invalid token (RFC 7009 §2.2).
func (e *revocationEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	if err := e.revokeToken(w, r); err != nil {
		e.Trail.RecordRefusal(r, audit.Event{Kind: audit.Revocation, Err: err})
		e.WriteError(w, r, err)
		return
	}
	// The body is ignored (RFC 7009 §2.2), but some clients expect JSON.
	e.WriteJSON(w, http.StatusOK, struct{}{})
}

func (e *revocationEndpoint) revokeToken(w http.ResponseWriter, r *http.Request) error {
	p, err := e.authenticator.Form(w, r)
	if err != nil {
		return err
	}
	client, err := e.authenticator.Authenticate(r, p)
	if err != nil {
		return err
	}
	t, err := e.find(r.Context(), p, e.verifier.revocable)
	switch {
	case t == nil || err != nil:
		return err
	case t.clientID != client.ID:
		return &oauth2.Error{Code: "unauthorized_client", Description: "the token was given to another client"}
	}
	if err := e.revoke(r.Context(), t); err != nil {
		return err
	}
	e.Trail.Record(r.Context(), audit.Event{Kind: audit.Revocation, ClientID: client.ID, User: t.user})
	return nil
}

// revoke revokes an access token, or the whole grant of a refresh token.
func (e *revocationEndpoint) revoke(ctx context.Context, t *issuedToken) error {
	if t.family != nil {
		return e.families.revoke(ctx, t.family.Grant)
	}
	err := e.revocations.Revoke(ctx, t.access.ID, time.Until(t.access.Expiry.Time()))
	if err == nil {
		e.revocations.LimitRevocations(ctx, t.access.Subject, t.access.ClientID, t.access.ID)
	}
	return err
}

// issuedToken is an access token, or a refresh token with its family.
type issuedToken struct {
	access         *accessTokenClaims
	family         *refreshFamily
	current        bool // the refresh token that can be used
	clientID, user string
}

// find returns the token that a request names, or nil if it is invalid, which verify says of access tokens. Access and refresh
// tokens differ in form, so token_type_hint is not needed (RFC 7009 §2.1). An old refresh
// token still identifies its family.
func (e *revocationEndpoint) find(ctx context.Context, p oauth2.Parameters, verify func(context.Context, string) (*accessTokenClaims, error)) (*issuedToken, error) {
	raw := p.Get("token")
	if raw == "" {
		return nil, oauth2.InvalidRequest("token is missing")
	}
	if familyID(raw) == "" {
		claims, err := verify(ctx, raw)
		switch {
		case errors.Is(err, errInvalidToken):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return &issuedToken{access: claims, clientID: claims.ClientID, user: claims.Subject}, nil
	}
	f, _, err := e.families.find(ctx, raw)
	if err != nil && !errors.Is(err, errInvalidRefreshToken) {
		return nil, err
	}
	state := unknownToken
	if err == nil {
		state = e.families.state(f, raw)
	}
	if state == unknownToken {
		return nil, nil
	}
	return &issuedToken{family: f, current: state == currentToken, clientID: f.Grant.ClientID, user: f.Grant.User}, nil
}
