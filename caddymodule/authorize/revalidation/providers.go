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

var errRests = errors.New("identity provider did not respond recently; the next attempt is delayed")

// providers tracks outages of identity providers.
type providers struct {
	accounts *people.Accounts
	logger   *slog.Logger // log for the start and end of outages
	checks   *Checks
}

// checkBackoff returns an error while a provider must not be queried.
func (ps *providers) checkBackoff(key string) error {
	if time.Now().Before(ps.checks.of(key).next) {
		return errRests
	}
	return nil
}

// note records the result of a check and logs when a provider becomes unreachable, begins to reject
// our client, or responds again.
func (ps *providers) note(p *people.Provider, err error) {
	result := resultOf(err)
	before := ps.checks.note(p.Key, result)
	switch {
	case result == Answered && before.failing != "":
		ps.logger.Info("identity provider reachable again; sign-ins are revalidated", "idp", p.Key)
	case result == Rejected && before.failing != Rejected:
		ps.logger.Error("identity provider rejected the gateway's client credentials: check client_id and client_secret; sign-ins stay valid until the last confirmation expires",
			"idp", p.Key, "client_id", p.ClientID, "outage", p.Revalidate.Outage, "error", err)
	case result == Unanswered && before.failing != Unanswered:
		ps.logger.Warn("identity provider unreachable; sign-ins stay valid until the last confirmation expires",
			"idp", p.Key, "outage", p.Revalidate.Outage, "error", err)
	}
}

// revalidated returns a provider with revalidation, or nil.
func (ps *providers) revalidated(key string) *people.Provider {
	if p := ps.accounts.Providers[key]; p != nil && p.Revalidate.Interval > 0 {
		return p
	}
	return nil
}

// interval returns the shortest interval of all providers; 0 without revalidation.
func (ps *providers) interval() (shortest time.Duration) {
	for key := range ps.accounts.Providers {
		if p := ps.revalidated(key); p != nil && (shortest == 0 || p.Revalidate.Interval < shortest) {
			shortest = p.Revalidate.Interval
		}
	}
	return shortest
}

const (
	// maxFailures is the number of consecutive failures after which a provider counts as silent; a
	// single failure may be caused by one account.
	maxFailures = 3

	// rest is the pause in checks of a silent provider, so that requests do not wait for its timeout.
	rest = 30 * time.Second
)

// Result is the outcome of a check with an identity provider.
type Result string

// Results of a check. Confirmations and denials both count as answered.
const (
	Answered   Result = "answered"
	Rejected   Result = "rejected"   // the provider rejects our client: wrong secret, or refreshing is not permitted
	Unanswered Result = "unanswered" // no response, or a response that concerns no person
)

// Results lists all results.
var Results = []Result{Answered, Rejected, Unanswered}

// Checks contains the latest results for each provider at this gateway. They outlast a [SignIns]. The zero value is
// empty.
type Checks struct {
	mu    sync.Mutex
	state map[string]state // by provider key
}

type state struct {
	failures int // consecutive failures
	next     time.Time
	latest   map[Result]time.Time
	failing  Result // latest result; "" if answered
}

// note records a result and returns the previous state.
func (c *Checks) note(key string, result Result) (before state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.state[key]
	now := state{latest: map[Result]time.Time{}}
	for _, of := range Results {
		now.latest[of] = before.latest[of]
	}
	now.latest[result] = time.Now()
	if result != Answered {
		now.failing, now.failures = result, before.failures+1
	}
	if now.failures >= maxFailures {
		now.next = time.Now().Add(rest)
	}
	if c.state == nil {
		c.state = map[string]state{}
	}
	c.state[key] = now
	return before
}

func (c *Checks) of(key string) state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state[key]
}

// resultOf classifies the error of a check.
func resultOf(err error) Result {
	switch {
	case isAnswer(err):
		return Answered
	case relyingparty.Rejected(err):
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

// isAnswer reports whether a provider's response concerns one person, including invalid ID tokens and userinfo.
func isAnswer(err error) bool {
	return err == nil || relyingparty.Denied(err) || errors.Is(err, relyingparty.ErrIDToken) || errors.Is(err, relyingparty.ErrUserInfo)
}

const (
	// maxRead is the number of sign-ins read in one step.
	maxRead = 100

	// maxWitnesses is the number of other people checked before a denial is attributed to an error
	// of the provider that affects (nearly) everyone.
	maxWitnesses = 9

	// minWitnesses is the number of other people that must be denied for that. With fewer, each denial stands.
	minWitnesses = 2

	// weighTime limits the duration of the check of other people.
	weighTime = 30 * time.Second

	// doubtTime is how long a denial stays in doubt while other people cannot be checked.
	doubtTime = 5 * time.Minute

	// retryEach is the time between checks at a suspended provider, across all gateways.
	retryEach = 10 * time.Second

	// sampled is the number of a provider's sign-ins that are candidates for checks, and
	// sampleLifetime their cache lifetime, because listing them reads the entire store.
	sampled, sampleLifetime = 300, time.Minute

	retryPrefix    = "upstream-retry:"    // marks a recent check whether a suspended provider has recovered
	acceptedPrefix = "upstream-accepted:" // acceptance by an operator of denials for sign-ins up to a time
)

// errSuspended rejects requests while a provider is suspended. Nothing was revoked.
var errSuspended = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
	Description: "the identity provider denies nearly everybody, and is suspended until that is resolved",
}

// errUnclear rejects a denied person while it is unclear whether the denial concerns only them.
var errUnclear = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
	Description: "the identity provider denies this person, and cannot be asked about others",
}

