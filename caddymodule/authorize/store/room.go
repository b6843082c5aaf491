package store

import "slices"

// Room says whether a step fits into a store of a single process. What one person can store
// is bounded; but if a store is full all the same, people must be able to sign out, and clients
// to revoke what they have. So entries of the kinds that end something have an eighth more.
type Room struct {
	Max     int      // entries
	Endings []string // kinds that end something; see [KindOf]

	added    int
	ordinary bool // something is added that ends nothing
}

// Count counts a call of the step, given whether there is an entry under its key.
func (r *Room) Count(c *Call, found bool) {
	switch {
	case c.Removes() && found:
		r.added--
	case c.Stores() && !found:
		r.added++
		r.ordinary = r.ordinary || !slices.Contains(r.Endings, KindOf(c.Key))
	}
}

// Fits reports whether a store that holds a number of entries has room for the step.
func (r *Room) Fits(held int) bool {
	most := r.Max
	if !r.ordinary {
		most += r.Max/8 + 8
	}
	return r.added <= 0 || held+r.added <= most
}
