package quota

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const maxUpdateAttempts = 20 // attempts while other gateways win the race

// Shared is the store in which several gateways count together.
type Shared struct {
	Store store.Store // contains an entry for each holder
	Keys  MAC         // the same at all gateways: a reader of the store cannot find networks by trying all of them
}

// MAC computes keyed hashes.
type MAC interface {
	// MAC returns the hash of a text.
	MAC(ctx context.Context, text string) ([]byte, error)
}

// leaseResult is the answer of the store to a request for quota.
type leaseResult struct {
	leased    int
	reported  int           // earlier usage, reported with this step
	remaining int           // remaining quota in the store
	wait      time.Duration // time until enough remains; 0 if enough remained
}

var errConflicts = errors.New("too many conflicting changes by other gateways")

// leaseQuota takes the cost of a request, the unreported usage and, if possible, more from the store.
func (s *Shared) leaseQuota(ctx context.Context, l *limit, h *holder, cost, unreported, want int) (b leaseResult, err error) {
	err = s.updateEntry(ctx, l, h, func(w *slidingWindow, now int64) (again bool) {
		b.remaining = max(0, l.Limit-w.sum)
		if b.wait = 0; cost > b.remaining {
			b.wait = w.timeUntilFree(l.sharedParts, now, cost-b.remaining)
			return false
		}
		b.remaining -= min(cost+unreported, b.remaining)
		b.leased = min(want, l.maxLeaseSize(b.remaining))
		w.add(l.sharedParts, now, min(cost+unreported, l.Limit-w.sum)+b.leased)
		b.remaining -= b.leased
		return true
	})
	return b, err
}

func (s *Shared) returnUnused(ctx context.Context, l *limit, h *holder, unused int) error {
	return s.updateEntry(ctx, l, h, func(w *slidingWindow, _ int64) bool {
		w.removeLatest(unused)
		return true
	})
}

// updateEntry updates the entry of a holder. It takes one round trip if no other gateway has changed the entry since it was
// last seen. If alter rejects a change, this counts only after reading the current entry.
func (s *Shared) updateEntry(ctx context.Context, l *limit, h *holder, alter func(w *slidingWindow, now int64) bool) error {
	sum, err := s.Keys.MAC(ctx, "quota\x00"+string(h.key[:]))
	if err != nil {
		return err
	}
	key, e := "quota:"+base64.RawURLEncoding.EncodeToString(sum), &h.lease
	for attempt := range maxUpdateAttempts {
		mustRead := attempt > 0 || e.conflicted
		if mustRead {
			values, err := store.ReadValues(ctx, s.Store, key)
			if err != nil {
				return err
			}
			e.conflicted, e.storedEntry = e.conflicted && !bytes.Equal(e.storedEntry, values[0]), values[0]
		}
		value, err := updatedEntry(e.storedEntry, l, store.Now(s.Store).UnixNano(), alter)
		switch {
		case err != nil:
			return err
		case value == nil && mustRead:
			return nil
		case value == nil:
			continue
		}
		if err = s.Store.Do(ctx, store.ReplaceCall(key, e.storedEntry, value, time.Duration(l.Window)+2*l.sharedParts.partLength)); err == nil {
			e.storedEntry = value
			return nil
		}
		if e.conflicted = store.IsConflict(err); !e.conflicted {
			return err
		}
	}
	return errConflicts
}

// updatedEntry returns the new value of an entry; nil if alter rejects the change.
func updatedEntry(stored []byte, l *limit, now int64, alter func(w *slidingWindow, now int64) bool) ([]byte, error) {
	w, err := decodeWindow(stored)
	if err != nil {
		return nil, fmt.Errorf("quota %s: %w", l.Name, err)
	}
	w.expire(l.sharedParts, now)
	if !alter(&w, now) {
		return nil, nil
	}
	return w.appendEncoded([]byte{}), nil
}

// lease is the quota that a gateway may admit without a call to the store.
type lease struct {
	remaining      int // negative: usage not reported to the store
	lastSize       int // size of the last lease beyond the need
	storeRemaining int // remaining quota in the store after the last lease
	lastCall       int64
	retryStoreAt   int64 // end of the pause after an unanswered call

	rejectedCost               int   // cost of the request that the store refused
	rejectedUntil, quotaFreeAt int64 // end of the refusal's validity, and time of sufficient quota

	storeCalls  chan struct{} // semaphore for calls to the store; guards the fields below
	storedEntry []byte        // last known entry
	conflicted  bool          // another gateway has changed the entry
	returnTimer *time.Timer
}

// tryConsume uses the lease or, while enough quota remains, unreported usage. It reports whether this covers the cost.
func (e *lease) tryConsume(cost int, l *limit, now int64) bool {
	maxUnreported := l.Limit / unreportedShare
	if e.lastCall != 0 && e.storeRemaining < l.Limit/leaseShare {
		maxUnreported = 0
	}
	if e.remaining-cost < -maxUnreported && now >= e.retryStoreAt {
		return false
	}
	e.remaining -= cost
	return true
}

// reset resets the lease of a holder without usage in the window: leased and unreported quota is as old.
func (e *lease) reset() { e.remaining, e.lastCall = 0, 0 }

// capRemaining caps a standing's remaining quota at the value that the store recently reported.
func (e *lease) capRemaining(at quotaState, l *limit, now int64) quotaState {
	if e.lastCall != 0 && now-e.lastCall <= int64(l.leaseTime()) {
		at.remaining = max(0, min(at.remaining, e.storeRemaining+max(e.remaining, 0)))
	}
	return at
}

// rejectionWait returns the wait for a request that the store would refuse, as known from its last refusal, or 0.
func (e *lease) rejectionWait(cost int, now int64) time.Duration {
	if now >= e.rejectedUntil || cost < e.rejectedCost {
		return 0
	}
	return time.Duration(e.quotaFreeAt - now)
}

// nextSize returns the size of the next lease beyond the need: doubled as long as leases are used up before they end.
func (e *lease) nextSize(l *limit, now int64) int {
	if e.lastCall == 0 || now-e.lastCall > int64(l.leaseTime()) {
		return 0
	}
	return max(1, 2*e.lastSize)
}
