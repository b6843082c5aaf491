package e2e

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// waitingPeople are people who try to sign in at a hung provider until stop is called.
type waitingPeople struct {
	cancel         context.CancelFunc
	done           sync.WaitGroup
	arrived, ended atomic.Int64
}

// startWaiters lets people sign in at two providers. It waits until all of them are blocked, so that their earlier requests are
// not part of the measurement.
func startWaiters(t *testing.T, g *gateway, token *providertest.Provider) *waitingPeople {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waitingPeople{cancel: cancel}
	app, before := g.demoApp(t, "openid"), len(token.Requests(providertest.Token))
	for i := range waiters {
		idp := "token"
		if i%2 == 1 {
			idp = "discovery"
		}
		client := g.newPerson(t).client
		client.CheckRedirect = w.follow
		r := newRequest(t, http.MethodGet, app.AuthCodeURL("state", withIDP(idp)), "").WithContext(ctx)
		w.done.Go(func() {
			_, _ = trySend(client, r) // always fails, because no server listens at the redirect URI
			if ctx.Err() == nil {
				w.ended.Add(1)
			}
		})
	}
	t.Cleanup(func() { w.stop() })
	deadline := time.After(30 * time.Second)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for w.arrived.Load() < waiters || len(token.Requests(providertest.Token)) < before+waiters/2 {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%d of %d people got to the providers within 30 s", w.arrived.Load(), waiters)
		}
	}
	return w
}

// follow follows redirects. It counts the people who make the gateway contact a provider.
func (w *waitingPeople) follow(r *http.Request, _ []*http.Request) error {
	switch r.URL.Path {
	case "/oauth2/login/discovery", "/oauth2/callback/token":
		w.arrived.Add(1)
	}
	return nil
}

// stop cancels the requests and returns the number of people who were still waiting.
func (w *waitingPeople) stop() int {
	waited := waiters - int(w.ended.Load())
	w.cancel()
	w.done.Wait()
	return waited
}
