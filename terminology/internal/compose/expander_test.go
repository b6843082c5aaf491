package compose

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// TestCostlyDoNotWait has a request that holds a turn need an expansion which another one is making, and which may wait
// for that very turn.
func TestCostlyDoNotWait(t *testing.T) {
	l := libraryOf(t, colours, fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/colours"}]}`))
	vs, _ := l.set.ValueSets.Find("http://x/vs")
	synctest.Test(t, func(t *testing.T) {
		_, _, _ = l.expansions.flights.Do(vs.Key, func() (any, error) {
			costly := newBudget(t.Context(), l)
			_ = costly.Spend(100_000)
			if x, err := l.expanding(costly).Codes(vs); err != nil || len(x.Entries) != 4 {
				t.Errorf("got %v, %v", x, err)
			}
			return nil, nil
		})
	})
}

// TestExpansionOfOneThatLeaves has one request leave while another waits for the expansion that it makes.
func TestExpansionOfOneThatLeaves(t *testing.T) {
	l := libraryOf(t, colours, fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/colours"}]}`))
	vs, _ := l.set.ValueSets.Find("http://x/vs")
	synctest.Test(t, func(t *testing.T) {
		var second *CodeList
		waited := make(chan error)
		gone := newBudget(&leaving{Context: t.Context(), leave: func() {
			go func() {
				x, err := l.expanding(newBudget(t.Context(), l)).Codes(vs)
				second = x
				waited <- err
			}()
			synctest.Wait() // until it waits
		}}, l)
		if _, err := l.expanding(gone).Codes(vs); !errors.Is(err, context.Canceled) {
			t.Errorf("the one that leaves: got %v", err)
		}
		if err := <-waited; err != nil || len(second.Entries) != 4 {
			t.Errorf("the one that waits: got %v, %v", second, err)
		}
	})
}

// leaving is a context that ends when it is looked at, after a call.
type leaving struct {
	context.Context
	leave func()
}

func (c *leaving) Err() error {
	c.leave()
	return context.Canceled
}

func newBudget(ctx context.Context, l *library) *budget.Budget {
	b := budget.New(ctx, l.set.Bounds.Gathered, nil)
	return &b
}
