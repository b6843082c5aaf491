package quota

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// gatewayOf returns the quotas of a gateway.
func gatewayOf(shared *Shared, quotas ...Quota) *Set {
	return NewSet(quotas, NewCounts(), shared, func(string) {})
}

// admits reports whether a request is admitted.
func admits(t *testing.T, s *Set, whose, what string) bool {
	t.Helper()
	err := s.Consume(t.Context(), http.Header{}, Client, whose, what)
	if _, refused := errors.AsType[*ExceededError](err); err != nil && !refused {
		t.Fatal(err)
	}
	return err == nil
}

// A client that always uses its quota gets the limit in each window, within one part. Other clients are not affected.
func TestTake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := gatewayOf(nil, Quota{Name: "apps", HolderKind: Client, Limit: 1000, Window: caddy.Duration(time.Minute)})
		admitted := 0
		for range 10 * 60 * 20 { // 20 requests per second for ten minutes
			if admits(t, s, "greedy", Request) {
				admitted++
			}
			time.Sleep(time.Second / 20)
		}
		if admitted < 9900 || admitted > 10_000 {
			t.Errorf("%d of 10,000 in ten minutes", admitted)
		}
		if !admits(t, s, "modest", Request) {
			t.Error("another client is refused")
		}
	})
}

// The RateLimit fields are correct: r more requests are admitted, and another request is admitted after Retry-After.
func TestFields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := gatewayOf(nil,
			Quota{Name: "apps", HolderKind: Client, Limit: 10, Window: caddy.Duration(time.Minute), Costs: map[string]int{"request": 1, "$expand": 4}},
			Quota{Name: "bursts", HolderKind: Client, Limit: 5, Window: caddy.Duration(2 * time.Second)},
			Quota{Name: "addresses", HolderKind: Network, Limit: 1, Window: caddy.Duration(time.Minute)})
		take := func(what string) (http.Header, *ExceededError) {
			h := http.Header{}
			err := s.Consume(t.Context(), h, Client, "c", what)
			refusal, _ := errors.AsType[*ExceededError](err)
			return h, refusal
		}
		check := func(h http.Header, want ...string) {
			t.Helper()
			if got := fmt.Sprint(h["Ratelimit"], h["Retry-After"]); got != fmt.Sprint(want[:len(want)-1], want[len(want)-1:]) && got != fmt.Sprint(want, []string(nil)) {
				t.Error(got)
			}
		}
		h, _ := take("$expand")
		check(h, `"apps";r=6;t=61`, `"bursts";r=4;t=3`)
		if got := fmt.Sprint(h["Ratelimit-Policy"]); got != `["apps";q=10;w=60 "bursts";q=5;w=2]` {
			t.Error(got)
		}
		for range 4 {
			h, _ = take(Request)
		}
		check(h, `"apps";r=2;t=61`, `"bursts";r=0;t=3`)
		h, refusal := take(Request)
		check(h, `"apps";r=1;t=61`, `"bursts";r=0;t=3`, "3")
		if refusal == nil || !refusal.FirstInInterval || refusal.Diagnostics() != `The quota bursts of this client is exceeded. Try again in 3 s.` {
			t.Errorf("%+v", refusal)
		}
		if _, again := take(Request); again == nil || again.FirstInInterval {
			t.Errorf("%+v", again)
		}
		time.Sleep(3 * time.Second)
		if h, refusal = take(Request); refusal != nil { // a rejected request of a burst is not counted
			t.Error(refusal)
		}
		check(h, `"apps";r=1;t=58`, `"bursts";r=4;t=3`)
		if _, refusal = take("$expand"); refusal == nil || refusal.Quota != "apps" {
			t.Errorf("%+v", refusal)
		}
		if _, refusal = take(Request); refusal != nil {
			t.Error("after an unaffordable request, an affordable one was rejected")
		}
	})
}

// The entries of a batch are counted in addition, even over the limit.
func TestCharge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := gatewayOf(nil, Quota{Name: "apps", HolderKind: Client, Limit: 10, Window: caddy.Duration(time.Minute)})
		for range 100 {
			s.Charge(Client, "c", Request)
		}
		if admits(t, s, "c", Request) {
			t.Error("it is admitted in")
		}
		time.Sleep(61 * time.Second)
		if !admits(t, s, "c", Request) {
			t.Error("it stays refused")
		}
	})
	var none *Set
	none.Charge(Client, "c", Request)
	if err := none.Consume(t.Context(), http.Header{}, Client, "c", Request); err != nil || none.HasLimit(Client) {
		t.Error(err)
	}
}

