package revalidation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const (
	// askTime bounds a question, and claimTime a claim to ask: long enough to store the answer too,
	// the last try of which takes storeTime at most.
	askTime, claimTime, storeTime = 30 * time.Second, time.Minute, 10 * time.Second

	// pause is between two looks at what another gateway asks, and between tries to store an answer.
	pause = 250 * time.Millisecond
)

// asker asks providers, and does what follows from their answers.
type asker struct {
	records   records
	providers *providers
	suspended *suspensions
	logger    *slog.Logger
	endSignIn func(context.Context, SignIn) error
}

// question is how a provider is asked.
type question struct {
	recent time.Duration // how old the last yes may be
	waits  bool          // for the answer that another gateway gets
	person bool          // the person is active now
}

// ask asks a provider about a sign-in: nil is a yes, errEnded a no, and anything else an outage.
func (a *asker) ask(ctx context.Context, p *people.Provider, name string, q question) error {
	for {
		if err := a.providers.silent(p.Key); err != nil {
			return err
		}
		r, held, err := a.claim(ctx, p, name, q.recent)
		switch {
		case err != nil:
			return err
		case r == nil:
			return errEnded // meanwhile
		case r.Denied:
			return a.end(ctx, r)
		case held:
			return a.askAs(ctx, p, r, q.person)
		case r.Claim == "" || r.Doubt.IsZero() && a.records.age(r) < p.Revalidate.Interval || !q.waits:
			return nil
		}
		time.Sleep(pause)
	}
}

// claim returns a sign-in, and whether this gateway may ask about it now.
func (a *asker) claim(ctx context.Context, p *people.Provider, name string, recent time.Duration) (r *record, held bool, err error) {
	claim := oauth2.RandomToken()
	r, err = a.records.change(ctx, name, func(r *record) bool {
		if r.Denied || r.Issuer != p.Issuer || a.records.age(r) < recent {
			r.Claim = ""
			return false
		}
		if r.Claim != "" && store.Until(a.records.store, r.Claimed) > 0 {
			return false
		}
		r.Claim, r.Claimed = claim, a.records.now().Add(claimTime)
		return true
	})
	return r, err == nil && r != nil && r.Claim == claim, err
}

// askAs asks with the claim of a record.
func (a *asker) askAs(ctx context.Context, p *people.Provider, r *record, person bool) error {
	denied, err := a.consult(ctx, p, r, person)
	if !denied {
		return err
	}
	doubted, err := a.doubt(ctx, r, r.Claim)
	switch {
	case err != nil:
		return err
	case doubted == nil:
		return errEnded // meanwhile
	case doubted.Doubt.IsZero(): // the person has signed in again
		return nil
	}
	if err := a.suspended.weigh(ctx, p, doubted, a.witness); err != nil {
		_, _ = a.doubt(ctx, doubted, "") // else the claim expires
		return err
	}
	return a.deny(ctx, doubted)
}

// doubt notes that the provider denies a sign-in, and who has the claim from now on, unless it was lost meanwhile.
func (a *asker) doubt(ctx context.Context, claimed *record, claim string) (*record, error) {
	return a.keep(ctx, claimed, "", func(r *record) {
		if r.Claim = claim; r.Doubt.IsZero() {
			r.Doubt = a.records.now()
		}
	})
}

// consult asks with the claim of a record, and reports whether the provider denies the person. Any other answer is stored.
// Without the person, it does nothing that the provider takes for their activity, if there is another way.
func (a *asker) consult(ctx context.Context, p *people.Provider, r *record, person bool) (denied bool, err error) {
	token, err := a.records.open(ctx, r)
	if err != nil {
		return false, a.answered(ctx, r, "", fmt.Errorf("reading the token of an identity provider: %w", err))
	}
	limited, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if !r.Expires.IsZero() || !person && r.isIdle() && r.Introspects {
		return a.introspect(limited, p, r, token)
	}
	next := "" // that is not stored yet
	identity, err := p.Client.Refresh(limited, token, r.Subject, func(rotated string) {
		soon, cancel := context.WithTimeout(ctx, storeTime)
		defer cancel()
		// Before anything else is done: this process may end, or what follows take long.
		if _, err := a.keep(soon, r, rotated, func(*record) {}); err != nil {
			next = rotated
		}
	})
	a.providers.note(p, err)
	if relyingparty.Denied(err) {
		return true, nil
	}
	if err == nil && identity.Claims != nil {
		accounts := *a.providers.accounts
		accounts.Logger = slog.New(slog.DiscardHandler) // what is missing was logged at the sign-in
		var user *people.User
		user, err = accounts.Admit(limited, p, p.Identity(identity), false)
		if err == nil && user.ID != r.User { // as whom they would sign in now: nothing would keep this account up to date
			return true, nil
		}
		if refused, ok := errors.AsType[*oauth2.Error](err); ok && refused.Code == people.ErrNotAllowed.Code && !errors.Is(err, people.ErrNotForgotten) {
			return true, nil
		}
	}
	if err == nil {
		r.Lapses = identity.RefreshUntil
	}
	return false, a.answered(ctx, r, next, err)
}

