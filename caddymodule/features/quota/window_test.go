package quota

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// naive remembers each use.
type naive struct{ at []int64 }

// since counts what was used after a moment.
func (n *naive) since(moment int64) (used int) {
	for _, at := range n.at {
		if at > moment {
			used++
		}
	}
	return used
}

// In no window was more used than the limit, and nobody is refused who would be within it in a window that is one part longer.
func TestWindowAgainstNaiveCounter(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		length := time.Duration(1+random.IntN(100)) * time.Second
		r := newRuler(length, []uint32{localParts, sharedParts}[seed%2])
		limit := 1 + random.IntN(40)
		var w window
		var n naive
		now := random.Int64N(int64(time.Hour))
		for range 3000 {
			now += random.Int64N(2 * int64(length) / int64(limit))
			w.expire(r, now)
			if w.sum < limit {
				w.add(r, now, 1)
				n.at = append(n.at, now)
			} else if within := n.since(now - int64(length+r.part)); within < limit {
				t.Fatalf("seed %d: refused with %d of %d", seed, within, limit)
			}
			if within := n.since(now - int64(r.part)*int64(r.parts)); within > limit {
				t.Fatalf("seed %d: %d of %d in a window", seed, within, limit)
			}
			if len(w.runs) > int(r.parts)+1 {
				t.Fatalf("%d runs", len(w.runs))
			}
		}
	}
}

// Whoever waits as long as told is let in, and not before.
func TestWait(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 3))
	r := newRuler(10*time.Second, localParts)
	var w window
	now := int64(0)
	for range 500 {
		now += random.Int64N(int64(time.Second))
		w.expire(r, now)
		w.add(r, now, 1+random.IntN(5))
		some := 1 + random.IntN(w.sum)
		wait, before, after := w.wait(r, now, some), clone(w), clone(w)
		before.expire(r, now+int64(wait)-1)
		after.expire(r, now+int64(wait))
		if w.sum-before.sum >= some || w.sum-after.sum < some {
			t.Fatalf("after %v: %d, %d of %d are back", wait, w.sum-before.sum, w.sum-after.sum, some)
		}
	}
}

func clone(w window) window { return window{slices.Clone(w.runs), w.sum} }

func TestEncoding(t *testing.T) {
	t.Parallel()
	r := newRuler(time.Minute, sharedParts)
	var w window
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC).UnixNano()
	for i := range 200 {
		now += int64(time.Second) / 2
		w.expire(r, now)
		w.add(r, now, 1+i*i)
		if i%7 == 0 {
			w.giveBack(i)
		}
		text := w.appendTo(nil)
		read, err := decode(text)
		if err != nil || read.sum != w.sum || !slices.Equal(read.runs, w.runs) {
			t.Fatalf("%v: %v, want %v", err, read, w)
		}
		if len(text) > 400 {
			t.Errorf("%d bytes", len(text))
		}
		if _, err := decode(text[:len(text)-1]); err == nil && len(text) > 0 && text[len(text)-1] > 0 && text[len(text)-2] > 127 {
			t.Error("a cut text is read")
		}
	}
	for _, damaged := range []string{"\x80", "\x01", "\x01\x00", "\xff\xff\xff\xff\xff\xff\x01\x01"} {
		if _, err := decode([]byte(damaged)); err == nil {
			t.Errorf("%q is read", damaged)
		}
	}
}

func TestGiveBack(t *testing.T) {
	t.Parallel()
	r := newRuler(time.Minute, localParts)
	var w window
	for i := range 5 {
		w.add(r, int64(i)*int64(time.Second), 10)
	}
	w.giveBack(15)
	if w.sum != 35 || len(w.runs) != 4 || w.runs[3].used != 5 {
		t.Errorf("%+v", w)
	}
	w.giveBack(100)
	if w.sum != 0 || len(w.runs) != 0 {
		t.Errorf("%+v", w)
	}
}