// ErrNotSuspended means that the provider has no suspension to lift.
var ErrNotSuspended = errors.New("the identity provider is not suspended")

// suspensions distinguishes an error of a provider from the denial of one person. A provider with a changed host name
// or lost token keys responds to every refresh as if the person had been removed. Before a denial takes effect, other
// people with earlier sign-ins are checked. If none is confirmed, the provider is suspended: requests of its people
// get 503, and nothing is revoked, until someone is confirmed or an operator accepts the denials.
type suspensions struct {
	records     records
	revocations *revocation.Revocations
	logger      *slog.Logger

	weighing sync.Mutex // serializes denials: the next one sees the outcome

	mu      sync.Mutex
	samples map[string]sample // by provider
}

// acceptance is an operator's confirmation of a provider's denials.
type acceptance struct {
	Until time.Time `json:"until"` // sign-ins up to this time
}

// sample contains some sign-ins at a provider.
type sample struct {
	names []string
	until time.Time
}

// holds reports whether a sign-in predates the suspension of its provider. Later sign-ins were confirmed by the
// provider.
func (s *suspensions) holds(ctx context.Context, r *record) (bool, error) {
	until, err := s.revocations.Suspended(ctx, r.Provider)
	return !until.IsZero() && !r.SignedIn.After(until), err
}

// mayRetry reports whether a suspended provider may be queried now: by one gateway at a time, or freely if the
// denials were accepted.
func (s *suspensions) mayRetry(ctx context.Context, r *record) bool {
	if accepted, err := s.isAccepted(ctx, r); accepted || err != nil {
		return accepted
	}
	return s.records.store.Add(ctx, retryPrefix+r.Provider, nil, retryEach) == nil
}

func (s *suspensions) isAccepted(ctx context.Context, r *record) (bool, error) {
	accepted, err := store.GetJSON[acceptance](ctx, s.records.store, acceptedPrefix+r.Provider)
	return accepted != nil && !r.SignedIn.After(accepted.Until), err
}

// accept makes the denials of a suspended provider take effect.
func (s *suspensions) accept(ctx context.Context, provider string) error {
	until, err := s.revocations.Suspended(ctx, provider)
	if err == nil && until.IsZero() {
		err = ErrNotSuspended
	}
	if err != nil {
		return err
	}
	value, err := store.ToJSON(acceptance{until})
	if err != nil {
		return err
	}
	return s.records.store.Put(ctx, acceptedPrefix+provider, value, revocation.SuspensionLifetime)
}

// resume lifts the suspension of a provider that has confirmed a sign-in from before the suspension.
func (s *suspensions) resume(ctx context.Context, r *record) {
	if held, err := s.holds(ctx, r); !held || err != nil {
		return
	}
	s.lift(ctx, r.Provider, "it confirmed a person again")
}

func (s *suspensions) lift(ctx context.Context, provider, why string) {
	if err := s.revocations.Resume(ctx, provider); err != nil {
		s.logger.ErrorContext(ctx, "identity provider still suspended", "idp", provider, "error", err)
		return
	}
	s.logger.WarnContext(ctx, "identity provider no longer suspended", "idp", provider, "reason", why)
}

func (s *suspensions) suspend(ctx context.Context, p *people.Provider, why string, details ...any) error {
	if err := s.revocations.Suspend(ctx, p.Key, s.records.now()); err != nil {
		return err
	}
	s.logger.With(details...).ErrorContext(ctx, "identity provider suspended after mass denials: its users get 503 until it confirms one of them, or until an operator accepts the denials with fhir-idps",
		"idp", p.Key, "reason", why)
	return errSuspended
}

// held counts the sign-ins affected by a suspension during a sweep, by provider.
type held map[string]int

