package quota

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// sharedStore simulates a remote store: it has a clock, responds with a delay and counts steps.
type sharedStore struct {
	*storetest.InterceptedStore
	steps atomic.Int32
	away  atomic.Bool
}

func (*sharedStore) Now() time.Time { return time.Now() }

func (s *sharedStore) Do(ctx context.Context, calls ...*store.Call) error {
	s.steps.Add(1)
	time.Sleep(time.Millisecond)
	if s.away.Load() {
		return store.ErrUnavailable
	}
	return s.InterceptedStore.Do(ctx, calls...)
}

type plainMAC struct{}

func (plainMAC) MAC(_ context.Context, text string) ([]byte, error) {
	sum := sha256.Sum256([]byte(text))
	return sum[:16], nil
}

// gateways returns n gateways that share a store.
func gateways(n int, q Quota) ([]*Set, *sharedStore) {
	storage := &sharedStore{InterceptedStore: storetest.NewInterceptedStore(nil)}
	var all []*Set
	for range n {
		all = append(all, gatewayOf(&Shared{storage, plainMAC{}}, q))
	}
	return all, storage
}

// A client gets the limit in each window, within 5 %, regardless of how its requests are distributed over gateways and time.
// Most requests require no step of the store, even if the client always uses its limit. Each conflict costs two steps.
func TestTakeOverGateways(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit  int
		pause  time.Duration
		choose func(round int) int
	}{
		"spread evenly":               {1000, 10 * time.Millisecond, func(round int) int { return round % 3 }},
		"spread by chance":            {1000, 10 * time.Millisecond, func(int) int { return rand.IntN(3) }},
		"one gateway after the other": {1000, 10 * time.Millisecond, func(round int) int { return round / 250 % 3 }},
		"slowly":                      {1000, 50 * time.Millisecond, func(int) int { return rand.IntN(3) }},
		"few":                         {10, 500 * time.Millisecond, func(int) int { return rand.IntN(3) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all, storage := gateways(3, Quota{Name: "apps", HolderKind: Client, Limit: test.limit, Window: caddy.Duration(time.Minute)})
				admitted, requests := 0, 0
				for began := time.Now(); time.Since(began) < 5*time.Minute; requests++ {
					if admits(t, all[test.choose(requests)], "greedy", Request) {
						admitted++
					}
					time.Sleep(test.pause)
				}
				if want := 5 * test.limit; admitted < want*95/100 || admitted > want*105/100 {
					t.Errorf("%d of %d", admitted, want)
				}
				if steps := int(storage.steps.Load()); steps/2 > requests/3 && test.limit > 100 {
					t.Errorf("%d steps for %d requests", steps, requests)
				}
			})
		})
	}
}

// Concurrent requests at all gateways are admitted only up to the limit.
func TestTakeAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, _ := gateways(3, Quota{Name: "apps", HolderKind: Client, Limit: 1000, Window: caddy.Duration(time.Minute)})
		var admitted atomic.Int32
		var clients sync.WaitGroup
		for i := range 60 {
			clients.Go(func() {
				for range 100 {
					if admits(t, all[i%3], "greedy", Request) {
						admitted.Add(1)
					}
				}
			})
		}
		clients.Wait()
		if n := admitted.Load(); n < 950 || n > 1050 {
			t.Errorf("%d of 1000", n)
		}
	})
}

// The unused part of a gateway's lease becomes available to other gateways a moment later.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, _ := gateways(2, Quota{Name: "apps", HolderKind: Client, Limit: 1000, Window: caddy.Duration(time.Hour)})
		for range 300 {
			admits(t, all[0], "c", Request)
		}
		time.Sleep(maxLease + time.Second)
		admitted := 0
		for range 1000 {
			if admits(t, all[1], "c", Request) {
				admitted++
			}
		}
		if admitted < 695 || admitted > 710 {
			t.Errorf("%d of the 700 that are left", admitted)
		}
	})
}

