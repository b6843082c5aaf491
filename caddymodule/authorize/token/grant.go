package token

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Grant is what a person granted to a client. Codes hold it, and tokens are made from it.
type Grant struct {
	// Family identifies the grant and all its tokens. It is set before the code is sent, so
	// that reuse of the code revokes even a token that is being made.
	Family string `json:"family"`

	ClientID       string            `json:"client_id"`                // that it was given to
	RedirectURI    string            `json:"redirect_uri"`             // of the authorization request
	RequestedScope string            `json:"asked"`                    // before the grant narrowed it
	Scope          []string          `json:"scope"`                    // as granted
	User           string            `json:"user"`                     // the sub
	SignedInAt     time.Time         `json:"signed_in_at"`             // the auth_time
	GrantedAt      time.Time         `json:"at"`                       // compared with cutoffs
	Until          time.Time         `json:"until,omitzero"`           // when the person lets it end; zero if they did not say
	Session        string            `json:"session,omitempty"`        // the sid of the sign-in
	AMR            []string          `json:"amr,omitempty"`            // of the sign-in (RFC 8176)
	Provider       string            `json:"provider,omitempty"`       // the key of the identity provider, if any
	Subject        string            `json:"upstream_sub,omitempty"`   // the sub at the provider
	Credential     []byte            `json:"credential"`               // a hash of the user's at the time
	Generation     oauth2.Generation `json:"generation,omitempty"`     // of the client
	CodeChallenge  string            `json:"code_challenge,omitempty"` // RFC 7636
	Nonce          string            `json:"nonce,omitempty"`          // of the authorization request

	// Launch is the context that the client was launched with; nil without one.
	Launch   *launch.Context `json:"launch,omitempty"`
	Launcher string          `json:"launcher,omitempty"` // the client that named its patient, if one did

	// About is the patient whom the person was asked about, also if they gave none of the
	// patient's records.
	About string `json:"about,omitempty"`

	// ShortTokens lets access tokens end after [shortLifetime], so that apps can try what they do
	// then.
	ShortTokens bool `json:"short_tokens,omitempty"`

	// Asked says that the identity provider is asked about the sign-in when the grant is refreshed.
	Asked bool `json:"revalidated,omitempty"`

	own bool // the person has no other patient, as [Grants.checkAllowed] found

	// Claims requested by name (OpenID Connect Core §5.5).
	UserinfoClaims []string `json:"userinfo_claims,omitempty"`
	IDTokenClaims  []string `json:"id_token_claims,omitempty"` // see UserinfoClaims
}

// shortLifetime is that of access tokens with [Grant].ShortTokens.
const shortLifetime = 10 * time.Second

// ScopeText returns the scope as requests and responses write it (RFC 6749 §3.3).
func (g *Grant) ScopeText() string { return strings.Join(g.Scope, " ") }

// Has reports whether a scope was granted.
func (g *Grant) Has(scope string) bool { return slices.Contains(g.Scope, scope) }

// isRelated reports whether the person has the patient of a grant only as long as the FHIR server says so.
func (g *Grant) isRelated(user *people.User) bool {
	return g.Launch != nil && g.Launcher == "" && user.Person().IsRelated(g.Launch.Patient)
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
	if g.ShortTokens {
		lifetime = min(lifetime, shortLifetime)
	}
	if g.Until.IsZero() {
		return lifetime
	}
	return min(lifetime, time.Until(g.Until))
}

// binding is that of the grant's refresh and access tokens.
func (g *Grant) binding() revocation.Binding {
	return revocation.Binding{User: g.User, ClientID: g.ClientID, Session: g.boundSession()}
}

