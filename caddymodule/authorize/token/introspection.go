package token

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// introspectionResponse is the response of RFC 7662 §2.2 with the claims of SMART App Launch 2.2, Token Introspection. Invalid
// tokens and tokens of other clients are only reported as inactive.
type introspectionResponse struct {
	Active    bool   `json:"active"`
	TokenType string `json:"token_type,omitempty"`
	*accessTokenClaims
}

// refreshIntrospection is the response for a refresh token. It has no token_type, because refresh tokens have no type.
type refreshIntrospection struct {
	Active   bool             `json:"active"`
	Issuer   string           `json:"iss"`
	Subject  string           `json:"sub"`
	Expiry   *jwt.NumericDate `json:"exp"`
	IssuedAt *jwt.NumericDate `json:"iat"`
	ClientID string           `json:"client_id"`
	Scope    string           `json:"scope"`

	*launch.Context // nil if there is no launch context
}

type introspectionEndpoint struct {
	*endpoint.Responder
	authenticator *client.Authenticator
	families      *tokenFamilies
	revocation    *revocationEndpoint
	userinfo      *userinfoEndpoint
}

func (e *introspectionEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	response, err := e.introspect(w, r)
	if err != nil {
		e.WriteError(w, r, err)
		return
	}
	e.WriteJSON(w, http.StatusOK, response)
}

func (e *introspectionEndpoint) introspect(w http.ResponseWriter, r *http.Request) (any, error) {
	p, err := e.authenticator.ParseForm(w, r)
	if err != nil {
		return nil, err
	}
	client, err := e.authenticateCaller(r, p)
	if err != nil {
		return nil, err
	}
	t, err := e.revocation.find(r.Context(), p, 0)
	switch {
	case err != nil:
		return nil, err
	case t == nil, t.clientID != client.ID && !client.IntrospectAll:
		return new(introspectionResponse), nil
	case t.family != nil:
		return e.introspectRefreshToken(r.Context(), t)
	}
	if hasAccess, err := e.families.grants.hasPatientAccess(r.Context(), t.access); !hasAccess || err != nil {
		return new(introspectionResponse), err
	}
	return &introspectionResponse{Active: true, TokenType: "Bearer", accessTokenClaims: t.access}, nil
}

// authenticateCaller authenticates the calling client by its credentials or its access token (SMART App Launch 2.2, Token
// Introspection), which prevents token scanning (RFC 7662 §4).
func (e *introspectionEndpoint) authenticateCaller(r *http.Request, p oauth2.Parameters) (*client.Client, error) {
	if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		claims, err := e.userinfo.bearerClaims(r)
		if err != nil {
			return nil, err
		}
		client, err := e.authenticator.Clients.Find(r.Context(), claims.ClientID)
		if err == nil && client == nil { // the client was deleted after the token was verified
			err = errInvalidAccessToken
		}
		return client, err
	}
	client, err := e.authenticator.Authenticate(r, p)
	if err == nil && client.IsPublic() {
		err = oauth2.InvalidClient("introspection requires client authentication: use a client secret, a signed client assertion or an access token")
	}
	return client, err
}

// introspectRefreshToken reports a refresh token as active if a refresh would succeed.
func (e *introspectionEndpoint) introspectRefreshToken(ctx context.Context, t *issuedToken) (any, error) {
	g := t.family.Grant
	client, err := e.authenticator.Clients.Find(ctx, g.ClientID)
	if !t.isCurrent || client == nil {
		return new(introspectionResponse), err
	}
	if err = e.families.checkFamily(ctx, t.family, client); err == nil {
		err = e.families.grants.checkRelationship(ctx, g)
	}
	if _, ok := errors.AsType[*oauth2.Error](err); ok {
		return new(introspectionResponse), nil
	}
	return &refreshIntrospection{
		Active: true, Issuer: e.Responder.Issuer, Subject: g.User, ClientID: g.ClientID, Scope: g.ScopeString(), Context: g.Launch,
		Expiry:   jwt.NewNumericDate(t.family.expiresAt(e.families.RefreshIdle)),
		IssuedAt: jwt.NewNumericDate(t.family.IssuedAt),
	}, err
}

// hasPatientAccess reports whether an access token still gives access to its patient. It returns false if the user no
// longer exists or, according to the FHIR server, no longer acts for the chosen patient.
func (gs *Grants) hasPatientAccess(ctx context.Context, t *accessTokenClaims) (bool, error) {
	if !t.NeedsRelationship || t.Context == nil {
		return true, nil
	}
	user, err := gs.accounts.Find(ctx, t.Subject)
	if user == nil || err != nil {
		return false, err
	}
	return gs.patients.StillRepresents(ctx, user.Person(), t.Patient)
}
