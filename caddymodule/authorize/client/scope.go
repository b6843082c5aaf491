package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// The scopes that ask for a refresh token: one that works on when the person has
// left, and one that ends with their session (SMART App Launch 2.2, Scopes for
// requesting a refresh token).
const (
	OfflineAccess = "offline_access"
	OnlineAccess  = "online_access"
)

// grantedScopes remembers which scopes of access tokens a client may still have: to
// find out takes longer than all else that a request with a token costs.
type grantedScopes struct {
	mu    sync.RWMutex
	known map[string]bool
}

func (g *grantedScopes) remember(scope string, may bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil || len(g.known) >= maxGrantedScopes {
		g.known = map[string]bool{}
	}
	g.known[scope] = may
}

// AllowsScope reports whether the client could be granted all of a token's scope today.
func (c *Client) AllowsScope(scope string) bool {
	if c.granted == nil {
		return c.allowsScope(scope)
	}
	c.granted.mu.RLock()
	may, ok := c.granted.known[scope]
	c.granted.mu.RUnlock()
	if !ok {
		may = c.allowsScope(scope)
		c.granted.remember(scope, may)
	}
	return may
}

func (c *Client) allowsScope(scope string) bool {
	granted, err := c.GrantScope(scope)
	return err == nil && slices.Equal(granted, strings.Fields(scope))
}

// maxGrantedScopes bounds how many scopes are remembered of a client.
const maxGrantedScopes = 1000

// GrantScope says what of a requested scope the client gets: the reserved ones,
// and what smart.Grant finds covered by its list.
func (c *Client) GrantScope(asked string) ([]string, error) {
	scopes, err := smart.ParseScopes(asked)
	if err != nil {
		return nil, oauth2.InvalidScope(err)
	}
	granted, err := smart.Grant(scopes, append(slices.Clone(ReservedScopes), c.Scopes...))
	if err != nil {
		return nil, oauth2.InvalidScope(err)
	}
	return granted, nil
}

// IsSystemScope reports whether a scope is for clients that act for themselves.
func IsSystemScope(scope string) bool { return strings.HasPrefix(scope, "system/") }

// CanRefresh says whether the client can ever be given a refresh token.
func (c *Client) CanRefresh() bool {
	return c.AllowsResponseType("code") && (slices.Contains(c.Scopes, OfflineAccess) || slices.Contains(c.Scopes, OnlineAccess))
}

// WithoutRefresh leaves out the scopes that ask for a refresh token, where there
// is none to be had (OpenID Connect Core §11).
func WithoutRefresh(scope []string) []string {
	return slices.DeleteFunc(slices.Clone(scope), func(word string) bool {
		return word == OfflineAccess || word == OnlineAccess
	})
}

// ReservedScopes may be asked for by every client.
var ReservedScopes = []string{"openid", "email", "phone", "profile"}

// CheckScope says why a word is not one scope, if it is not (RFC 6749 §3.3), or
// looks like one of SMART's and is none: it could never be granted as meant.
func CheckScope(scope string) error {
	if parsed, err := smart.ParseScopes(scope); err != nil || len(parsed) != 1 {
		return fmt.Errorf("%q is not a scope (RFC 6749 §3.3)", scope)
	}
	level, _, resource := strings.Cut(scope, "/")
	if resource && slices.Contains([]string{"patient", "user", "system"}, level) {
		if _, ok := smart.ParseResourceScope(scope); !ok {
			return fmt.Errorf("%q is not a scope of SMART App Launch, such as %s/Observation.rs", scope, level)
		}
	}
	return nil
}

// GrantSystemScope grants what is asked, or all system scopes the client has where
// nothing is.
func (c *Client) GrantSystemScope(asked string) ([]string, error) {
	notSystem := func(scope string) bool { return !IsSystemScope(scope) }
	scope := slices.DeleteFunc(slices.Clone(c.Scopes), notSystem)
	var err error
	if asked != "" {
		scope, err = c.GrantScope(asked)
	}
	if err == nil && (len(scope) == 0 || slices.ContainsFunc(scope, notSystem)) {
		err = oauth2.InvalidScope(errors.New("client_credentials gives system scopes alone"))
	}
	return scope, err
}
