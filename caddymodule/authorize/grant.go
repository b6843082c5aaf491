package authorize

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// grant is what a person let a client have: the content of a code, and the
// ground on which tokens are made.
type grant struct {
	// Family names the grant and all tokens that are made from it. It is fixed
	// before the code is sent, so that whoever finds the code used twice can
	// revoke a token that is being made at that very moment.
	Family string `json:"family"`

	ClientID      string    `json:"client_id"`
	RedirectURI   string    `json:"redirect_uri"`
	Asked         string    `json:"asked"`
	Scope         []string  `json:"scope"`
	User          string    `json:"user"`
	SignedInAt    time.Time `json:"signed_in_at"`
	At            time.Time `json:"at"`                // when it was given
	Session       string    `json:"session,omitempty"` // the sid of the sign-in
	AMR           []string  `json:"amr,omitempty"`     // how it was made (RFC 8176)
	Provider      string    `json:"provider,omitempty"`
	Subject       string    `json:"upstream_sub,omitempty"` // there
	Credential    []byte    `json:"credential"`             // of the user at the time
	CodeChallenge string    `json:"code_challenge,omitempty"`
	Nonce         string    `json:"nonce,omitempty"`

	// Claims asked for by name (OpenID Connect Core §5.5).
	UserinfoClaims []string `json:"userinfo_claims,omitempty"`
	IDTokenClaims  []string `json:"id_token_claims,omitempty"`
}

// grants says what of a grant still stands.
type grants struct {
	accounts    *accounts
	consents    *consents
	revocations *revocations
	sessions    *sessions
}

// newGrant is what a person who is signed in lets a client have from now on.
func (gs *grants) newGrant(ctx context.Context, req *authorizationRequest, by *signedIn) (*grant, error) {
	credential := by.user.credential()
	g := &grant{
		Family:        randomID(),
		ClientID:      req.client.ID,
		RedirectURI:   req.redirectURI,
		Asked:         req.asked,
		Scope:         req.scope,
		User:          by.user.ID,
		SignedInAt:    by.at,
		Session:       by.sid,
		AMR:           by.amr,
		Provider:      by.by,
		Subject:       by.subject,
		Credential:    credential[:],
		CodeChallenge: req.codeChallenge,
		Nonce:         req.nonce,

		UserinfoClaims: req.userinfoClaims,
		IDTokenClaims:  req.idTokenClaims,
	}
	cutoff, err := gs.revocations.latestCutoff(ctx, given{user: g.User, clientID: g.ClientID})
	if g.At = dateAfter(cutoff); err == nil {
		err = gs.sessions.stillSignedIn(ctx, by.sid)
	}
	return g, err
}

// stillSignedIn refuses a session that ended while a request of it was under way. It comes
// after a grant has got its time: a session that ends later makes the grant void.
func (s *sessions) stillSignedIn(ctx context.Context, sid string) error {
	session, err := s.readSession(ctx, sid)
	if err == nil && session == nil {
		err = &oauth2.Error{Code: "login_required", Description: "the person has signed out meanwhile"}
	}
	return err
}

func (g *grant) scope() string { return strings.Join(g.Scope, " ") }

func (g *grant) has(scope string) bool { return slices.Contains(g.Scope, scope) }

// codes are the authorization codes.
type codes struct {
	lifetime    time.Duration
	store       store.Store
	durable     store.Store
	recent      *recentCodes
	grants      *grants
	families    *families
	revocations *revocations
	trail       *recorder
}

// codeAnswer stores the grant under a new code (RFC 6749 §4.1.2).
func (cs *codes) codeAnswer(ctx context.Context, g *grant) (answerParameters, error) {
	value, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	code := oauth2.RandomToken()
	key := storeKey("code", code)
	if err := cs.store.Add(ctx, key, value, cs.lifetime); err != nil {
		return nil, err
	}
	if err := cs.keepCode(ctx, g, key); err != nil {
		return nil, err
	}
	var a answerParameters
	a.add("code", code)
	return a, nil
}

