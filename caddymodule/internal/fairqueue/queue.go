// Package fairqueue limits the number of concurrent expensive operations and shares the capacity fairly among networks and
// clients.
//
//	Queue.Acquire(network, client) ── queue share used up ──► ErrFull
//	   │ queued: a holder gets at most as many entries as are still free
//	   ▼
//	a slot of the network, then of the client, then of the queue
//	   │ at most half of all slots per holder
//	   ▼
//	the work ──► release
//
// The context limits the wait. The slots are semaphores of golang.org/x/sync/semaphore; no library shares them fairly.
package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"
)

// MaxQueued is the maximum number of entries in a queue, including those that have a slot. An entry may outlive the client's
// connection, so clients that reconnect quickly could otherwise accumulate entries.
const MaxQueued = 1000

// ErrFull is returned if the queue, or a holder's share of it, is full.
var ErrFull = errors.New("queue is full")

// Queue limits concurrent work by slots. A holder is a network or a client. It gets at most half of the slots, so that others
// do not wait until its backlog is processed, and at most as many queue entries as remain free, so that the queue never fills
// up. Only queued holders use memory. Use [New] to create a Queue. It is safe for concurrent use.
type Queue struct {
	slots          *semaphore.Weighted
	slotsPerHolder int64 // maximum slots per holder

	mu     sync.Mutex
	queued int // number of queued entries, including those that have a slot
	shares map[string]*holderShare
}

type holderShare struct {
	queued int
	slots  *semaphore.Weighted
}

// New returns a queue with the given number of slots, but at least 1.
func New(slots int) *Queue {
	slots = max(1, slots)
	return &Queue{
		slots:          semaphore.NewWeighted(int64(slots)),
		slotsPerHolder: int64(max(1, slots/2)),
		shares:         map[string]*holderShare{},
	}
}

// Acquire waits for a slot until ctx is canceled and returns a function that releases the slot. The slot is counted for each
// holder. To avoid deadlocks, all callers must list the kinds of holders in the same order, such as the network before the
// client. The error is [ErrFull] or wraps that of ctx.
func (q *Queue) Acquire(ctx context.Context, holders ...string) (release func(), err error) {
	shares, err := q.reserve(holders)
	if err != nil {
		return nil, err
	}
	var acquired []*semaphore.Weighted
	release = func() {
		for _, slots := range slices.Backward(acquired) {
			slots.Release(1)
		}
		q.release(holders)
	}
	for _, slots := range append(shares, q.slots) {
		if err := slots.Acquire(ctx, 1); err != nil {
			release()
			return nil, fmt.Errorf("waiting in the queue: %w", err)
		}
		acquired = append(acquired, slots)
	}
	return release, nil
}

// reserve adds a queue entry for each holder and returns the semaphores of the holders' shares.
func (q *Queue) reserve(holders []string) (slots []*semaphore.Weighted, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, holder := range holders {
		if s := q.shares[holder]; s != nil && s.queued >= MaxQueued-q.queued {
			return nil, ErrFull
		}
	}
	if q.queued >= MaxQueued {
		return nil, ErrFull
	}
	q.queued++
	for _, holder := range holders {
		s := q.shares[holder]
		if s == nil {
			s = &holderShare{slots: semaphore.NewWeighted(q.slotsPerHolder)}
			q.shares[holder] = s
		}
		s.queued++
		slots = append(slots, s.slots)
	}
	return slots, nil
}

func (q *Queue) release(holders []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queued--
	for _, holder := range holders {
		s := q.shares[holder]
		if s.queued--; s.queued == 0 {
			delete(q.shares, holder)
		}
	}
}

// Len returns the number of queued entries, including those that have a slot.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queued
}

// Network returns the smallest address block that a provider assigns to a customer: an IPv4 address, or the /64 of an IPv6
// address. If address is not an IP address, it is returned unchanged.
func Network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
