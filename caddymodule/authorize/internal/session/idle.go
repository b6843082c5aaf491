package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Active notes that the person of a session is active. Whoever is not for [Sessions.Idle] is signed out: the session's record
// expires. It is written at most ten times in that time, so a session may end a tenth earlier.
func (s *Sessions) Active(ctx context.Context, sid string) error {
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
	if err != nil || s.Now().Sub(stored.Seen) < s.Idle/10 {
		return err
	}
	stored.Seen = s.Now()
	if stored.Until.IsZero() { // of before there was such a limit
		stored.Until = stored.At.Add(s.Lifetime)
	}
	if !stored.Seen.Before(stored.Until) {
		return nil
	}
	next, err := store.ToJSON(stored)
	if err != nil {
		return err
	}
	err = s.Durable.Do(ctx, &store.Call{Op: store.Swap, Key: Key(sid), Old: value, Value: next, TTL: s.lasts(stored)})
	if store.Lost(err) || errors.Is(err, store.ErrNotFound) { // the person has signed in again, or out
		return nil
	}
	return err
}

// lasts is how long a session lasts if nobody is active in it.
func (s *Sessions) lasts(stored *Session) time.Duration {
	left := stored.Until.Sub(s.Now())
	if s.Idle > 0 {
		return min(left, s.Idle)
	}
	return left
}