// introspect is consult by an access token, or a refresh token that is not to be used. From its answer no claim changes.
func (a *asker) introspect(ctx context.Context, p *people.Provider, r *record, token string) (denied bool, err error) {
	var active bool
	if r.Expires.IsZero() {
		active, err = p.Client.IntrospectRefreshToken(ctx, token)
	} else {
		active, _, err = p.Client.Introspect(ctx, token)
	}
	a.providers.note(p, err)
	ctx = context.WithoutCancel(ctx) // its time was for the question
	switch {
	case err != nil, active:
		return false, a.answered(ctx, r, "", err)
	case a.records.isMute(r):
		return false, a.answered(ctx, r, "", errMute)
	}
	return true, nil
}

// witness is a [witness].
func (a *asker) witness(ctx context.Context, p *people.Provider, name string, since time.Time) error {
	for ctx.Err() == nil {
		if err := a.providers.silent(p.Key); err != nil {
			return err
		}
		r, held, err := a.claim(ctx, p, name, store.Since(a.records.store, since))
		switch {
		case err != nil:
			return err
		case r == nil || r.Denied || r.Issuer != p.Issuer:
			return errUnclear
		case held:
			denied, err := a.consult(ctx, p, r, false)
			if denied {
				_, err := a.doubt(ctx, r, "")
				return cmp.Or(err, error(errEnded))
			}
			return err
		case r.Claim == "": // confirmed since
			return nil
		case !r.Doubt.IsZero(): // another gateway weighs its denial
			return errEnded
		}
		time.Sleep(pause)
	}
	return ctx.Err()
}

// keep stores what came of a question, with the next refresh token, if there is one, unless the claim was lost meanwhile.
// It returns the record as it is then.
func (a *asker) keep(ctx context.Context, claimed *record, next string, do func(*record)) (_ *record, err error) {
	if next != "" {
		if next, err = a.records.seal(ctx, claimed.name(), next); err != nil {
			return nil, err
		}
	}
	return a.records.change(ctx, claimed.name(), func(r *record) bool {
		if r.Claim != claimed.Claim {
			return false // such as by the person, who has signed in again
		}
		if do(r); next != "" {
			r.Token = next
		}
		return true
	})
}

// answered stores what came of a question, and returns it. It tries again while it has the claim:
// without the next refresh token the provider could not be asked any more.
func (a *asker) answered(ctx context.Context, r *record, next string, outcome error) error {
	ctx, cancel := context.WithTimeout(ctx, store.Until(a.records.store, r.Claimed)-storeTime)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		_, err = a.keep(ctx, r, next, func(stored *record) {
			if stored.Claim, stored.Claimed = "", (time.Time{}); outcome == nil {
				stored.Yes, stored.Doubt, stored.Lapses = a.records.now(), time.Time{}, r.Lapses
			}
		})
		if err == nil && outcome == nil {
			a.suspended.resume(ctx, r)
		}
		if err == nil {
			return outcome
		}
		time.Sleep(pause)
	}
	a.logger.ErrorContext(ctx, "the answer of an identity provider could not be stored; the person may have to sign in again", "idp", r.Provider, "user", r.User, "error", err)
	return outcome
}

// deny notes that a denial is believed, and ends what came of the sign-in. The note lets nobody go on who could not be ended yet.
func (a *asker) deny(ctx context.Context, doubted *record) error {
	r, err := a.records.change(ctx, doubted.name(), func(r *record) bool {
		r.Denied, r.Claim = !r.Doubt.IsZero(), ""
		return r.Denied
	})
	if err == nil && r != nil && !r.Denied { // such as by the person, who has signed in again
		return nil
	}
	return a.end(ctx, doubted)
}

// end ends a sign-in, and its record last: until then, it is tried again.
func (a *asker) end(ctx context.Context, r *record) error {
	err := a.endSignIn(ctx, SignIn{User: r.User, SID: r.SID, Provider: r.Provider})
	if err == nil {
		err = a.records.remove(ctx, r.name())
	}
	if err != nil {
		a.logger.ErrorContext(ctx, "a sign-in that the identity provider ended could not be ended yet", "idp", r.Provider, "user", r.User, "error", err)
	}
	return errEnded
}
