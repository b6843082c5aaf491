package consent

import (
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
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

// Answer returns what a person answered earlier; false if they were not asked for some of the
// items.
func (c *Consent) Answer(items []string) (a Answer, all bool) {
	a.Until = c.Until
	for _, item := range items {
		if !slices.Contains(c.Seen, item) {
			return Answer{}, false
		}
		a.Given = append(a.Given, Given{item, c.of(item)})
	}
	return a, true
}

// of returns what a person gave of an item.
func (c *Consent) of(item string) []string {
	if slices.Contains(c.Granted, item) {
		return []string{item}
	}
	return c.Narrowed[item]
}

// Ticked returns the names of the choices that a person made of an item; false if they were
// not asked.
func (c *Consent) Ticked(choice *Choice) (names map[string]bool, asked bool) {
	if c == nil || !slices.Contains(c.Seen, choice.Name) {
		return nil, false
	}
	return choice.Ticked(c.of(choice.Name)), true
}

// add replaces earlier answers to the same items, or all if there were too many.
func (c *Consent) add(a Answer) {
	c.Seen = slices.DeleteFunc(c.Seen, a.asks)
	if len(c.Seen)+len(a.Given) > maxItems {
		*c = Consent{User: c.User, ClientID: c.ClientID}
	}
	c.Granted = slices.DeleteFunc(c.Granted, a.asks)
	for _, g := range a.Given {
		c.Seen = append(c.Seen, g.Item)
		delete(c.Narrowed, g.Item)
		switch {
		case g.IsWhole():
			c.Granted = append(c.Granted, g.Item)
		case len(g.Scopes) > 0:
			c.narrow(g)
		}
	}
	if a.asks(client.OfflineAccess) {
		c.Until = a.Until
	}
}

func (c *Consent) narrow(g Given) {
	if c.Narrowed == nil {
		c.Narrowed = map[string][]string{}
	}
	c.Narrowed[g.Item] = g.Scopes
}

// lapse forgets offline_access when it has ended, so that the person is asked again.
func (c *Consent) lapse(now time.Time) {
	if c.Until.IsZero() || now.Before(c.Until) {
		return
	}
	isOffline := func(item string) bool { return item == client.OfflineAccess }
	c.Seen, c.Granted = slices.DeleteFunc(c.Seen, isOffline), slices.DeleteFunc(c.Granted, isOffline)
	c.Until = time.Time{}
}
