package quota

import "time"

// lease is what a holder may use without asking the store.
type lease struct {
	left  int // below 0: what was used, and the store was not told
	step  int // what was leased last, beyond what was needed
	free  int // what the store had left then
	asked int64
	away  int64 // until when the store is not asked, since it did not answer

	refusedCost        int   // which the store had not left
	refusedAt, retryAt int64 // until when that is known, and when there should be enough

	turn  chan struct{} // of who asks the store, for what follows
	seen  []byte        // what it held then
	raced bool          // another gateway had changed it
	end   *time.Timer
}

// covers uses what was leased, or what the store need not be told yet: while there is enough, as far as is known.
func (e *lease) covers(cost int, l *limit, now int64) bool {
	most := l.Limit / untold
	if e.asked != 0 && e.free < l.Limit/leaseShare {
		most = 0
	}
	if e.left-cost < -most && now >= e.away {
		return false
	}
	e.left -= cost
	return true
}

// forget begins anew for a holder who has used nothing for as long as the window: what was leased, or not told, is as old.
func (e *lease) forget() { e.left, e.asked = 0, 0 }

// limits is how a holder stands, given what the store had left when it was just asked.
func (e *lease) limits(at standing, l *limit, now int64) standing {
	if e.asked != 0 && now-e.asked <= int64(l.leaseTime()) {
		at.left = max(0, min(at.left, e.free+max(e.left, 0)))
	}
	return at
}

// refuses says how long a request must wait which the store would refuse, as far as that is known.
func (e *lease) refuses(cost int, now int64) time.Duration {
	if now >= e.refusedAt || cost < e.refusedCost {
		return 0
	}
	return time.Duration(e.retryAt - now)
}

// next is how much may be leased beyond what is needed: twice as much each time, while it is used up before it ends.
func (e *lease) next(l *limit, now int64) int {
	if e.asked == 0 || now-e.asked > int64(l.leaseTime()) {
		return 0
	}
	return max(1, 2*e.step)
}
