package revalidation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const (
	// checkTimeout limits a check. claimLifetime limits a claim to check and includes storing the result. The last attempt to
	// store the result takes at most storeTimeout.
	checkTimeout, claimLifetime, storeTimeout = 30 * time.Second, time.Minute, 10 * time.Second

	// pollInterval is the time between polls of another gateway's check, and between attempts to store a result.
	pollInterval = 250 * time.Millisecond
)

// providerChecker checks sign-ins at providers and applies the results.
type providerChecker struct {
	records     records
	providers   *providers
	suspensions *suspensions
	logger      *slog.Logger
	endSignIn   func(context.Context, SignIn) error
}

// checkOptions contains the parameters of a check.
type checkOptions struct {
	maxAge         time.Duration // maximum age of the last confirmation
	waitsForResult bool          // whether to wait for the result of another gateway's check
	isPersonActive bool          // the person is active now
}

// checkSignIn checks a sign-in at a provider. It returns nil if the provider confirms the sign-in or need not be
// asked now, errEnded if the sign-in was denied or removed, and any other error for an outage.
func (a *providerChecker) checkSignIn(ctx context.Context, p *people.Provider, name string, q checkOptions) error {
	for {
		if err := a.providers.checkBackoff(p.Key); err != nil {
			return err
		}
		r, claimed, err := a.claim(ctx, p, name, q.maxAge)
		switch {
		case err != nil:
			return err
		case r == nil:
			return errEnded // the sign-in was removed in the meantime
		case r.Denied:
			return a.endDenied(ctx, r)
		case claimed:
			return a.checkWithClaim(ctx, p, r, q.isPersonActive)
		case r.Claim == "" || r.DoubtedSince.IsZero() && a.records.age(r) < p.Revalidate.Interval || !q.waitsForResult:
			return nil
		}
		time.Sleep(pollInterval)
	}
}

// claim returns a sign-in and reports whether this gateway has claimed the check.
func (a *providerChecker) claim(ctx context.Context, p *people.Provider, name string, recent time.Duration) (r *record, claimed bool, err error) {
	claim := oauth2.RandomToken()
	r, err = a.records.update(ctx, name, func(r *record) bool {
		if r.Denied || r.Issuer != p.Issuer || a.records.age(r) < recent {
			r.Claim = ""
			return false
		}
		if r.Claim != "" && store.Until(a.records.store, r.ClaimExpiry) > 0 {
			return false
		}
		r.Claim, r.ClaimExpiry = claim, a.records.now().Add(claimLifetime)
		return true
	})
	return r, err == nil && r != nil && r.Claim == claim, err
}

// checkWithClaim performs a check with the record's claim.
func (a *providerChecker) checkWithClaim(ctx context.Context, p *people.Provider, r *record, isPersonActive bool) error {
	denied, err := a.queryProvider(ctx, p, r, isPersonActive)
	if !denied {
		return err
	}
	doubtful, err := a.recordDenial(ctx, r, r.Claim)
	switch {
	case err != nil:
		return err
	case doubtful == nil:
		return errEnded // the sign-in was removed in the meantime
	case doubtful.DoubtedSince.IsZero(): // the person has signed in again
		return nil
	}
	if err := a.suspensions.confirmDenial(ctx, p, doubtful, a.checkOtherSignIn); err != nil {
		_, _ = a.recordDenial(ctx, doubtful, "") // on error the claim expires
		return err
	}
	return a.enforceDenial(ctx, doubtful)
}

// recordDenial records that the provider denies a sign-in and replaces the claim, unless the claim was lost in the meantime.
func (a *providerChecker) recordDenial(ctx context.Context, claimed *record, claim string) (*record, error) {
	return a.storeResult(ctx, claimed, "", func(r *record) {
		if r.Claim = claim; r.DoubtedSince.IsZero() {
			r.DoubtedSince = a.records.now()
		}
	})
}

