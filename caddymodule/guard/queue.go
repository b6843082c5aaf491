package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// maxWaiting is how many tokens may wait for a slot, those that have one included.
// They wait on when their clients are gone, so those who come and go quickly could
// heap them up.
const maxWaiting = 1000

var errCrowded = errors.New("too many tokens wait")

// queue has tokens wait for a slot, of which each network gets a fair share: half of
// the slots, so that others need not wait until a flood of it is over, and no more
// places than are still free, so that there are always some left for others. It
// remembers the networks of those alone who wait.
type queue struct {
	slots *semaphore.Weighted
	each  int64 // how many slots a network may hold

	mu     sync.Mutex
	places int // that are taken
	shares map[string]*share
}

// share is what a network has.
type share struct {
	places int
	slots  *semaphore.Weighted
}

func newQueue(slots int) *queue {
	return &queue{
		slots:  semaphore.NewWeighted(int64(slots)),
		each:   int64(max(1, slots/2)),
		shares: map[string]*share{},
	}
}

// enter waits for a slot, and returns what gives it back.
func (q *queue) enter(ctx context.Context, network string) (leave func(), err error) {
	s, err := q.take(network)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			q.give(network, s)
			err = fmt.Errorf("waiting: %w", err)
		}
	}()
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	if err := q.slots.Acquire(ctx, 1); err != nil {
		s.slots.Release(1)
		return nil, err
	}
	return func() {
		q.slots.Release(1)
		s.slots.Release(1)
		q.give(network, s)
	}, nil
}

// take takes a place.
func (q *queue) take(network string) (*share, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shares[network]
	if s == nil {
		s = &share{slots: semaphore.NewWeighted(q.each)}
	}
	if s.places >= maxWaiting-q.places {
		return nil, errCrowded
	}
	q.shares[network] = s
	s.places++
	q.places++
	return s, nil
}

// give gives a place back.
func (q *queue) give(network string, s *share) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.places--
	if s.places--; s.places == 0 {
		delete(q.shares, network)
	}
}
