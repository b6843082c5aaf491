package lockout

import (
	"slices"
	"time"
)

// tally is how many attempts of a counter failed, and until when it must wait.
type tally struct {
	Failures int          `json:"failures"`
	Until    time.Time    `json:"until"`
	Owners   []ownerTally `json:"owners,omitempty"` // the latest
}

// ownerTally is one owner's share of a tally.
type ownerTally struct {
	Owner    string `json:"owner"`
	Failures int    `json:"failures"`
}

// maxOwners bounds a tally in a flood of names. Failures of a dropped owner are never
// forgiven.
const maxOwners = 8

func (t tally) wait() time.Duration { return max(0, time.Until(t.Until)) }

// fail counts a failure; the first limit of them are free.
func (t *tally) fail(owner string, limit int, most time.Duration) {
	t.Failures++
	if over := t.Failures - limit; over >= 0 {
		t.Until = time.Now().Add(min(most, time.Second<<min(over, 20)))
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
