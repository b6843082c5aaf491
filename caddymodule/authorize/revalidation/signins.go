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
	Durable     store.Store             // store for sign-ins
	Keys        keyring.Storing         // seals refresh tokens
	Accounts    *people.Accounts        // accounts that receive the providers' claims
	Session     time.Duration           // session lifetime
	AccessToken time.Duration           // access token lifetime
	Refresh     time.Duration           // grant lifetime
	Revocations *revocation.Revocations // suspension of access tokens
	Checks      *Checks                 // latest checks; default: new ones
	Logger      *slog.Logger            // log for the start and end of outages

	SessionKey func(sid string) string             // key of a session in Durable
	End        func(context.Context, SignIn) error // revokes everything from a sign-in; idempotent
}

// SignIns manages the sign-ins that can be rechecked at identity providers. Safe for concurrent use.
type SignIns struct {
	session, accessToken time.Duration
	asker                *providerChecker
	closer               *closer
	sweeper              *sweeper
	asking               singleflight.Group
}

// New creates SignIns from a configuration.
func New(c Config) *SignIns {
	stored := records{c.Durable, c.Keys}
	asked := &providers{accounts: c.Accounts, logger: c.Logger, checks: cmp.Or(c.Checks, new(Checks))}
	held := &suspensions{records: stored, revocations: c.Revocations, logger: c.Logger, samples: map[string]sample{}}
	a := &providerChecker{records: stored, providers: asked, suspended: held, logger: c.Logger, endSignIn: c.End}
	end := &closer{records: stored, providers: asked, lifetime: c.Refresh + c.Session, logger: c.Logger}
	return &SignIns{session: c.Session, accessToken: c.AccessToken, asker: a, closer: end, sweeper: &sweeper{a, end, c.SessionKey}}
}

// Run performs checks in the background until ctx ends, and then waits for running checks.
func (s *SignIns) Run(ctx context.Context) { s.sweeper.run(ctx) }

// Accept makes the denials of a suspended provider take effect with the next sweeps. The error is
// [ErrNotSuspended] without a suspension.
func (s *SignIns) Accept(ctx context.Context, provider string) error {
	return s.asker.suspended.accept(ctx, provider)
}

// PendingSignIn is a new sign-in.
type PendingSignIn struct {
	SignIn                             // session and provider
	relyingparty.ProviderTokens        // the provider's tokens for checks
	Subject                     string // sub at the provider
}

var errSilent = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
	Description: "the identity provider has not answered for too long",
}

// errMute rejects people who have to sign in again because their sign-in can no longer be checked.
var errMute = oauth2.InvalidGrant("sign-in can no longer be revalidated at the identity provider")

// atRefresh is the maximum age of the last confirmation at a refresh, so that concurrent refreshes
// of a person's apps cause one check.
const atRefresh = 10 * time.Second

// StoreCalls returns the durable store calls that store a new sign-in, to be executed with the calls
// that store its session; none for a provider without revalidation. After a concurrent change
// ([store.IsConflict]), call StoreCalls again.
func (s *SignIns) StoreCalls(ctx context.Context, b PendingSignIn) ([]*store.Call, error) {
	p := s.asker.providers.revalidated(b.Provider)
	now := s.asker.records.now()
	session, active := now.Add(s.session), now.Add(s.session+s.accessToken)
	if p == nil {
		return nil, nil
	}
	r := &record{SID: b.SID, Provider: b.Provider, Issuer: p.Issuer, Subject: b.Subject, User: b.User, Brief: b.ExpiresWithSession, Bound: b.Bound, Introspects: b.Introspects, Expires: b.Expires, Lapses: b.RefreshUntil, SignedIn: now, Seen: now, Yes: now, Session: session, Active: active}
	read, err := store.Values(ctx, s.asker.records.store, recordPrefix+r.name())
	if err != nil {
		return nil, err
	}
	before, err := store.FromJSON[record](read[0])
	held := false
	if before != nil {
		r.Offline, r.Until, r.Tried = before.Offline, before.Until, before.Tried
		held, err = s.asker.suspended.holds(ctx, before)
	} else if err == nil {
		err = s.closer.expect(ctx, r)
	}
	switch {
	case err != nil:
		return nil, err
	case before != nil && !held && before.lastsLonger(r): // also while another gateway is replacing the token
		r.Token, r.Brief, r.Expires, r.Lapses, r.Claim, r.Claimed, r.SignedIn = before.Token, before.Brief, before.Expires, before.Lapses, before.Claim, before.Claimed, before.SignedIn
		r.Bound, r.Introspects = before.Bound, before.Introspects
	default:
		if r.Token, err = s.asker.records.seal(ctx, r.name(), cmp.Or(b.RefreshToken, b.AccessToken)); err != nil {
			return nil, err
		}
	}
	return s.asker.records.calls(r, read[0])
}

