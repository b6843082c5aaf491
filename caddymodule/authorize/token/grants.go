package token

import (
	"bytes"
	"context"
	"slices"
	"strings"

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
	active, participant, apps := session.Reading(g.Session), gs.sessions.Participants.Reading(g.Session, g.ClientID), gs.apps.reading(g.User)
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
	calls, err := gs.apps.noting(g, cutoff, apps)
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
