package redisstore

import (
	"sync/atomic"
	"time"
)

// clock is the server's clock, as its answers tell it.
type clock struct{ sample atomic.Pointer[sample] }

// A sample is an answer that had the time.
type sample struct {
	ahead time.Duration // of this process's clock
	took  time.Duration // how long the answer took, twice the greatest error
	at    time.Time
}

// hear takes the server's time from an answer to what was sent then. An answer that took much
// longer than the last says less, unless that is long ago.
func (c *clock) hear(server, sent time.Time) {
	now := time.Now()
	took := now.Sub(sent)
	last := c.sample.Load()
	if last != nil && took > last.took+now.Sub(last.at)/100 {
		return
	}
	c.sample.Store(&sample{ahead: server.Sub(sent.Add(took / 2)), took: took, at: now})
}

// ahead returns how far the server's clock is ahead of this process's.
func (c *clock) ahead() time.Duration {
	if s := c.sample.Load(); s != nil {
		return s.ahead
	}
	return 0
}
