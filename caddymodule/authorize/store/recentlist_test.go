package store

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Expired entries are not counted, and people who have only expired entries are removed.
func TestExpiredEntriesAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewPerUserLimit(200, time.Minute)
		for range 3 {
			for range 200 {
				if deleting := l.Record("alice", "k"); deleting != nil {
					t.Fatalf("%v is too many", deleting)
				}
			}
			time.Sleep(time.Minute)
		}
		for i := range 5000 {
			l.Record(strconv.Itoa(i), "k")
			time.Sleep(time.Second)
			if len(l.byUser) > 1024 {
				t.Fatalf("%d people after %d", len(l.byUser), i)
			}
		}
		if _, ok := l.byUser["alice"]; ok {
			t.Error("alice is still there")
		}
	})
}

// Beyond the limit, the oldest entry of the person is deleted with all its keys.
func TestOldestEntryIsDeleted(t *testing.T) {
	t.Parallel()
	l := NewPerUserLimit(20, time.Minute)
	for i := range 30 {
		deleting := l.Record("alice", "a"+strconv.Itoa(i), "b"+strconv.Itoa(i))
		want := strconv.Itoa(i - 20)
		if many := i >= 20; many != (len(deleting) == 2) || many && (deleting[0].Key != "a"+want || deleting[1].Key != "b"+want) {
			t.Errorf("entry %d takes the place of %v", i, deleting)
		}
	}
}
