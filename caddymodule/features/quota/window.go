package quota

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Into how many parts windows are cut: in this process, and in a store that gateways share, where an entry should be short.
const (
	localParts  = 128
	sharedParts = 64
)

// ruler cuts time into parts of a window. A time is the number of a part, of which comparisons take differences alone: it may wrap.
type ruler struct {
	part  time.Duration
	parts uint32
}

func newRuler(window time.Duration, parts uint32) ruler {
	return ruler{window / time.Duration(parts), parts}
}

// window is how much was used in each of the last parts.
type window struct {
	runs []run // the oldest first
	sum  int
}

type run struct{ part, used uint32 }

// at is the part of a time, given in nanoseconds since some moment.
func (r ruler) at(nanoseconds int64) uint32 { return uint32(nanoseconds / int64(r.part)) } //nolint:gosec // it may wrap

// expire drops what is older than the window. The oldest part counts as long as any of it may.
func (w *window) expire(r ruler, nanoseconds int64) {
	now, n := r.at(nanoseconds), 0
	for n < len(w.runs) && now-w.runs[n].part > r.parts {
		w.sum -= int(w.runs[n].used)
		n++
	}
	if n > 0 {
		w.runs = append(w.runs[:0], w.runs[n:]...)
	}
}

// add counts what is used now.
func (w *window) add(r ruler, nanoseconds int64, used int) {
	used = min(used, math.MaxInt32-w.sum)
	if used <= 0 {
		return
	}
	w.sum += used
	now := r.at(nanoseconds)
	if n := len(w.runs); n > 0 && w.runs[n-1].part == now {
		w.runs[n-1].used += uint32(used) //nolint:gosec // at most the sum
		return
	}
	w.runs = append(w.runs, run{now, uint32(used)}) //nolint:gosec // at most the sum
}

// take gives back what was counted last.
func (w *window) giveBack(unused int) {
	for n := len(w.runs); n > 0 && unused > 0; n = len(w.runs) {
		last := &w.runs[n-1]
		back := min(unused, int(last.used))
		last.used -= uint32(back) //nolint:gosec // at most what is there
		w.sum -= back
		unused -= back
		if last.used == 0 {
			w.runs = w.runs[:n-1]
		}
	}
}

// wait is how long it takes until some of what was used counts no longer.
func (w *window) wait(r ruler, nanoseconds int64, some int) time.Duration {
	for _, u := range w.runs {
		if some -= int(u.used); some <= 0 {
			over := int64(r.at(nanoseconds)-u.part) * int64(r.part)
			since := nanoseconds % int64(r.part)
			return time.Duration(int64(r.parts+1)*int64(r.part) - over - since)
		}
	}
	return 0
}

// appendTo encodes a window: the first part in full, then the differences, each with what was used.
func (w *window) appendTo(b []byte) []byte {
	last := uint32(0)
	for _, u := range w.runs {
		b = binary.AppendUvarint(b, uint64(u.part-last))
		b = binary.AppendUvarint(b, uint64(u.used))
		last = u.part
	}
	return b
}

var errDamaged = errors.New("a damaged count")

// decode reads what appendTo has written.
func decode(b []byte) (w window, err error) {
	last := uint32(0)
	for len(b) > 0 {
		part, n := binary.Uvarint(b)
		used, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || part > math.MaxUint32 || used == 0 || used > math.MaxInt32 {
			return window{}, errDamaged
		}
		last += uint32(part)
		w.runs = append(w.runs, run{last, uint32(used)})
		w.sum += int(used)
		b = b[n+m:]
	}
	return w, nil
}
