package revalidation

import (
	"context"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

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
	return rs.store.Do(
		ctx, &store.Call{Op: store.Delete, Key: recordPrefix + name}, &store.Call{Op: store.Delete, Key: duePrefix + name},
	)
}
