package token

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// Grant is what a person let a client have: the content of a code, and the
// ground on which tokens are made.
type Grant struct {
	// Family names the grant and all tokens that are made from it. It is fixed
	// before the code is sent, so that whoever finds the code used twice can
	// revoke a token that is being made at that very moment.
	Family string `json:"family"`

	ClientID       string    `json:"client_id"`                // of whom it was given to
	RedirectURI    string    `json:"redirect_uri"`             // of the authorization request
	RequestedScope string    `json:"asked"`                    // scope as it was requested
	Scope          []string  `json:"scope"`                    // scope as it was granted
	User           string    `json:"user"`                     // the sub
	SignedInAt     time.Time `json:"signed_in_at"`             // when they proved who they are
	GrantedAt      time.Time `json:"at"`                       // when it was given
	Session        string    `json:"session,omitempty"`        // the sid of the sign-in
	AMR            []string  `json:"amr,omitempty"`            // how it was made (RFC 8176)
	Provider       string    `json:"provider,omitempty"`       // that they came by; "" for none
	Subject        string    `json:"upstream_sub,omitempty"`   // there
	Credential     []byte    `json:"credential"`               // of the user at the time
	CodeChallenge  string    `json:"code_challenge,omitempty"` // RFC 7636
	Nonce          string    `json:"nonce,omitempty"`          // of the authorization request

	// Claims asked for by name (OpenID Connect Core §5.5).
	UserinfoClaims []string `json:"userinfo_claims,omitempty"`
	IDTokenClaims  []string `json:"id_token_claims,omitempty"` // see UserinfoClaims
}

// Grants says what of a grant still stands.
type Grants struct {
	accounts    *people.Accounts
	consents    *consent.Consents
	revocations *revocation.Revocations
	sessions    *session.Sessions
}

// Confirm dates a grant that a person who is signed in gives now, and refuses it where their
// session ended meanwhile.
func (gs *Grants) Confirm(ctx context.Context, g *Grant) error {
	cutoff, err := gs.revocations.LatestCutoff(ctx, revocation.Binding{User: g.User, ClientID: g.ClientID})
	if g.GrantedAt = revocation.DateAfter(cutoff); err == nil {
		err = gs.sessions.StillSignedIn(ctx, g.Session)
	}
	return err
}

// ScopeText is the scope as requests and answers have it (RFC 6749 §3.3).
func (g *Grant) ScopeText() string { return strings.Join(g.Scope, " ") }

// Has says whether a scope was granted.
func (g *Grant) Has(scope string) bool { return slices.Contains(g.Scope, scope) }

// user is the person of a grant. It ends with them: who was removed or
// disabled, has another password since, or came by a link that there is no more,
// gives nothing any more.
func (gs *Grants) user(ctx context.Context, g *Grant) (*people.User, error) {
	user, err := gs.accounts.Find(ctx, g.User)
	if err != nil {
		return nil, err
	}
	if user == nil {
		return nil, oauth2.InvalidGrant("the user is no longer known")
	}
	unlinked, err := gs.accounts.Unlinked(ctx, user, g.Provider, g.Subject)
	if err != nil {
		return nil, err
	}
	if unlinked {
		return nil, oauth2.InvalidGrant("the user can no longer come the way that they did")
	}
	if credential := user.Credential(); !bytes.Equal(credential[:], g.Credential) {
		return nil, oauth2.InvalidGrant("the user has another password since")
	}
	return user, nil
}

// check compares a token request with the authorization request it goes on
// from (RFC 6749 §4.1.3).
func (g *Grant) check(client *client.Client, p oauth2.Parameters) error {
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

// binding is what the refresh and access tokens of a grant are.
func (g *Grant) binding() revocation.Binding {
	return revocation.Binding{User: g.User, ClientID: g.ClientID, Session: g.boundSession()}
}

// codeBinding is what the codeBinding of a grant is. When the session is over, nobody is there any
// more to bring it to the client, whatever it would give.
func (g *Grant) codeBinding() revocation.Binding {
	return revocation.Binding{User: g.User, ClientID: g.ClientID, Session: g.Session, ShortLived: true}
}

// revoked reports whether a grant was revoked, or given until a cutoff.
func (gs *Grants) revoked(ctx context.Context, g *Grant) (bool, error) {
	revoked, err := gs.revocations.Revoked(ctx, g.Family)
	if revoked || err != nil {
		return revoked, err
	}
	cutoff, err := gs.revocations.LatestCutoff(ctx, g.binding())
	return revocation.IsCutOff(g.GrantedAt, cutoff), err
}

// checkAllowed refuses a code or refresh token whose grant could not be given again.
func (gs *Grants) checkAllowed(ctx context.Context, g *Grant, client *client.Client) error {
	if again, err := client.GrantScope(g.ScopeText()); err != nil || !slices.Equal(again, g.Scope) {
		return oauth2.InvalidGrant("the client may no longer have what it was granted")
	}
	if !gs.accounts.Ways(client.IdentityProviders).Has(g.Provider) {
		return oauth2.InvalidGrant("the client no longer allows the way that the person signed in")
	}
	if err := gs.checkConsent(ctx, g, client); err != nil {
		return err
	}
	_, err := gs.user(ctx, g)
	return err
}

// checkConsent refuses what a person let a client have and does not any more,
// where the client must have their consent.
func (gs *Grants) checkConsent(ctx context.Context, g *Grant, client *client.Client) error {
	if !client.RequiresConsent() {
		return nil
	}
	given, err := gs.consents.Load(ctx, g.User, client.ID)
	if err == nil && (given == nil || !given.Covers(g.Scope)) {
		err = oauth2.InvalidGrant("the person's consent has ended")
	}
	return err
}

// wantsRefresh says whether a grant asks for a refresh token.
func (g *Grant) wantsRefresh() bool { return g.Has(client.OfflineAccess) || g.Has(client.OnlineAccess) }

// online says whether a grant's refresh token ends with the session.
func (g *Grant) online() bool { return !g.Has(client.OfflineAccess) }

// boundSession is the sid of the session that a grant's access tokens end with, or "".
func (g *Grant) boundSession() string {
	if g.online() {
		return g.Session
	}
	return ""
}
