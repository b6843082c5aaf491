package store

import "time"

// Outage is a time in which a gateway could not answer, as its store was away or it did not run.
type Outage struct {
	Began time.Time // zero: it is not known, and all that was before Over was in it
	Over  time.Time // zero: there was none
}

// Near reports whether something that happened at a time, and was answered within a while, may
// have lost its answer by the outage: it happened in it, or shortly before.
func (o Outage) Near(at time.Time, while time.Duration) bool {
	return !at.After(o.Over) && at.After(o.Began.Add(-while))
}
