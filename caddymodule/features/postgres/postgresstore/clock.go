package postgresstore

import (
	"sync/atomic"
	"time"
)

// A clock shows the server's time, counted on by this process's monotonic clock since the
// latest reading.
type clock struct{ latest atomic.Pointer[reading] }

// A reading is what the server's clock showed at a time of this process.
type reading struct{ shown, at time.Time }

// set takes a reading that was made between two times: in the middle of them, as far as one
// can know.
func (c *clock) set(shown, asked, answered time.Time) {
	c.latest.Store(&reading{shown, asked.Add(answered.Sub(asked) / 2)})
}

func (c *clock) now() time.Time {
	latest := c.latest.Load()
	if latest == nil {
		return time.Now()
	}
	return latest.shown.Add(time.Since(latest.at))
}