// queryProvider performs a check with the record's claim and reports whether the provider denies the person. Any other result
// is stored. If isPersonActive is false, it avoids requests that the provider treats as activity of the person, where possible.
func (a *providerChecker) queryProvider(ctx context.Context, p *people.Provider, r *record, isPersonActive bool) (denied bool, err error) {
	token, err := a.records.unsealToken(ctx, r)
	if err != nil {
		return false, a.finishCheck(ctx, r, "", fmt.Errorf("unsealing the identity provider's token: %w", err))
	}
	limited, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if !r.AccessTokenExpiry.IsZero() || !isPersonActive && r.isIdle() && r.Introspects {
		return a.introspect(limited, p, r, token)
	}
	next := "" // a rotated token that is not stored yet
	identity, err := p.Client.Refresh(limited, token, r.Subject, func(rotated string) {
		storeCtx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		// The token is stored first, because this process may crash or the following steps may take long.
		if _, err := a.storeResult(storeCtx, r, rotated, func(*record) {}); err != nil {
			next = rotated
		}
	})
	a.providers.recordResult(p, err)
	if relyingparty.IsDenial(err) {
		return true, nil
	}
	if err == nil && identity.Claims != nil {
		accounts := *a.providers.accounts
		accounts.Logger = slog.New(slog.DiscardHandler) // omitted claims were logged at the sign-in
		var user *people.User
		user, err = accounts.Admit(limited, p, p.Identity(identity), false)
		if err == nil && user.ID != r.User { // a sign-in would now result in another sub, so this account would no longer be updated
			return true, nil
		}
		if rejection, ok := errors.AsType[*oauth2.Error](err); ok && rejection.Code == people.ErrNotAllowed.Code && !errors.Is(err, people.ErrAccountNotDeleted) {
			return true, nil
		}
	}
	if err == nil {
		r.RefreshTokenExpiry = identity.RefreshExpiry
	}
	return false, a.finishCheck(ctx, r, next, err)
}

// introspect performs the check by introspection of an access token, or of a refresh token that must not be used. It does not
// update claims.
func (a *providerChecker) introspect(ctx context.Context, p *people.Provider, r *record, token string) (denied bool, err error) {
	var active bool
	if r.AccessTokenExpiry.IsZero() {
		active, err = p.Client.IntrospectRefreshToken(ctx, token)
	} else {
		active, _, err = p.Client.Introspect(ctx, token)
	}
	a.providers.recordResult(p, err)
	ctx = context.WithoutCancel(ctx) // the timeout applies to the request only
	switch {
	case err != nil, active:
		return false, a.finishCheck(ctx, r, "", err)
	case a.records.isUncheckable(r):
		return false, a.finishCheck(ctx, r, "", errUncheckable)
	}
	return true, nil
}

// checkOtherSignIn implements [otherSignInCheck].
func (a *providerChecker) checkOtherSignIn(ctx context.Context, p *people.Provider, name string, since time.Time) error {
	for ctx.Err() == nil {
		if err := a.providers.checkBackoff(p.Key); err != nil {
			return err
		}
		r, claimed, err := a.claim(ctx, p, name, store.Since(a.records.store, since))
		switch {
		case err != nil:
			return err
		case r == nil || r.Denied || r.Issuer != p.Issuer:
			return errInconclusive
		case claimed:
			denied, err := a.queryProvider(ctx, p, r, false)
			if denied {
				_, err := a.recordDenial(ctx, r, "")
				return cmp.Or(err, error(errEnded))
			}
			return err
		case r.Claim == "": // the sign-in was confirmed in the meantime
			return nil
		case !r.DoubtedSince.IsZero(): // another gateway is evaluating the denial of this sign-in
			return errEnded
		}
		time.Sleep(pollInterval)
	}
	return ctx.Err()
}

// storeResult stores the result of a check and the rotated refresh token, if any, unless the claim was lost in the meantime. It
// returns the resulting record.
func (a *providerChecker) storeResult(ctx context.Context, claimed *record, next string, do func(*record)) (_ *record, err error) {
	if next != "" {
		if next, err = a.records.sealToken(ctx, claimed.name(), next); err != nil {
			return nil, err
		}
	}
	return a.records.update(ctx, claimed.name(), func(r *record) bool {
		if r.Claim != claimed.Claim {
			return false // lost the claim, e.g. because the person signed in again
		}
		if do(r); next != "" {
			r.Token = next
		}
		return true
	})
}

// finishCheck stores and returns the result of a check. It retries while the claim is valid, because the provider could not be
// queried again without the rotated refresh token.
func (a *providerChecker) finishCheck(ctx context.Context, r *record, next string, outcome error) error {
	ctx, cancel := context.WithTimeout(ctx, store.Until(a.records.store, r.ClaimExpiry)-storeTimeout)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		_, err = a.storeResult(ctx, r, next, func(stored *record) {
			if stored.Claim, stored.ClaimExpiry = "", (time.Time{}); outcome == nil {
				stored.Confirmed, stored.DoubtedSince, stored.RefreshTokenExpiry = a.records.now(), time.Time{}, r.RefreshTokenExpiry
			}
		})
		if err == nil && outcome == nil {
			a.suspensions.resume(ctx, r)
		}
		if err == nil {
			return outcome
		}
		time.Sleep(pollInterval)
	}
	a.logger.ErrorContext(ctx, "revalidation result not stored; person may have to sign in again", "idp", r.Provider, "user", r.User, "error", err)
	return outcome
}

