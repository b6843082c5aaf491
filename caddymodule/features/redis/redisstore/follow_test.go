package redisstore

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock follows a server with a clock that is an hour ahead.
func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c clock
		if c.offset() != 0 {
			t.Errorf("before any answer, it is %v ahead", c.offset())
		}
		ask := func(forth, back time.Duration) {
			sent := time.Now()
			time.Sleep(forth)
			server := time.Now().Add(time.Hour)
			time.Sleep(back)
			c.addSample(server, sent)
		}
		want := func(when string, tolerance time.Duration) {
			t.Helper()
			if off := (c.offset() - time.Hour).Abs(); off > tolerance {
				t.Errorf("%s: %v off", when, off)
			}
		}
		ask(0, 100*time.Millisecond)
		want("after a slow answer", 50*time.Millisecond)
		ask(time.Millisecond, time.Millisecond)
		want("after a quick one", 0)
		ask(0, 10*time.Second) // a response that took 10 s
		want("after one that took long", 0)
		time.Sleep(time.Hour)
		ask(0, 40*time.Millisecond)
		want("an hour later", 20*time.Millisecond)
	})
}