// The number of holders in memory is limited. Active holders remain counted.
func TestHoldersAreBounded(t *testing.T) {
	t.Parallel()
	s := gatewayOf(nil, Quota{Name: "apps", HolderKind: Client, Limit: 1, Window: caddy.Duration(time.Hour)})
	admits(t, s, "greedy", Request)
	for i := range MaxHolders + 1000 {
		admits(t, s, fmt.Sprint(i), Request)
		if i%1000 == 0 && admits(t, s, "greedy", Request) {
			t.Fatal("a flood of others lets it in again")
		}
	}
	if entries, _ := s.counts.holders.Size(); entries != MaxHolders {
		t.Errorf("%d holders", entries)
	}
}

func BenchmarkTake(b *testing.B) {
	s := gatewayOf(nil, Quota{Name: "apps", HolderKind: Client, Limit: maxLimit, Window: caddy.Duration(time.Minute)})
	b.ReportAllocs()
	for b.Loop() {
		_ = s.Consume(context.Background(), http.Header{}, Client, "https://fhir.example.org\x00app", Request)
	}
}

// naiveCounter counts by storing the time of each request.
type naiveCounter struct{ at []int64 }

// since returns the usage after moment (in nanoseconds).
func (n *naiveCounter) since(moment int64) (used int) {
	for _, at := range n.at {
		if at > moment {
			used++
		}
	}
	return used
}

// No window exceeds the limit. No request is rejected that would be within the limit of a window that is one part longer.
func TestWindowAgainstNaiveCounter(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		length := time.Duration(1+random.IntN(100)) * time.Second
		r := newPartitioner(length, []uint32{localPartCount, sharedPartCount}[seed%2])
		limit := 1 + random.IntN(40)
		var w slidingWindow
		var n naiveCounter
		now := random.Int64N(int64(time.Hour))
		for range 3000 {
			now += random.Int64N(2 * int64(length) / int64(limit))
			w.expire(r, now)
			if w.sum < limit {
				w.add(r, now, 1)
				n.at = append(n.at, now)
			} else if within := n.since(now - int64(length+r.partLength)); within < limit {
				t.Fatalf("seed %d: refused with %d of %d", seed, within, limit)
			}
			if within := n.since(now - int64(r.partLength)*int64(r.partCount)); within > limit {
				t.Fatalf("seed %d: %d of %d in a window", seed, within, limit)
			}
			if len(w.parts) > int(r.partCount)+1 {
				t.Fatalf("%d runs", len(w.parts))
			}
		}
	}
}

// A rejected request is admitted after the returned wait, but not earlier.
func TestWait(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 3))
	r := newPartitioner(10*time.Second, localPartCount)
	var w slidingWindow
	now := int64(0)
	for range 500 {
		now += random.Int64N(int64(time.Second))
		w.expire(r, now)
		w.add(r, now, 1+random.IntN(5))
		some := 1 + random.IntN(w.sum)
		wait, before, after := w.timeUntilFree(r, now, some), clone(w), clone(w)
		before.expire(r, now+int64(wait)-1)
		after.expire(r, now+int64(wait))
		if w.sum-before.sum >= some || w.sum-after.sum < some {
			t.Fatalf("after %v: %d, %d of %d are back", wait, w.sum-before.sum, w.sum-after.sum, some)
		}
	}
}

func clone(w slidingWindow) slidingWindow { return slidingWindow{slices.Clone(w.parts), w.sum} }

func TestEncoding(t *testing.T) {
	t.Parallel()
	r := newPartitioner(time.Minute, sharedPartCount)
	var w slidingWindow
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC).UnixNano()
	for i := range 200 {
		now += int64(time.Second) / 2
		w.expire(r, now)
		w.add(r, now, 1+i*i)
		if i%7 == 0 {
			w.removeLatest(i)
		}
		text := w.appendEncoded(nil)
		read, err := decodeWindow(text)
		if err != nil || read.sum != w.sum || !slices.Equal(read.parts, w.parts) {
			t.Fatalf("%v: %v, want %v", err, read, w)
		}
		if len(text) > 400 {
			t.Errorf("%d bytes", len(text))
		}
		if _, err := decodeWindow(text[:len(text)-1]); err == nil && len(text) > 0 && text[len(text)-1] > 0 && text[len(text)-2] > 127 {
			t.Error("a cut text is read")
		}
	}
	for _, damaged := range []string{"\x80", "\x01", "\x01\x00", "\xff\xff\xff\xff\xff\xff\x01\x01"} {
		if _, err := decodeWindow([]byte(damaged)); err == nil {
			t.Errorf("%q is read", damaged)
		}
	}
}

func TestGiveBack(t *testing.T) {
	t.Parallel()
	r := newPartitioner(time.Minute, localPartCount)
	var w slidingWindow
	for i := range 5 {
		w.add(r, int64(i)*int64(time.Second), 10)
	}
	w.removeLatest(15)
	if w.sum != 35 || len(w.parts) != 4 || w.parts[3].cost != 5 {
		t.Errorf("%+v", w)
	}
	w.removeLatest(100)
	if w.sum != 0 || len(w.parts) != 0 {
		t.Errorf("%+v", w)
	}
}