// EndsWithProviderSession reports whether the tokens for checks end with the person's session at the provider, and
// no longer-lived refresh token has been requested yet.
func (s *SignIns) EndsWithProviderSession(ctx context.Context, sid, provider string) (bool, error) {
	if s.asker.providers.revalidated(provider) == nil {
		return false, nil
	}
	r, err := s.asker.records.read(ctx, name(sid, provider))
	return r != nil && r.Brief, err
}

// AllowsOfflineAccess reports whether apps may get grants that outlast a session: the session is local, revalidation is
// disabled, or the provider issued a refresh token. A provider's access token expires too early to check such grants.
func (s *SignIns) AllowsOfflineAccess(ctx context.Context, sid, provider string) (bool, error) {
	if s.asker.providers.revalidated(provider) == nil {
		return true, nil
	}
	r, err := s.asker.records.read(ctx, name(sid, provider))
	if err != nil || r != nil && r.Expires.IsZero() {
		return err == nil, err
	}
	s.asker.logger.WarnContext(ctx, "offline_access not granted: the identity provider issued no refresh token, so the sign-in could not be revalidated", "idp", provider, "sid", sid)
	return false, nil
}

// Renew replaces the tokens of a sign-in after the provider has confirmed the person again. An
// access token never replaces a refresh token.
func (s *SignIns) Renew(ctx context.Context, sid, provider string, held relyingparty.ProviderTokens) error {
	key := name(sid, provider)
	sealed, err := s.asker.records.seal(ctx, key, cmp.Or(held.RefreshToken, held.AccessToken))
	if err != nil {
		return err
	}
	_, err = s.asker.records.change(ctx, key, func(r *record) bool {
		if r.Brief = false; held.RefreshToken != "" || !held.Expires.IsZero() && !r.Expires.IsZero() {
			s.asker.records.renew(r, held, sealed)
		}
		return true
	})
	return err
}

// TryRenewal reports whether the browser may now be redirected to the provider to renew a session's
// sign-in, and records the attempt.
func (s *SignIns) TryRenewal(ctx context.Context, sid string, p *people.Provider) (may bool, err error) {
	_, err = s.asker.records.change(ctx, name(sid, p.Key), func(r *record) bool {
		if may = s.asker.records.mayRenew(p, r); may {
			r.Tried = s.asker.records.now()
		}
		return may
	})
	return may && err == nil, err
}

// ExtendLifetime extends a sign-in for a grant that outlasts its session, and reports whether the sign-in can be checked.
func (s *SignIns) ExtendLifetime(ctx context.Context, sid, provider string, lifetime time.Duration) (bool, error) {
	if s.asker.providers.revalidated(provider) == nil {
		return false, nil
	}
	r, err := s.asker.records.change(ctx, name(sid, provider), func(r *record) bool {
		r.Offline = true
		extend(&r.Until, s.asker.records.now().Add(lifetime))
		return true
	})
	return r != nil, err
}

// IsUsable reports whether a session may be used: the provider has not denied the sign-in and has not been silent for
// too long. renewable reports whether the browser may be redirected to renew the sign-in ([SignIns.TryRenewal]).
func (s *SignIns) IsUsable(ctx context.Context, sid, provider string) (serves, renewable bool, err error) {
	p := s.asker.providers.revalidated(provider)
	if p == nil {
		return true, false, nil
	}
	r, err := s.check(ctx, p, name(sid, provider), question{recent: p.Revalidate.Interval, waits: true, person: true})
	if err == nil && r != nil && s.asker.records.isUnseen(r) {
		_, err = s.asker.records.change(ctx, r.name(), s.asker.records.see)
	}
	if _, refused := errors.AsType[*oauth2.Error](err); refused {
		return false, false, nil
	}
	return err == nil, r != nil && s.asker.records.mayRenew(p, r), err
}

