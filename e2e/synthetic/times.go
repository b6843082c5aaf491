package main

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// times contains the durations of requests in ascending order.
type times []time.Duration

// at returns the duration that the given share of requests does not exceed.
func (t times) at(part float64) time.Duration {
	return t[min(len(t)-1, int(float64(len(t))*part))].Round(100 * time.Nanosecond)
}

// run sends n requests from workers goroutines and returns their durations.
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
				runtime.Gosched() // at this point, the goroutine of a real server would wait for the network
			}
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(t)
	return t, nil
}
