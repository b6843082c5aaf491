// Package fairqueue limits how much costly work runs at once, and shares it among networks and clients.
//
//	Queue.Enter(network, client) ── no place left ──► ErrFull
//	   │ a place: as many as are still free at most
//	   ▼
//	a slot of the network's, then of the client's, then of all
//	   │ half of all slots at most
//	   ▼
//	the work ──► leave
//
// The context decides how long to wait. The slots are golang.org/x/sync/semaphore's; no library has the shares.
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

// Places is the maximum size of a queue, including those that have a slot. Work may stay queued after its client has gone,
// so clients that come and go quickly could pile it up.
const Places = 1000

// ErrFull is returned if no place is left for a holder.
var ErrFull = errors.New("too many wait")

// Queue makes work wait for a slot. Each holder, a network or a client, gets at most half of the slots, so that others
// need not wait until its flood is over, and at most as many places as are free, so that some always are. It remembers
// only holders that are in the queue. Make one with [New]. It is safe for concurrent use.
type Queue struct {
	slots *semaphore.Weighted
	each  int64 // slots that a holder may have

	mu     sync.Mutex
	places int // taken
	shares map[string]*share
}

type share struct {
	places int
	slots  *semaphore.Weighted
}

// New returns a queue with a number of slots, at least 1.
func New(slots int) *Queue {
	slots = max(1, slots)
	return &Queue{
		slots:  semaphore.NewWeighted(int64(slots)),
		each:   int64(max(1, slots/2)),
		shares: map[string]*share{},
	}
}

// Enter waits for a slot until ctx ends, and returns a function that releases it. The slot counts for each of the holders.
// To avoid deadlocks, all callers must name the kinds of holders in the same order, such as network and then client. It
// fails with [ErrFull] or the error of ctx.
func (q *Queue) Enter(ctx context.Context, holders ...string) (leave func(), err error) {
	shares, err := q.take(holders)
	if err != nil {
		return nil, err
	}
	var held []*semaphore.Weighted
	leave = func() {
		for _, slots := range slices.Backward(held) {
			slots.Release(1)
		}
		q.give(holders)
	}
	for _, slots := range append(shares, q.slots) {
		if err := slots.Acquire(ctx, 1); err != nil {
			leave()
			return nil, fmt.Errorf("waiting: %w", err)
		}
		held = append(held, slots)
	}
	return leave, nil
}

// take takes a place for each holder, and returns the slots of their shares.
func (q *Queue) take(holders []string) (slots []*semaphore.Weighted, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, holder := range holders {
		if s := q.shares[holder]; s != nil && s.places >= Places-q.places {
			return nil, ErrFull
		}
	}
	if q.places >= Places {
		return nil, ErrFull
	}
	q.places++
	for _, holder := range holders {
		s := q.shares[holder]
		if s == nil {
			s = &share{slots: semaphore.NewWeighted(q.each)}
			q.shares[holder] = s
		}
		s.places++
		slots = append(slots, s.slots)
	}
	return slots, nil
}

func (q *Queue) give(holders []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.places--
	for _, holder := range holders {
		s := q.shares[holder]
		if s.places--; s.places == 0 {
			delete(q.shares, holder)
		}
	}
}

// Taken returns the number of places that are taken.
func (q *Queue) Taken() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.places
}

// Network returns the least that a provider gives to a customer: an IPv4 address, or the /64 of an IPv6 address. Anything
// but an IP address is returned unchanged.
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
