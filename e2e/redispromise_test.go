package e2e

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"
)

// TestRedisOnce lets two gateways use each of 2,000 entries once while the master fails. It counts the entries that both
// gateways believe they used, and the acknowledged entries that are missing afterwards. Losses are an error only with
// wait_replicas. The numbers without it are for docs/evidence/replicas.md (run it with -v).
func TestRedisOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		servers []string // command-line options of the servers
		wait    int
		fault   syscall.Signal
	}{
		{"killed", nil, 0, syscall.SIGKILL},
		{"killed, with wait_replicas 1", []string{"--min-replicas-to-write", "1"}, 1, syscall.SIGKILL},
		{"paused", nil, 0, syscall.SIGSTOP},
		{"paused, with wait_replicas 1", []string{"--min-replicas-to-write", "1"}, 1, syscall.SIGSTOP},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for round := range *onceRounds {
				t.Run(fmt.Sprint(round), func(t *testing.T) {
					u := newSharedEntries(t, tt.servers, tt.wait)
					u.run(t, tt.fault)
					both, lost := u.count(t)
					t.Logf("of %d: %d used by both gateways, %d used and lost; no answer for %v at most", usesTotal, both, lost, u.longest)
					if tt.wait > 0 && both+lost > 0 {
						t.Errorf("%d used by both gateways, %d lost", both, lost)
					}
				})
			}
		})
	}
}

// onceRounds is 1 by default, which suffices to check that no entry is used twice or lost. Higher values are for
// docs/evidence/replicas.md.
var onceRounds = flag.Int("once", 1, "rounds of each fault in TestRedisOnce")

const usesTotal = 2000

// sharedEntries are the entries that two gateways use.
type sharedEntries struct {
	servers  *redisSentinel
	gateways [2]*redisstore.Store
	used     [2][usesTotal]bool
	done     atomic.Int64
	mu       sync.Mutex
	longest  time.Duration // guarded by mu
}

func newSharedEntries(t *testing.T, servers []string, wait int) *sharedEntries {
	t.Helper()
	u := &sharedEntries{servers: startRedisSentinel(t, servers...)}
	for i := range u.gateways {
		u.gateways[i] = openRedis(t, redisstore.Options{
			Sentinel: redisstore.Sentinel{Master: sentinelMaster, Nodes: u.servers.addresses()}, WaitReplicas: wait,
		})
	}
	return u
}

// run lets eight clients at each gateway use all entries in the same order. In the middle of the run, it sends the signal to
// the master.
func (u *sharedEntries) run(t *testing.T, fault syscall.Signal) {
	var all sync.WaitGroup
	for i := range u.gateways {
		var next atomic.Int64
		for range 8 {
			all.Go(func() {
				for n := next.Add(1) - 1; n < usesTotal; n = next.Add(1) - 1 {
					u.use(t, i, int(n))
				}
			})
		}
	}
	all.Go(func() {
		for u.done.Load() < usesTotal/2 {
			time.Sleep(time.Millisecond)
		}
		u.fail(t, fault)
	})
	all.Wait()
}

// fail sends the signal to the master. If the signal paused the master, it is resumed later.
func (u *sharedEntries) fail(t *testing.T, fault syscall.Signal) {
	master := u.servers.master(t)
	_ = master.process.cmd.Process.Signal(fault)
	if fault == syscall.SIGSTOP {
		time.Sleep(5 * time.Second)
		master.resume()
	}
}

// use adds entry n through a gateway, and retries while the result is unknown.
func (u *sharedEntries) use(t *testing.T, gateway, n int) {
	defer u.done.Add(1)
	began := time.Now()
	for {
		err := u.gateways[gateway].Add(t.Context(), fmt.Sprint("assertion:", n), nil, time.Hour)
		if took := time.Since(began); !errors.Is(err, store.ErrUnavailable) || took > 20*time.Second {
			u.used[gateway][n] = err == nil
			u.mu.Lock()
			defer u.mu.Unlock()
			u.longest = max(u.longest, took)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// count returns the number of entries that both gateways used, and the number of used entries that are missing.
func (u *sharedEntries) count(t *testing.T) (both, lost int) {
	time.Sleep(2 * time.Second) // the old master becomes a replica and discards changes that no other server has
	for n := range usesTotal {
		_, err := u.gateways[0].Get(t.Context(), fmt.Sprint("assertion:", n))
		switch {
		case u.used[0][n] && u.used[1][n]:
			both++
		case (u.used[0][n] || u.used[1][n]) && errors.Is(err, store.ErrNotFound):
			lost++
		}
	}
	return both, lost
}
