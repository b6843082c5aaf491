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

// Config is what [New] needs.
type Config struct {
	Durable     store.Store             // holds the sign-ins
	Keys        keyring.Storing         // seal the refresh tokens
	Accounts    *people.Accounts        // get what the providers say of people
	Session     time.Duration           // how long a session lasts
	AccessToken time.Duration           // how long an access token lasts
	Refresh     time.Duration           // how long a grant can be refreshed
	Revocations *revocation.Revocations // suspend access tokens
	Checks      *Checks                 // the latest checks; default: new ones
	Logger      *slog.Logger            // gets outages of providers, and their ends

	SessionKey func(sid string) string             // the key of a session in Durable
	End        func(context.Context, SignIn) error // ends what came of a sign-in; it can be repeated
}

// SignIns are those at identity providers that can be asked about them again. It is safe for concurrent use.
type SignIns struct {
	session, accessToken time.Duration
	asker                *asker
	closer               *closer
	sweeper              *sweeper
	asking               singleflight.Group
}

// New returns the SignIns of a configuration.
func New(c Config) *SignIns {
	stored := records{c.Durable, c.Keys}
	asked := &providers{accounts: c.Accounts, logger: c.Logger, checks: cmp.Or(c.Checks, new(Checks))}
	held := &suspensions{records: stored, revocations: c.Revocations, logger: c.Logger, samples: map[string]sample{}}
	a := &asker{records: stored, providers: asked, suspended: held, logger: c.Logger, endSignIn: c.End}
	end := &closer{records: stored, providers: asked, lifetime: c.Refresh + c.Session, logger: c.Logger}
	return &SignIns{session: c.Session, accessToken: c.AccessToken, asker: a, closer: end, sweeper: &sweeper{a, end, c.SessionKey}}
}

// Run asks in the background until ctx ends, and then waits for the answers that are due.
func (s *SignIns) Run(ctx context.Context) { s.sweeper.run(ctx) }

// Accept lets the denials of a suspended provider take effect: the next sweeps end what it denies. The error is
// [ErrNotSuspended] if it is not suspended.
func (s *SignIns) Accept(ctx context.Context, provider string) error {
	return s.asker.suspended.accept(ctx, provider)
}

// Begun is a sign-in that begins.
type Begun struct {
	SignIn                   // whose
	relyingparty.Held        // what the provider can be asked by
	Subject           string // the sub there
}

var errSilent = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
	Description: "the identity provider has not answered for too long",
}

// errMute refuses those who have to sign in again before more can be known.
var errMute = oauth2.InvalidGrant("the identity provider can no longer be asked whether the person may come")

// atRefresh is how old the last yes may be at a refresh, so that the apps of one person that
// refresh at once ask once.
const atRefresh = 10 * time.Second

// Starting returns the calls to the durable store that keep a sign-in that begins, to be made with
// those that store its session; none for a provider without revalidate. If they are lost to a concurrent change
// ([store.Lost]), ask for them again.
func (s *SignIns) Starting(ctx context.Context, b Begun) ([]*store.Call, error) {
	p := s.asker.providers.asked(b.Provider)
	now := s.asker.records.now()
	session, active := now.Add(s.session), now.Add(s.session+s.accessToken)
	if p == nil {
		return nil, nil
	}
	r := &record{SID: b.SID, Provider: b.Provider, Issuer: p.Issuer, Subject: b.Subject, User: b.User, Brief: b.Brief, Bound: b.Bound, Introspects: b.Introspects, Expires: b.Expires, Lapses: b.RefreshUntil, SignedIn: now, Seen: now, Yes: now, Session: session, Active: active}
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
	case before != nil && !held && before.lastsLonger(r): // also while a gateway is replacing it
		r.Token, r.Brief, r.Expires, r.Lapses, r.Claim, r.Claimed, r.SignedIn = before.Token, before.Brief, before.Expires, before.Lapses, before.Claim, before.Claimed, before.SignedIn
		r.Bound, r.Introspects = before.Bound, before.Introspects
	default:
		if r.Token, err = s.asker.records.seal(ctx, r.name(), cmp.Or(b.RefreshToken, b.AccessToken)); err != nil {
			return nil, err
		}
	}
	return s.asker.records.calls(r, read[0])
}

