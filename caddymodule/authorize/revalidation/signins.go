package revalidation

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// Config configures [New].
type Config struct {
	DurableStore        store.Store             // store for sign-ins
	Keys                keyring.StorageSealer   // seals refresh tokens
	Accounts            *people.Accounts        // accounts that receive the providers' claims
	SessionLifetime     time.Duration           // lifetime of the gateway's sessions
	AccessTokenLifetime time.Duration           // lifetime of the gateway's access tokens
	GrantLifetime       time.Duration           // lifetime of the gateway's refresh tokens
	Revocations         *revocation.Revocations // suspension of access tokens
	Checks              *Checks                 // latest results of checks; default: empty
	Logger              *slog.Logger            // log for the start and end of outages

	SessionKey func(sid string) string             // key of a session in Durable
	EndSignIn  func(context.Context, SignIn) error // revokes everything issued from a sign-in; must be idempotent
}

// SignIns manages the sign-ins that can be rechecked at identity providers. It is safe for concurrent use.
type SignIns struct {
	sessionLifetime, accessTokenLifetime time.Duration
	checker                              *providerChecker
	closer                               *closer
	sweeper                              *sweeper
	checkGroup                           singleflight.Group
}

// New returns the SignIns for a configuration.
func New(c Config) *SignIns {
	stored := records{c.DurableStore, c.Keys}
	tracker := &providers{accounts: c.Accounts, logger: c.Logger, checks: cmp.Or(c.Checks, new(Checks))}
	suspender := &suspensions{records: stored, revocations: c.Revocations, logger: c.Logger, samples: map[string]sample{}}
	a := &providerChecker{records: stored, providers: tracker, suspensions: suspender, logger: c.Logger, endSignIn: c.EndSignIn}
	end := &closer{records: stored, providers: tracker, lifetime: c.GrantLifetime + c.SessionLifetime, logger: c.Logger}
	return &SignIns{sessionLifetime: c.SessionLifetime, accessTokenLifetime: c.AccessTokenLifetime, checker: a, closer: end, sweeper: &sweeper{a, end, c.SessionKey}}
}

// Run performs checks in the background until ctx is canceled, and then waits for running checks.
func (s *SignIns) Run(ctx context.Context) { s.sweeper.run(ctx) }

// AcceptDenials makes the denials of a suspended provider take effect with the next sweeps. It returns [ErrNotSuspended] if the
// provider is not suspended.
func (s *SignIns) AcceptDenials(ctx context.Context, provider string) error {
	return s.checker.suspensions.accept(ctx, provider)
}

// PendingSignIn is a new sign-in.
type PendingSignIn struct {
	SignIn                             // session and provider
	relyingparty.ProviderTokens        // the provider's tokens for checks
	Subject                     string // sub at the provider
}

var errProviderSilent = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
	Description: "the identity provider has been unreachable for too long; try again later",
}

// errUncheckable is returned to people who have to sign in again because their sign-in can no longer be checked.
var errUncheckable = oauth2.InvalidGrant("sign-in can no longer be revalidated at the identity provider; sign in again")

// maxAgeAtRefresh is the maximum age of the last confirmation at a refresh. It is long enough for concurrent refreshes of a
// person's apps to cause only one check.
const maxAgeAtRefresh = 10 * time.Second

