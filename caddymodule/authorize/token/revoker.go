package token

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// RevokedGrants contains the numbers of objects revoked by [Revoker.RevokeGrants], except codes and access tokens.
type RevokedGrants struct {
	Sessions      int `json:"sessions"`       // ended sessions
	RefreshTokens int `json:"refresh_tokens"` // revoked grants with refresh tokens
	Consents      int `json:"consents"`       // deleted consents; the next request asks for consent again
}

// ErrUnknownPrincipal means that the user or client does not exist and that nothing was revoked.
var ErrUnknownPrincipal = errors.New("nothing to revoke")

// Revoker revokes grants on behalf of operators and users.
type Revoker struct {
	durable     store.Store
	accounts    *people.Accounts
	clients     *client.Registry
	sessions    *session.Sessions
	revocations *revocation.Revocations
	trail       *audit.Recorder
	apps        *appIndex
	consents    *consent.Consents
	userQueue   *fairqueue.Queue // per-user queue, because revoking may have to scan the store
	families    *tokenFamilies
}

// RevokeGrants revokes codes, access tokens, refresh tokens and consents of a user, of a client, or of the pair if both are
// given. If no client is given, the user's sessions end too. Otherwise, sessions continue and the client receives a
// back-channel logout (OpenID Connect Back-Channel Logout 1.0). Later grants are unaffected. After an error, completed
// revocations remain, and the call can be repeated. The error is [ErrUnknownPrincipal] if nothing was revoked and the user or
// client does not exist.
func (r *Revoker) RevokeGrants(ctx context.Context, user, clientID string) (RevokedGrants, error) {
	var revoked RevokedGrants
	if user == "" && clientID == "" {
		return revoked, errors.New("revoking grants requires a user or a client_id")
	}
	err := r.revokeGrants(ctx, user, clientID, false, &revoked)
	if err == nil && revoked == (RevokedGrants{}) {
		err = r.checkPrincipalExists(ctx, user, clientID)
	}
	e := audit.Event{Kind: audit.KindRevocation, User: user, ClientID: clientID, Reason: "all grants revoked by operator", Err: err}
	if errors.Is(err, ErrUnknownPrincipal) {
		e.Err = oauth2.InvalidRequest(err.Error())
	}
	r.trail.Record(ctx, e)
	return revoked, err
}

// RevokeUserGrants calls [Revoker.RevokeGrants] for all grants of a user, with a reason for the audit log.
func (r *Revoker) RevokeUserGrants(ctx context.Context, user, reason string) error {
	if user == "" { // "" would mean all users
		return ErrUnknownPrincipal
	}
	err := r.revokeGrants(ctx, user, "", false, new(RevokedGrants))
	r.trail.Record(ctx, audit.Event{Kind: audit.KindRevocation, User: user, Reason: reason, Err: err})
	return err
}

// revokeGrants ends sessions first, so that they cannot issue anything else, unless keepSessions is set. It continues after
// errors.
func (r *Revoker) revokeGrants(ctx context.Context, user, clientID string, keepSessions bool, revoked *RevokedGrants) error {
	var errs [6]error
	startedAt := r.revocations.Now()
	endsSessions := clientID == "" && !keepSessions
	if endsSessions {
		revoked.Sessions, errs[0] = r.sessions.EndByUser(ctx, user)
	}
	errs[1] = r.revocations.CutOff(ctx, revocation.RareCutoffMarker, cutoffKey(user, clientID))
	if endsSessions && errs[1] == nil {
		var endedLate int // sessions that started during the revocation; their grants up to the cutoff are void
		endedLate, errs[5] = r.sessions.EndByUser(ctx, user)
		revoked.Sessions += endedLate
	}
	if errs[1] == nil { // without the cutoff, a refresh token that is being rotated would survive
		revoked.RefreshTokens, errs[1] = r.deleteFamilies(ctx, user, clientID)
	}
	revoked.Consents, errs[2] = r.consents.Delete(ctx, user, clientID)
	switch {
	case clientID != "":
		errs[3] = r.sessions.RemoveClient(ctx, user, clientID)
	case keepSessions:
		errs[3] = r.sessions.RemoveClients(ctx, user)
	}
	if user != "" && errors.Join(errs[:]...) == nil { // otherwise the app stays listed so that the revocation can be repeated
		errs[4] = r.apps.remove(ctx, user, clientID, startedAt)
	}
	return errors.Join(errs[:]...)
}

// deleteFamilies deletes families and returns their number.
func (r *Revoker) deleteFamilies(ctx context.Context, user, clientID string) (deleted int, err error) {
	keys, err := r.families.candidateKeys(ctx, user, clientID)
	if err != nil {
		return 0, err
	}
	return store.DeleteKeys(ctx, r.durable, keys, func(f *refreshFamily) bool {
		return (user == "" || f.Grant.User == user) && (clientID == "" || f.Grant.ClientID == clientID)
	})
}

// RevokeAppGrants revokes a user's grants to one client, or to all clients if clientID is empty, like
// [Revoker.RevokeGrants]. The user stays signed in.
func (r *Revoker) RevokeAppGrants(ctx context.Context, user, clientID string) error {
	if user == "" { // "" would mean all users
		return ErrUnknownPrincipal
	}
	release, err := r.userQueue.Acquire(ctx, user)
	if err != nil {
		return err
	}
	defer release()
	err = r.revokeGrants(ctx, user, clientID, true, new(RevokedGrants))
	r.trail.Record(ctx, audit.Event{Kind: audit.KindRevocation, User: user, ClientID: clientID, Reason: "app access revoked by user", Err: err})
	return err
}