// A client with few requests causes no step of the store, and neither does a client that is rejected repeatedly.
func TestFewRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, storage := gateways(1, Quota{Name: "apps", HolderKind: Client, Limit: 1280, Window: caddy.Duration(time.Minute)})
		for range 10 {
			admits(t, all[0], "modest", Request)
		}
		if steps := storage.steps.Load(); steps != 0 {
			t.Errorf("%d steps for a modest client", steps)
		}
		for range 1500 {
			admits(t, all[0], "greedy", Request)
		}
		before := storage.steps.Load()
		for range 1000 {
			admits(t, all[0], "greedy", Request)
		}
		if steps := storage.steps.Load() - before; before > 150 || steps > 0 {
			t.Errorf("%d steps, and %d while it is refused", before, steps)
		}
	})
}

// While the store is unavailable, each gateway counts alone. These requests are added when the store is available again.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, storage := gateways(2, Quota{Name: "apps", HolderKind: Client, Limit: 100, Window: caddy.Duration(time.Minute)})
		storage.away.Store(true)
		ask := func(s *Set, n int) (admitted int) {
			for range n {
				if admits(t, s, "c", Request) {
					admitted++
				}
			}
			return admitted
		}
		if admitted := ask(all[0], 60); admitted != 60 {
			t.Errorf("%d of 60", admitted)
		}
		if admitted := ask(all[1], 150); admitted != 100 {
			t.Errorf("%d at the other", admitted)
		}
		if steps := storage.steps.Load(); steps > 4 {
			t.Errorf("%d steps on an unavailable store", steps)
		}
		storage.away.Store(false)
		time.Sleep(storeBackoff)
		if admitted := ask(all[0], 1); admitted != 1 {
			t.Error("it is refused, though it has used 60")
		}
		time.Sleep(storeBackoff)
		third := gatewayOf(all[0].shared, all[0].limits[Client][0].Quota)
		if admitted := ask(third, 100); admitted > 40 {
			t.Errorf("%d of the 39 that are left", admitted)
		}
	})
}

// A request with steps that conflict with other gateways each time is admitted, but the next request calls the store again.
func TestBusyStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, storage := gateways(2, Quota{Name: "apps", HolderKind: Client, Limit: 10, Window: caddy.Duration(time.Minute)})
		for range 5 {
			admits(t, all[1], "c", Request)
		}
		lost := 0
		storage.Before = func(method, _ string) error {
			if method == store.Get.String() || lost == maxUpdateAttempts {
				return nil
			}
			lost++
			return store.ErrChanged
		}
		admitted := 0
		for range 10 {
			if admits(t, all[0], "c", Request) {
				admitted++
			}
		}
		if lost != maxUpdateAttempts || admitted > 6 {
			t.Errorf("after %d lost rounds, %d of the 5 that are left", lost, admitted)
		}
	})
}

// An unresponsive store delays only one request, by at most a second.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		storage := &hangingStore{sharedStore{InterceptedStore: storetest.NewInterceptedStore(nil)}}
		s := gatewayOf(&Shared{storage, plainMAC{}}, Quota{Name: "apps", HolderKind: Client, Limit: 10, Window: caddy.Duration(time.Minute)})
		began := time.Now()
		for range 5 {
			if !admits(t, s, "c", Request) {
				t.Error("it is refused")
			}
		}
		if took := time.Since(began); took > storeTimeout {
			t.Error(took)
		}
	})
}

type hangingStore struct{ sharedStore }

func (*hangingStore) Do(ctx context.Context, _ ...*store.Call) error {
	<-ctx.Done()
	return store.ErrUnavailable
}

// A request is counted even if the client disconnects.
func TestDisconnectedClientCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, _ := gateways(2, Quota{Name: "apps", HolderKind: Client, Limit: 10, Window: caddy.Duration(time.Minute)})
		ctx, leave := context.WithCancel(t.Context())
		leave()
		admitted := 0
		for i := range 40 {
			if all[i%2].Consume(ctx, http.Header{}, Client, "c", Request) == nil {
				admitted++
			}
		}
		if admitted != 10 {
			t.Errorf("%d of 10", admitted)
		}
	})
}
