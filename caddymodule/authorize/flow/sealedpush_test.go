package flow

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"
)

func numbered(n uint64) (id pushID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

// A request that was used is remembered for as long as it could be used again, however
// many others are used meanwhile, and no longer than twice that.
func TestSpentPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s spentPushes
		for second := range uint64(1000) {
			if !s.spend(numbered(second)) {
				t.Fatalf("used before, at second %d", second)
			}
			for _, ago := range []uint64{1, 45, 90} {
				if ago <= second && s.spend(numbered(second-ago)) {
					t.Fatalf("forgotten after %d seconds, at second %d", ago, second)
				}
			}
			time.Sleep(time.Second)
		}
		if n := len(s.younger) + len(s.older); n > 2*92 {
			t.Errorf("%d are remembered", n)
		}
	})
}

func TestSpentPushesAreBounded(t *testing.T) {
	var s spentPushes
	for n := range uint64(3*maxSpentPushes + 1) {
		s.spend(numbered(n))
		if len(s.younger)+len(s.older) > 2*maxSpentPushes {
			t.Fatalf("%d and %d after %d", len(s.younger), len(s.older), n)
		}
	}
	if s.spend(numbered(2*maxSpentPushes + 2)) {
		t.Error("one of the last was forgotten")
	}
}
