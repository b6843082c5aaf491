package client_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// backendAt is a gateway on a store, with a client that has keys.
func backendAt(t *testing.T, s store.Store) *servertest.Browser {
	return servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		c.Store, c.Durable = s, s
		c.Clients = append(c.Clients, client.Client{ID: "backend", JWKS: servertest.PublicKeys(jose.ES384), GrantTypes: []string{"client_credentials"}, Scopes: []string{"system/*.rs"}})
	}))
}

// An assertion is used once, at whichever of the gateways, and until it has expired by the
// store's clock, which theirs may differ from.
func TestAssertionAtSeveralGateways(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"same clocks": 0, "the store's is ahead": time.Minute, "the store's is behind": -20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := storetest.NewShared()
				shared.SetSkew(skew)
				gateways := []*servertest.Browser{backendAt(t, shared.Gateway()), backendAt(t, shared.Gateway()), backendAt(t, shared.Gateway())}
				token := servertest.Assertion(t, jose.ES384, map[string]any{"exp": time.Now().Add(4 * time.Minute).Unix()}, nil)
				var passed atomic.Int32
				var all sync.WaitGroup
				for i := range 60 {
					all.Go(func() {
						b := servertest.NewBrowser(t, gateways[i%3].Server)
						if b.Post("/oauth2/token", servertest.AssertionForm(token, nil)).StatusCode == http.StatusOK {
							passed.Add(1)
						}
					})
				}
				all.Wait()
				for i := range 40 {
					time.Sleep(10 * time.Second)
					if gateways[i%3].Post("/oauth2/token", servertest.AssertionForm(token, nil)).StatusCode == http.StatusOK {
						passed.Add(1)
					}
				}
				if passed.Load() != 1 {
					t.Errorf("passed %d times", passed.Load())
				}
			})
		})
	}
}

// forgetful is a store that does what it is asked, and answers one Add too late.
type forgetful struct {
	store.Store
	lost atomic.Bool
}

func (f *forgetful) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	err := f.Store.Add(ctx, key, value, ttl)
	if err == nil && f.lost.CompareAndSwap(false, true) {
		return store.ErrUnavailable
	}
	return err
}

// An assertion is not used up by a store that fails, nor by one whose answer is lost. Nor is
// one usable again that was used before.
func TestAssertionWhenStoreFails(t *testing.T) {
	t.Parallel()
	shared := storetest.NewShared()
	late := backendAt(t, &forgetful{Store: shared.Gateway()})
	down := shared.Gateway()
	down.SetDown(true)
	other := backendAt(t, shared.Gateway())
	for name, failing := range map[string]*servertest.Browser{"late": late, "down": backendAt(t, down)} {
		token := servertest.Assertion(t, jose.ES384, nil, nil)
		for _, tt := range []struct {
			at   *servertest.Browser
			want int
		}{{failing, http.StatusServiceUnavailable}, {other, http.StatusOK}, {other, http.StatusUnauthorized}} {
			if r := tt.at.Post("/oauth2/token", servertest.AssertionForm(token, nil)); r.StatusCode != tt.want {
				t.Errorf("%s: %d, want %d", name, r.StatusCode, tt.want)
			}
		}
	}
	token := servertest.Assertion(t, jose.ES384, nil, nil)
	for i, at := range []*servertest.Browser{other, backendAt(t, down), other} {
		want := []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusUnauthorized}[i]
		if r := at.Post("/oauth2/token", servertest.AssertionForm(token, nil)); r.StatusCode != want {
			t.Errorf("used before: %d, want %d", r.StatusCode, want)
		}
	}
}
