package consent

import (
	"slices"
	"time"
)

// Given is what a person gives of an item: the item itself, narrower scopes, or nothing.
type Given struct {
	Item   string   // as asked for
	Scopes []string // instead of it; or the claim
}

// IsWhole reports whether all of the item is given.
func (g Given) IsWhole() bool { return slices.Contains(g.Scopes, g.Item) }

// Answer is what a person gives of all that they were asked for.
type Answer struct {
	Given []Given   // by item, in their order
	Until time.Time // when offline_access ends, if it was given; zero if they do not say
}

// Of returns what is given of an item.
func (a *Answer) Of(item string) []string {
	for _, g := range a.Given {
		if g.Item == item {
			return g.Scopes
		}
	}
	return nil
}

// asks reports whether the person was asked for an item.
func (a *Answer) asks(item string) bool {
	return slices.ContainsFunc(a.Given, func(g Given) bool { return g.Item == item })
}