// StoreCalls returns the durable store calls that store a new sign-in, to be executed with the calls that store its session.
// For a provider without revalidation, it returns none. After a concurrent change ([store.IsConflict]), call StoreCalls again.
func (s *SignIns) StoreCalls(ctx context.Context, b PendingSignIn) ([]*store.Call, error) {
	p := s.checker.providers.withRevalidation(b.Provider)
	now := s.checker.records.now()
	session, activeUntil := now.Add(s.sessionLifetime), now.Add(s.sessionLifetime+s.accessTokenLifetime)
	if p == nil {
		return nil, nil
	}
	r := &record{SID: b.SID, Provider: b.Provider, Issuer: p.Issuer, Subject: b.Subject, User: b.User, ExpiresWithSession: b.ExpiresWithSession, Bound: b.ProlongsSession, Introspects: b.CanIntrospect, AccessTokenExpiry: b.AccessTokenExpiry, RefreshTokenExpiry: b.RefreshExpiry, SignedIn: now, LastActive: now, Confirmed: now, SessionExpiry: session, ActiveUntil: activeUntil}
	read, err := store.ReadValues(ctx, s.checker.records.store, recordPrefix+r.name())
	if err != nil {
		return nil, err
	}
	previous, err := store.FromJSON[record](read[0])
	isSuspended := false
	if previous != nil {
		r.OutlastsSession, r.ReferencedUntil, r.RenewalTried = previous.OutlastsSession, previous.ReferencedUntil, previous.RenewalTried
		isSuspended, err = s.checker.suspensions.affects(ctx, previous)
	} else if err == nil {
		err = s.closer.listPendingSignIn(ctx, r)
	}
	switch {
	case err != nil:
		return nil, err
	case previous != nil && !isSuspended && previous.lastsLonger(r): // applies even while another gateway is replacing the token
		r.Token, r.ExpiresWithSession, r.AccessTokenExpiry, r.RefreshTokenExpiry, r.Claim, r.ClaimExpiry, r.SignedIn = previous.Token, previous.ExpiresWithSession, previous.AccessTokenExpiry, previous.RefreshTokenExpiry, previous.Claim, previous.ClaimExpiry, previous.SignedIn
		r.Bound, r.Introspects = previous.Bound, previous.Introspects
	default:
		if r.Token, err = s.checker.records.sealToken(ctx, r.name(), cmp.Or(b.RefreshToken, b.AccessToken)); err != nil {
			return nil, err
		}
	}
	return s.checker.records.replaceCalls(r, read[0])
}

// EndsWithProviderSession reports whether the tokens for checks expire with the person's session at the provider and no
// longer-lived refresh token has been requested yet.
func (s *SignIns) EndsWithProviderSession(ctx context.Context, sid, provider string) (bool, error) {
	if s.checker.providers.withRevalidation(provider) == nil {
		return false, nil
	}
	r, err := s.checker.records.read(ctx, signInName(sid, provider))
	return r != nil && r.ExpiresWithSession, err
}

// AllowsOfflineAccess reports whether apps may get grants that outlast a session. This requires that the session is local,
// revalidation is disabled, or the provider issued a refresh token. A provider's access token expires too early to check such
// grants.
func (s *SignIns) AllowsOfflineAccess(ctx context.Context, sid, provider string) (bool, error) {
	if s.checker.providers.withRevalidation(provider) == nil {
		return true, nil
	}
	r, err := s.checker.records.read(ctx, signInName(sid, provider))
	if err != nil || r != nil && r.AccessTokenExpiry.IsZero() {
		return err == nil, err
	}
	s.checker.logger.WarnContext(ctx, "offline_access not granted: identity provider issued no refresh token for revalidation", "idp", provider, "sid", sid)
	return false, nil
}

// Renew replaces the tokens of a sign-in after the provider has confirmed the person again. An
// access token never replaces a refresh token.
func (s *SignIns) Renew(ctx context.Context, sid, provider string, tokens relyingparty.ProviderTokens) error {
	key := signInName(sid, provider)
	sealed, err := s.checker.records.sealToken(ctx, key, cmp.Or(tokens.RefreshToken, tokens.AccessToken))
	if err != nil {
		return err
	}
	_, err = s.checker.records.update(ctx, key, func(r *record) bool {
		if r.ExpiresWithSession = false; tokens.RefreshToken != "" || !tokens.AccessTokenExpiry.IsZero() && !r.AccessTokenExpiry.IsZero() {
			s.checker.records.replaceTokens(r, tokens, sealed)
		}
		return true
	})
	return err
}

