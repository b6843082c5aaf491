package guard

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// While the endpoint hangs nobody waits for it but who asked already, and one at a
// time who tries again; when it answers, all are asked about again.
func TestIntrospectorBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		i := testIntrospector(func(r *http.Request) (*http.Response, error) {
			if !hangs {
				return answer(`{"active":true,"sub":"bob"}`), nil
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		i.concurrency, i.timeout = 2, 10*time.Second
		var group sync.WaitGroup
		start := time.Now()
		verify := func(token string, after time.Duration, retryAfter string) {
			t.Helper()
			group.Go(func() {
				_, err := i.Verify(t.Context(), token)
				if refusal, ok := errors.AsType[*Error](err); !ok {
					t.Errorf("%s: %v", token, err)
				} else if refusal.Status != http.StatusServiceUnavailable ||
					refusal.RetryAfter() != retryAfter || time.Since(start) != after*time.Second {
					t.Errorf("%s: %v, Retry-After %q, after %v", token, err, refusal.RetryAfter(), time.Since(start))
				}
			})
			synctest.Wait()
		}
		verify("asked about", 10, "")
		verify("waits too long", 5, "")
		time.Sleep(7 * time.Second)
		verify("waits when it fails", 10, "2")
		time.Sleep(4 * time.Second)
		verify("comes at 11", 11, "1")
		time.Sleep(2 * time.Second)
		verify("tries again at 13", 23, "")
		verify("comes while that one tries", 13, "1")
		group.Wait()
		hangs = false
		verify("comes before it is tried again", 23, "2")
		time.Sleep(2 * time.Second)
		for n := range 3 {
			if _, err := i.Verify(t.Context(), fmt.Sprint(n)); err != nil {
				t.Error(err)
			}
		}
	})
}

// What has no answer leaves the endpoint alone. What has one that is not understood
// does not: somebody may have made up a token for it.
func TestIntrospectorBackOffByFailure(t *testing.T) {
	t.Parallel()
	status := func(code int) transport {
		return func(*http.Request) (*http.Response, error) {
			response := answer(`{"active":true,"sub":"bob"}`)
			response.StatusCode = code
			return response, nil
		}
	}
	for _, test := range []struct {
		name  string
		rt    transport
		alone bool
	}{
		{"no connection", func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, true},
		{"429", status(http.StatusTooManyRequests), true},
		{"502", status(http.StatusBadGateway), true},
		{"503", status(http.StatusServiceUnavailable), true},
		{"504", status(http.StatusGatewayTimeout), true},
		{"400", status(http.StatusBadRequest), false},
		{"401", status(http.StatusUnauthorized), false},
		{"500", status(http.StatusInternalServerError), false},
		{"no JSON", answering(`{`), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt, count := counted(test.rt)
			i := testIntrospector(rt)
			for n := range 2 {
				_, err := i.Verify(t.Context(), fmt.Sprint(n))
				wantError(t, err, http.StatusServiceUnavailable, "", ErrUnavailable)
			}
			if alone := count.Load() == 1; alone != test.alone {
				t.Errorf("%d requests", count.Load())
			}
		})
	}
}