// patient is the id of the patient whom the grant is about, or "".
func (g *Grant) patient() string {
	if g.About != "" || g.Launch == nil {
		return g.About
	}
	return g.Launch.Patient
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

// Grants checks whether grants are still valid.
type Grants struct {
	accounts    *people.Accounts
	patients    *launch.Patients
	consents    *consent.Consents
	revocations *revocation.Revocations
	sessions    *session.Sessions
	apps        *appIndex
}

// Confirm sets the time of a grant that is about to be issued, and returns the step, to be
// made with that, that lists its client among those that have access ([Apps]) and take part
// in the session. It fails if the session has ended in the meantime. A session that ends
// later than that voids the grant.
func (gs *Grants) Confirm(ctx context.Context, g *Grant) (noting store.Step, err error) {
	now := gs.revocations.Now() // before the cutoff is read, so that a later one voids the grant
	check, err := gs.revocations.Check(ctx, "", revocation.Binding{User: g.User, ClientID: g.ClientID, ByConsent: true, ShortLived: true})
	if err != nil {
		return noting, err
	}
	active, participant, apps := session.Reading(g.Session), gs.sessions.Participants.Reading(g.Session, g.ClientID), gs.apps.getCall(g.User)
	if err := store.Do(ctx, check.Step(), store.In(gs.sessions.Durable, active, participant, apps)); err != nil {
		return noting, err
	}
	if active.Value == nil {
		return noting, session.ErrEnded
	}
	cutoff, err := check.Cutoff()
	if err != nil {
		return noting, err
	}
	g.GrantedAt = revocation.DateAfter(now, cutoff)
	calls, err := gs.apps.addCalls(g, cutoff, apps)
	return store.In(gs.sessions.Durable, append(calls, gs.sessions.Participants.Adding(participant, g.Has("openid"))...)...), err
}

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

// checkPatient refuses a grant whose person chose a patient for whom, as the FHIR server says, they no longer act.
func (gs *Grants) checkPatient(ctx context.Context, g *Grant, user *people.User) error {
	if !g.isRelated(user) {
		return nil
	}
	has, err := gs.patients.StillHas(ctx, user.Person(), g.Launch.Patient)
	if err == nil && !has {
		err = oauth2.InvalidGrant("the user no longer acts for this patient")
	}
	return err
}

// checkRelationship is checkPatient for the person as they are now.
func (gs *Grants) checkRelationship(ctx context.Context, g *Grant) error {
	user, err := gs.user(ctx, g)
	if err != nil {
		return err
	}
	return gs.limit(ctx, g, user)
}

// limit leaves of a grant what its person may have now.
func (gs *Grants) limit(ctx context.Context, g *Grant, user *people.User) error {
	if g.Scope = gs.accounts.ScopeLimits.Narrow(user.Attributes(), g.Scope); len(g.Scope) == 0 {
		return oauth2.InvalidGrant("the user may have nothing of the scope any longer")
	}
	audit.NoteGrant(ctx, g.ClientID, g.User, g.Scope)
	return gs.checkPatient(ctx, g, user)
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
	if g.Generation.IsAnother(client.Generation) {
		return oauth2.InvalidGrant("another client had the client_id then")
	}
	g.Generation = client.Generation // to which its tokens are bound
	if again, err := client.GrantScope(g.ScopeText()); err != nil || !slices.Equal(again, g.Scope) {
		return oauth2.InvalidGrant("the client may no longer have what it was granted")
	}
	if !gs.accounts.Ways(client.IdentityProviders).Has(g.Provider) {
		return oauth2.InvalidGrant("the client no longer allows the way that the person signed in")
	}
	if !oauth2.MeetsACR(oauth2.ACR(g.AMR, g.Provider), client.ACR) {
		return oauth2.InvalidGrant("the client now requires a further factor")
	}
	user, err := gs.user(ctx, g)
	if err != nil {
		return err
	}
	g.own = g.patient() != "" && user.Person().Own() == g.patient()
	given, err := gs.consent(ctx, g, client)
	if err == nil {
		err = checkConsent(g, client, given)
	}
	if err == nil && g.Launch != nil && g.Launcher == "" && !user.MayChoose(g.Launch.Patient) {
		err = oauth2.InvalidGrant("the user may no longer choose this patient")
	}
	return err
}

// consent returns the consent to a grant, if the client requires one and there is one.
func (gs *Grants) consent(ctx context.Context, g *Grant, client *client.Client) (*consent.Consent, error) {
	if !client.RequiresConsent() {
		return nil, nil
	}
	return gs.consents.Load(ctx, g.User, client.ID)
}

// readingConsent returns the call that reads the consent to a grant again in the step that
// issues something, if the client heeds any: one that requires none may have been refused
// something all the same.
func (gs *Grants) readingConsent(g *Grant, c *client.Client) []*store.Call {
	if c.Consent == client.ConsentSkip {
		return nil
	}
	return []*store.Call{gs.consents.Reading(g.User, c.ID)}
}

// checkReadConsent refuses a grant whose consent had ended when it was read in a step.
func (gs *Grants) checkReadConsent(g *Grant, client *client.Client, read []*store.Call) error {
	if read == nil {
		return nil
	}
	given, err := gs.consents.Read(read[0])
	if err != nil {
		return err
	}
	return checkConsent(g, client, given)
}

// checkConsent refuses a grant whose consent has ended, if the client requires one, or of which
// the person has refused something since.
func checkConsent(g *Grant, client *client.Client, all *consent.Consent) error {
	given := all.About(consent.About{Patient: g.patient(), Own: g.own})
	switch {
	case given == nil && !client.RequiresConsent():
		return nil
	case given == nil, client.RequiresConsent() && !given.Covers(g.Scope), !given.Permits(strings.Fields(g.RequestedScope), g.Scope):
		return oauth2.InvalidGrant("the person's consent has ended")
	}
	return nil
}
