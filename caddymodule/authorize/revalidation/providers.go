package revalidation

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

var errBackingOff = errors.New("identity provider did not respond recently; retry is delayed")

// providers tracks outages of identity providers.
type providers struct {
	accounts *people.Accounts
	logger   *slog.Logger // log for the start and end of outages
	checks   *Checks
}

// checkBackoff returns an error while a provider must not be queried because of earlier failures.
func (ps *providers) checkBackoff(key string) error {
	if time.Now().Before(ps.checks.stateOf(key).nextAttempt) {
		return errBackingOff
	}
	return nil
}

// recordResult records the result of a check and logs when a provider becomes unreachable, begins to reject the gateway's
// client, or responds again.
func (ps *providers) recordResult(p *people.Provider, err error) {
	result := resultOf(err)
	previous := ps.checks.record(p.Key, result)
	switch {
	case result == Answered && previous.failure != "":
		ps.logger.Info("identity provider reachable again", "idp", p.Key)
	case result == Rejected && previous.failure != Rejected:
		ps.logger.Error("identity provider rejected client credentials: check client_id and client_secret",
			"idp", p.Key, "client_id", p.ClientID, "outage", p.Revalidate.MaxOutage, "error", err)
	case result == Unanswered && previous.failure != Unanswered:
		ps.logger.Warn("identity provider unreachable; sign-ins stay valid for the configured outage",
			"idp", p.Key, "outage", p.Revalidate.MaxOutage, "error", err)
	}
}

// withRevalidation returns the provider if revalidation is enabled for it, or nil.
func (ps *providers) withRevalidation(key string) *people.Provider {
	if p := ps.accounts.Providers[key]; p != nil && p.Revalidate.Interval > 0 {
		return p
	}
	return nil
}

// interval returns the shortest interval of all providers, or 0 if no provider has revalidation.
func (ps *providers) interval() (shortest time.Duration) {
	for key := range ps.accounts.Providers {
		if p := ps.withRevalidation(key); p != nil && (shortest == 0 || p.Revalidate.Interval < shortest) {
			shortest = p.Revalidate.Interval
		}
	}
	return shortest
}

const (
	// maxFailures is the number of consecutive failures after which a provider is considered silent. A single failure may be
	// caused by one account.
	maxFailures = 3

	// silentBackoff is the pause in checks of a silent provider, so that requests do not wait for its timeout.
	silentBackoff = 30 * time.Second
)

// Result is the outcome of a check with an identity provider.
type Result string

// Results of a check. Confirmations and denials are both Answered.
const (
	Answered   Result = "answered"
	Rejected   Result = "rejected"   // the provider rejects the gateway's client, because its secret is wrong or refreshing is not permitted
	Unanswered Result = "unanswered" // no response, or a response that does not concern a person
)

// Results lists all results.
var Results = []Result{Answered, Rejected, Unanswered}

// Checks contains the latest results for each provider at this gateway. It can be reused by the next [SignIns]. The zero value
// is empty.
type Checks struct {
	mu    sync.Mutex
	state map[string]state // keys are provider keys
}

type state struct {
	failures    int // consecutive failures
	nextAttempt time.Time
	latest      map[Result]time.Time
	failure     Result // latest result; "" if answered
}

// record records a result and returns the previous state.
func (c *Checks) record(key string, result Result) (previous state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	previous = c.state[key]
	now := state{latest: map[Result]time.Time{}}
	for _, of := range Results {
		now.latest[of] = previous.latest[of]
	}
	now.latest[result] = time.Now()
	if result != Answered {
		now.failure, now.failures = result, previous.failures+1
	}
	if now.failures >= maxFailures {
		now.nextAttempt = time.Now().Add(silentBackoff)
	}
	if c.state == nil {
		c.state = map[string]state{}
	}
	c.state[key] = now
	return previous
}

func (c *Checks) stateOf(key string) state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state[key]
}

// resultOf classifies the error of a check.
func resultOf(err error) Result {
	switch {
	case isAboutPerson(err):
		return Answered
	case relyingparty.IsClientRejection(err):
		return Rejected
	}
	return Unanswered
}

// ProviderState is the state of a provider's responses.
type ProviderState struct {
	Key       string               `json:"idp"`                 // provider key in the configuration
	State     string               `json:"state"`               // ok, suspended, rejected, unanswered, or unchecked before the first check
	Suspended *time.Time           `json:"suspended,omitempty"` // start of the suspension
	Latest    map[Result]time.Time `json:"latest,omitempty"`    // latest checks at this gateway by result
}

// isAboutPerson reports whether a provider's response concerns one person, including invalid ID tokens, userinfo and groups.
func isAboutPerson(err error) bool {
	isErr := func(target error) bool { return errors.Is(err, target) }
	return err == nil || relyingparty.IsDenial(err) || slices.ContainsFunc([]error{relyingparty.ErrIDToken, relyingparty.ErrUserInfo, relyingparty.ErrGroups}, isErr)
}

