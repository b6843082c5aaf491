package replica_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
)

// A replica that has not heard from the store asks it, and says so when it cannot.
func TestLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, replica.Config{})
		s.put(s.elsewhere, "revoked:1", "v")
		s.put(s.elsewhere, "account:1", "v")
		synctest.Wait()
		s.wants("account:1", "v", 1)
		s.here.SetDown(true)
		s.put(s.elsewhere, "revoked:2", "v")
		time.Sleep(4 * time.Second)
		s.wants("revoked:1", "v", 0)
		s.wants("account:1", "v", 0)
		s.wants("revoked:2", "", 0) // within the lag
		if !s.replica.IsCurrent() || s.replica.Lag() < 4*time.Second {
			t.Errorf("lag %v within the maximum", s.replica.Lag())
		}
		time.Sleep(2 * time.Second)
		for _, key := range []string{"revoked:1", "revoked:2", "account:1", "code:1"} {
			s.unavailable(key)
		}
		if s.replica.IsCurrent() || s.replica.Lag() < 6*time.Second {
			t.Errorf("lag %v over the maximum", s.replica.Lag())
		}
		s.stop() // no following
		s.here.SetDown(false)
		s.wants("revoked:2", "v", 1)
		s.wants("revoked:3", "", 1)
		s.wants("revoked:3", "", 1)
		s.follow()
		s.wants("revoked:2", "v", 0)
		s.wants("account:1", "v", 1) // a change may have been missed
		if lag := s.replica.Lag(); lag > time.Second {
			t.Errorf("lag %v when back", lag)
		}
	})
}

func TestUnlimitedLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, replica.Config{})
		s.replica.SetMaxLag(replica.Unlimited)
		s.put(s.elsewhere, "revoked:1", "v")
		s.put(s.elsewhere, "account:1", "v")
		synctest.Wait()
		s.wants("account:1", "v", 1)
		s.here.SetDown(true)
		time.Sleep(lifetime / 2)
		s.wants("revoked:1", "v", 0)
		s.wants("revoked:2", "", 0)
		s.wants("account:1", "v", 1)
		s.wants("account:1", "v", 1)
		s.unavailable("account:2")
		s.unavailable("code:1")
	})
}

// Nothing is said about what was never heard.
func TestNeverHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, lag := range []time.Duration{replica.Unlimited, time.Hour} {
			s := newSite(t, replica.Config{})
			s.stop()
			s.replica = replica.New(s.here, replica.Config{Mirrored: []string{"revoked"}, Cached: []string{"account"}})
			s.replica.SetMaxLag(lag)
			s.wants("revoked:1", "", 1)
			s.wants("account:1", "", 1)
			s.wants("account:1", "", 1)
			s.here.SetDown(true)
			s.unavailable("revoked:1")
			s.unavailable("account:1")
		}
	})
}

// deaf is a store that answers, but cannot be followed for a while.
type deaf struct {
	store.Shared
	err   error
	until time.Time
}

func (d *deaf) Follow(ctx context.Context, tell func(store.Update)) error {
	if time.Now().Before(d.until) {
		return d.err
	}
	tell(store.Update{Whole: true, Heard: time.Now()})
	<-ctx.Done()
	return ctx.Err()
}

// That nothing is heard is logged once, and that it is again; but not of an outage, of which the breaker logs.
func TestDeafnessIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{store.ErrUnavailable: 0, errors.New("tells of no changes"): 2} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			r := replica.New(&deaf{storetest.NewShared().Gateway(), err, time.Now().Add(time.Minute)}, replica.Config{
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			r.Run(ctx)
			if lines := strings.Count(log.String(), "\n"); lines != want || want > 0 && !strings.Contains(log.String(), "heard again\" after=1m") {
				t.Errorf("%v: %d lines:\n%s", err, lines, &log)
			}
		})
	}
}

// Whoever else follows is told all that the replica is, after it.
func TestTell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var s *site
		s = newSite(t, replica.Config{Tell: func(u store.Update) {
			for _, c := range u.Changes {
				told = append(told, c.Key)
				s.wants(c.Key, string(c.Value), 0)
			}
		}})
		s.put(s.elsewhere, "revoked:1", "v")
		synctest.Wait()
		s.stop()
		s.follow()
		if got := strings.Join(told, " "); got != "revoked:1 revoked:1" {
			t.Errorf("told %q", got)
		}
	})
}
