package replica_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
)

// The replica never contradicts what the store may have said within the lag: the value of an
// entry is one that it had since the replica last heard, or since this process changed it.
func TestReplicaFollowsAnyHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playHistory(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func playHistory(t *testing.T, random *rand.Rand) {
	s := newSite(t, replica.Config{MaxMirrored: 4, MaxCached: 1000})
	h := history{site: s, values: map[string][]version{}}
	down := false
	for range 400 {
		key := []string{"revoked:", "account:"}[random.IntN(2)] + fmt.Sprint(random.IntN(6))
		switch n := random.IntN(100); {
		case n < 15:
			h.change(s.elsewhere, key, random)
		case n < 30:
			h.change(s.replica, key, random)
		case n < 33:
			down = !down
			s.here.SetDown(down)
		case n < 45:
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		case n < 50:
			synctest.Wait()
		default:
			h.check(key)
		}
	}
	s.here.SetDown(false)
	time.Sleep(5 * time.Second)
	for key := range h.values {
		h.check(key)
	}
}

// history are the values that entries have had.
type history struct {
	*site
	values map[string][]version
}

type version struct {
	value string
	from  time.Time
	own   bool // made here
}

func (h *history) change(in store.Store, key string, random *rand.Rand) {
	v := version{value: fmt.Sprint(random.Uint32()), own: in == store.Store(h.replica)}
	var err error
	if random.IntN(3) == 0 {
		v.value, err = "", in.Delete(h.t.Context(), key)
	} else {
		err = in.Put(h.t.Context(), key, []byte(v.value), lifetime)
	}
	if v.from = time.Now(); err == nil {
		h.values[key] = append(h.values[key], v)
	}
}

// check reads an entry. It may be as old as the lag, but not older than a change made here.
func (h *history) check(key string) {
	h.t.Helper()
	value, err := h.replica.Get(h.t.Context(), key)
	if errors.Is(err, store.ErrUnavailable) {
		return
	}
	versions := h.values[key]
	since := time.Now().Add(-min(h.replica.Lag(), replica.DefaultMaxLag))
	for _, version := range slices.Backward(versions) {
		if version.value == string(value) {
			return
		}
		if version.own || version.from.Before(since) { // none before it counts
			h.t.Fatalf("%s is %q, but has been %q for %v, with a lag of %v", key, value, version.value, time.Since(version.from), h.replica.Lag())
		}
	}
	if len(value) > 0 {
		h.t.Fatalf("%s is %q, which it never was", key, value)
	}
}
