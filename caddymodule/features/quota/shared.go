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

const maxUpdateAttempts = 20 // attempts if other gateways change the entry concurrently

// Shared is the store in which gateways count together.
type Shared struct {
	Store store.Store // store with an entry for each holder
	Keys  MAC         // shared by all gateways; prevents readers of the store from finding networks by trying all
}

// MAC computes keyed hashes.
type MAC interface {
	// MAC returns the keyed hash of a text.
	MAC(ctx context.Context, text string) ([]byte, error)
}

// leaseResult is the result of a request for a lease.
type leaseResult struct {
	leased    int
	reported  int           // usage reported with this step
	remaining int           // remaining quota in the store
	wait      time.Duration // time until enough quota remains; 0 if enough remained
}

var errConflicts = errors.New("too many conflicting changes by other gateways")

// leaseQuota adds the cost of a request and the unreported usage to a holder's entry, and leases up to want more if possible.
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

// updateEntry updates the entry of a holder. It takes one round trip unless another gateway has changed the entry since it was
// last read. If alter rejects a change to the last known entry, the current entry is read and alter is called again.
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

// updatedEntry returns the new value of an entry, or nil if alter rejects the change.
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

// lease is the quota that a gateway may admit without calling the store.
type lease struct {
	remaining      int // if negative, usage that has not been reported to the store
	lastSize       int // size of the last lease, not including its request
	storeRemaining int // remaining quota in the store after the last lease
	lastCall       int64
	retryStoreAt   int64 // end of the pause after a failed call

	rejectedCost               int   // cost of the request that the store rejected
	rejectedUntil, quotaFreeAt int64 // end of the validity of the rejection; time when enough quota is free

	storeCalls  chan struct{} // semaphore for calls to the store; guards storedEntry and conflicted
	storedEntry []byte        // last known value of the entry
	conflicted  bool          // whether another gateway has changed the entry
	returnTimer *time.Timer
}

// tryConsume uses the lease or, while enough quota remains, some unreported quota. It reports whether that covers the cost.
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

// reset resets the lease of a holder that has no usage in the window, because its leased and unreported quota has expired too.
func (e *lease) reset() { e.remaining, e.lastCall = 0, 0 }

// capRemaining limits the remaining quota of a state to the value that the store recently reported.
func (e *lease) capRemaining(at quotaState, l *limit, now int64) quotaState {
	if e.lastCall != 0 && now-e.lastCall <= int64(l.leaseDuration()) {
		at.remaining = max(0, min(at.remaining, e.storeRemaining+max(e.remaining, 0)))
	}
	return at
}

// rejectionWait returns the wait of a request that the store would reject, according to its last rejection; otherwise 0.
func (e *lease) rejectionWait(cost int, now int64) time.Duration {
	if now >= e.rejectedUntil || cost < e.rejectedCost {
		return 0
	}
	return time.Duration(e.quotaFreeAt - now)
}

// nextSize returns the size of the next lease beyond the request: twice the last size if that lease was used up before it
// ended.
func (e *lease) nextSize(l *limit, now int64) int {
	if e.lastCall == 0 || now-e.lastCall > int64(l.leaseDuration()) {
		return 0
	}
	return max(1, 2*e.lastSize)
}