func cutoffKey(user, clientID string) string {
	switch {
	case clientID == "":
		return revocation.UserCutoffKey(user)
	case user == "":
		return revocation.ClientCutoffKey(clientID)
	}
	return revocation.UserClientCutoffKey(user, clientID)
}

// checkPrincipalExists returns an error for unknown users and clients. Their names are probably misspelled.
func (r *Revoker) checkPrincipalExists(ctx context.Context, user, clientID string) error {
	client, err := r.clients.Find(ctx, clientID)
	if err != nil {
		return err
	}
	person, err := r.accounts.Find(ctx, user)
	if err != nil {
		return err
	}
	switch {
	case user != "" && person == nil && r.accounts.Directory.User(user) == nil:
		return fmt.Errorf("no user %q: %w", user, ErrUnknownPrincipal)
	case clientID != "" && client == nil:
		return fmt.Errorf("no client %q: %w", clientID, ErrUnknownPrincipal)
	}
	return nil
}

// RevokeSignIn revokes everything issued from a sign-in at an identity provider. This includes grants that outlive the session.
// It also ends the session, unless the user has since signed in to it in another way. RevokeSignIn is idempotent.
func (r *Revoker) RevokeSignIn(ctx context.Context, s revalidation.SignIn) error {
	stored, err := r.sessions.Find(ctx, s.SID)
	switch {
	case err == nil && stored == nil: // access tokens of the ended session may still be valid
		err = r.revocations.EndSession(ctx, s.SID, nil, nil)
	case errors.Is(err, session.ErrUnreadable), err == nil && stored.Provider == s.Provider:
		_, err = r.sessions.EndByID(ctx, s.SID)
	}
	return errors.Join(err, r.revokeSignInGrants(ctx, s))
}

// revokeSignInGrants revokes the grants of a sign-in that have refresh tokens.
func (r *Revoker) revokeSignInGrants(ctx context.Context, s revalidation.SignIn) error {
	keys, err := r.families.candidateKeys(ctx, s.User, "")
	var grants []*Grant
	readErr := store.EachBatch(ctx, r.durable, keys, func(batch []*refreshFamily) error {
		for _, f := range batch {
			if g := f.Grant; g.User == s.User && g.Session == s.SID && g.Provider == s.Provider {
				grants = append(grants, g)
			}
		}
		return nil
	})
	err = errors.Join(err, readErr)
	for _, g := range grants {
		err = errors.Join(err, r.revokeGrant(ctx, g))
	}
	return err
}

func (r *Revoker) revokeGrant(ctx context.Context, g *Grant) error {
	err := r.families.revoke(ctx, g)
	r.families.trail.Record(ctx, audit.Event{
		Kind: audit.KindRevocation, User: g.User, ClientID: g.ClientID, Scope: g.ScopeString(), Person: audit.Person{Provider: g.Provider, Subject: g.Subject},
		Reason: audit.SessionEndReason(ctx), Err: err,
	})
	return err
}

type revocationEndpoint struct {
	*endpoint.Responder
	authenticator *client.Authenticator
	families      *tokenFamilies
	revocations   *revocation.Revocations
	verifier      *Verifier
}

// serve handles a revocation request. It also reports success for invalid tokens (RFC 7009 §2.2).
func (e *revocationEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	if err := e.revokeToken(w, r); err != nil {
		e.Trail.RecordRejection(r, audit.Event{Kind: audit.KindRevocation, Err: err})
		e.WriteError(w, r, err)
		return
	}
	// The body is ignored (RFC 7009 §2.2), but some clients expect JSON.
	e.WriteJSON(w, http.StatusOK, struct{}{})
}

func (e *revocationEndpoint) revokeToken(w http.ResponseWriter, r *http.Request) error {
	p, err := e.authenticator.ParseForm(w, r)
	if err != nil {
		return err
	}
	client, err := e.authenticator.Authenticate(r, p)
	if err != nil {
		return err
	}
	t, err := e.find(r.Context(), p, revocation.MaxClockJump) // leeway, because a clock that jumped ahead makes valid tokens look expired
	switch {
	case t == nil || err != nil:
		return err
	case t.clientID != client.ID:
		return &oauth2.Error{Code: "unauthorized_client", Description: "the token was issued to another client"}
	}
	if err := e.revoke(r.Context(), t); err != nil {
		return err
	}
	e.Trail.Record(r.Context(), audit.Event{Kind: audit.KindRevocation, ClientID: client.ID, User: t.user})
	return nil
}

// revoke revokes an access token, or the entire grant if t is a refresh token.
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
	isCurrent      bool // whether it is the family's current refresh token
	clientID, user string
}

// find returns the token in a request, or nil if it is invalid. An access token may have expired less than leeway ago. Access
// and refresh tokens differ in form, which makes token_type_hint unnecessary (RFC 7009 §2.1). An old refresh token still
// identifies its family.
func (e *revocationEndpoint) find(ctx context.Context, p oauth2.Parameters, leeway time.Duration) (*issuedToken, error) {
	raw := p.Get("token")
	if raw == "" {
		return nil, oauth2.InvalidRequest("token is missing")
	}
	if familyID(raw) == "" {
		claims, err := e.verifier.verify(ctx, raw, leeway)
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
		state = e.families.classify(f, raw)
	}
	if state == unknownToken {
		return nil, nil
	}
	return &issuedToken{family: f, isCurrent: state == currentToken, clientID: f.Grant.ClientID, user: f.Grant.User}, nil
}
