package token

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Codes that are over count no more, and people who have no others are forgotten.
func TestRecentCodesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newRecentCodes(time.Minute)
		for range 3 {
			for range maxCodes {
				if old, ok := c.add("alice", recentCode{key: "k"}); ok {
					t.Fatalf("%v is too many", old)
				}
			}
			time.Sleep(time.Minute)
		}
		for i := range 5000 {
			c.add(strconv.Itoa(i), recentCode{})
			time.Sleep(time.Second)
			if len(c.people) > 1024 {
				t.Fatalf("%d people after %d", len(c.people), i)
			}
		}
		if _, ok := c.people["alice"]; ok {
			t.Error("alice is still there")
		}
	})
}

// The oldest of too many ends.
func TestRecentCodesAreTheLatest(t *testing.T) {
	t.Parallel()
	c := newRecentCodes(time.Minute)
	for i := range maxCodes + 10 {
		old, ok := c.add("alice", recentCode{key: strconv.Itoa(i)})
		if want := i - maxCodes; ok != (want >= 0) || ok && old.key != strconv.Itoa(want) {
			t.Errorf("code %d takes the place of %q", i, old.key)
		}
	}
}
