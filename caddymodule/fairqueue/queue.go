package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Places is how many may be in a queue, those that have a slot included. Some wait on when
// their clients are gone, so those who come and go quickly could heap them up.
const Places = 1000

// ErrFull is returned where there is no place left for a holder of a share.
var ErrFull = errors.New("too many wait")

// Queue has work wait for a slot, of which each holder of a share, a network or a client,
// gets a fair part: half of the slots, so that others need not wait until a flood of one is
// over, and no more places than are still free, so that there are always some left for
// others. It remembers those alone who wait. Make one with [New]. It may be used by any
// number of goroutines.
type Queue struct {
	slots *semaphore.Weighted
	each  int64 // how many slots a holder may have

	mu     sync.Mutex
	places int // that are taken
	shares map[string]*share
}

// share is what one holder has.
type share struct {
	places int
	slots  *semaphore.Weighted
}

// New returns a queue for a number of slots, which is at least 1.
func New(slots int) *Queue {
	slots = max(1, slots)
	return &Queue{
		slots:  semaphore.NewWeighted(int64(slots)),
		each:   int64(max(1, slots/2)),
		shares: map[string]*share{},
	}
}

// Enter waits for a slot, as long as ctx lasts, and returns what gives it back. It counts
// for each of the holders, which are named in the same order of kinds every time, as network
// and then client: who waited for them in another order could wait for each other. It fails
// with [ErrFull], or with the error of ctx.
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

// give gives the places back.
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

// Taken returns how many places are taken.
func (q *Queue) Taken() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.places
}
