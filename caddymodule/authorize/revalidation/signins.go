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
	Again             bool   // the session is one of before
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
