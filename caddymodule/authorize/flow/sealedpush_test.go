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

// A used request is remembered for its lifetime despite many other uses, but not for more than twice its lifetime.
func TestUsedPushes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s usedPushes
		for second := range uint64(1000) {
			if !s.add(numbered(second)) {
				t.Fatalf("used before, at second %d", second)
			}
			for _, ago := range []uint64{1, 45, 90} {
				if ago <= second && s.add(numbered(second-ago)) {
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

func TestUsedPushesAreBounded(t *testing.T) {
	t.Parallel()
	var s usedPushes
	for n := range uint64(3*maxUsedPushes + 1) {
		s.add(numbered(n))
		if len(s.younger)+len(s.older) > 2*maxUsedPushes {
			t.Fatalf("%d and %d after %d", len(s.younger), len(s.older), n)
		}
	}
	if s.add(numbered(2*maxUsedPushes + 2)) {
		t.Error("one of the last was forgotten")
	}
}