// enforceDenial records that a denial is final and revokes everything from the sign-in. The record blocks access until the
// revocation succeeds.
func (a *providerChecker) enforceDenial(ctx context.Context, doubtful *record) error {
	r, err := a.records.update(ctx, doubtful.name(), func(r *record) bool {
		r.Denied, r.Claim = !r.DoubtedSince.IsZero(), ""
		return r.Denied
	})
	if err == nil && r != nil && !r.Denied { // no longer doubted, e.g. because the person signed in again
		return nil
	}
	return a.endDenied(ctx, doubtful)
}

// endDenied ends a sign-in and then removes its record, so that failures are retried.
func (a *providerChecker) endDenied(ctx context.Context, r *record) error {
	err := a.endSignIn(ctx, SignIn{User: r.User, SID: r.SID, Provider: r.Provider})
	if err == nil {
		err = a.records.remove(ctx, r.name())
	}
	if err != nil {
		a.logger.ErrorContext(ctx, "denied sign-in not revoked; will retry", "idp", r.Provider, "user", r.User, "error", err)
	}
	return errEnded
}

const (
	// maxConcurrentChecks and checkDelay limit a gateway's background checks to 20 per second. If this is too slow for the
	// number of sign-ins, checks take longer than the interval.
	maxConcurrentChecks, checkDelay = 4, 50 * time.Millisecond

	// sweepsPerInterval keeps the age of confirmations below the interval. Each sweep checks the sign-ins with a confirmation
	// that would become too old before the next sweep.
	sweepsPerInterval = 5

	// sweepKey is the key with which a gateway claims the sweep.
	sweepKey = "upstream-sweep:"
)

// sweeper performs checks in the background.
type sweeper struct {
	checker    *providerChecker
	closer     *closer
	sessionKey func(sid string) string
}

