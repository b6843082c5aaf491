package token

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// Grant is what a person granted to a client. Codes hold it, and tokens are made from it.
type Grant struct {
	// Family identifies the grant and all its tokens. It is set before the code is sent, so
	// that reuse of the code revokes even a token that is being made.
	Family string `json:"family"`

	ClientID       string    `json:"client_id"`                // that it was given to
	RedirectURI    string    `json:"redirect_uri"`             // of the authorization request
	RequestedScope string    `json:"asked"`                    // before the grant narrowed it
	Scope          []string  `json:"scope"`                    // as granted
	User           string    `json:"user"`                     // the sub
	SignedInAt     time.Time `json:"signed_in_at"`             // the auth_time
	GrantedAt      time.Time `json:"at"`                       // compared with cutoffs
	Until          time.Time `json:"until,omitzero"`           // when the person lets it end; zero if they did not say
	Session        string    `json:"session,omitempty"`        // the sid of the sign-in
	AMR            []string  `json:"amr,omitempty"`            // of the sign-in (RFC 8176)
	Provider       string    `json:"provider,omitempty"`       // the key of the identity provider, if any
	Subject        string    `json:"upstream_sub,omitempty"`   // the sub at the provider
	Credential     []byte    `json:"credential"`               // a hash of the user's at the time
	CodeChallenge  string    `json:"code_challenge,omitempty"` // RFC 7636
	Nonce          string    `json:"nonce,omitempty"`          // of the authorization request

	// Launch is the context that the client was launched with; nil without one.
	Launch   *launch.Context `json:"launch,omitempty"`
	Launcher string          `json:"launcher,omitempty"` // the client that named its patient, if one did

	// Claims requested by name (OpenID Connect Core §5.5).
	UserinfoClaims []string `json:"userinfo_claims,omitempty"`
	IDTokenClaims  []string `json:"id_token_claims,omitempty"` // see UserinfoClaims

	cutoff time.Time // what was granted until then is void
}

// Grants checks whether grants are still valid.
type Grants struct {
	accounts    *people.Accounts
	consents    *consent.Consents
	revocations *revocation.Revocations
	sessions    *session.Sessions
	apps        *appIndex
}

// Confirm sets the time of a grant that is about to be issued. It fails if the person's
// session has ended in the meantime.
func (gs *Grants) Confirm(ctx context.Context, g *Grant) error {
	cutoff, err := gs.revocations.LatestCutoff(ctx, revocation.Binding{User: g.User, ClientID: g.ClientID})
	if g.GrantedAt = revocation.DateAfter(cutoff); err == nil {
		err = gs.sessions.CheckActive(ctx, g.Session)
	}
	g.cutoff = cutoff
	return err
}

// Note lists the client of a confirmed grant among those that have access ([Apps]).
func (gs *Grants) Note(ctx context.Context, g *Grant) error { return gs.apps.note(ctx, g, g.cutoff) }

// ScopeText returns the scope as requests and responses write it (RFC 6749 §3.3).
func (g *Grant) ScopeText() string { return strings.Join(g.Scope, " ") }

// Has reports whether a scope was granted.
func (g *Grant) Has(scope string) bool { return slices.Contains(g.Scope, scope) }

// user returns the person of a grant, or an error if the grant has ended with them: they
// were removed or disabled, have another password, or signed in by an account that is no
// longer linked to them.
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

// check compares a token request with its authorization request (RFC 6749 §4.1.3).
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

// bounded returns a lifetime that ends no later than the person wants the grant to.
func (g *Grant) bounded(lifetime time.Duration) time.Duration {
	if g.Until.IsZero() {
		return lifetime
	}
	return min(lifetime, time.Until(g.Until))
}

// binding is that of the grant's refresh and access tokens.
func (g *Grant) binding() revocation.Binding {
	return revocation.Binding{User: g.User, ClientID: g.ClientID, Session: g.boundSession()}
}

// revoked reports whether a grant was revoked, by itself or by a cutoff.
func (gs *Grants) revoked(ctx context.Context, g *Grant) (bool, error) {
	revoked, err := gs.revocations.Revoked(ctx, g.Family)
	if revoked || err != nil {
		return revoked, err
	}
	cutoff, err := gs.revocations.LatestCutoff(ctx, g.binding())
	return revocation.IsCutOff(g.GrantedAt, cutoff), err
}

// checkAllowed refuses a grant that could no longer be made.
func (gs *Grants) checkAllowed(ctx context.Context, g *Grant, client *client.Client) error {
	if again, err := client.GrantScope(g.ScopeText()); err != nil || !slices.Equal(again, g.Scope) {
		return oauth2.InvalidGrant("the client may no longer have what it was granted")
	}
	if !gs.accounts.Ways(client.IdentityProviders).Has(g.Provider) {
		return oauth2.InvalidGrant("the client no longer allows the way that the person signed in")
	}
	if client.ACR != "" && !oauth2.MeetsACR(oauth2.ACR(g.AMR, g.Provider), client.ACR) {
		return oauth2.InvalidGrant("the client now requires a further factor")
	}
	if err := gs.checkConsent(ctx, g, client); err != nil {
		return err
	}
	user, err := gs.user(ctx, g)
	if err == nil && g.Launch != nil && g.Launcher == "" && !user.MayChoose(g.Launch.Patient) {
		err = oauth2.InvalidGrant("the user may no longer choose this patient")
	}
	return err
}

// checkConsent refuses a grant whose consent has ended, if the client requires one.
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

// wantsRefresh reports whether the grant includes a refresh token.
func (g *Grant) wantsRefresh() bool { return g.Has(client.OfflineAccess) || g.Has(client.OnlineAccess) }

// online reports whether the grant's tokens end with the session.
func (g *Grant) online() bool { return !g.Has(client.OfflineAccess) }

// boundSession returns the sid of the session that the grant's tokens end with, or "".
func (g *Grant) boundSession() string {
	if g.online() {
		return g.Session
	}
	return ""
}
