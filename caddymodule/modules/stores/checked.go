package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// checkedStore is a store that is used only once it has passed its check, and has no other issuer's state. It may have been
// out of reach when the gateway started. Each time that it is followed anew it is checked again, since it may be another.
type checkedStore struct {
	store.Singly
	remote *Remote
	logger *slog.Logger
	watch  *Watch

	refusal atomic.Pointer[error] // what is answered; nil: the store is used

	mu     sync.Mutex
	issuer string // guarded by mu; empty until the first start
	passed bool   // guarded by mu: the store was checked for the issuer
}

func newCheckedStore(remote *Remote, logger *slog.Logger) *checkedStore {
	s := &checkedStore{remote: remote, logger: logger, watch: newStoreWatch("", nil)}
	s.Singly = s.Do
	return s
}

// begin checks the store for a configuration that starts. If it cannot be reached it is checked when it is followed, and not
// used before. An issuer that replaces another cannot have its store, and the other goes on with it.
func (s *checkedStore) begin(ctx context.Context, issuer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.issuer != "" && s.issuer != issuer {
		return s.remote.explain(&store.OtherIssuerError{Theirs: s.issuer, Ours: issuer})
	}
	err := s.checkFor(ctx, issuer)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	switch {
	case err == nil:
		s.pass(issuer)
	case errors.Is(err, store.ErrUnavailable) && !s.passed:
		s.issuer = issuer
		s.refusal.Store(&err)
	}
	return err
}

// pass lets the store be used. It requires the lock.
func (s *checkedStore) pass(issuer string) {
	s.issuer, s.passed = issuer, true
	s.refusal.Store(nil)
}

// checkFor checks a store for an issuer, and tries it. One that is full can be used for what it has.
func (s *checkedStore) checkFor(ctx context.Context, issuer string) error {
	if err := s.remote.Check(ctx); err != nil {
		return err
	}
	switch err := store.Try(ctx, s.remote.Shared); {
	case err == nil || errors.Is(err, store.ErrFull):
	case store.CauseOf(err) == store.CauseRights:
		return errors.New(err.Error()) // it does not pass
	default:
		return err
	}
	if s.remote.Volatile != nil {
		if why := s.remote.Volatile(ctx); s.watch.keepsNothing(why) {
			s.watch.warnOfVolatile(s.watch.log(), why)
		}
	}
	return s.claim(ctx, issuer)
}

// claim requires the lock.
func (s *checkedStore) claim(ctx context.Context, issuer string) error {
	mark, err := store.Claim(ctx, s.remote.Shared, issuer)
	if err == nil {
		s.watch.Claimed(mark)
	}
	return s.remote.explain(err)
}

// explain says what to do about the store of another issuer.
func (r *Remote) explain(err error) error {
	if _, other := errors.AsType[*store.OtherIssuerError](err); other {
		return fmt.Errorf("%w: give each issuer a store of its own (%s)", err, r.Own)
	}
	return err
}

// recheck checks the store before it is followed. Once it has passed, it matters only whose it is: the rest was said at the
// start, and a server that is about to be another's replica must not stop anybody.
func (s *checkedStore) recheck(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.issuer == "" { // not started
		return s.remote.Check(ctx)
	}
	check := s.checkFor
	if s.passed {
		check = s.claim
	}
	err := check(ctx, s.issuer)
	switch {
	case err == nil:
		s.pass(s.issuer)
	case errors.As(err, new(*store.OtherIssuerError)), !s.passed && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable):
		s.refuse(ctx, err)
	}
	return err
}

// refuse lets the store be used no more, and logs once why. It requires the lock.
func (s *checkedStore) refuse(ctx context.Context, err error) {
	refusal := fmt.Errorf("%w: %s", store.ErrUnavailable, err.Error())
	if before := s.refusal.Swap(&refusal); before == nil || (*before).Error() != refusal.Error() {
		s.logger.ErrorContext(ctx, "the store cannot be used: what needs it is answered 503", "error", err)
	}
	s.passed = false
}

// Follow implements [store.Shared].
func (s *checkedStore) Follow(ctx context.Context, tell func(store.Update)) error {
	if err := s.recheck(ctx); err != nil {
		return err
	}
	return s.remote.Follow(ctx, tell)
}

// Try is for [store.Try]. It also looks whether the store still has this gateway's state.
func (s *checkedStore) Try(ctx context.Context) error {
	if refusal := s.refusal.Load(); refusal != nil {
		return *refusal
	}
	if err := store.Try(ctx, s.remote.Shared); err != nil {
		return err
	}
	mark, err := s.remote.Get(ctx, store.IssuerKey)
	if errors.Is(err, store.ErrNotFound) || err == nil && !s.watch.Claimed(mark) {
		return s.recheck(ctx)
	}
	return err
}

// Do implements [store.Store].
func (s *checkedStore) Do(ctx context.Context, calls ...*store.Call) error {
	if refusal := s.refusal.Load(); refusal != nil {
		return *refusal
	}
	return s.remote.Do(ctx, calls...)
}

// List implements [store.Store].
func (s *checkedStore) List(ctx context.Context, prefix string) ([]string, error) {
	if refusal := s.refusal.Load(); refusal != nil {
		return nil, *refusal
	}
	return s.remote.List(ctx, prefix)
}

// Now implements [store.Shared].
func (s *checkedStore) Now() time.Time { return s.remote.Now() }

var _ store.Shared = (*checkedStore)(nil)
