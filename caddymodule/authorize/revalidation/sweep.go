package revalidation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// asksAtOnce and askEach bound what a gateway asks in the background: 20 a second. With more
	// than that in an interval, it takes longer.
	asksAtOnce, askEach = 4, 50 * time.Millisecond

	// sweepsPerInterval makes an answer as old as the interval at most, since those are asked for
	// that would be older with the next sweep.
	sweepsPerInterval = 5

	// sweepKey says that a gateway looks through the sign-ins for all.
	sweepKey = "upstream-sweep:"
)

// sweeper asks in the background.
type sweeper struct {
	asker      *asker
	closer     *closer
	sessionKey func(sid string) string
}

// run checks sign-ins in the background until ctx ends, and then waits for running checks. It starts without delay: each change of
// users or clients replaces the server, which may happen more often than a sweep is due.
func (s *sweeper) run(ctx context.Context) {
	interval := s.asker.providers.interval()
	if interval == 0 {
		return
	}
	for ctx.Err() == nil {
		wait := interval / sweepsPerInterval
		err := s.sweep(ctx, wait)
		switch {
		case store.Lost(err):
			wait /= 10
		case err != nil && ctx.Err() == nil:
			s.asker.logger.WarnContext(ctx, "sign-ins at identity providers not looked through", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// sweep asks about the sign-ins that are due. If another gateway does, or did just before, the error is [store.Lost].
func (s *sweeper) sweep(ctx context.Context, each time.Duration) error {
	if err := s.asker.records.store.Add(ctx, sweepKey, nil, each*9/10); store.Lost(err) {
		return err
	}
	defer func() {
		if ctx.Err() != nil { // the next begins where this one ended
			_ = s.asker.records.store.Delete(context.WithoutCancel(ctx), sweepKey)
		}
	}()
	keys, err := s.asker.records.store.List(ctx, duePrefix)
	if err != nil {
		return err
	}
	var asking errgroup.Group
	defer func() { _ = asking.Wait() }() // they log what fails
	asking.SetLimit(asksAtOnce)
	held := held{}
	for some := range slices.Chunk(keys, maxRead) {
		if err := s.sweepSome(ctx, &asking, some, held); err != nil {
			return err
		}
	}
	return s.asker.suspended.swept(ctx, s.asker.providers.accounts.ProviderKeys, held)
}

func (s *sweeper) sweepSome(ctx context.Context, asking *errgroup.Group, keys []string, held held) error {
	wanted := map[string][]byte{} // of sign-ins, and of their sessions
	for _, key := range keys {
		name := strings.TrimPrefix(key, duePrefix)
		sid, _, _ := strings.Cut(name, ".")
		wanted[recordPrefix+name], wanted[s.sessionKey(sid)] = nil, nil
	}
	read := slices.Collect(maps.Keys(wanted))
	values, err := store.Values(ctx, s.asker.records.store, read...)
	if err != nil {
		return err
	}
	for i, value := range values {
		wanted[read[i]] = value
	}
	for _, key := range keys {
		name := strings.TrimPrefix(key, duePrefix)
		sid, _, _ := strings.Cut(name, ".")
		r, err := store.FromJSON[record](wanted[recordPrefix+name])
		if err != nil { // perhaps of a later version
			s.asker.logger.WarnContext(ctx, "a sign-in at an identity provider cannot be read", "sid", sid, "error", err)
			continue
		}
		waits, err := s.asker.suspended.waits(ctx, r, held)
		if err != nil {
			return err
		}
		if do := s.due(r, name, wanted[s.sessionKey(sid)] != nil); do != nil && !waits {
			background := audit.ForReason(context.WithoutCancel(ctx), reason)
			asking.Go(func() error { do(background); return nil })
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(askEach):
			}
		}
	}
	return nil
}

// due returns what is to be done about a sign-in, or nil.
func (s *sweeper) due(r *record, name string, inSession bool) func(context.Context) {
	now := s.asker.records.now()
	switch {
	case r == nil: // it begins, or the mark expires
		return nil
	case !inSession && !r.Offline && (now.Before(r.Session) || now.After(r.Active)):
		return func(ctx context.Context) { s.closer.close(ctx, r) }
	case now.After(r.Active):
		return func(ctx context.Context) { _ = s.asker.records.store.Delete(ctx, duePrefix+name) }
	}
	p := s.asker.providers.asked(r.Provider)
	if p == nil || p.Issuer != r.Issuer {
		return nil
	}
	if r.Denied {
		return func(ctx context.Context) { _ = s.asker.end(ctx, r) }
	}
	recent := p.Revalidate.Interval * (sweepsPerInterval - 1) / sweepsPerInterval
	switch {
	case s.asker.records.isMute(r), r.Doubt.IsZero() && (s.asker.records.age(r) < recent || r.isIdle() && !r.Introspects):
		return nil
	case !r.Doubt.IsZero():
		recent = 0
	}
	return func(ctx context.Context) { _ = s.asker.ask(ctx, p, name, question{recent: recent}) }
}
