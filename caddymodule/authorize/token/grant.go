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

// Grant is a person's grant to a client. Codes store it, and tokens are issued from it.
type Grant struct {
	// Family identifies the grant and its tokens. It is set before the code is sent, so that a
	// replay of the code revokes even a token that is being issued.
	Family string `json:"family"`

	ClientID       string            `json:"client_id"`                // client of the grant
	RedirectURI    string            `json:"redirect_uri"`             // redirect URI of the authorization request
	RequestedScope string            `json:"asked"`                    // scope of the authorization request
	Scope          []string          `json:"scope"`                    // granted scope
	User           string            `json:"user"`                     // sub of the user
	SignedInAt     time.Time         `json:"signed_in_at"`             // time of the sign-in (auth_time)
	GrantedAt      time.Time         `json:"at"`                       // grant time, compared with revocation cutoffs
	ExpiresAt      time.Time         `json:"until,omitzero"`           // expiry chosen by the person; zero means no limit
	Session        string            `json:"session,omitempty"`        // sid of the session
	AMR            []string          `json:"amr,omitempty"`            // authentication methods of the sign-in (RFC 8176)
	Provider       string            `json:"provider,omitempty"`       // key of the identity provider; "" for local users
	Subject        string            `json:"upstream_sub,omitempty"`   // sub at the identity provider
	Credential     []byte            `json:"credential"`               // hash of the user's credential at the time of the grant
	Generation     oauth2.Generation `json:"generation,omitempty"`     // generation of the client
	CodeChallenge  string            `json:"code_challenge,omitempty"` // code_challenge (RFC 7636)
	Nonce          string            `json:"nonce,omitempty"`          // nonce of the authorization request

	// Launch is the launch context, or nil if there is none.
	Launch           *launch.Context `json:"launch,omitempty"`
	LauncherClientID string          `json:"launcher,omitempty"` // client that registered the launch with the patient; "" if the person chose the patient

	// ConsentPatient is the patient shown on the consent page, even if the person granted no access to the patient's records.
	ConsentPatient string `json:"about,omitempty"`

	// ShortTokens limits the lifetime of access tokens to [shortTokenLifetime], so that developers can test how their app
	// handles expiry.
	ShortTokens bool `json:"short_tokens,omitempty"`

	// RequiresRevalidation requires revalidation of the sign-in at the identity provider on refresh.
	RequiresRevalidation bool `json:"revalidated,omitempty"`

	isOnlyPatient bool // whether the patient is the only one the user may choose; set by [Grants.checkClientPermits]

	// UserinfoClaims are claims requested by name (OpenID Connect Core §5.5).
	UserinfoClaims []string `json:"userinfo_claims,omitempty"`
	IDTokenClaims  []string `json:"id_token_claims,omitempty"` // claims requested by name for the ID token
}

// shortTokenLifetime is the lifetime of access tokens with [Grant].ShortTokens.
const shortTokenLifetime = 10 * time.Second

// ScopeString returns the scope in its form for requests and responses (RFC 6749 §3.3).
func (g *Grant) ScopeString() string { return strings.Join(g.Scope, " ") }

// HasScope reports whether the scope was granted.
func (g *Grant) HasScope(scope string) bool { return slices.Contains(g.Scope, scope) }

// needsRelationship reports whether access to the patient depends on a relationship that the FHIR server records.
func (g *Grant) needsRelationship(user *people.User) bool {
	return g.Launch != nil && g.LauncherClientID == "" && user.Person().DependsOnRelation(g.Launch.Patient)
}

// checkRequest compares a token request with its authorization request (RFC 6749 §4.1.3).
func (g *Grant) checkRequest(client *client.Client, p oauth2.Parameters) error {
	switch {
	case g.ClientID != client.ID:
		return oauth2.InvalidGrant("authorization code was issued to another client")
	case p.Get("redirect_uri") == "":
		return oauth2.InvalidRequest("redirect_uri is missing")
	case p.Get("redirect_uri") != g.RedirectURI:
		return oauth2.InvalidGrant("redirect_uri does not match the authorization request")
	}
	return oauth2.CheckVerifier(g.CodeChallenge, p.Get("code_verifier"))
}

// limitLifetime limits a token lifetime to the expiry of the grant.
func (g *Grant) limitLifetime(lifetime time.Duration) time.Duration {
	if g.ShortTokens {
		lifetime = min(lifetime, shortTokenLifetime)
	}
	if g.ExpiresAt.IsZero() {
		return lifetime
	}
	return min(lifetime, time.Until(g.ExpiresAt))
}

