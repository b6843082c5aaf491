package e2e

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"

	"github.com/caddy-fhir/caddy-fhir/e2e/storefault"
)

// redisLifetime is the lifetime of entries in tests that wait for entries to expire.
const redisLifetime = 1 * time.Second

// TestRedisStore runs the test suites for all stores over each type of connection.
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
			storetest.Suite{Lifetime: redisLifetime, ApproximateLimit: true, New: func(t *testing.T, _ int) store.Store {
				return openRedis(t, withPrefix(options, &made))
			}}.Run(t)
			storetest.SharedSuite{Lifetime: redisLifetime, New: func(t *testing.T, kinds ...string) func() store.SharedStore {
				options := withPrefix(options, &made)
				options.SubscribedKinds = kinds
				return func() store.SharedStore { return openRedis(t, options) }
			}}.Run(t)
		})
	}
}

// withPrefix sets a unique key prefix for tests that use the same server.
func withPrefix(o redisstore.Options, made *atomic.Int64) redisstore.Options {
	o.KeyPrefix = fmt.Sprintf("test%d:", made.Add(1))
	return o
}

// TestRedisNetwork checks that the store survives disruptions of the connections and of the server.
func TestRedisNetwork(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	var made atomic.Int64
	storefault.Suite{New: func(t *testing.T) *storefault.Network {
		proxy := storefault.NewProxy(t, "tcp", server.address())
		options := withPrefix(redisstore.Options{Address: server.address(), Timeout: time.Second, SubscribedKinds: []string{"revoked"}}, &made)
		direct := openRedis(t, options)
		options.Address = proxy.Address()
		return &storefault.Network{
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

// An update with all entries needs the memory of one page, regardless of the number of entries.
func TestRedisEntriesMemory(t *testing.T) {
	const entries = 200_000
	s := openRedis(t, redisstore.Options{Address: startRedis(t, "--appendonly", "no").address(), Timeout: 10 * time.Second})
	for from := range entries / 1000 {
		calls := make([]*store.Call, 1000)
		for i := range calls {
			calls[i] = &store.Call{Op: store.Put, Key: fmt.Sprintf("refresh:%040d", from*1000+i), TTL: time.Hour}
		}
		must(t, s.Do(t.Context(), calls...))
	}
	before, peak, received := heap(), uint64(0), 0
	must(t, s.Entries(t.Context(), func(string, []byte, time.Duration) error {
		if received++; received%50_000 == 0 {
			peak = max(peak, heap())
		}
		return nil
	}))
	if growth := int64(peak) - int64(before); received < entries || growth > 4<<20 {
		t.Errorf("%d entries received, with %d bytes more", received, growth)
	}
}

// heap returns the heap memory in use in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
