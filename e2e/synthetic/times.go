package main

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// times is how long each of many questions took, in ascending order.
type times []time.Duration

// at returns the time that a part of the questions took at most.
func (t times) at(part float64) time.Duration {
	return t[min(len(t)-1, int(float64(len(t))*part))].Round(100 * time.Nanosecond)
}

// run asks n times, from several goroutines at once.
func run(workers, n int, ask func(i int) error) (times, error) {
	t := make(times, n)
	var next atomic.Int64
	var group errgroup.Group
	for range workers {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				start := time.Now()
				if err := ask(i); err != nil {
					return err
				}
				t[i] = time.Since(start)
				runtime.Gosched() // a server's goroutine waits for the network here
			}
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(t)
	return t, nil
}
