package e2e

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/redisstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// redisLifetime is how long entries live in tests: they wait for it.
const redisLifetime = 1 * time.Second

// TestRedisStore runs what every store must do, with each way to reach a server.
func TestRedisStore(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(t *testing.T) redisstore.Options
	}{
		{"server", func(t *testing.T) redisstore.Options {
			return redisstore.Options{Address: startRedis(t).address()}
		}},
		{"socket", func(t *testing.T) redisstore.Options {
			return redisstore.Options{Address: startRedis(t).socket()}
		}},
		{"sentinel", func(t *testing.T) redisstore.Options {
			r := startRedisSentinel(t)
			return redisstore.Options{Sentinel: redisstore.Sentinel{Master: sentinelMaster, Nodes: r.addresses()}, WaitReplicas: 1}
		}},
		{"cluster", func(t *testing.T) redisstore.Options {
			return redisstore.Options{Cluster: []string{startRedisCluster(t)[0].address()}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			options := tt.start(t)
			var made atomic.Int64
			storetest.Suite{Lifetime: redisLifetime, LooseBound: true, New: func(t *testing.T, _ int) store.Store {
				return openRedis(t, withPrefix(options, &made))
			}}.Run(t)
			storetest.SharedSuite{Lifetime: redisLifetime, New: func(t *testing.T, kinds ...string) func() store.Shared {
				options := withPrefix(options, &made)
				options.Followed = kinds
				return func() store.Shared { return openRedis(t, options) }
			}}.Run(t)
		})
	}
}

// withPrefix separates tests that use the same server.
func withPrefix(o redisstore.Options, made *atomic.Int64) redisstore.Options {
	o.KeyPrefix = fmt.Sprintf("test%d:", made.Add(1))
	return o
}

// TestRedisNetwork disturbs the connections, and the server.
func TestRedisNetwork(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	var made atomic.Int64
	storetest.NetworkSuite{New: func(t *testing.T) *storetest.Network {
		proxy := storetest.NewProxy(t, "tcp", server.address())
		options := withPrefix(redisstore.Options{Address: server.address(), Timeout: time.Second, Followed: []string{"revoked"}}, &made)
		direct := openRedis(t, options)
		options.Address = proxy.Address()
		return &storetest.Network{
			Store: openRedis(t, options), Direct: direct, Proxy: proxy, Timeout: options.Timeout,
			Stop: server.kill, Start: func() { server.start(t) },
		}
	}}.Run(t)
}

func openRedis(t *testing.T, options redisstore.Options) *redisstore.Store {
	s := redisstore.New(options)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