// run checks sign-ins in the background until ctx is canceled, and then waits for running checks. It starts without delay,
// because each change of users or clients replaces the server, which may happen more often than sweeps are due.
func (s *sweeper) run(ctx context.Context) {
	interval := s.checker.providers.interval()
	if interval == 0 {
		return
	}
	for ctx.Err() == nil {
		wait := interval / sweepsPerInterval
		err := s.sweep(ctx, wait)
		switch {
		case store.IsConflict(err):
			wait /= 10
		case err != nil && ctx.Err() == nil:
			s.checker.logger.WarnContext(ctx, "revalidation sweep failed", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// sweep checks the sign-ins that are due. If another gateway is sweeping or has just swept, the error is [store.IsConflict].
func (s *sweeper) sweep(ctx context.Context, each time.Duration) error {
	if err := s.checker.records.store.Add(ctx, sweepKey, nil, each*9/10); store.IsConflict(err) {
		return err
	}
	defer func() {
		if ctx.Err() != nil { // lets the next sweep start immediately
			_ = s.checker.records.store.Delete(context.WithoutCancel(ctx), sweepKey)
		}
	}()
	keys, err := s.checker.records.store.List(ctx, duePrefix)
	if err != nil {
		return err
	}
	var checks errgroup.Group
	defer func() { _ = checks.Wait() }() // checks log their own errors
	checks.SetLimit(maxConcurrentChecks)
	affected := affectedSignIns{}
	for batch := range slices.Chunk(keys, readBatchSize) {
		if err := s.sweepBatch(ctx, &checks, batch, affected); err != nil {
			return err
		}
	}
	return s.checker.suspensions.finishSweep(ctx, s.checker.providers.accounts.ProviderKeys, affected)
}

func (s *sweeper) sweepBatch(ctx context.Context, checks *errgroup.Group, keys []string, affected affectedSignIns) error {
	valueByKey := map[string][]byte{} // keys of the sign-ins and of their sessions
	for _, key := range keys {
		name := strings.TrimPrefix(key, duePrefix)
		sid, _, _ := strings.Cut(name, ".")
		valueByKey[recordPrefix+name], valueByKey[s.sessionKey(sid)] = nil, nil
	}
	storeKeys := slices.Collect(maps.Keys(valueByKey))
	values, err := store.ReadValues(ctx, s.checker.records.store, storeKeys...)
	if err != nil {
		return err
	}
	for i, value := range values {
		valueByKey[storeKeys[i]] = value
	}
	for _, key := range keys {
		name := strings.TrimPrefix(key, duePrefix)
		sid, _, _ := strings.Cut(name, ".")
		r, err := store.FromJSON[record](valueByKey[recordPrefix+name])
		if err != nil { // the record may have been written by a newer version of the gateway
			s.checker.logger.WarnContext(ctx, "stored sign-in unreadable", "sid", sid, "error", err)
			continue
		}
		skip, err := s.checker.suspensions.skips(ctx, r, affected)
		if err != nil {
			return err
		}
		if do := s.due(r, name, valueByKey[s.sessionKey(sid)] != nil); do != nil && !skip {
			background := audit.WithSessionEndReason(context.WithoutCancel(ctx), endedReason)
			checks.Go(func() error { do(background); return nil })
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(checkDelay):
			}
		}
	}
	return nil
}

// due returns the action that is due for a sign-in, or nil.
func (s *sweeper) due(r *record, name string, inSession bool) func(context.Context) {
	now := s.checker.records.now()
	switch {
	case r == nil: // the sign-in is in progress, or its mark expires
		return nil
	case !inSession && !r.OutlastsSession && (now.Before(r.SessionExpiry) || now.After(r.ActiveUntil)):
		return func(ctx context.Context) { s.closer.close(ctx, r) }
	case now.After(r.ActiveUntil):
		return func(ctx context.Context) { _ = s.checker.records.store.Delete(ctx, duePrefix+name) }
	}
	p := s.checker.providers.withRevalidation(r.Provider)
	if p == nil || p.Issuer != r.Issuer {
		return nil
	}
	if r.Denied {
		return func(ctx context.Context) { _ = s.checker.endDenied(ctx, r) }
	}
	recent := p.Revalidate.Interval * (sweepsPerInterval - 1) / sweepsPerInterval
	switch {
	case s.checker.records.isUncheckable(r), r.DoubtedSince.IsZero() && (s.checker.records.age(r) < recent || r.isIdle() && !r.Introspects):
		return nil
	case !r.DoubtedSince.IsZero():
		recent = 0
	}
	return func(ctx context.Context) { _ = s.checker.checkSignIn(ctx, p, name, checkOptions{maxAge: recent}) }
}

const (
	// maxSignIns is the number of sign-ins listed per person and provider.
	maxSignIns = 1000

	// pendingLifetime exceeds the time between listing a sign-in and storing its record.
	pendingLifetime = time.Minute
)

// closer removes sign-ins that have no remaining sessions or grants.
type closer struct {
	records   records
	providers *providers
	lifetime  time.Duration // lifetime of a list
	logger    *slog.Logger
}

var sidSize = len(oauth2.RandomToken())

// sessionList returns the list of a person's sessions at a provider.
func (c *closer) sessionList(ctx context.Context, r *record) store.RecentList {
	return store.RecentList{
		Store: c.records.store, Key: store.Key("upstream-of", r.Provider+"\x00"+r.Subject), Max: maxSignIns, TTL: c.lifetime,
		FindEnded: func(sids []string) ([]bool, error) { return c.haveEnded(ctx, r.Provider, sids) },
	}
}

// listPendingSignIn lists a sign-in that is about to be stored. Until then, a pending marker prevents it from being treated as
// ended.
func (c *closer) listPendingSignIn(ctx context.Context, r *record) error {
	_, err := c.sessionList(ctx, r).Add(ctx, r.SID, &store.Call{Op: store.Put, Key: duePrefix + r.name(), Value: []byte("begins"), TTL: pendingLifetime})
	return err
}

// haveEnded reports for each session whether its sign-in has ended.
func (c *closer) haveEnded(ctx context.Context, provider string, sids []string) ([]bool, error) {
	var keys []string
	for _, sid := range sids {
		keys = append(keys, recordPrefix+signInName(sid, provider), duePrefix+signInName(sid, provider))
	}
	values, err := store.ReadValues(ctx, c.records.store, keys...)
	ended := make([]bool, len(sids))
	for i := range sids {
		ended[i] = err == nil && values[2*i] == nil && len(values[2*i+1]) == 0
	}
	return ended, err
}

// close removes a sign-in after its session and grants have ended, and revokes its refresh token at the provider, so that the
// provider does not keep an unused session. The token is revoked only if this was the person's last sign-in, because some
// providers then revoke all of the person's tokens for this client. A provider with another issuer is a replacement and does
// not receive the token.
func (c *closer) close(ctx context.Context, r *record) {
	if err := c.records.remove(ctx, r.name()); err != nil {
		return // the next sweep retries
	}
	p := c.providers.withRevalidation(r.Provider)
	sids, err := c.sessionList(ctx, r).Items(ctx, sidSize)
	slices.Sort(sids)
	var ended []bool
	if err == nil {
		ended, err = c.haveEnded(ctx, r.Provider, slices.Compact(sids))
	}
	if p == nil || p.Issuer != r.Issuer || err != nil || !r.AccessTokenExpiry.IsZero() || slices.Contains(ended, false) {
		return
	}
	token, err := c.records.unsealToken(ctx, r)
	if err == nil && c.providers.checkBackoff(p.Key) == nil {
		err = p.Client.Revoke(ctx, token)
	}
	if err != nil {
		c.logger.InfoContext(ctx, "refresh token not revoked at identity provider", "idp", p.Key, "error", err)
	}
}