// CheckRefresh checks a sign-in before one of its grants is refreshed. It returns an error if the sign-in was denied, or
// not confirmed for too long. kept marks a grant extended by [SignIns.ExtendLifetime]: a missing sign-in then counts as
// denied.
func (s *SignIns) CheckRefresh(ctx context.Context, sid, provider string, kept bool) error {
	p := s.asker.providers.revalidated(provider)
	if p == nil {
		return nil
	}
	r, err := s.check(ctx, p, name(sid, provider), question{recent: atRefresh, waits: true, person: !kept})
	if err == nil && r == nil && kept {
		return errEnded
	}
	lasts := s.asker.records.now().Add(s.accessToken)
	if err == nil && r != nil && (r.Active.Before(lasts.Add(-time.Minute)) || !kept && s.asker.records.isUnseen(r)) {
		_, err = s.asker.records.change(ctx, r.name(), func(r *record) bool {
			extend(&r.Active, lasts)
			return kept || s.asker.records.see(r)
		})
	}
	return err
}

// check checks a sign-in unless it was confirmed recently. Without a record there is nothing to check.
func (s *SignIns) check(ctx context.Context, p *people.Provider, name string, q question) (*record, error) {
	r, err := s.asker.records.read(ctx, name)
	switch {
	case r == nil || err != nil:
		return r, err
	case r.Issuer != p.Issuer && s.asker.records.age(r) >= p.Revalidate.Outage:
		return r, errMute
	case r.Issuer != p.Issuer:
		return r, nil
	}
	held, err := s.asker.suspended.holds(ctx, r)
	if err != nil || !r.Denied && !held && r.Doubt.IsZero() && s.asker.records.age(r) < q.recent {
		return r, err
	}
	background := audit.ForReason(context.WithoutCancel(ctx), reason)
	switch {
	case r.Denied:
		return r, s.asker.end(background, r)
	case held && (s.asker.records.isUncheckable(r) || !s.asker.suspended.mayRetry(ctx, r)):
		return r, errSuspended
	case s.asker.records.isUncheckable(r) && (!r.Doubt.IsZero() || s.asker.records.age(r) >= p.Revalidate.Outage):
		return r, errMute
	case s.asker.records.isUncheckable(r):
		return r, nil
	case held || !r.Doubt.IsZero():
		q.recent = 0
	}
	answer := s.asking.DoChan(name, func() (any, error) {
		return nil, s.asker.checkSignIn(background, p, name, q)
	})
	select {
	case <-ctx.Done():
		return r, context.Cause(ctx)
	case result := <-answer:
		err = result.Err
	}
	return r, s.settle(ctx, p, r, held, err)
}

// settle returns the result of a check: an outage is tolerated while the last confirmation is
// recent enough, except during a suspension.
func (s *SignIns) settle(ctx context.Context, p *people.Provider, r *record, held bool, err error) error {
	if held && err == nil { // another gateway performed the check
		if held, err = s.asker.suspended.holds(ctx, r); held {
			err = errSuspended
		}
	}
	switch {
	case err == nil, errors.Is(err, errEnded), errors.Is(err, errSuspended), errors.Is(err, errUnclear):
		return err
	case held:
		return errSuspended
	case s.asker.records.age(r) >= p.Revalidate.Outage:
		return errSilent
	}
	return nil
}

// ProviderStates returns the states of the providers with revalidation.
func (s *SignIns) ProviderStates(ctx context.Context) (all []ProviderState, err error) {
	for _, key := range s.asker.providers.accounts.ProviderKeys {
		p := s.asker.providers.revalidated(key)
		if p == nil {
			continue
		}
		state, err := s.stateOf(ctx, p)
		if err != nil {
			return nil, err
		}
		all = append(all, state)
	}
	return all, nil
}