// grantUser is the person of a grant. It ends with them: who was removed or
// disabled, has another password since, or came by a link that there is no more,
// gives nothing any more.
func (gs *grants) grantUser(ctx context.Context, g *grant) (*User, error) {
	user, err := gs.accounts.account(ctx, g.User)
	if err != nil {
		return nil, err
	}
	if user == nil {
		return nil, oauth2.InvalidGrant("the user is no longer known")
	}
	unlinked, err := gs.accounts.unlinked(ctx, user, g.Provider, g.Subject)
	if err != nil {
		return nil, err
	}
	if unlinked {
		return nil, oauth2.InvalidGrant("the user can no longer come the way that they did")
	}
	if credential := user.credential(); !bytes.Equal(credential[:], g.Credential) {
		return nil, oauth2.InvalidGrant("the user has another password since")
	}
	return user, nil
}

var errSpentCode = oauth2.InvalidGrant("the code is unknown, expired or used already")

// redeemable is the grant of a code that was not used yet. Everything that can be
// wrong with the request is checked before the code counts as used, so that nobody
// without the client's credentials and verifier can use up somebody's code.
func (cs *codes) redeemable(ctx context.Context, client *Client, p oauth2.Parameters) (*grant, error) {
	g, err := cs.storedGrant(ctx, p.Get("code"))
	if err != nil {
		return nil, err
	}
	if err := g.check(client, p); err != nil {
		return nil, err
	}
	switch _, err = cs.store.Get(ctx, tokenKey(g.Family)); {
	case errors.Is(err, store.ErrNotFound):
		return g, cs.codeStands(ctx, g, client)
	case err != nil:
		return nil, err
	}
	return nil, cs.endTwiceUsed(ctx, g)
}

// redeem uses a code up. Of several at once one succeeds, and none whose tokens could
// not be made: where this fails, nobody has been given any.
//
// That a code was used is an entry of its own rather than the code's absence, so that
// of many at once all but one see it, however they interleave; and it is the entry
// that becomes the revocation, so that there is always room for that.
func (cs *codes) redeem(ctx context.Context, g *grant) error {
	err := cs.store.Add(ctx, tokenKey(g.Family), tokenUsed, cs.lifetime)
	switch {
	case errors.Is(err, store.ErrExists):
		return cs.endTwiceUsed(ctx, g)
	case err != nil && g.refreshes():
		return errors.Join(err, cs.durable.Delete(context.WithoutCancel(ctx), familyKey(g.Family)))
	}
	return err
}

// endTwiceUsed revokes what a code gave that comes a second time: it was stolen
// before or after the first (RFC 6749 §4.1.2).
func (cs *codes) endTwiceUsed(ctx context.Context, g *grant) error {
	err := cs.families.revokeFamily(ctx, g)
	cs.trail.record(ctx, audit.Event{Kind: audit.Revocation, ClientID: g.ClientID, User: g.User, Reason: "a code was used twice", Err: err})
	if err != nil {
		return fmt.Errorf("revoking what a code gave that was used twice: %w", err)
	}
	return errSpentCode
}

// codeStands refuses a code that ended before it was exchanged.
func (cs *codes) codeStands(ctx context.Context, g *grant, client *Client) error {
	cutoff, err := cs.revocations.latestCutoff(ctx, g.code())
	switch {
	case err != nil:
		return err
	case isCutOff(g.At, cutoff):
		return oauth2.InvalidGrant("the person has signed out since, or the grant was revoked")
	}
	return cs.grants.stillAllowed(ctx, g, client)
}

func (cs *codes) storedGrant(ctx context.Context, code string) (*grant, error) {
	if code == "" {
		return nil, oauth2.InvalidRequest("code is missing")
	}
	value, err := cs.store.Get(ctx, storeKey("code", code))
	if errors.Is(err, store.ErrNotFound) {
		return nil, errSpentCode
	}
	if err != nil {
		return nil, err
	}
	g := new(grant)
	return g, json.Unmarshal(value, g)
}

// check compares a token request with the authorization request it goes on
// from (RFC 6749 §4.1.3).
func (g *grant) check(client *Client, p oauth2.Parameters) error {
	switch {
	case g.ClientID != client.ID:
		return oauth2.InvalidGrant("the code was given to another client")
	case p.Get("redirect_uri") == "":
		return oauth2.InvalidRequest("redirect_uri is missing")
	case p.Get("redirect_uri") != g.RedirectURI:
		return oauth2.InvalidGrant("redirect_uri is not the one of the authorization request")
	}
	return oauth2.CheckVerifier(g.CodeChallenge, p.Get("code_verifier"))
}
