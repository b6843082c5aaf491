package client

import (
	"fmt"
	"slices"
	"strings"
)

// AuthorizationCode is the grant_type of codes, which every app that registers itself uses.
const AuthorizationCode = "authorization_code"

// GrantType says which clients may use a grant_type (RFC 6749 §1.3). Its zero value is for none.
type GrantType struct {
	Name string // the grant_type

	// Allows reports whether a client may use it at the token endpoint. nil: none may.
	Allows func(*Client) bool

	// Offered reports whether a client has any use for it, so that discovery and the client's
	// registration list it. Default: Allows.
	Offered func(*Client) bool

	// Check refuses a configured client that lists it in [Client].GrantTypes and lacks what it
	// needs. nil: no configured client may list it.
	Check func(*Client) error

	Always      bool // discovery lists it whatever clients there are
	Registrable bool // apps that register themselves may list it
}

func (g GrantType) offeredTo(c *Client) bool {
	offered := g.Offered
	if offered == nil {
		offered = g.Allows
	}
	return offered != nil && offered(c)
}

// GrantTypes are all that there are. They are made in package token.
type GrantTypes []GrantType

// Names are those of all.
func (gs GrantTypes) Names() []string { return gs.names(func(GrantType) bool { return true }) }

// names are those of some.
func (gs GrantTypes) names(wanted func(GrantType) bool) (names []string) {
	for _, g := range gs {
		if wanted(g) {
			names = append(names, g.Name)
		}
	}
	return names
}

// AtTokenEndpoint are the names of those that the token endpoint gives tokens for.
func (gs GrantTypes) AtTokenEndpoint() []string {
	return gs.names(func(g GrantType) bool { return g.Allows != nil })
}

// Configurable are the names of those that an operator may list for a client.
func (gs GrantTypes) Configurable() []string {
	return gs.names(func(g GrantType) bool { return g.Check != nil })
}

// Registrable are the names of those that an app may list when it registers itself.
func (gs GrantTypes) Registrable() []string {
	return gs.names(func(g GrantType) bool { return g.Registrable })
}

// RegisteredFor are the names of those that the registration of an app lists.
func (gs GrantTypes) RegisteredFor(c *Client) []string {
	return gs.names(func(g GrantType) bool { return g.Registrable && g.offeredTo(c) })
}

// check refuses a client that lists what it may not, or could not use.
func (gs GrantTypes) check(c *Client) error {
	for _, name := range c.GrantTypes {
		i := slices.IndexFunc(gs, func(g GrantType) bool { return g.Name == name && g.Check != nil })
		if i < 0 {
			return fmt.Errorf("grant_type %q is not known: use %s", name, strings.Join(gs.Configurable(), " or "))
		}
		if err := gs[i].Check(c); err != nil {
			return fmt.Errorf("grant_type %s %w", name, err)
		}
	}
	return nil
}