// TryRenewal reports whether the browser may now be redirected to the provider to renew a session's
// sign-in, and records the attempt.
func (s *SignIns) TryRenewal(ctx context.Context, sid string, p *people.Provider) (may bool, err error) {
	_, err = s.checker.records.update(ctx, signInName(sid, p.Key), func(r *record) bool {
		if may = s.checker.records.mayRenew(p, r); may {
			r.RenewalTried = s.checker.records.now()
		}
		return may
	})
	return may && err == nil, err
}

// ExtendLifetime extends a sign-in for a grant that outlasts its session, and reports whether the sign-in can be checked.
func (s *SignIns) ExtendLifetime(ctx context.Context, sid, provider string, lifetime time.Duration) (bool, error) {
	if s.checker.providers.withRevalidation(provider) == nil {
		return false, nil
	}
	r, err := s.checker.records.update(ctx, signInName(sid, provider), func(r *record) bool {
		r.OutlastsSession = true
		extendExpiry(&r.ReferencedUntil, s.checker.records.now().Add(lifetime))
		return true
	})
	return r != nil, err
}

// IsUsable reports whether a session may be used, i.e. the provider has neither denied the sign-in nor been silent for too
// long. renewable reports whether the browser may be redirected to renew the sign-in ([SignIns.TryRenewal]).
func (s *SignIns) IsUsable(ctx context.Context, sid, provider string) (usable, renewable bool, err error) {
	p := s.checker.providers.withRevalidation(provider)
	if p == nil {
		return true, false, nil
	}
	r, err := s.check(ctx, p, signInName(sid, provider), checkOptions{maxAge: p.Revalidate.Interval, waitsForResult: true, isPersonActive: true})
	if err == nil && r != nil && s.checker.records.needsActivityUpdate(r) {
		_, err = s.checker.records.update(ctx, r.name(), s.checker.records.recordActivity)
	}
	if _, rejected := errors.AsType[*oauth2.Error](err); rejected {
		return false, false, nil
	}
	return err == nil, r != nil && s.checker.records.mayRenew(p, r), err
}

// CheckRefresh checks a sign-in before one of its grants is refreshed. It returns an error if the sign-in was denied, or
// not confirmed for too long. outlastsSession means that the grant was extended by
// [SignIns.ExtendLifetime]. A missing sign-in is then treated as denied.
func (s *SignIns) CheckRefresh(ctx context.Context, sid, provider string, outlastsSession bool) error {
	p := s.checker.providers.withRevalidation(provider)
	if p == nil {
		return nil
	}
	r, err := s.check(ctx, p, signInName(sid, provider), checkOptions{maxAge: maxAgeAtRefresh, waitsForResult: true, isPersonActive: !outlastsSession})
	if err == nil && r == nil && outlastsSession {
		return errEnded
	}
	tokenExpiry := s.checker.records.now().Add(s.accessTokenLifetime)
	if err == nil && r != nil && (r.ActiveUntil.Before(tokenExpiry.Add(-time.Minute)) || !outlastsSession && s.checker.records.needsActivityUpdate(r)) {
		_, err = s.checker.records.update(ctx, r.name(), func(r *record) bool {
			extendExpiry(&r.ActiveUntil, tokenExpiry)
			return outlastsSession || s.checker.records.recordActivity(r)
		})
	}
	return err
}

