package token

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// RevokedGrants counts what [Revoker.RevokeGrants] has revoked, beside codes and
// access tokens.
type RevokedGrants struct {
	Sessions      int `json:"sessions"`       // of the person
	RefreshTokens int `json:"refresh_tokens"` // grants that could be refreshed
	Consents      int `json:"consents"`       // that were remembered; people are asked again
}

// ErrUnknownHolder says that there is no such user or client, and that they had
// been granted nothing.
var ErrUnknownHolder = errors.New("no such user or client, and nothing was given to them")

// Revoker revokes grants for operators.
type Revoker struct {
	durable     store.Store
	accounts    *people.Accounts
	clients     *client.Registry
	sessions    *session.Sessions
	revocations *revocation.Revocations
	trail       *audit.Recorder
}

// RevokeGrants revokes all grants of a user, to a client, or of the user to the
// client if both are named: codes, access tokens, refresh tokens and consents. If
// no client is named, it ends the user's sessions too. Otherwise people stay signed
// in, and the client is told that their sessions are over for it (OpenID Connect
// Back-Channel Logout 1.0). Later grants are not affected. After an error, what was
// revoked stays revoked, and the call can be repeated. Its error is
// [ErrUnknownHolder] if user and client are unknown and nothing was revoked.
func (r *Revoker) RevokeGrants(ctx context.Context, user, clientID string) (RevokedGrants, error) {
	var revoked RevokedGrants
	if user == "" && clientID == "" {
		return revoked, errors.New("neither a user nor a client is named")
	}
	err := r.revokeGrants(ctx, user, clientID, &revoked)
	if err == nil && revoked == (RevokedGrants{}) {
		err = r.checkKnown(ctx, user, clientID)
	}
	r.trail.Record(ctx, audit.Event{Kind: audit.Revocation, User: user, ClientID: clientID, Reason: "the operator ended everything that was given", Err: err})
	return revoked, err
}

// revokeGrants ends sessions first, so that they give nothing more, and continues
// after an error.
func (r *Revoker) revokeGrants(ctx context.Context, user, clientID string, revoked *RevokedGrants) error {
	var errs [4]error
	if clientID == "" {
		revoked.Sessions, errs[0] = r.sessions.EndByUser(ctx, user)
	}
	errs[1] = r.revocations.CutOff(ctx, revocation.RareCutoff, cutoffOf(user, clientID))
	if errs[1] == nil { // without the cutoff, a refresh token in use would survive
		revoked.RefreshTokens, errs[1] = r.deleteFamilies(ctx, user, clientID)
	}
	revoked.Consents, errs[2] = r.deleteConsents(ctx, user, clientID)
	if clientID != "" {
		errs[3] = r.sessions.RemoveClient(ctx, user, clientID)
	}
	return errors.Join(errs[:]...)
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
	if clientID != "" && client == nil || user != "" && person == nil && r.accounts.Directory.Users[user] == nil {
		return ErrUnknownHolder
	}
	return nil
}

// deleteFamilies deletes refresh tokens. An empty name matches all.
func (r *Revoker) deleteFamilies(ctx context.Context, user, clientID string) (int, error) {
	return store.DeleteFunc(ctx, r.durable, familyKey(""), func(value []byte) (bool, error) {
		f, err := parseFamily(value)
		return err == nil && matches(f.Grant.User, f.Grant.ClientID, user, clientID), err
	})
}

// deleteConsents deletes remembered consents. An empty name matches all.
func (r *Revoker) deleteConsents(ctx context.Context, user, clientID string) (int, error) {
	return store.DeleteFunc(ctx, r.durable, "consent:", func(value []byte) (bool, error) {
		c := new(consent.Consent)
		err := json.Unmarshal(value, c)
		return err == nil && matches(c.User, c.ClientID, user, clientID), err
	})
}

func matches(hasUser, hasClient, user, clientID string) bool {
	return (user == "" || hasUser == user) && (clientID == "" || hasClient == clientID)
}
