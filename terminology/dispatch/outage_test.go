package dispatch

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// TestNewFilterDuringOutage types a new filter while the upstream is down: an expired whole expansion answers it.
func TestNewFilterDuringOutage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stale time.Duration
		want  int
	}{"stale": {time.Hour, http.StatusOK}, "no stale": {0, http.StatusBadGateway}} {
		for _, off := range []bool{false, true} {
			var down atomic.Bool
			wholes := &remote.Wholes{After: 1, TTL: time.Nanosecond, MaxStale: tt.stale}
			g := newSiteBefore(t, "upstream", settings{off: off, wholes: wholes}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if down.Load() {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				w.Header().Set("Content-Type", "application/fhir+json")
				_, _ = io.WriteString(w, expansionOf(foreign, "theirs"))
			}))
			g.expand(foreign + "&count=5&filter=t")
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			for n := 0; n == 0 && ctx.Err() == nil; { // fetched in the background
				n, _ = wholes.Held()
			}
			cancel()
			down.Store(true)
			for range 2 {
				got := g.expand(foreign + "&count=5&filter=the")
				body := read(t, got)
				if got.StatusCode != tt.want || (tt.want == http.StatusOK) != strings.Contains(body, `"code":"theirs"`) {
					t.Errorf("%s, off=%t: got %d %s", name, off, got.StatusCode, body)
				}
			}
		}
	}
}
