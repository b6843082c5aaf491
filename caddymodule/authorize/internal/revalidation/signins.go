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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

// Config is what [New] needs.
type Config struct {
	Durable     store.Store      // holds the sign-ins
	Keys        keyring.Storing  // seal the refresh tokens
	Accounts    *people.Accounts // get what the providers say of people
	Session     time.Duration    // how long a session lasts
	AccessToken time.Duration    // how long an access token lasts
	Refresh     time.Duration    // how long a grant can be refreshed
	Logger      *slog.Logger     // gets outages of providers, and their ends

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
	asked := &providers{accounts: c.Accounts, logger: c.Logger, state: map[string]state{}}
	a := &asker{records: stored, providers: asked, logger: c.Logger, endSignIn: c.End}
	end := &closer{records: stored, providers: asked, lifetime: c.Refresh + c.Session, logger: c.Logger}
	return &SignIns{session: c.Session, accessToken: c.AccessToken, asker: a, closer: end, sweeper: &sweeper{a, end, c.SessionKey}}
}

// Run asks in the background until ctx ends, and then waits for the answers that are due.
func (s *SignIns) Run(ctx context.Context) { s.sweeper.run(ctx) }

// Begun is a sign-in that begins.
type Begun struct {
	SignIn               // whose
	upstream.Held        // what the provider can be asked by
	Subject       string // the sub there
	Again         bool   // the session is one of before
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
// those that store its session; none if its provider cannot be asked. If they are lost to a concurrent change
// ([store.Lost]), ask for them again.
func (s *SignIns) Starting(ctx context.Context, b Begun) ([]*store.Call, error) {
	p := s.asker.providers.asked(b.Provider)
	now := s.asker.records.now()
	session, active := now.Add(s.session), now.Add(s.session+s.accessToken)
	token := cmp.Or(b.RefreshToken, b.AccessToken)
	switch {
	case p == nil:
		return nil, nil
	case token == "" && b.Again: // with what there may be of before
		_, err := s.asker.records.change(ctx, name(b.SID, b.Provider), func(r *record) bool { r.Session, r.Active = session, active; return true })
		return nil, err
	case token == "":
		return nil, nil
	}
	r := &record{SID: b.SID, Provider: b.Provider, Issuer: p.Issuer, Subject: b.Subject, User: b.User, Brief: b.Brief, Bound: b.Bound, Introspects: b.Introspects, Expires: b.Expires, Seen: now, Yes: now, Session: session, Active: active}
	read, err := store.Values(ctx, s.asker.records.store, recordPrefix+r.name())
	if err != nil {
		return nil, err
	}
	before, err := store.FromJSON[record](read[0])
	if before != nil {
		r.Offline, r.Until = before.Offline, before.Until
	} else if err == nil {
		err = s.closer.expect(ctx, r)
	}
	switch {
	case err != nil:
		return nil, err
	case before != nil && before.lastsLonger(r): // also while a gateway is replacing it
		r.Token, r.Brief, r.Expires, r.Claim, r.Claimed = before.Token, before.Brief, before.Expires, before.Claim, before.Claimed
		r.Bound, r.Introspects = before.Bound, before.Introspects
	default:
		if r.Token, err = s.asker.records.seal(ctx, r.name(), token); err != nil {
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

// Lasts replaces what a sign-in is asked by with a refresh token that outlives the person's session at the provider. If the
// provider gave none, token is "", and all stays as it is.
func (s *SignIns) Lasts(ctx context.Context, sid, provider, token string) (err error) {
	key, sealed := name(sid, provider), ""
	if token != "" {
		sealed, err = s.asker.records.seal(ctx, key, token)
	}
	if err != nil {
		return err
	}
	_, err = s.asker.records.change(ctx, key, func(r *record) bool {
		if r.Brief = false; sealed != "" {
			r.Bound, r.Introspects = false, false
			r.Token, r.Expires, r.Yes, r.Claim = sealed, time.Time{}, s.asker.records.now(), "" // whoever asks by the other stores nothing
		}
		return true
	})
	return err
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

// Serves reports whether a session may be used: the provider does not say no, now or within the
// interval, nor has it been silent for too long.
func (s *SignIns) Serves(ctx context.Context, sid, provider string) (bool, error) {
	p := s.asker.providers.asked(provider)
	if p == nil {
		return true, nil
	}
	r, err := s.check(ctx, p, name(sid, provider), question{recent: p.Revalidate.Interval, waits: true, person: true})
	if err == nil && r != nil && s.asker.records.isUnseen(r) {
		_, err = s.asker.records.change(ctx, r.name(), s.asker.records.see)
	}
	if errors.Is(err, errEnded) || errors.Is(err, errSilent) || errors.Is(err, errMute) {
		return false, nil
	}
	return err == nil, err
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
	if r == nil || err != nil || r.Issuer != p.Issuer || !r.Denied && s.asker.records.age(r) < q.recent {
		return r, err
	}
	background := audit.ForReason(context.WithoutCancel(ctx), reason)
	switch {
	case r.Denied:
		return r, s.asker.end(background, r)
	case s.asker.records.isMute(r) && s.asker.records.age(r) >= p.Revalidate.Outage:
		return r, errMute
	case s.asker.records.isMute(r):
		return r, nil
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
	switch {
	case err == nil, errors.Is(err, errEnded):
		return r, err
	case s.asker.records.age(r) >= p.Revalidate.Outage:
		return r, errSilent
	}
	return r, nil
}
