package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// TestShares checks that, when one holder of each kind floods a queue of four slots, other holders get the remaining slots.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		flood, others []string
		got           int // number of slots that the flood gets
		passes        bool
	}{
		{"another network", []string{"network a"}, []string{"network b"}, 2, true},
		{"the same network", []string{"network a"}, []string{"network a"}, 2, false},
		{"another network and client", []string{"network a", "client a"}, []string{"network b", "client b"}, 2, true},
		{"a client that is in several networks", []string{"network a", "client a"}, []string{"network b", "client a"}, 2, false},
		{"another client in one network", []string{"network a", "client a"}, []string{"network a", "client b"}, 2, false},
		{"no holder", nil, nil, 4, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := New(4)
				ctx, cancel := context.WithCancel(t.Context())
				entered := make(chan func(), 10)
				enter := func(holders []string) {
					if leave, err := q.Acquire(ctx, holders...); err == nil {
						entered <- leave
					}
				}
				for range 6 {
					go enter(test.flood)
				}
				synctest.Wait()
				if got := len(entered); got != test.got {
					t.Errorf("the flood has %d slots", got)
				}
				go enter(test.others)
				synctest.Wait()
				if passes := len(entered) > test.got; passes != test.passes {
					t.Errorf("the other passes: %v", passes)
				}
				leave := <-entered
				leave()
				synctest.Wait()
				if len(entered) < test.got {
					t.Error("a slot that was given back is not taken")
				}
				cancel()
				synctest.Wait()
				for len(entered) > 0 {
					(<-entered)()
				}
				if q.Len() != 0 || len(q.shares) != 0 {
					t.Errorf("%d places are taken for ever, by %d holders", q.Len(), len(q.shares))
				}
			})
		})
	}
}

// TestPlaces checks that, when one holder has used up its share of the queue, another holder gets part of the rest.
func TestPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := New(1)
		ctx, cancel := context.WithCancel(t.Context())
		full := map[string]int{}
		enter := func(holder string) {
			_, err := q.Acquire(ctx, holder)
			if errors.Is(err, ErrFull) {
				full[holder]++
			}
		}
		for range MaxQueued {
			go enter("flood")
			synctest.Wait()
		}
		if got := full["flood"]; got != MaxQueued/2 {
			t.Errorf("%d of the flood are refused", got)
		}
		for n := range 10 {
			go enter(fmt.Sprint("other ", n))
			synctest.Wait()
		}
		if len(full) != 1 {
			t.Errorf("others are refused: %v", full)
		}
		cancel()
		synctest.Wait()
		if got := q.Len(); got != 1 { // only the entry that has the slot
			t.Errorf("%d places are taken", got)
		}
	})
}