const (
	// readBatchSize is the number of sign-ins read in one step.
	readBatchSize = 100

	// maxOtherChecks is the number of other people checked before a denial is attributed to an error
	// of the provider that affects (nearly) everyone.
	maxOtherChecks = 9

	// minOtherDenials is the minimum number of other denied people required to attribute a denial to an error of the provider.
	// With fewer, each denial takes effect.
	minOtherDenials = 2

	// confirmTimeout limits the time for checking other people.
	confirmTimeout = 30 * time.Second

	// maxDoubtTime is the maximum time for which a denial is in doubt while other people cannot be checked.
	maxDoubtTime = 5 * time.Minute

	// retryInterval is the time between checks at a suspended provider, across all gateways.
	retryInterval = 10 * time.Second

	// sampleSize is the number of a provider's sign-ins that are candidates for checks, and
	// sampleLifetime their cache lifetime, because listing them reads the entire store.
	sampleSize, sampleLifetime = 300, time.Minute

	retryPrefix    = "upstream-retry:"    // marks a recent attempt to check whether a suspended provider has recovered
	acceptedPrefix = "upstream-accepted:" // an operator's acceptance of denials for sign-ins up to a time
)

// errSuspended is returned while a provider is suspended. Nothing was revoked.
var errSuspended = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
	Description: "the identity provider is suspended because it denies nearly everyone; try again later",
}

// errInconclusive is returned for a denied person while it is unclear whether the denial concerns only this person.
var errInconclusive = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
	Description: "the identity provider denied this person, but other people could not be checked; try again later",
}

// ErrNotSuspended means that the provider has no suspension to lift.
var ErrNotSuspended = errors.New("the identity provider is not suspended")

// suspensions distinguishes an error of a provider from the denial of one person. A provider with a changed host name or lost
// token keys responds to every refresh as if the person had been removed. Before a denial takes effect, earlier sign-ins of
// other people are revalidated. If none is confirmed, the provider is suspended: requests of its people get 503, and nothing is
// revoked, until someone is confirmed or an operator accepts the denials.
type suspensions struct {
	records     records
	revocations *revocation.Revocations
	logger      *slog.Logger

	denialMu sync.Mutex // serializes denials, so that each uses the outcome of the previous one

	mu      sync.Mutex
	samples map[string]sample // keys are provider keys
}

// denialAcceptance is an operator's confirmation of a provider's denials.
type denialAcceptance struct {
	Until time.Time `json:"until"` // applies to sign-ins up to this time
}

// sample contains some sign-ins at a provider.
type sample struct {
	names   []string
	expires time.Time
}

// affects reports whether a sign-in predates the suspension of its provider. Later sign-ins were confirmed by the
// provider.
func (s *suspensions) affects(ctx context.Context, r *record) (bool, error) {
	until, err := s.revocations.SuspendedUntil(ctx, r.Provider)
	return !until.IsZero() && !r.SignedIn.After(until), err
}

// mayRetry reports whether a suspended provider may be queried now. Queries are limited to one per retryInterval across all
// gateways, unless the denials were accepted.
func (s *suspensions) mayRetry(ctx context.Context, r *record) bool {
	if accepted, err := s.isAccepted(ctx, r); accepted || err != nil {
		return accepted
	}
	return s.records.store.Add(ctx, retryPrefix+r.Provider, nil, retryInterval) == nil
}

func (s *suspensions) isAccepted(ctx context.Context, r *record) (bool, error) {
	accepted, err := store.GetJSON[denialAcceptance](ctx, s.records.store, acceptedPrefix+r.Provider)
	return accepted != nil && !r.SignedIn.After(accepted.Until), err
}

// accept makes the denials of a suspended provider take effect.
func (s *suspensions) accept(ctx context.Context, provider string) error {
	until, err := s.revocations.SuspendedUntil(ctx, provider)
	if err == nil && until.IsZero() {
		err = ErrNotSuspended
	}
	if err != nil {
		return err
	}
	value, err := store.ToJSON(denialAcceptance{until})
	if err != nil {
		return err
	}
	return s.records.store.Put(ctx, acceptedPrefix+provider, value, revocation.SuspensionLifetime)
}

// resume lifts the suspension of a provider that has confirmed a sign-in from before the suspension.
func (s *suspensions) resume(ctx context.Context, r *record) {
	if affected, err := s.affects(ctx, r); !affected || err != nil {
		return
	}
	s.lift(ctx, r.Provider, "provider confirmed a person again")
}

func (s *suspensions) lift(ctx context.Context, provider, why string) {
	if err := s.revocations.Resume(ctx, provider); err != nil {
		s.logger.ErrorContext(ctx, "identity provider suspension not lifted", "idp", provider, "error", err)
		return
	}
	s.logger.WarnContext(ctx, "identity provider suspension lifted", "idp", provider, "reason", why)
}

func (s *suspensions) suspend(ctx context.Context, p *people.Provider, why string, details ...any) error {
	if err := s.revocations.Suspend(ctx, p.Key, s.records.now()); err != nil {
		return err
	}
	s.logger.With(details...).ErrorContext(ctx, "identity provider suspended: users get 503 until it confirms one of them, or until an operator accepts the denials with fhir-idps",
		"idp", p.Key, "reason", why)
	return errSuspended
}

