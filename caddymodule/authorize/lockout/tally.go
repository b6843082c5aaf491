package lockout

import (
	"slices"
	"time"
)

// tally is how many attempts of a counter failed, and until when it must wait.
type tally struct {
	Failures int          `json:"failures"`
	Until    time.Time    `json:"until,omitzero"`
	Owners   []ownerTally `json:"owners,omitempty"` // the latest
	Tries    []try        `json:"tries,omitempty"`  // under way, if several gateways share the store
}

// try is an attempt that a gateway may be making.
type try struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until"` // after which it tells nobody what came of it
}

// ownerTally is one owner's share of a tally.
type ownerTally struct {
	Owner    string `json:"owner"`
	Failures int    `json:"failures"`
}

// maxOwners bounds a tally in a flood of names. Failures of a dropped owner are never
// forgiven.
const maxOwners = 8

// counter is what failures are counted under.
type counter struct {
	key    string // in the store
	bucket uint16
	limit  int    // how many failures are free
	owner  string // whose success cancels their failures; "" for nobody's
}

// stripes is how many groups of counters there are, of each of which one changes at a time in this process.
const stripes = 64

// outcome is that of an attempt.
type outcome int

const (
	undecided outcome = iota // not made, or failed for another reason than a wrong secret
	succeeded
	failed
)

func (t *tally) wait(now time.Time) time.Duration { return max(0, t.Until.Sub(now)) }

// count counts an attempt of a counter.
func (t *tally) count(c counter, o outcome, most time.Duration, now time.Time) {
	switch o {
	case failed:
		t.fail(c.owner, c.limit, most, now)
	case succeeded:
		t.forgive(c.owner)
	}
}

// fail counts a failure; the first limit of them are free.
func (t *tally) fail(owner string, limit int, most time.Duration, now time.Time) {
	t.Failures++
	if over := t.Failures - limit; over >= 0 {
		t.Until = now.Add(min(most, time.Second<<min(over, 20)))
	}
	if owner == "" {
		return
	}
	if i := t.owner(owner); i >= 0 {
		t.Owners[i].Failures++
		return
	}
	t.Owners = append(t.Owners, ownerTally{owner, 1})
	t.Owners = t.Owners[max(0, len(t.Owners)-maxOwners):]
}

// forgive cancels an owner's failures, and reports whether there were any.
func (t *tally) forgive(owner string) bool {
	i := t.owner(owner)
	if i < 0 {
		return false
	}
	t.Failures -= t.Owners[i].Failures
	t.Owners = slices.Delete(t.Owners, i, i+1)
	return true
}

func (t *tally) owner(owner string) int {
	return slices.IndexFunc(t.Owners, func(o ownerTally) bool { return o.Owner == owner })
}

// begin adds a try.
func (t *tally) begin(id string, until time.Time) { t.Tries = append(t.Tries, try{id, until}) }

// end removes a try, and reports whether it was there.
func (t *tally) end(id string) bool {
	before := len(t.Tries)
	t.Tries = slices.DeleteFunc(t.Tries, func(u try) bool { return u.ID == id })
	return len(t.Tries) < before
}

// expire removes the tries of gateways that have gone.
func (t *tally) expire(now time.Time) {
	t.Tries = slices.DeleteFunc(t.Tries, func(u try) bool { return now.After(u.Until) })
}

func (c counter) stripe() int { return int(c.bucket) % stripes }
