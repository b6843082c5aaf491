package postgresstore

import (
	"sync/atomic"
	"time"
)

// A clock tells the server's time, counted on by this process's monotonic clock since the
// server last told it.
type clock struct{ told atomic.Pointer[reading] }

// A reading is what the server's clock showed at a time of this process.
type reading struct{ shown, at time.Time }

// set takes what the server told between two times: in the middle of them, as far as one
// can know.
func (c *clock) set(shown, asked, answered time.Time) {
	c.told.Store(&reading{shown, asked.Add(answered.Sub(asked) / 2)})
}

func (c *clock) now() time.Time {
	told := c.told.Load()
	if told == nil {
		return time.Now()
	}
	return told.shown.Add(time.Since(told.at))
}
