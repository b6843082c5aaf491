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

// RevokedGrants says what [Server.RevokeGrants] has ended beside codes and access tokens,
// which nobody counts.
type RevokedGrants struct {
	// Sessions is how many sessions of the person there were.
	Sessions int `json:"sessions"`

	// RefreshTokens is how many grants could be refreshed.
	RefreshTokens int `json:"refresh_tokens"`

	// Consents is how many approvals were remembered: people are asked again.
	Consents int `json:"consents"`
}

// ErrUnknownHolder says that there is neither such a person or client, nor anything that they
// were given.
var ErrUnknownHolder = errors.New("no such user or client, and nothing was given to them")

// Revoker ends what operators want ended.
type Revoker struct {
	durable     store.Store
	accounts    *people.Accounts
	clients     *client.Registry
	sessions    *session.Sessions
	revocations *revocation.Revocations
	trail       *audit.Recorder
}

// RevokeGrants ends at once everything that a user let clients have, or that a client was
// given by anybody, or by this user where both are named: codes, access tokens and
// refresh tokens, and the consent that was remembered. A user's sessions end too where
// no client is named; otherwise people stay signed in, and the client is told that
// their sessions are over for it (OpenID Connect Back-Channel Logout 1.0). What is
// given later is good. Of what fails half-way, what was ended stays so; the call can be
// repeated.
func (e *Revoker) RevokeGrants(ctx context.Context, user, clientID string) (RevokedGrants, error) {
	var ended RevokedGrants
	if user == "" && clientID == "" {
		return ended, errors.New("neither a user nor a client is named")
	}
	err := e.revokeGrants(ctx, user, clientID, &ended)
	if err == nil && ended == (RevokedGrants{}) {
		err = e.checkKnown(ctx, user, clientID)
	}
	e.trail.Record(ctx, audit.Event{Kind: audit.Revocation, User: user, ClientID: clientID, Reason: "the operator ended everything that was given", Err: err})
	return ended, err
}

// revokeGrants ends sessions first, so that whoever has one is given no more by it; then what
// was given until that moment, be it in use right now. What fails keeps nothing else alive.
func (e *Revoker) revokeGrants(ctx context.Context, user, clientID string, ended *RevokedGrants) error {
	var errs [4]error
	if clientID == "" {
		ended.Sessions, errs[0] = e.sessions.EndSessions(ctx, user)
	}
	errs[1] = e.revocations.CutOff(ctx, revocation.RareCutoff, cutoffOf(user, clientID))
	if errs[1] == nil { // else who comes with a refresh token is not refused meanwhile
		ended.RefreshTokens, errs[1] = e.deleteFamilies(ctx, user, clientID)
	}
	ended.Consents, errs[2] = e.deleteConsents(ctx, user, clientID)
	if clientID != "" {
		errs[3] = e.sessions.Leave(ctx, user, clientID)
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

// checkKnown finds out about misspelt names, so that nobody thinks that more has ended
// than did.
func (e *Revoker) checkKnown(ctx context.Context, user, clientID string) error {
	client, err := e.clients.Find(ctx, clientID)
	if err != nil {
		return err
	}
	person, err := e.accounts.Find(ctx, user)
	if err != nil {
		return err
	}
	if clientID != "" && client == nil || user != "" && person == nil && e.accounts.Directory.Users[user] == nil {
		return ErrUnknownHolder
	}
	return nil
}

// deleteFamilies deletes the refresh tokens of a user, a client or both. An empty name
// stands for all.
func (e *Revoker) deleteFamilies(ctx context.Context, user, clientID string) (int, error) {
	return store.DeleteFunc(ctx, e.durable, familyKey(""), func(value []byte) (bool, error) {
		f, err := parseFamily(value)
		return err == nil && matches(f.Grant.User, f.Grant.ClientID, user, clientID), err
	})
}

// deleteConsents forgets the consent of a user, or to a client, or both.
func (e *Revoker) deleteConsents(ctx context.Context, user, clientID string) (int, error) {
	return store.DeleteFunc(ctx, e.durable, "consent:", func(value []byte) (bool, error) {
		c := new(consent.Consent)
		err := json.Unmarshal(value, c)
		return err == nil && matches(c.User, c.ClientID, user, clientID), err
	})
}

func matches(hasUser, hasClient, user, clientID string) bool {
	return (user == "" || hasUser == user) && (clientID == "" || hasClient == clientID)
}