// check checks a sign-in unless it was confirmed recently. Without a record, it returns nil.
func (s *SignIns) check(ctx context.Context, p *people.Provider, name string, q checkOptions) (*record, error) {
	r, err := s.checker.records.read(ctx, name)
	switch {
	case r == nil || err != nil:
		return r, err
	case r.Issuer != p.Issuer && s.checker.records.age(r) >= p.Revalidate.MaxOutage:
		return r, errUncheckable
	case r.Issuer != p.Issuer:
		return r, nil
	}
	isSuspended, err := s.checker.suspensions.affects(ctx, r)
	if err != nil || !r.Denied && !isSuspended && r.DoubtedSince.IsZero() && s.checker.records.age(r) < q.maxAge {
		return r, err
	}
	background := audit.WithSessionEndReason(context.WithoutCancel(ctx), endedReason)
	switch {
	case r.Denied:
		return r, s.checker.endDenied(background, r)
	case isSuspended && (s.checker.records.isUncheckable(r) || !s.checker.suspensions.mayRetry(ctx, r)):
		return r, errSuspended
	case s.checker.records.isUncheckable(r) && (!r.DoubtedSince.IsZero() || s.checker.records.age(r) >= p.Revalidate.MaxOutage):
		return r, errUncheckable
	case s.checker.records.isUncheckable(r):
		return r, nil
	case isSuspended || !r.DoubtedSince.IsZero():
		q.maxAge = 0
	}
	answer := s.checkGroup.DoChan(name, func() (any, error) {
		return nil, s.checker.checkSignIn(background, p, name, q)
	})
	select {
	case <-ctx.Done():
		return r, context.Cause(ctx)
	case result := <-answer:
		err = result.Err
	}
	return r, s.tolerateOutage(ctx, p, r, isSuspended, err)
}

// tolerateOutage returns the result of a check. It tolerates an outage while the last confirmation is recent enough, except
// during a suspension.
func (s *SignIns) tolerateOutage(ctx context.Context, p *people.Provider, r *record, isSuspended bool, err error) error {
	if isSuspended && err == nil { // another gateway performed the check
		if isSuspended, err = s.checker.suspensions.affects(ctx, r); isSuspended {
			err = errSuspended
		}
	}
	switch {
	case err == nil, errors.Is(err, errEnded), errors.Is(err, errSuspended), errors.Is(err, errInconclusive):
		return err
	case isSuspended:
		return errSuspended
	case s.checker.records.age(r) >= p.Revalidate.MaxOutage:
		return errProviderSilent
	}
	return nil
}

// ProviderStates returns the states of the providers with revalidation.
func (s *SignIns) ProviderStates(ctx context.Context) (all []ProviderState, err error) {
	for _, key := range s.checker.providers.accounts.ProviderKeys {
		p := s.checker.providers.withRevalidation(key)
		if p == nil {
			continue
		}
		state, err := s.providerState(ctx, p)
		if err != nil {
			return nil, err
		}
		all = append(all, state)
	}
	return all, nil
}

func (s *SignIns) providerState(ctx context.Context, p *people.Provider) (ProviderState, error) {
	checks := s.checker.providers.checks.stateOf(p.Key)
	state := ProviderState{Key: p.Key, State: "ok", Latest: map[Result]time.Time{}}
	for result, at := range checks.latest {
		if !at.IsZero() {
			state.Latest[result] = at
		}
	}
	suspended, err := s.checker.suspensions.revocations.SuspendedUntil(ctx, p.Key)
	switch {
	case err != nil:
		return state, err
	case !suspended.IsZero():
		state.State, state.Suspended = "suspended", &suspended
	case checks.failure != "":
		state.State = string(checks.failure)
	case len(state.Latest) == 0:
		state.State = "unchecked"
	}
	return state, nil
}

// SignIn identifies a sign-in of a person at a provider.
type SignIn struct {
	User     string // sub at the gateway
	SID      string // sid of the session
	Provider string // provider key
}

