package lockout

import (
	"slices"
	"time"
)

// tally is how often a counter's tries failed, and until when it must wait.
type tally struct {
	Failures int       `json:"failures"`
	Until    time.Time `json:"until"`

	// Owners are whose failures these are, the latest [maxOwners] of them.
	Owners []ownerTally `json:"owners,omitempty"`
}

// ownerTally is one owner's share of a tally.
type ownerTally struct {
	Owner    string `json:"owner"`
	Failures int    `json:"failures"`
}

// maxOwners is how many owners a tally tells apart, so that a flood of names leaves it
// small. What it has forgotten of one nobody can take back.
const maxOwners = 8

// wait is how long there is still to wait.
func (t tally) wait() time.Duration { return max(0, time.Until(t.Until)) }

// fail counts a failure, of which limit are free.
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

// forgive takes back an owner's failures, and reports whether there were any.
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
