package authorize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// EndedGrants says what [Server.EndGrants] has ended beside codes and access tokens,
// which nobody counts.
type EndedGrants struct {
	// Sessions is how many sessions of the person there were.
	Sessions int `json:"sessions"`

	// RefreshTokens is how many grants could be refreshed.
	RefreshTokens int `json:"refresh_tokens"`

	// Consents is how many approvals were remembered: people are asked again.
	Consents int `json:"consents"`
}

// ErrNobody says that there is neither such a person or client, nor anything that they
// were given.
var ErrNobody = errors.New("no such user or client, and nothing was given to them")

// endings ends what operators want ended.
type endings struct {
	durable     store.Store
	accounts    *accounts
	clients     *registry
	sessions    *sessions
	revocations *revocations
	trail       *recorder
}

// EndGrants ends at once everything that a user let clients have, or that a client was
// given by anybody, or by this user where both are named: codes, access tokens and
// refresh tokens, and the consent that was remembered. A user's sessions end too where
// no client is named; otherwise people stay signed in, and the client is told that
// their sessions are over for it (OpenID Connect Back-Channel Logout 1.0). What is
// given later is good. Of what fails half-way, what was ended stays so; the call can be
// repeated.
func (e *endings) EndGrants(ctx context.Context, user, clientID string) (EndedGrants, error) {
	var ended EndedGrants
	if user == "" && clientID == "" {
		return ended, errors.New("neither a user nor a client is named")
	}
	err := e.endGrants(ctx, user, clientID, &ended)
	if err == nil && ended == (EndedGrants{}) {
		err = e.mustKnow(ctx, user, clientID)
	}
	e.trail.record(ctx, audit.Event{Kind: audit.Revocation, User: user, ClientID: clientID, Reason: "the operator ended everything that was given", Err: err})
	return ended, err
}

// endGrants ends sessions first, so that whoever has one is given no more by it; then what
// was given until that moment, be it in use right now. What fails keeps nothing else alive.
func (e *endings) endGrants(ctx context.Context, user, clientID string, ended *EndedGrants) error {
	var errs [4]error
	if clientID == "" {
		ended.Sessions, errs[0] = e.sessions.EndSessions(ctx, user)
	}
	errs[1] = e.revocations.cutOff(ctx, rareCutoff, cutoffOf(user, clientID))
	if errs[1] == nil { // else who comes with a refresh token is not refused meanwhile
		ended.RefreshTokens, errs[1] = e.endFamilies(ctx, user, clientID)
	}
	ended.Consents, errs[2] = e.endConsents(ctx, user, clientID)
	if clientID != "" {
		errs[3] = e.sessions.leaveSessions(ctx, user, clientID)
	}
	return errors.Join(errs[:]...)
}

func cutoffOf(user, clientID string) string {
	switch {
	case clientID == "":
		return userCutoff(user)
	case user == "":
		return clientCutoff(clientID)
	}
	return pairCutoff(user, clientID)
}

// mustKnow finds out about misspelt names, so that nobody thinks that more has ended
// than did.
func (e *endings) mustKnow(ctx context.Context, user, clientID string) error {
	client, err := e.clients.client(ctx, clientID)
	if err != nil {
		return err
	}
	person, err := e.accounts.account(ctx, user)
	if err != nil {
		return err
	}
	if clientID != "" && client == nil || user != "" && person == nil && e.accounts.directory.users[user] == nil {
		return ErrNobody
	}
	return nil
}

// endFamilies deletes the refresh tokens of a user, a client or both. An empty name
// stands for all.
func (e *endings) endFamilies(ctx context.Context, user, clientID string) (int, error) {
	return e.deleteOf(ctx, familyKey(""), func(value []byte) (bool, error) {
		f, err := parseFamily(value)
		return err == nil && isOf(f.Grant.User, f.Grant.ClientID, user, clientID), err
	})
}

// endConsents forgets the consent of a user, or to a client, or both.
func (e *endings) endConsents(ctx context.Context, user, clientID string) (int, error) {
	return e.deleteOf(ctx, "consent:", func(value []byte) (bool, error) {
		c := new(consent)
		err := json.Unmarshal(value, c)
		return err == nil && isOf(c.User, c.ClientID, user, clientID), err
	})
}

func isOf(hasUser, hasClient, user, clientID string) bool {
	return (user == "" || hasUser == user) && (clientID == "" || hasClient == clientID)
}

// deleteOf deletes what is meant of the durable store's entries of a kind. What cannot
// be read is passed over until the end: it must not keep the rest alive.
func (e *endings) deleteOf(ctx context.Context, prefix string, meant func([]byte) (bool, error)) (deleted int, err error) {
	keys, err := e.durable.List(ctx, prefix)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, key := range keys {
		is, err := e.deleteIf(ctx, key, meant)
		if is {
			deleted++
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimSuffix(prefix, ":"), err))
		}
	}
	return deleted, errors.Join(errs...)
}

func (e *endings) deleteIf(ctx context.Context, key string, meant func([]byte) (bool, error)) (bool, error) {
	value, err := e.durable.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) { // ended by itself meanwhile
		return false, nil
	}
	if err != nil {
		return false, err
	}
	is, err := meant(value)
	if !is || err != nil {
		return false, err
	}
	return true, e.durable.Delete(ctx, key)
}

// leaveSessions takes a client out of the sessions of a user, or of all, and tells it.
func (s *sessions) leaveSessions(ctx context.Context, user, clientID string) error {
	client, err := s.clients.client(ctx, clientID)
	if client == nil || err != nil {
		return err
	}
	meant := func(stored *storedSession) bool { return user == "" || stored.User == user }
	_, err = s.eachSession(ctx, meant, func(stored *storedSession) error {
		notes, err := s.participants.noteOf(ctx, stored.sid, client)
		if err != nil {
			return err
		}
		s.notifier.tellClients(ctx, stored, notes)
		return nil
	})
	return err
}