// IsBrief reports whether what a sign-in is asked by ends with the person's session at the provider, and a refresh token that
// lasts has not been asked for yet.
func (s *SignIns) IsBrief(ctx context.Context, sid, provider string) (bool, error) {
	if s.asker.providers.asked(provider) == nil {
		return false, nil
	}
	r, err := s.asker.records.read(ctx, name(sid, provider))
	return r != nil && r.Brief, err
}

// Outlives reports whether apps may get grants that outlive a session: the session is local, revalidate is off, or the provider
// issued a refresh token. An access token of the provider expires too early to check such a grant.
func (s *SignIns) Outlives(ctx context.Context, sid, provider string) (bool, error) {
	if s.asker.providers.asked(provider) == nil {
		return true, nil
	}
	r, err := s.asker.records.read(ctx, name(sid, provider))
	if err != nil || r != nil && r.Expires.IsZero() {
		return err == nil, err
	}
	s.asker.logger.WarnContext(ctx, "offline_access is not granted: the identity provider issued no refresh token, so it could not be asked whether the person may still come", "idp", provider, "sid", sid)
	return false, nil
}

// Renew replaces the tokens of a sign-in after the provider has confirmed the person again. An access token never replaces a
// refresh token.
func (s *SignIns) Renew(ctx context.Context, sid, provider string, held relyingparty.Held) error {
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

// TryRenewal reports whether the browser may be redirected to the provider now to renew the sign-in of a session, and records
// the attempt.
func (s *SignIns) TryRenewal(ctx context.Context, sid string, p *people.Provider) (may bool, err error) {
	_, err = s.asker.records.change(ctx, name(sid, p.Key), func(r *record) bool {
		if may = s.asker.records.mayRenew(p, r); may {
			r.Tried = s.asker.records.now()
		}
		return may
	})
	return may && err == nil, err
}

// Keep keeps a sign-in for a grant that outlives its session, and reports whether the provider can be asked about it.
func (s *SignIns) Keep(ctx context.Context, sid, provider string, lifetime time.Duration) (bool, error) {
	if s.asker.providers.asked(provider) == nil {
		return false, nil
	}
	r, err := s.asker.records.change(ctx, name(sid, provider), func(r *record) bool {
		r.Offline = true
		extend(&r.Until, s.asker.records.now().Add(lifetime))
		return true
	})
	return r != nil, err
}

// Serves reports whether a session may be used: the provider does not say no, now or within the interval, nor has it been silent
// for too long. renewable reports whether the browser may be redirected to renew the sign-in ([SignIns.TryRenewal]).
func (s *SignIns) Serves(ctx context.Context, sid, provider string) (serves, renewable bool, err error) {
	p := s.asker.providers.asked(provider)
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

// Refreshes asks about a sign-in before one of its grants is refreshed, and refuses if the answer is
// no, or is missing for too long. Of a grant that was kept ([SignIns.Keep]), it was no if the sign-in is gone.
func (s *SignIns) Refreshes(ctx context.Context, sid, provider string, kept bool) error {
	p := s.asker.providers.asked(provider)
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

// check asks about a sign-in unless the last yes is recent enough. Without a record there is nothing to ask.
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
	case held && (s.asker.records.isMute(r) || !s.asker.suspended.mayRetry(ctx, r)):
		return r, errSuspended
	case s.asker.records.isMute(r) && (!r.Doubt.IsZero() || s.asker.records.age(r) >= p.Revalidate.Outage):
		return r, errMute
	case s.asker.records.isMute(r):
		return r, nil
	case held || !r.Doubt.IsZero():
		q.recent = 0
	}
	answer := s.asking.DoChan(name, func() (any, error) {
		return nil, s.asker.ask(background, p, name, q)
	})
	select {
	case <-ctx.Done():
		return r, context.Cause(ctx)
	case result := <-answer:
		err = result.Err
	}
	return r, s.settle(ctx, p, r, held, err)
}

// settle returns what a check comes to after an answer: an outage is endured while the last yes is recent enough, but not
// for what a suspension holds.
func (s *SignIns) settle(ctx context.Context, p *people.Provider, r *record, held bool, err error) error {
	if held && err == nil { // it was another gateway that asked
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

// ProviderStates returns the states of the providers with revalidate.
func (s *SignIns) ProviderStates(ctx context.Context) (all []ProviderState, err error) {
	for _, key := range s.asker.providers.accounts.ProviderKeys {
		p := s.asker.providers.asked(key)
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

// SignIn is one sign-in of a person at a provider.
type SignIn struct {
	User     string // the sub here
	SID      string // of the session
	Provider string // its key
}

// record is a sign-in as stored.
type record struct {
	SID         string    `json:"sid"`
	Provider    string    `json:"provider"`              // its key
	Issuer      string    `json:"issuer"`                // its issuer then
	Subject     string    `json:"subject"`               // the sub there
	User        string    `json:"user"`                  // the sub here
	Token       string    `json:"token"`                 // the refresh token, or else an access token for introspection, sealed; "" without either
	Expires     time.Time `json:"expires,omitzero"`      // of the access token, where there is no refresh token
	Tried       time.Time `json:"tried,omitzero"`        // latest renewal that has not succeeded
	Lapses      time.Time `json:"lapses,omitzero"`       // when the refresh token expires, as far as the provider says so
	Brief       bool      `json:"brief,omitempty"`       // it ends with the person's session there, and another can be asked for
	Bound       bool      `json:"bound,omitempty"`       // see [relyingparty.Held]
	Introspects bool      `json:"introspects,omitempty"` // see [relyingparty.Held]
	Seen        time.Time `json:"seen,omitzero"`         // when the person was last active here, to about seenPrecision
	SignedIn    time.Time `json:"signed_in,omitzero"`    // when the provider issued the first of these tokens
	Yes         time.Time `json:"yes"`                   // the provider's latest
	Doubt       time.Time `json:"doubt,omitzero"`        // when it said no, if other people are yet to be checked
	Denied      bool      `json:"denied,omitempty"`      // it said no, and what there is has not ended yet
	Offline     bool      `json:"offline,omitempty"`     // a grant outlives the session
	Session     time.Time `json:"session"`               // when the session is over, if nobody ends it
	Active      time.Time `json:"active"`                // until when something given lasts by itself
	Until       time.Time `json:"until"`                 // when nothing refers to the sign-in any more

	Claim   string    `json:"claim,omitempty"`  // of the gateway that is asking
	Claimed time.Time `json:"claimed,omitzero"` // until when it is
}

const (
	recordPrefix = "upstream:"
	duePrefix    = "upstream-due:" // marks what the sweep looks at
)

// seenPrecision is how long a person's activity is not written again.
const seenPrecision = time.Minute

// closing is how long after its end the sweep has to give a refresh token back.
const closing = time.Hour

// reason is why sessions end.
const reason = "the identity provider no longer admits the person, or ended the sign-in"

var errEnded = oauth2.InvalidGrant(reason)

// name is that of the sign-in of a session at a provider. Someone may sign in to a session again at another.
func name(sid, provider string) string { return sid + "." + provider }

func (r *record) name() string { return name(r.SID, r.Provider) }

// lastsLonger reports whether one can be asked by the token of a sign-in for longer than by that of the next in its session.
func (r *record) lastsLonger(next *record) bool {
	lasts := next.Brief && !r.Brief || !next.Expires.IsZero()
	return lasts && r.Doubt.IsZero() && r.Expires.IsZero() && r.Subject == next.Subject && r.Issuer == next.Issuer
}

// records are those of all sign-ins.
type records struct {
	store store.Store
	keys  keyring.Storing // seal the refresh tokens
}

// extend makes something last.
func extend(until *time.Time, to time.Time) {
	if to.After(*until) {
		*until = to
	}
}

// calls returns the calls that store a record in place of what was read; nil for nothing.
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

// age is how long ago the provider's last yes is.
func (rs records) age(r *record) time.Duration { return store.Since(rs.store, r.Yes) }

// isIdle reports whether the person was not active here since the last check, so that to refresh their token there would keep
// them signed in for nothing.
func (r *record) isIdle() bool { return r.Bound && !r.Seen.After(r.Yes) }

// isUnseen reports whether it is time to write that the person is active.
func (rs records) isUnseen(r *record) bool { return store.Since(rs.store, r.Seen) >= seenPrecision }

// see notes that the person is active.
func (rs records) see(r *record) bool {
	r.Seen = rs.now()
	return true
}

// isMute reports whether there is no token to ask the provider by: introspecting an expired access token reveals nothing about
// the person.
func (rs records) isMute(r *record) bool { return r.Token == "" || rs.hasExpired(r) }

// hasExpired reports whether the access token has expired. A refresh token never counts as expired.
func (rs records) hasExpired(r *record) bool {
	return !r.Expires.IsZero() && !rs.now().Before(r.Expires.Add(-relyingparty.Leeway))
}

// mayRenew reports whether the browser may be redirected to the provider to renew a sign-in whose access token has expired. After
// a failed attempt it waits for the interval, so that a provider that is down does not delay every page.
func (rs records) mayRenew(p *people.Provider, r *record) bool {
	return r.Issuer == p.Issuer && rs.hasExpired(r) && store.Since(rs.store, r.Tried) >= p.Revalidate.Interval
}

// renew replaces the tokens of a record after the provider has confirmed the person.
func (rs records) renew(r *record, held relyingparty.Held, sealed string) {
	now := rs.now()
	r.Token, r.Expires, r.Lapses, r.Brief, r.Bound, r.Introspects = sealed, held.Expires, held.RefreshUntil, held.Brief, held.Bound, held.Introspects
	r.SignedIn, r.Yes, r.Doubt, r.Claim = now, now, time.Time{}, "" // a check by the old token that is still running is discarded
	if !rs.hasExpired(r) {
		r.Tried = time.Time{}
	}
}

// hasLapsed reports whether the refresh token has expired, as the provider announced: a denial is about nothing else.
func (rs records) hasLapsed(r *record) bool { return !r.Lapses.IsZero() && rs.now().After(r.Lapses) }

// read returns a record, or nil.
func (rs records) read(ctx context.Context, name string) (*record, error) {
	return store.GetJSON[record](ctx, rs.store, recordPrefix+name)
}

// seal seals a token; "" stays as it is.
func (rs records) seal(ctx context.Context, name, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	return rs.keys.SealStored(ctx, token, recordPrefix+name)
}

func (rs records) open(ctx context.Context, r *record) (string, error) {
	return rs.keys.UnsealStored(ctx, r.Token, recordPrefix+r.name())
}

// until is the time that is left, at least a second.
func (rs records) until(t time.Time) time.Duration {
	return max(store.Until(rs.store, t), time.Second).Truncate(time.Second)
}

// change changes a record, unless do says that there is nothing to change, and returns it as it is
// then; nil if there is none. After a concurrent change, do runs again.
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

// remove removes a sign-in of which nothing is left.
func (rs records) remove(ctx context.Context, name string) error {
	return rs.store.Do(ctx, store.Deleting(recordPrefix+name, duePrefix+name)...)
}
