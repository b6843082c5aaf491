package lockout_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// slowComparer is a password comparer that waits for a signal by the test.
type slowComparer struct {
	mu      sync.Mutex
	started []string // passwords with a started comparison
	release chan struct{}
}

func (s *slowComparer) Compare(hash, password []byte) (bool, error) {
	s.mu.Lock()
	s.started = append(s.started, string(password))
	s.mu.Unlock()
	<-s.release
	return string(hash) == string(password), nil
}

// fromAddress returns a handler that makes requests appear to come from an address.
func fromAddress(server http.Handler, address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = address + ":1"
		server.ServeHTTP(w, r)
	})
}

// No matter how many passwords are tried for nonexistent names, a correct password from another network is compared next, and
// one from a known browser is compared immediately, even if the attempts come from many networks.
func TestHashTurns(t *testing.T) {
	t.Parallel()
	one := func(int) string { return "192.0.2.1" }
	for _, tt := range []struct {
		name           string
		flood          func(try int) string // client address of each attempt in the flood
		isKnownBrowser bool
		maxEarlier     int // number of flood attempts that are completed first
	}{
		{"another network", one, false, 1},
		{"another network, a flood of networks of one customer", func(try int) string { return fmt.Sprintf("2001:db8:0:%x::1", try) }, false, 1},
		{"a known browser", one, true, 0},
		{"a known browser, a flood of networks", func(try int) string { return fmt.Sprintf("2001:db8:%x::1", try) }, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				compare := &slowComparer{release: make(chan struct{}, 1)}
				s := authorizetest.New(t, func(c *authorize.Config) { c.Passwords, c.Lockout.Off = compare, true })
				ours := authorizetest.NewBrowser(t, fromAddress(s, "198.51.100.1"))
				if tt.isKnownBrowser {
					compare.release <- struct{}{}
					ours.SignInAlice(authorizetest.Request(nil))
					compare.started = nil
				}
				var group sync.WaitGroup
				for try := range 14 * runtime.GOMAXPROCS(0) {
					group.Go(func() {
						authorizetest.TryPassword(t, fromAddress(s, tt.flood(try)), fmt.Sprint("nobody", try), "wrong")
					})
				}
				synctest.Wait()
				group.Go(func() {
					if r := ours.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "right"); r.StatusCode != http.StatusFound {
						t.Errorf("status %d", r.StatusCode)
					}
				})
				synctest.Wait()
				for range tt.maxEarlier {
					compare.release <- struct{}{}
					synctest.Wait()
				}
				if !slices.Contains(compare.started, "right") {
					t.Errorf("compared are %q", compare.started)
				}
				close(compare.release)
				group.Wait()
			})
		})
	}
}

// If there are too many attempts, a password is not compared and not counted as a failure. The response contains Retry-After,
// and the page contains the typed name.
func TestNoHashTurn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		flood int // number of attempts waiting for a comparison
		want  time.Duration
	}{
		{"too long a wait", runtime.GOMAXPROCS(0), 10 * time.Second},
		{"too many wait", 1100, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last atomic.Pointer[audit.Event]
				compare, durable := &slowComparer{release: make(chan struct{})}, store.NewMemory(0, 0)
				s := authorizetest.New(t, func(c *authorize.Config) {
					c.Passwords, c.DurableStore = compare, durable
					c.Lockout = lockout.Policy{Failures: 1 << 20, AddressFailures: 1 << 20}
					c.Audit = func(_ context.Context, e audit.Event) { last.Store(&e) }
				})
				var group sync.WaitGroup
				for range tt.flood {
					group.Go(func() { authorizetest.TryPassword(t, s, "nobody", "wrong") })
				}
				synctest.Wait()
				start := time.Now()
				r := authorizetest.NewBrowser(t, s).SignIn(authorizetest.Request(nil), "alice", "mine")
				page := authorizetest.Body(t, r)
				if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") != "5" || time.Since(start) != tt.want {
					t.Errorf("status %d, Retry-After %q, after %v", r.StatusCode, r.Header.Get("Retry-After"), time.Since(start))
				}
				if !strings.Contains(page, `value="alice"`) || strings.Contains(page, "mine") || !strings.Contains(page, "Try again in 5 seconds.") {
					t.Errorf("page %s", page)
				}
				if e := last.Load(); e == nil || e.Kind != audit.KindSignIn || e.Outcome() != "temporarily_unavailable" || !e.Anonymous {
					t.Errorf("event %+v", e)
				}
				if counted, err := durable.List(t.Context(), "lockout:"); slices.Contains(compare.started, "mine") || err != nil || len(counted) > 0 {
					t.Errorf("compared are %q; counted is %q, %v", compare.started, counted, err)
				}
				close(compare.release)
				group.Wait()
				if status := authorizetest.TryPassword(t, s, "alice", "right"); status != http.StatusFound {
					t.Errorf("afterwards: %d", status)
				}
			})
		})
	}
}

// The number of attempts that wait for the same account is limited.
func TestTriesForOneAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		compare := &slowComparer{release: make(chan struct{})}
		s := authorizetest.New(t, func(c *authorize.Config) { c.Passwords, c.Lockout.Failures = compare, 1 })
		statuses := make(chan int, 150)
		var group sync.WaitGroup
		for range cap(statuses) {
			group.Go(func() { statuses <- authorizetest.TryPassword(t, s, "alice", "wrong") })
		}
		synctest.Wait()
		if len(statuses) != 49 {
			t.Errorf("%d of 150 are refused at once, beside one that is compared and 100 that wait", len(statuses))
		}
		close(compare.release)
		group.Wait()
		got := map[int]int{}
		for range cap(statuses) {
			got[<-statuses]++
		}
		if got[http.StatusForbidden] != 1 || got[http.StatusTooManyRequests] != 100 || got[http.StatusServiceUnavailable] != 49 {
			t.Errorf("statuses %v", got)
		}
	})
}