// record is a stored sign-in.
type record struct {
	SID                string    `json:"sid"`
	Provider           string    `json:"provider"`              // provider key
	Issuer             string    `json:"issuer"`                // issuer at the sign-in
	Subject            string    `json:"subject"`               // sub at the provider
	User               string    `json:"user"`                  // sub at the gateway
	Token              string    `json:"token"`                 // sealed refresh token, or else access token for introspection; may be ""
	AccessTokenExpiry  time.Time `json:"expires,omitzero"`      // expiry of the access token; zero if there is a refresh token
	RenewalTried       time.Time `json:"tried,omitzero"`        // latest unsuccessful renewal attempt
	RefreshTokenExpiry time.Time `json:"lapses,omitzero"`       // expiry of the refresh token as announced by the provider
	ExpiresWithSession bool      `json:"brief,omitempty"`       // the tokens expire with the person's session at the provider, and longer-lived ones can be requested
	Bound              bool      `json:"bound,omitempty"`       // see [relyingparty.ProviderTokens]
	Introspects        bool      `json:"introspects,omitempty"` // see [relyingparty.ProviderTokens]
	LastActive         time.Time `json:"seen,omitzero"`         // latest activity of the person, accurate to about activityPrecision
	SignedIn           time.Time `json:"signed_in,omitzero"`    // issue time of the first of these tokens
	Confirmed          time.Time `json:"yes"`                   // the provider's latest confirmation
	DoubtedSince       time.Time `json:"doubt,omitzero"`        // time of a denial while other people are being checked
	Denied             bool      `json:"denied,omitempty"`      // the denial is final, but its revocations are incomplete
	OutlastsSession    bool      `json:"offline,omitempty"`     // a grant outlasts the session
	SessionExpiry      time.Time `json:"session"`               // expiry of the session at the gateway
	ActiveUntil        time.Time `json:"active"`                // latest expiry of an issued token or session
	ReferencedUntil    time.Time `json:"until"`                 // expiry of the last session or grant that refers to the sign-in

	Claim       string    `json:"claim,omitempty"`  // claim of the gateway that performs a check
	ClaimExpiry time.Time `json:"claimed,omitzero"` // when another gateway may take over the check
}

const (
	recordPrefix = "upstream:"
	duePrefix    = "upstream-due:" // marks sign-ins for the sweep
)

// activityPrecision is the minimum time between writes of a person's activity.
const activityPrecision = time.Minute

// closingPeriod is how long after the end of a sign-in a sweep can revoke its refresh token.
const closingPeriod = time.Hour

// endedReason is the reason recorded for ended sessions.
const endedReason = "the identity provider denied the person or ended the sign-in"

var errEnded = oauth2.InvalidGrant(endedReason)

// signInName identifies the sign-in of a session at a provider. A session may have sign-ins at several providers.
func signInName(sid, provider string) string { return sid + "." + provider }

func (r *record) name() string { return signInName(r.SID, r.Provider) }

// lastsLonger reports whether the sign-in can be checked for longer than the next one in its session.
func (r *record) lastsLonger(next *record) bool {
	isLonger := next.ExpiresWithSession && !r.ExpiresWithSession || !next.AccessTokenExpiry.IsZero()
	return isLonger && r.DoubtedSince.IsZero() && r.AccessTokenExpiry.IsZero() && r.Subject == next.Subject && r.Issuer == next.Issuer
}

// records stores and loads sign-ins.
type records struct {
	store store.Store
	keys  keyring.StorageSealer // seals refresh tokens
}

// extendExpiry moves an expiry to a later time. An earlier time has no effect.
func extendExpiry(until *time.Time, to time.Time) {
	if to.After(*until) {
		*until = to
	}
}

// replaceCalls returns the calls that replace a record. read is the stored value, or nil for a new record.
func (rs records) replaceCalls(r *record, read []byte) ([]*store.Call, error) {
	extendExpiry(&r.ReferencedUntil, r.ActiveUntil.Add(closingPeriod))
	value, err := store.ToJSON(r)
	if err != nil {
		return nil, err
	}
	save := store.ReplaceCall(recordPrefix+r.name(), read, value, rs.timeUntil(r.ReferencedUntil))
	return []*store.Call{save, {Op: store.Put, Key: duePrefix + r.name(), TTL: rs.timeUntil(r.ActiveUntil.Add(closingPeriod))}}, nil
}

func (rs records) now() time.Time { return store.Now(rs.store) }

// age returns the time since the provider's last confirmation.
func (rs records) age(r *record) time.Duration { return store.Since(rs.store, r.Confirmed) }

// isIdle reports whether the person has been inactive since the last check, so refreshing
// their token would needlessly prolong their session at the provider.
func (r *record) isIdle() bool { return r.Bound && !r.LastActive.After(r.Confirmed) }