// waits reports whether a sweep skips a sign-in, because its provider is suspended and another sign-in has just been
// checked.
func (s *suspensions) waits(ctx context.Context, r *record, held held) (bool, error) {
	if r == nil || r.Denied {
		return false, nil
	}
	is, err := s.holds(ctx, r)
	if !is || err != nil {
		return false, err
	}
	held[r.Provider]++
	return !s.mayRetry(ctx, r), nil
}

// finishSweep renews suspensions that still affect sign-ins, and lifts suspensions with accepted denials that affect none.
func (s *suspensions) finishSweep(ctx context.Context, providers []string, held held) error {
	for _, key := range providers {
		until, err := s.revocations.Suspended(ctx, key)
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
		case held[key] > 0:
			err = s.revocations.Suspend(ctx, key, until)
		case accepted:
			s.lift(ctx, key, "its denials took effect")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// otherSignInCheck checks another person's sign-in, unless it was confirmed since a time. It returns nil if
// the provider confirms it, and errEnded if the provider denies it too. The check revokes nothing.
type otherSignInCheck func(ctx context.Context, p *people.Provider, name string, since time.Time) error

// confirmDenial returns nil if the denial of a sign-in is credible; otherwise an error with the reason.
func (s *suspensions) confirmDenial(ctx context.Context, p *people.Provider, denied *record, check otherSignInCheck) error {
	ctx, cancel := context.WithTimeout(ctx, weighTime)
	defer cancel()
	s.weighing.Lock()
	defer s.weighing.Unlock()
	if accepted, err := s.isAccepted(ctx, denied); accepted || err != nil || s.records.hasLapsed(denied) {
		return err
	}
	if held, err := s.holds(ctx, denied); err != nil {
		return err
	} else if held {
		return errSuspended
	}
	if named := p.Client.NamedIssuer(ctx); named != "" && named != p.Issuer {
		return s.suspend(ctx, p, "its discovery document names another issuer", "issuer", p.Issuer, "named", named)
	}
	return s.checkOthers(ctx, p, denied, check)
}

func (s *suspensions) checkOthers(ctx context.Context, p *people.Provider, denied *record, check otherSignInCheck) error {
	witnesses, err := s.witnesses(ctx, p, denied)
	if err != nil {
		return err
	}
	others, silent := 0, 0
	for _, name := range witnesses {
		switch err := check(ctx, p, name, denied.Doubt); {
		case err == nil:
			return nil
		case errors.Is(err, errEnded):
			others++
		default:
			silent++
		}
	}
	switch {
	case others >= minWitnesses:
		return s.suspend(ctx, p, "it denies nearly everybody", "denied", others+1)
	case silent > 0 && store.Since(s.records.store, denied.Doubt) < doubtTime:
		return errUnclear
	}
	return nil
}

// witnesses returns sign-ins of other people that the provider should confirm if it has not lost its older sessions.
func (s *suspensions) witnesses(ctx context.Context, p *people.Provider, denied *record) (names []string, err error) {
	sample, err := s.sample(ctx, p.Key)
	if err != nil {
		return nil, err
	}
	subjects := []string{denied.Subject}
	for some := range slices.Chunk(sample, maxRead) {
		values, err := store.Values(ctx, s.records.store, some...)
		if err != nil {
			return nil, err
		}
		for _, value := range values {
			r, err := store.FromJSON[record](value)
			if r == nil || err != nil || slices.Contains(subjects, r.Subject) || !s.isComparable(ctx, p, r, denied) {
				continue
			}
			if subjects, names = append(subjects, r.Subject), append(names, r.name()); len(names) == maxWitnesses {
				return names, nil
			}
		}
	}
	return names, nil
}

// isComparable reports whether a check of sign-in r is relevant for the denial of another sign-in. Idle
// people are excluded, because the provider may have logged them all off, e.g. at the end of a shift.
func (s *suspensions) isComparable(ctx context.Context, p *people.Provider, r, denied *record) bool {
	held, err := s.holds(ctx, r)
	return err == nil && !held && !r.Denied && !r.isIdle() && r.Issuer == p.Issuer && !s.records.isUncheckable(r) && !s.records.hasLapsed(r) && !r.SignedIn.After(denied.Yes)
}

// sample returns keys of sign-ins at a provider in random order.
func (s *suspensions) sample(ctx context.Context, provider string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.samples[provider]; time.Now().Before(kept.until) {
		return kept.names, nil
	}
	keys, err := s.records.store.List(ctx, recordPrefix)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.HasSuffix(key, "."+provider) })
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = slices.Clone(keys[:min(len(keys), sampled)])
	s.samples[provider] = sample{keys, time.Now().Add(sampleLifetime)}
	return keys, nil
}
