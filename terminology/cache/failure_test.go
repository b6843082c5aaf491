package cache

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFailuresAreShared has a crowd ask an origin that fails, at once and one after another: it is asked once in a moment.
func TestFailuresAreShared(t *testing.T) {
	down := errors.New("down")
	tests := []struct {
		name   string
		answer func() (*Answer, error)
		pause  time.Duration
		ttl    time.Duration
	}{
		{"an answer", func() (*Answer, error) { return answerOf(500, "failed"), nil }, time.Second, 0},
		{"an error", func() (*Answer, error) { return nil, &Unavailable{Err: down} }, time.Second, 0},
		{"an error with Retry-After", func() (*Answer, error) { return nil, &Unavailable{Err: down, RetryAfter: 20 * time.Second} }, 20 * time.Second, 0},
		{"a Retry-After that is sooner than others are told", func() (*Answer, error) { return answerOf(503, "failed", "Retry-After: 7"), nil }, 7 * time.Second, time.Hour},
		{"a year", func() (*Answer, error) { return nil, &Unavailable{Err: down, RetryAfter: 8760 * time.Hour} }, MaxRetryAfter, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &origin{answer: func(*http.Request) (*Answer, error) {
					time.Sleep(time.Millisecond)
					return tt.answer()
				}}
				c := New(Options{FailureTTL: tt.ttl})
				ask := func() {
					w := httptest.NewRecorder()
					err := c.Serve(w, get(expandURL), &Call{Scheme: plain, Produce: o.produce})
					if got := fmt.Sprint(err, w.Body); got != "down" && got != "<nil> failed" && got != "down " {
						t.Errorf("got %q", got)
					}
				}
				var all sync.WaitGroup
				for range 200 {
					all.Go(ask)
				}
				all.Wait()
				asked(t, o, 1)
				for range 10 {
					ask()
				}
				asked(t, o, 1)
				time.Sleep(tt.pause)
				ask()
				asked(t, o, 2)
			})
		})
	}
}

// TestStaleAfterFailure makes sure that an origin is asked again after a failure as soon if there is a stale answer as if
// there is none: after FailureTTL, or when it said.
func TestStaleAfterFailure(t *testing.T) {
	down := func() (*Answer, error) { return nil, errors.New("down") }
	busy := func() (*Answer, error) { return answerOf(503, "busy", "Retry-After: 7"), nil }
	for name, test := range map[string]struct {
		answer func() (*Answer, error)
		ttl    time.Duration
		pause  time.Duration
	}{
		"by default":       {down, 0, time.Second},
		"as it is set":     {down, 3 * time.Second, 3 * time.Second},
		"not at all":       {down, -1, 0},
		"as the server is": {busy, 0, 7 * time.Second},
	} {
		for window, options := range map[string]Options{"if there is an error": {StaleIfError: time.Hour}, "while asking": {StaleIfError: time.Hour, StaleWhileRevalidate: time.Hour}} {
			t.Run(name+", "+window, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					options.FailureTTL = test.ttl
					c, o := New(options), says("one", "Cache-Control: max-age=60")
					ask := func() {
						if w := serve(t, c, get(expandURL), &Call{Scheme: plain, Produce: o.produce}); w.Body.String() != "one" {
							t.Errorf("got %s", w.Body)
						}
						synctest.Wait()
					}
					ask()
					time.Sleep(2 * time.Minute)
					o.answer = func(*http.Request) (*Answer, error) { return test.answer() }
					ask()
					asked(t, o, 2)
					if test.pause > 0 {
						time.Sleep(test.pause - time.Millisecond)
						ask()
						asked(t, o, 2)
						time.Sleep(time.Millisecond)
					}
					ask()
					asked(t, o, 3)
				})
			})
		}
	}
}

// TestRetryAfterIsWhatIsLeft tells a client that comes later of the rest of the time alone.
func TestRetryAfterIsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{answer: func(*http.Request) (*Answer, error) { return answerOf(503, "busy", "Retry-After: 30"), nil }}
		c := New(Options{})
		call := &Call{Scheme: plain, Produce: o.produce}
		serve(t, c, get(expandURL), call)
		time.Sleep(12 * time.Second)
		if got := serve(t, c, get(expandURL), call).Header().Get("Retry-After"); got != "18" {
			t.Errorf("Retry-After = %q, want 18", got)
		}
	})
}

// TestInvalidationEndsFailures has a write end what is remembered of failures, too.
func TestInvalidationEndsFailures(t *testing.T) {
	o := &origin{answer: func(*http.Request) (*Answer, error) { return answerOf(503, "busy", "Retry-After: 30"), nil }}
	c := New(Options{})
	call := &Call{Scheme: plain, Produce: o.produce}
	serve(t, c, get(expandURL), call)
	c.InvalidateTag("http://example.org/vs")
	serve(t, c, get(expandURL), call)
	asked(t, o, 2)
}

// TestFailuresAreBounded has more questions fail than are remembered.
func TestFailuresAreBounded(t *testing.T) {
	o := &origin{answer: func(*http.Request) (*Answer, error) { return nil, &Unavailable{Err: errors.New("down")} }}
	c := New(Options{FailureTTL: time.Hour})
	for i := range maxFailures + 100 {
		if err := c.Serve(httptest.NewRecorder(), get(fmt.Sprint(expandURL, i)), &Call{Scheme: plain, Produce: o.produce}); err == nil {
			t.Fatal("no error")
		}
	}
	if n, _ := c.store.currentGeneration().failures.byKey.Held(); n != maxFailures {
		t.Errorf("%d failures are remembered, want %d", n, maxFailures)
	}
	large := &origin{answer: func(*http.Request) (*Answer, error) { return answerOf(500, strings.Repeat("x", maxFailureBody+1)), nil }}
	for range 2 {
		serve(t, c, get(expandURL+"large"), &Call{Scheme: plain, Produce: large.produce})
	}
	asked(t, large, 2)
}

// TestRetryAfter reads what servers say of when to ask again.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "300": MaxRetryAfter, "301": MaxRetryAfter, "2147483648": MaxRetryAfter, "99999999999999999999": MaxRetryAfter,
		"-1": 0, "1.5": 0, "soon": 0, "Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
		"Sat, 02 Jan 2126 03:04:05 GMT": MaxRetryAfter, "Friday, 02-Jan-26 03:04:35 GMT": 30 * time.Second,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}