// needsActivityUpdate reports whether the person's activity has to be written again.
func (rs records) needsActivityUpdate(r *record) bool {
	return store.Since(rs.store, r.LastActive) >= activityPrecision
}

// recordActivity records the person's activity.
func (rs records) recordActivity(r *record) bool {
	r.LastActive = rs.now()
	return true
}

// isUncheckable reports whether there is no token for checks. An expired access token cannot be used, because its introspection
// reveals nothing about the person.
func (rs records) isUncheckable(r *record) bool { return r.Token == "" || rs.hasExpired(r) }

// hasExpired reports whether the access token has expired. It returns false for a refresh token.
func (rs records) hasExpired(r *record) bool {
	return !r.AccessTokenExpiry.IsZero() && !rs.now().Before(r.AccessTokenExpiry.Add(-relyingparty.Leeway))
}

// mayRenew reports whether the browser may be redirected to the provider to renew a sign-in with an expired access
// token. Failed attempts are repeated only after the interval, so that an outage of the provider does not delay
// every page.
func (rs records) mayRenew(p *people.Provider, r *record) bool {
	return r.Issuer == p.Issuer && rs.hasExpired(r) && store.Since(rs.store, r.RenewalTried) >= p.Revalidate.Interval
}

// replaceTokens replaces the tokens of a record after the provider has confirmed the person.
func (rs records) replaceTokens(r *record, tokens relyingparty.ProviderTokens, sealed string) {
	now := rs.now()
	r.Token, r.AccessTokenExpiry, r.RefreshTokenExpiry, r.ExpiresWithSession, r.Bound, r.Introspects = sealed, tokens.AccessTokenExpiry, tokens.RefreshExpiry, tokens.ExpiresWithSession, tokens.ProlongsSession, tokens.CanIntrospect
	r.SignedIn, r.Confirmed, r.DoubtedSince, r.Claim = now, now, time.Time{}, "" // discards a running check with the old token
	if !rs.hasExpired(r) {
		r.RenewalTried = time.Time{}
	}
}

// hasLapsed reports whether the refresh token has reached its announced expiry, which explains a denial.
func (rs records) hasLapsed(r *record) bool {
	return !r.RefreshTokenExpiry.IsZero() && rs.now().After(r.RefreshTokenExpiry)
}

// read returns a record, or nil.
func (rs records) read(ctx context.Context, name string) (*record, error) {
	return store.GetJSON[record](ctx, rs.store, recordPrefix+name)
}

// sealToken seals a token. It returns "" unchanged.
func (rs records) sealToken(ctx context.Context, name, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	return rs.keys.SealStored(ctx, token, recordPrefix+name)
}

func (rs records) unsealToken(ctx context.Context, r *record) (string, error) {
	return rs.keys.UnsealStored(ctx, r.Token, recordPrefix+r.name())
}

// timeUntil returns the time until t, but at least one second.
func (rs records) timeUntil(t time.Time) time.Duration {
	return max(store.Until(rs.store, t), time.Second).Truncate(time.Second)
}

// update modifies a record unless do returns false. It returns the resulting record, or nil if there is none. After a
// concurrent change, do is called again.
func (rs records) update(ctx context.Context, name string, do func(*record) bool) (r *record, err error) {
	err = store.Retry(ctx, func() error {
		read, err := store.ReadValues(ctx, rs.store, recordPrefix+name)
		if err != nil {
			return err
		}
		if r, err = store.FromJSON[record](read[0]); r == nil || err != nil || !do(r) {
			return err
		}
		calls, err := rs.replaceCalls(r, read[0])
		if err != nil {
			return err
		}
		return rs.store.Do(ctx, calls...)
	})
	return r, err
}

// remove removes a sign-in that has no remaining sessions or grants.
func (rs records) remove(ctx context.Context, name string) error {
	return rs.store.Do(ctx, store.DeleteCalls(recordPrefix+name, duePrefix+name)...)
}
