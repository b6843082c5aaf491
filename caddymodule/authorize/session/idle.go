package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// RecordActivity extends a session because its person is active. Without activity for [Sessions.Idle], the session's record
// expires. Activity is recorded at most ten times within Idle, so the session may expire a tenth of Idle early.
func (s *Sessions) RecordActivity(ctx context.Context, sid string) error {
	if s.Idle == 0 {
		return nil
	}
	value, err := s.Durable.Get(ctx, Key(sid))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading a session: %w", err)
	}
	stored, err := parse(sid, value)
	if err != nil || stored.isRecorded(s.Now(), s.Idle) {
		return err
	}
	stored.Seen = s.Now()
	if stored.Until.IsZero() { // stored by a version without Until
		stored.Until = stored.At.Add(s.Lifetime)
	}
	if !stored.Seen.Before(stored.Until) {
		return nil
	}
	next, err := store.ToJSON(stored)
	if err != nil {
		return err
	}
	err = s.Durable.Do(ctx, &store.Call{Op: store.Swap, Key: Key(sid), Old: value, Value: next, TTL: s.ttl(stored)})
	if store.Lost(err) || errors.Is(err, store.ErrNotFound) { // the person has signed in again, or out
		return nil
	}
	return err
}

// isRecorded reports whether the person's activity was recorded within the last tenth of the idle limit.
func (s *Session) isRecorded(now time.Time, idle time.Duration) bool {
	return now.Sub(s.Seen) < idle/10
}

// ttl is the lifetime of a session's record without further activity.
func (s *Sessions) ttl(stored *Session) time.Duration {
	left := stored.Until.Sub(s.Now())
	if s.Idle > 0 {
		return min(left, s.Idle)
	}
	return left
}
