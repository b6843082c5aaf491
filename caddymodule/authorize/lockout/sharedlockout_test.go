package lockout_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// Of fifty sign-ins at one moment over three gateways no more wrong passwords are compared
// than at one, and all right ones get in.
func TestLockoutAtSeveralGateways(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		password       string
		compared, many int32
		status         int
	}{
		{"wrong", 10, 10, http.StatusForbidden},
		{"right", 50, 50, http.StatusFound},
	} {
		t.Run(tt.password, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				compare, shared := new(counting), storetest.NewShared()
				var gateways []*authorize.Server
				for range 3 {
					gateways = append(gateways, servertest.New(t, func(c *authorize.Config) {
						s := shared.Gateway()
						c.Passwords, c.Store, c.Durable = compare, s, s
					}))
				}
				var reached atomic.Int32
				var all sync.WaitGroup
				for i := range 50 {
					all.Go(func() {
						if servertest.Guess(t, gateways[i%3], "alice", tt.password) == tt.status {
							reached.Add(1)
						}
					})
				}
				all.Wait()
				if compare.compared.Load() != tt.compared || reached.Load() != tt.many {
					t.Errorf("%d compared, %d answered %d", compare.compared.Load(), reached.Load(), tt.status)
				}
			})
		})
	}
}
