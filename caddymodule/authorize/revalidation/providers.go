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

var errRests = errors.New("the identity provider does not answer, and is not asked again yet")

// providers knows which providers do not answer.
type providers struct {
	accounts *people.Accounts
	logger   *slog.Logger // gets outages, and their ends
	checks   *Checks
}

// silent returns an error if a provider is not to be asked.
func (ps *providers) silent(key string) error {
	if time.Now().Before(ps.checks.of(key).next) {
		return errRests
	}
	return nil
}

// note notes an answer, or that it is missing, and logs when a provider stops answering, or begins to reject our client, and
// when it answers again.
func (ps *providers) note(p *people.Provider, err error) {
	result := resultOf(err)
	before := ps.checks.note(p.Key, result)
	switch {
	case result == Answered && before.failing != "":
		ps.logger.Info("the identity provider answers again whether people may still come", "idp", p.Key)
	case result == Rejected && before.failing != Rejected:
		ps.logger.Error("the identity provider rejects the client of this gateway: check client_id and client_secret; people go on until its last yes is too old",
			"idp", p.Key, "client_id", p.ClientID, "outage", p.Revalidate.Outage, "error", err)
	case result == Unanswered && before.failing != Unanswered:
		ps.logger.Warn("the identity provider does not answer whether people may still come: they go on until its last yes is too old",
			"idp", p.Key, "outage", p.Revalidate.Outage, "error", err)
	}
}

// asked returns a provider that is asked, or nil.
func (ps *providers) asked(key string) *people.Provider {
	if p := ps.accounts.Providers[key]; p != nil && p.Revalidate.Interval > 0 {
		return p
	}
	return nil
}

// interval is the shortest of all providers; 0 if none is asked.
func (ps *providers) interval() (shortest time.Duration) {
	for key := range ps.accounts.Providers {
		if p := ps.asked(key); p != nil && (shortest == 0 || p.Revalidate.Interval < shortest) {
			shortest = p.Revalidate.Interval
		}
	}
	return shortest
}

const (
	// maxFailures is how many answers in a row may be missing until a provider counts as silent;
	// one may be the fault of that person's account.
	maxFailures = 3

	// rest is the pause in checks of a silent provider, so that requests do not wait for it.
	rest = 30 * time.Second
)

// Result is the outcome of a check with an identity provider.
type Result string

// The results. An answer is a yes or a no.
const (
	Answered   Result = "answered"
	Rejected   Result = "rejected"   // the provider refuses our client: its secret is wrong, or it may not refresh
	Unanswered Result = "unanswered" // no answer, or an answer about no person
)

// Results are all of them.
var Results = []Result{Answered, Rejected, Unanswered}

// Checks are the latest of each provider at this gateway. They outlive a [SignIns]. The zero value has none.
type Checks struct {
	mu    sync.Mutex
	state map[string]state // by the provider's key
}

type state struct {
	failures int // in a row
	next     time.Time
	latest   map[Result]time.Time
	failing  Result // of the latest check; "" if it was answered
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

// resultOf sorts the errors of a check.
func resultOf(err error) Result {
	switch {
	case isAnswer(err):
		return Answered
	case relyingparty.Rejected(err):
		return Rejected
	}
	return Unanswered
}

// ProviderState is how a provider answers.
type ProviderState struct {
	Key       string               `json:"idp"`                 // the provider's name in the configuration
	State     string               `json:"state"`               // ok, suspended, rejected, unanswered, or unchecked before the first check
	Suspended *time.Time           `json:"suspended,omitempty"` // since when
	Latest    map[Result]time.Time `json:"latest,omitempty"`    // checks at this gateway
}

// isAnswer reports whether a provider answered about one person, even with an invalid ID token or userinfo.
func isAnswer(err error) bool {
	return err == nil || relyingparty.Denied(err) || errors.Is(err, relyingparty.ErrIDToken) || errors.Is(err, relyingparty.ErrUserInfo)
}

const (
	// maxRead is how many sign-ins are read in one step.
	maxRead = 100

	// maxWitnesses is how many other people are checked before a denial is taken for the provider's mistake: it denies
	// everybody, or nearly.
	maxWitnesses = 9

	// minWitnesses is how many other people must be denied for that. With fewer, each denial is about one person.
	minWitnesses = 2

	// weighTime bounds how long the check of other people takes.
	weighTime = 30 * time.Second

	// doubtTime is how long a denial can stay in doubt because other people cannot be checked.
	doubtTime = 5 * time.Minute

	// retryEach is the time between two checks at a suspended provider, by all gateways.
	retryEach = 10 * time.Second

	// sampled is how many sign-ins at a provider are candidates for a check, and sampleLifetime how long: to list them reads
	// the whole store.
	sampled, sampleLifetime = 300, time.Minute

	retryPrefix    = "upstream-retry:"    // a gateway has just checked whether a suspended provider is repaired
	acceptedPrefix = "upstream-accepted:" // an operator confirmed the denials of sign-ins until this time
)

// errSuspended refuses what waits until a provider's mistake is repaired. Nothing was revoked.
var errSuspended = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
	Description: "the identity provider denies nearly everybody, and is suspended until that is resolved",
}

