package token

import (
	"context"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

// RevokedGrants counts what [Revoker.RevokeGrants] revoked beside codes and access tokens.
type RevokedGrants struct {
	Sessions      int `json:"sessions"`       // of the person
	RefreshTokens int `json:"refresh_tokens"` // grants that could be refreshed
	Consents      int `json:"consents"`       // that were remembered; people are asked again
}

// ErrUnknownHolder says that user or client do not exist, and that nothing was revoked.
var ErrUnknownHolder = errors.New("no such user or client, and nothing was given to them")

// Revoker revokes grants for operators, and for the people who gave them.
type Revoker struct {
	durable     store.Store
	accounts    *people.Accounts
	clients     *client.Registry
	sessions    *session.Sessions
	revocations *revocation.Revocations
	trail       *audit.Recorder
	apps        *appIndex
	consents    *consent.Consents
	turns       *fairqueue.Queue // of people: to search the store, as long as not all is listed, is costly
	families    *families
}

// RevokeGrants revokes codes, access tokens, refresh tokens and consents: all of a user, all
// of a client, or those of the user to the client if both are named. Without a client, the
// user's sessions end too; with one, people stay signed in, and the client is notified of a
// logout (OpenID Connect Back-Channel Logout 1.0). Later grants are not affected. After an
// error, what was revoked stays revoked, and the call can be repeated. If nothing was
// revoked and the user or client does not exist, the error is [ErrUnknownHolder].
func (r *Revoker) RevokeGrants(ctx context.Context, user, clientID string) (RevokedGrants, error) {
	var revoked RevokedGrants
	if user == "" && clientID == "" {
		return revoked, errors.New("neither a user nor a client is named")
	}
	err := r.revokeGrants(ctx, user, clientID, false, &revoked)
	if err == nil && revoked == (RevokedGrants{}) {
		err = r.checkKnown(ctx, user, clientID)
	}
	r.trail.Record(ctx, audit.Event{Kind: audit.Revocation, User: user, ClientID: clientID, Reason: "the operator ended everything that was given", Err: err})
	return revoked, err
}

// EndPerson is [Revoker.RevokeGrants] of all of a user, for a reason that is not the operator's.
func (r *Revoker) EndPerson(ctx context.Context, user, reason string) error {
	if user == "" { // which would be everybody
		return ErrUnknownHolder
	}
	err := r.revokeGrants(ctx, user, "", false, new(RevokedGrants))
	r.trail.Record(ctx, audit.Event{Kind: audit.Revocation, User: user, Reason: reason, Err: err})
	return err
}

// revokeGrants ends sessions first, so that they give nothing more, unless the person stays signed in. It continues after
// an error.
func (r *Revoker) revokeGrants(ctx context.Context, user, clientID string, staysSignedIn bool, revoked *RevokedGrants) error {
	var errs [6]error
	began := r.revocations.Now()
	ends := clientID == "" && !staysSignedIn
	if ends {
		revoked.Sessions, errs[0] = r.sessions.EndByUser(ctx, user)
	}
	errs[1] = r.revocations.CutOff(ctx, revocation.RareCutoff, cutoffOf(user, clientID))
	if ends && errs[1] == nil {
		errs[5] = r.endLateSessions(ctx, user, revoked)
	}
	if errs[1] == nil { // without the cutoff, a refresh token in use would survive
		revoked.RefreshTokens, errs[1] = r.deleteFamilies(ctx, user, clientID)
	}
	revoked.Consents, errs[2] = r.consents.Delete(ctx, user, clientID)
	switch {
	case clientID != "":
		errs[3] = r.sessions.RemoveClient(ctx, user, clientID)
	case staysSignedIn:
		errs[3] = r.sessions.RemoveClients(ctx, user)
	}
	if user != "" && errors.Join(errs[:]...) == nil { // else it stays listed, to be ended again
		errs[4] = r.apps.forget(ctx, user, clientID, began)
	}
	return errors.Join(errs[:]...)
}

// deleteFamilies deletes families, and returns how many.
func (r *Revoker) deleteFamilies(ctx context.Context, user, clientID string) (deleted int, err error) {
	keys, err := r.families.keysOf(ctx, user, clientID)
	if err != nil {
		return 0, err
	}
	return store.DeleteKeys(ctx, r.durable, keys, func(f *refreshFamily) bool {
		return (user == "" || f.Grant.User == user) && (clientID == "" || f.Grant.ClientID == clientID)
	})
}

// endLateSessions ends sessions that began while the others were ended: what they gave until
// the cutoff is void.
func (r *Revoker) endLateSessions(ctx context.Context, user string, revoked *RevokedGrants) error {
	n, err := r.sessions.EndByUser(ctx, user)
	revoked.Sessions += n
	return err
}

// EndApps revokes what a person gave to a client, or to all if it is empty, as
// [Revoker.RevokeGrants] does. The person stays signed in.
func (r *Revoker) EndApps(ctx context.Context, user, clientID string) error {
	if user == "" { // which would be everybody
		return ErrUnknownHolder
	}
	leave, err := r.turns.Enter(ctx, user)
	if err != nil {
		return err
	}
	defer leave()
	err = r.revokeGrants(ctx, user, clientID, true, new(RevokedGrants))
	r.trail.Record(ctx, audit.Event{Kind: audit.Revocation, User: user, ClientID: clientID, Reason: "the person ended the access", Err: err})
	return err
}

func cutoffOf(user, clientID string) string {
	switch {
	case clientID == "":
		return revocation.UserCutoff(user)
	case user == "":
		return revocation.ClientCutoff(clientID)
	}
	return revocation.PairCutoff(user, clientID)
}

// checkKnown detects misspelled names.
func (r *Revoker) checkKnown(ctx context.Context, user, clientID string) error {
	client, err := r.clients.Find(ctx, clientID)
	if err != nil {
		return err
	}
	person, err := r.accounts.Find(ctx, user)
	if err != nil {
		return err
	}
	if clientID != "" && client == nil || user != "" && person == nil && r.accounts.Directory.User(user) == nil {
		return ErrUnknownHolder
	}
	return nil
}