// binding returns the binding of the grant's refresh and access tokens.
func (g *Grant) binding() revocation.Binding {
	return revocation.Binding{User: g.User, ClientID: g.ClientID, Session: g.boundSID()}
}

// patient returns the patient of the grant, or "".
func (g *Grant) patient() string {
	if g.ConsentPatient != "" || g.Launch == nil {
		return g.ConsentPatient
	}
	return g.Launch.Patient
}

// recordOwner returns the patient in context if the grant has patient-level scopes, otherwise "".
func (g *Grant) recordOwner() string {
	if !slices.ContainsFunc(g.Scope, isPatientScope) {
		return ""
	}
	return g.patient()
}

// isPatientScope reports whether a scope covers records of the patient in context.
func isPatientScope(scope string) bool { return strings.HasPrefix(scope, "patient/") }

// allowsRefresh reports whether the grant includes a refresh token.
func (g *Grant) allowsRefresh() bool {
	return g.HasScope(client.OfflineAccess) || g.HasScope(client.OnlineAccess)
}

// endsWithSession reports whether the grant's tokens become invalid when the session ends.
func (g *Grant) endsWithSession() bool { return !g.HasScope(client.OfflineAccess) }

// boundSID returns the sid of the session to which the grant's tokens are bound, or "".
func (g *Grant) boundSID() string {
	if g.endsWithSession() {
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

// PrepareIssue sets the time of a new grant and returns a step to be executed with its issue. The step lists the client in
// [Apps] and as a participant of the session. PrepareIssue fails if the session has ended in the meantime. A session that ends
// later voids the grant.
func (gs *Grants) PrepareIssue(ctx context.Context, g *Grant) (step store.Step, err error) {
	now := gs.revocations.Now() // read before the cutoff, so that a later cutoff voids the grant
	check, err := gs.revocations.NewCheck(ctx, "", revocation.Binding{User: g.User, ClientID: g.ClientID, BasedOnConsent: true, ShortLived: true})
	if err != nil {
		return step, err
	}
	sessionCall, participantCall, appsCall := session.ExistsCall(g.Session), gs.sessions.Participants.ReadCall(g.Session, g.ClientID), gs.apps.getCall(g.User)
	if err := store.Do(ctx, check.Step(), store.NewStep(gs.sessions.Durable, sessionCall, participantCall, appsCall)); err != nil {
		return step, err
	}
	if sessionCall.Value == nil {
		return step, session.ErrEnded
	}
	cutoff, err := check.Cutoff()
	if err != nil {
		return step, err
	}
	g.GrantedAt = revocation.IssueTimeAfter(now, cutoff)
	calls, err := gs.apps.addCalls(g, cutoff, appsCall)
	return store.NewStep(gs.sessions.Durable, append(calls, gs.sessions.Participants.AddCalls(participantCall, g.HasScope("openid"))...)...), err
}

// loadUser returns the user of a grant. The error is invalid_grant if the user was removed or disabled,
// has changed the password, or is no longer linked to the provider account of the sign-in.
func (gs *Grants) loadUser(ctx context.Context, g *Grant) (*people.User, error) {
	user, err := gs.accounts.Find(ctx, g.User)
	if err != nil {
		return nil, err
	}
	if user == nil {
		return nil, oauth2.InvalidGrant("the user no longer exists")
	}
	isUnlinked, err := gs.accounts.IsUnlinked(ctx, user, g.Provider, g.Subject)
	if err != nil {
		return nil, err
	}
	if isUnlinked {
		return nil, oauth2.InvalidGrant("the user is no longer linked to this identity provider account")
	}
	if credential := user.Credential(); !bytes.Equal(credential[:], g.Credential) {
		return nil, oauth2.InvalidGrant("the user's credentials have changed since the grant was issued")
	}
	return user, nil
}

// checkPatient returns an error for a grant if, according to the FHIR server, its user no longer acts for the chosen patient.
func (gs *Grants) checkPatient(ctx context.Context, g *Grant, user *people.User) error {
	if !g.needsRelationship(user) {
		return nil
	}
	has, err := gs.patients.StillRepresents(ctx, user.Person(), g.Launch.Patient)
	if err == nil && !has {
		err = oauth2.InvalidGrant("the user is no longer authorized to act for this patient")
	}
	return err
}

// checkRelationship loads the user and applies the current limits to the grant.
func (gs *Grants) checkRelationship(ctx context.Context, g *Grant) error {
	user, err := gs.loadUser(ctx, g)
	if err != nil {
		return err
	}
	return gs.applyLimits(ctx, g, user)
}

// applyLimits narrows a grant to the user's current scope limits and checks the patient.
func (gs *Grants) applyLimits(ctx context.Context, g *Grant, user *people.User) error {
	if g.Scope = gs.accounts.ScopeLimits.Narrow(user.Attributes(), g.Scope); len(g.Scope) == 0 {
		return oauth2.InvalidGrant("the user no longer has access to any granted scope")
	}
	audit.RecordGrant(ctx, g.ClientID, g.User, g.Scope)
	return gs.checkPatient(ctx, g, user)
}

// isRevoked reports whether a grant was revoked, individually or by a cutoff.
func (gs *Grants) isRevoked(ctx context.Context, g *Grant) (bool, error) {
	revoked, err := gs.revocations.IsTokenRevoked(ctx, g.Family)
	if revoked || err != nil {
		return revoked, err
	}
	cutoff, err := gs.revocations.LatestCutoff(ctx, g.binding())
	return revocation.IsCutOff(g.GrantedAt, cutoff), err
}

// checkClientPermits returns an error for a grant that client, user or consent would no longer permit.
func (gs *Grants) checkClientPermits(ctx context.Context, g *Grant, client *client.Client) error {
	if g.Generation.DiffersFrom(client.Generation) {
		return oauth2.InvalidGrant("the grant was issued to a deleted client with the same client_id")
	}
	g.Generation = client.Generation // generation to which the grant's tokens are bound
	if current, err := client.GrantScope(g.ScopeString()); err != nil || !slices.Equal(current, g.Scope) {
		return oauth2.InvalidGrant("the client is no longer allowed the granted scope")
	}
	if !gs.accounts.SignInMethods(client.IdentityProviders).Includes(g.Provider) {
		return oauth2.InvalidGrant("the client no longer allows this sign-in method")
	}
	if !oauth2.MeetsACR(oauth2.DeriveACR(g.AMR, g.Provider), client.ACR) {
		return oauth2.InvalidGrant("the client now requires stronger authentication (acr)")
	}
	user, err := gs.loadUser(ctx, g)
	if err != nil {
		return err
	}
	g.isOnlyPatient = g.patient() != "" && user.Person().DefaultPatientID() == g.patient()
	stored, err := gs.requiredConsent(ctx, g, client)
	if err == nil {
		err = checkConsent(g, client, stored)
	}
	if err == nil && g.Launch != nil && g.LauncherClientID == "" && !user.MayChoosePatient(g.Launch.Patient) {
		err = oauth2.InvalidGrant("the user is no longer permitted to select this patient")
	}
	return err
}

// requiredConsent returns the stored consent if the client requires consent, otherwise nil.
func (gs *Grants) requiredConsent(ctx context.Context, g *Grant, client *client.Client) (*consent.Consent, error) {
	if !client.RequiresConsent() {
		return nil, nil
	}
	return gs.consents.Load(ctx, g.User, client.ID)
}

// consentCalls returns the call that rereads the consent in the step that issues tokens. It returns none for clients with
// consent skipped. Clients that do not require consent are included, because the person may have refused scopes.
func (gs *Grants) consentCalls(g *Grant, c *client.Client) []*store.Call {
	if c.Consent == client.ConsentSkip {
		return nil
	}
	return []*store.Call{gs.consents.LoadCall(g.User, c.ID)}
}

// checkConsentCalls returns an error for a grant if its consent was no longer valid when reread in a step.
func (gs *Grants) checkConsentCalls(g *Grant, client *client.Client, calls []*store.Call) error {
	if calls == nil {
		return nil
	}
	stored, err := gs.consents.DecodeCall(calls[0])
	if err != nil {
		return err
	}
	return checkConsent(g, client, stored)
}

// checkConsent returns an error for a grant without a valid consent if the client requires one, and for a grant if the person
// has since refused a part of it.
func checkConsent(g *Grant, client *client.Client, stored *consent.Consent) error {
	approval := stored.ApprovalFor(consent.PatientContext{Patient: g.patient(), IsOnlyPatient: g.isOnlyPatient})
	switch {
	case approval == nil && !client.RequiresConsent():
		return nil
	case approval == nil, client.RequiresConsent() && !approval.Covers(g.Scope), !approval.Permits(strings.Fields(g.RequestedScope), g.Scope):
		return oauth2.InvalidGrant("the user's consent was withdrawn or has expired")
	}
	return nil
}