// errUnclear refuses who was denied while it cannot be found out whether that is about them alone.
var errUnclear = &oauth2.Error{
	Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
	Description: "the identity provider denies this person, and cannot be asked about others",
}

// ErrNotSuspended is returned for a provider without a suspension to lift.
var ErrNotSuspended = errors.New("the identity provider is not suspended")

// suspensions tell a provider's mistake from a denial of one person. A provider that runs under another host name, or lost the
// keys of its refresh tokens, answers every refresh as if the person had been removed. Before a denial ends anything, other
// people who signed in before it are checked: if nobody is confirmed, the provider is suspended. What its people had is then
// refused with 503, and not revoked, until somebody is confirmed again or an operator accepts the denials.
type suspensions struct {
	records     records
	revocations *revocation.Revocations
	logger      *slog.Logger

	weighing sync.Mutex // one denial at a time: the next finds what came of it

	mu      sync.Mutex
	samples map[string]sample // by provider
}

// acceptance is an operator's word that a provider's denials are meant.
type acceptance struct {
	Until time.Time `json:"until"` // of sign-ins until then
}

// sample are some sign-ins at a provider.
type sample struct {
	names []string
	until time.Time
}

// holds reports whether a sign-in predates the suspension of its provider. Later sign-ins were confirmed by the provider.
func (s *suspensions) holds(ctx context.Context, r *record) (bool, error) {
	until, err := s.revocations.Suspended(ctx, r.Provider)
	return !until.IsZero() && !r.SignedIn.After(until), err
}

// mayRetry reports whether a suspended provider may be asked now: by one gateway at a time, unless the denials were accepted.
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

// accept lets the denials of a suspended provider take effect.
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
	s.logger.With(details...).ErrorContext(ctx, "identity provider suspended: its people get 503 until it confirms one of them again, or an operator accepts its denials by fhir-idps",
		"idp", p.Key, "reason", why)
	return errSuspended
}

// held counts the sign-ins that a sweep found held, by provider.
type held map[string]int

// waits reports whether a sweep leaves a sign-in alone, because its provider is suspended and one more was just checked.
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

// swept renews suspensions by which a sweep found something held, and lifts those whose denials an operator accepted and that
// hold nothing any longer.
func (s *suspensions) swept(ctx context.Context, providers []string, held held) error {
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

// witness checks the sign-in of somebody else, unless it was confirmed since a time: nil if the provider confirms it, errEnded
// if it denies it too. Nothing ends by that.
type witness func(ctx context.Context, p *people.Provider, name string, since time.Time) error

// weigh returns nil if the denial of a sign-in is to be believed; else why not, or not yet.
func (s *suspensions) weigh(ctx context.Context, p *people.Provider, denied *record, check witness) error {
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
	return s.hearWitnesses(ctx, p, denied, check)
}

func (s *suspensions) hearWitnesses(ctx context.Context, p *people.Provider, denied *record, check witness) error {
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

// witnesses are sign-ins of other people that the provider should confirm if it confirms what it issued before a denial.
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
			if r == nil || err != nil || slices.Contains(subjects, r.Subject) || !s.mayWitness(ctx, p, r, denied) {
				continue
			}
			if subjects, names = append(subjects, r.Subject), append(names, r.name()); len(names) == maxWitnesses {
				return names, nil
			}
		}
	}
	return names, nil
}

// mayWitness reports whether a check of a sign-in says something about the denial of another. Idle people may have been logged
// off for that, all of them at the end of a shift.
func (s *suspensions) mayWitness(ctx context.Context, p *people.Provider, r, denied *record) bool {
	held, err := s.holds(ctx, r)
	return err == nil && !held && !r.Denied && !r.isIdle() && r.Issuer == p.Issuer && !s.records.isMute(r) && !s.records.hasLapsed(r) && !r.SignedIn.After(denied.Yes)
}

// sample returns keys of sign-ins at a provider, in random order.
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
