package authorize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"strings"
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

// EndGrants ends at once everything that a user let clients have, or that a client was
// given by anybody, or by this user where both are named: codes, access tokens and
// refresh tokens, and the consent that was remembered. A user's sessions end too where
// no client is named; otherwise people stay signed in, and the client is told that
// their sessions are over for it (OpenID Connect Back-Channel Logout 1.0). What is
// given later is good. Of what fails half-way, what was ended stays so; the call can be
// repeated.
func (s *Server) EndGrants(ctx context.Context, user, clientID string) (EndedGrants, error) {
	var ended EndedGrants
	if user == "" && clientID == "" {
		return ended, errors.New("neither a user nor a client is named")
	}
	err := s.endGrants(ctx, user, clientID, &ended)
	if err == nil && ended == (EndedGrants{}) {
		err = s.mustKnow(ctx, user, clientID)
	}
	s.record(ctx, audit.Event{Kind: audit.Revocation, User: user, ClientID: clientID, Reason: "the operator ended everything that was given", Err: err})
	return ended, err
}

// endGrants ends sessions first, so that whoever has one is given no more by it; then what
// was given until that moment, be it in use right now. What fails keeps nothing else alive.
func (s *Server) endGrants(ctx context.Context, user, clientID string, ended *EndedGrants) error {
	var errs [4]error
	if clientID == "" {
		ended.Sessions, errs[0] = s.EndSessions(ctx, user)
	}
	errs[1] = s.cutOff(ctx, rareCutoff, cutoffOf(user, clientID))
	if errs[1] == nil { // else who comes with a refresh token is not refused meanwhile
		ended.RefreshTokens, errs[1] = s.endFamilies(ctx, user, clientID)
	}
	ended.Consents, errs[2] = s.endConsents(ctx, user, clientID)
	if clientID != "" {
		errs[3] = s.leaveSessions(ctx, user, clientID)
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
func (s *Server) mustKnow(ctx context.Context, user, clientID string) error {
	client, err := s.client(ctx, clientID)
	if err != nil {
		return err
	}
	person, err := s.account(ctx, user)
	if err != nil {
		return err
	}
	if clientID != "" && client == nil || user != "" && person == nil && s.directory.users[user] == nil {
		return ErrNobody
	}
	return nil
}

// endFamilies deletes the refresh tokens of a user, a client or both. An empty name
// stands for all.
func (s *Server) endFamilies(ctx context.Context, user, clientID string) (int, error) {
	return s.deleteOf(ctx, familyKey(""), func(value []byte) (bool, error) {
		f, err := parseFamily(value)
		return err == nil && isOf(f.Grant.User, f.Grant.ClientID, user, clientID), err
	})
}

// endConsents forgets the consent of a user, or to a client, or both.
func (s *Server) endConsents(ctx context.Context, user, clientID string) (int, error) {
	return s.deleteOf(ctx, "consent:", func(value []byte) (bool, error) {
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
func (s *Server) deleteOf(ctx context.Context, prefix string, meant func([]byte) (bool, error)) (deleted int, err error) {
	keys, err := s.durable.List(ctx, prefix)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, key := range keys {
		is, err := s.deleteIf(ctx, key, meant)
		if is {
			deleted++
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimSuffix(prefix, ":"), err))
		}
	}
	return deleted, errors.Join(errs...)
}

func (s *Server) deleteIf(ctx context.Context, key string, meant func([]byte) (bool, error)) (bool, error) {
	value, err := s.durable.Get(ctx, key)
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
	return true, s.durable.Delete(ctx, key)
}

// leaveSessions takes a client out of the sessions of a user, or of all, and tells it.
func (s *Server) leaveSessions(ctx context.Context, user, clientID string) error {
	client, err := s.client(ctx, clientID)
	if client == nil || err != nil {
		return err
	}
	meant := func(stored *storedSession) bool { return user == "" || stored.User == user }
	_, err = s.eachSession(ctx, meant, func(stored *storedSession) error {
		notes, err := s.noteOf(ctx, stored.sid, client)
		if err != nil {
			return err
		}
		s.tellClients(ctx, stored, notes)
		return nil
	})
	return err
}