func (s *SignIns) stateOf(ctx context.Context, p *people.Provider) (ProviderState, error) {
	known := s.asker.providers.checks.of(p.Key)
	state := ProviderState{Key: p.Key, State: "ok", Latest: map[Result]time.Time{}}
	for result, at := range known.latest {
		if !at.IsZero() {
			state.Latest[result] = at
		}
	}
	suspended, err := s.asker.suspended.revocations.Suspended(ctx, p.Key)
	switch {
	case err != nil:
		return state, err
	case !suspended.IsZero():
		state.State, state.Suspended = "suspended", &suspended
	case known.failing != "":
		state.State = string(known.failing)
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
	SID         string    `json:"sid"`
	Provider    string    `json:"provider"`              // provider key
	Issuer      string    `json:"issuer"`                // issuer at the sign-in
	Subject     string    `json:"subject"`               // sub at the provider
	User        string    `json:"user"`                  // sub at the gateway
	Token       string    `json:"token"`                 // sealed refresh token, otherwise access token for introspection; may be ""
	Expires     time.Time `json:"expires,omitzero"`      // expiry of the access token; zero with a refresh token
	Tried       time.Time `json:"tried,omitzero"`        // latest renewal attempt without success
	Lapses      time.Time `json:"lapses,omitzero"`       // expiry of the refresh token as announced by the provider
	Brief       bool      `json:"brief,omitempty"`       // the tokens end with the person's session at the provider, and longer-lived ones can be requested
	Bound       bool      `json:"bound,omitempty"`       // see [relyingparty.ProviderTokens]
	Introspects bool      `json:"introspects,omitempty"` // see [relyingparty.ProviderTokens]
	Seen        time.Time `json:"seen,omitzero"`         // latest activity of the person, accurate to about seenPrecision
	SignedIn    time.Time `json:"signed_in,omitzero"`    // issue time of the first of these tokens
	Yes         time.Time `json:"yes"`                   // the provider's latest confirmation
	Doubt       time.Time `json:"doubt,omitzero"`        // time of a denial while other people are being checked
	Denied      bool      `json:"denied,omitempty"`      // the denial is final, but its revocations are incomplete
	Offline     bool      `json:"offline,omitempty"`     // a grant outlasts the session
	Session     time.Time `json:"session"`               // expiry of the session
	Active      time.Time `json:"active"`                // latest expiry of an issued token or session
	Until       time.Time `json:"until"`                 // expiry of the last reference to the sign-in

	Claim   string    `json:"claim,omitempty"`  // claim of the gateway that performs a check
	Claimed time.Time `json:"claimed,omitzero"` // expiry of the claim
}

const (
	recordPrefix = "upstream:"
	duePrefix    = "upstream-due:" // marks sign-ins for the sweep
)

// seenPrecision is the minimum time between writes of a person's activity.
const seenPrecision = time.Minute

// closing is the time after the end of a sign-in in which a sweep can revoke its refresh token.
const closing = time.Hour

// reason is the reason recorded for ended sessions.
const reason = "the identity provider no longer admits the person, or ended the sign-in"

var errEnded = oauth2.InvalidGrant(reason)

// name identifies the sign-in of a session at a provider. A session may have sign-ins at several providers.
func name(sid, provider string) string { return sid + "." + provider }

func (r *record) name() string { return name(r.SID, r.Provider) }

// lastsLonger reports whether the sign-in can be checked for longer than the next one in its session.
func (r *record) lastsLonger(next *record) bool {
	lasts := next.Brief && !r.Brief || !next.Expires.IsZero()
	return lasts && r.Doubt.IsZero() && r.Expires.IsZero() && r.Subject == next.Subject && r.Issuer == next.Issuer
}

// records stores and loads sign-ins.
type records struct {
	store store.Store
	keys  keyring.Storing // seals refresh tokens
}

// extend moves an expiry to a later time.
func extend(until *time.Time, to time.Time) {
	if to.After(*until) {
		*until = to
	}
}

// calls returns the calls that replace a record as read; nil read means a new one.
func (rs records) calls(r *record, read []byte) ([]*store.Call, error) {
	extend(&r.Until, r.Active.Add(closing))
	value, err := store.ToJSON(r)
	if err != nil {
		return nil, err
	}
	save := store.Replacing(recordPrefix+r.name(), read, value, rs.until(r.Until))
	return []*store.Call{save, {Op: store.Put, Key: duePrefix + r.name(), TTL: rs.until(r.Active.Add(closing))}}, nil
}

func (rs records) now() time.Time { return store.Now(rs.store) }

// age returns the time since the provider's last confirmation.
func (rs records) age(r *record) time.Duration { return store.Since(rs.store, r.Yes) }

// isIdle reports whether the person has been inactive since the last check, so that refreshing
// their token would needlessly prolong their session at the provider.
func (r *record) isIdle() bool { return r.Bound && !r.Seen.After(r.Yes) }

// isUnseen reports whether the person's activity has to be written again.
func (rs records) isUnseen(r *record) bool { return store.Since(rs.store, r.Seen) >= seenPrecision }

// see records the person's activity.
func (rs records) see(r *record) bool {
	r.Seen = rs.now()
	return true
}

// isUncheckable reports whether no token for checks exists: introspection of an expired access token
// reveals nothing about the person.
func (rs records) isUncheckable(r *record) bool { return r.Token == "" || rs.hasExpired(r) }

// hasExpired reports whether the access token has expired. A refresh token never counts as expired.
func (rs records) hasExpired(r *record) bool {
	return !r.Expires.IsZero() && !rs.now().Before(r.Expires.Add(-relyingparty.Leeway))
}

// mayRenew reports whether the browser may be redirected to the provider to renew a sign-in with an expired access
// token. Failed attempts are repeated only after the interval, so that an outage of the provider does not delay
// every page.
func (rs records) mayRenew(p *people.Provider, r *record) bool {
	return r.Issuer == p.Issuer && rs.hasExpired(r) && store.Since(rs.store, r.Tried) >= p.Revalidate.Interval
}

// renew replaces the tokens of a record after the provider has confirmed the person.
func (rs records) renew(r *record, held relyingparty.ProviderTokens, sealed string) {
	now := rs.now()
	r.Token, r.Expires, r.Lapses, r.Brief, r.Bound, r.Introspects = sealed, held.Expires, held.RefreshUntil, held.ExpiresWithSession, held.Bound, held.Introspects
	r.SignedIn, r.Yes, r.Doubt, r.Claim = now, now, time.Time{}, "" // discards a running check with the old token
	if !rs.hasExpired(r) {
		r.Tried = time.Time{}
	}
}

// hasLapsed reports whether the refresh token has reached its announced expiry, which explains a denial.
func (rs records) hasLapsed(r *record) bool { return !r.Lapses.IsZero() && rs.now().After(r.Lapses) }

// read returns a record, or nil.
func (rs records) read(ctx context.Context, name string) (*record, error) {
	return store.GetJSON[record](ctx, rs.store, recordPrefix+name)
}

// seal seals a token; "" is returned unchanged.
func (rs records) seal(ctx context.Context, name, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	return rs.keys.SealStored(ctx, token, recordPrefix+name)
}

func (rs records) open(ctx context.Context, r *record) (string, error) {
	return rs.keys.UnsealStored(ctx, r.Token, recordPrefix+r.name())
}

// until returns the time left, at least a second.
func (rs records) until(t time.Time) time.Duration {
	return max(store.Until(rs.store, t), time.Second).Truncate(time.Second)
}

// change modifies a record unless do returns false, and returns the resulting record; nil without a
// record. After a concurrent change, do runs again.
func (rs records) change(ctx context.Context, name string, do func(*record) bool) (r *record, err error) {
	err = store.Retry(ctx, func() error {
		read, err := store.Values(ctx, rs.store, recordPrefix+name)
		if err != nil {
			return err
		}
		if r, err = store.FromJSON[record](read[0]); r == nil || err != nil || !do(r) {
			return err
		}
		calls, err := rs.calls(r, read[0])
		if err != nil {
			return err
		}
		return rs.store.Do(ctx, calls...)
	})
	return r, err
}

// remove removes a sign-in without remaining sessions and grants.
func (rs records) remove(ctx context.Context, name string) error {
	return rs.store.Do(ctx, store.Deleting(recordPrefix+name, duePrefix+name)...)
}