// affectedSignIns counts the sign-ins affected by a suspension during a sweep, by provider.
type affectedSignIns map[string]int

// skips reports whether a sweep skips a sign-in, because its provider is suspended and another sign-in has just been
// checked.
func (s *suspensions) skips(ctx context.Context, r *record, affected affectedSignIns) (bool, error) {
	if r == nil || r.Denied {
		return false, nil
	}
	is, err := s.affects(ctx, r)
	if !is || err != nil {
		return false, err
	}
	affected[r.Provider]++
	return !s.mayRetry(ctx, r), nil
}

// finishSweep renews suspensions that still affect sign-ins. It lifts a suspension with accepted denials if it no longer
// affects any.
func (s *suspensions) finishSweep(ctx context.Context, providers []string, affected affectedSignIns) error {
	for _, key := range providers {
		until, err := s.revocations.SuspendedUntil(ctx, key)
		if err != nil {
			return err
		}
		if until.IsZero() {
			continue
		}
		accepted, err := s.isAccepted(ctx, &record{Provider: key, SignedIn: until})
		switch {
		case err != nil:
			return err
		case affected[key] > 0:
			err = s.revocations.Suspend(ctx, key, until)
		case accepted:
			s.lift(ctx, key, "accepted denials took effect")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// otherSignInCheck checks another person's sign-in, unless it was confirmed after since. It returns nil if the provider
// confirms it, and errEnded if the provider denies it too. The check revokes nothing.
type otherSignInCheck func(ctx context.Context, p *people.Provider, name string, since time.Time) error

// confirmDenial returns nil if the denial of a sign-in is credible, otherwise an error with the reason.
func (s *suspensions) confirmDenial(ctx context.Context, p *people.Provider, denied *record, check otherSignInCheck) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	s.denialMu.Lock()
	defer s.denialMu.Unlock()
	if accepted, err := s.isAccepted(ctx, denied); accepted || err != nil || s.records.hasLapsed(denied) {
		return err
	}
	if affected, err := s.affects(ctx, denied); err != nil {
		return err
	} else if affected {
		return errSuspended
	}
	if discovered := p.Client.DiscoveredIssuer(ctx); discovered != "" && discovered != p.Issuer {
		return s.suspend(ctx, p, "discovery document names another issuer", "issuer", p.Issuer, "named", discovered)
	}
	return s.checkOtherPeople(ctx, p, denied, check)
}

func (s *suspensions) checkOtherPeople(ctx context.Context, p *people.Provider, denied *record, check otherSignInCheck) error {
	others, err := s.otherSignIns(ctx, p, denied)
	if err != nil {
		return err
	}
	denials, inconclusive := 0, 0
	for _, name := range others {
		switch err := check(ctx, p, name, denied.DoubtedSince); {
		case err == nil:
			return nil
		case errors.Is(err, errEnded):
			denials++
		default:
			inconclusive++
		}
	}
	switch {
	case denials >= minOtherDenials:
		return s.suspend(ctx, p, "provider denies nearly everyone", "denied", denials+1)
	case inconclusive > 0 && store.Since(s.records.store, denied.DoubtedSince) < maxDoubtTime:
		return errInconclusive
	}
	return nil
}

// otherSignIns returns sign-ins of other people that the provider should confirm if it has not lost its older sessions.
func (s *suspensions) otherSignIns(ctx context.Context, p *people.Provider, denied *record) (names []string, err error) {
	sample, err := s.sample(ctx, p.Key)
	if err != nil {
		return nil, err
	}
	subjects := []string{denied.Subject}
	for batch := range slices.Chunk(sample, readBatchSize) {
		values, err := store.ReadValues(ctx, s.records.store, batch...)
		if err != nil {
			return nil, err
		}
		for _, value := range values {
			r, err := store.FromJSON[record](value)
			if r == nil || err != nil || slices.Contains(subjects, r.Subject) || !s.isComparable(ctx, p, r, denied) {
				continue
			}
			if subjects, names = append(subjects, r.Subject), append(names, r.name()); len(names) == maxOtherChecks {
				return names, nil
			}
		}
	}
	return names, nil
}

// isComparable reports whether a check of sign-in r is relevant for the denial of the sign-in denied. Idle people are excluded,
// because the provider may have logged them all off, e.g. at the end of a shift.
func (s *suspensions) isComparable(ctx context.Context, p *people.Provider, r, denied *record) bool {
	affected, err := s.affects(ctx, r)
	return err == nil && !affected && !r.Denied && !r.isIdle() && r.Issuer == p.Issuer && !s.records.isUncheckable(r) && !s.records.hasLapsed(r) && !r.SignedIn.After(denied.Confirmed)
}

// sample returns keys of sign-ins at a provider in random order.
func (s *suspensions) sample(ctx context.Context, provider string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cached := s.samples[provider]; time.Now().Before(cached.expires) {
		return cached.names, nil
	}
	keys, err := s.records.store.List(ctx, recordPrefix)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.HasSuffix(key, "."+provider) })
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = slices.Clone(keys[:min(len(keys), sampleSize)])
	s.samples[provider] = sample{keys, time.Now().Add(sampleLifetime)}
	return keys, nil
}
