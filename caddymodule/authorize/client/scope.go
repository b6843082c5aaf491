package client

import (
	"errors"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// The scopes that ask for a refresh token (SMART App Launch 2.2).
const (
	OfflineAccess = "offline_access" // outlives the session
	OnlineAccess  = "online_access"  // ends with it
)

const maxGrantedScopes = 1000 // cached for each client

// AllowsScope reports whether the client could be granted all of a scope today. It caches the
// result, which takes longer to compute than the rest of a request.
func (c *Client) AllowsScope(scope string) bool {
	if c.granted == nil {
		return c.allowsScope(scope)
	}
	allowed, ok := c.granted.Get(scope)
	if !ok {
		allowed = c.allowsScope(scope)
		c.granted.Put(scope, allowed, 0)
	}
	return allowed
}

func (c *Client) allowsScope(scope string) bool {
	granted, err := c.GrantScope(scope)
	return err == nil && slices.Equal(granted, strings.Fields(scope))
}

// GrantScope returns what the client is granted of a requested scope, which may be less (RFC 6749
// §3.3). Its error is invalid_scope.
func (c *Client) GrantScope(asked string) ([]string, error) {
	lenient := c.HasCompat(IgnoreUnknownScopes)
	scopes, err := smart.ParseScopes(asked)
	if err == nil {
		scopes, err = knownTypes(scopes, lenient)
	}
	if err == nil {
		scopes, err = smart.GrantInPart(scopes, slices.Concat(smart.ReservedScopes, c.Scopes), lenient)
	}
	if err != nil {
		return nil, oauth2.InvalidScope(err)
	}
	return scopes, nil
}

// knownTypes refuses scopes for types that FHIR R4 does not have, or leaves them out.
func knownTypes(scopes []string, leaveOut bool) (known []string, err error) {
	for _, scope := range scopes {
		asked, ok := smart.ParseResourceScope(scope)
		switch {
		case !ok || asked.Type == smart.AnyType || interaction.IsType(asked.Type):
			known = append(known, scope)
		case !leaveOut:
			return nil, &smart.UnlistedError{Scope: scope}
		}
	}
	return known, nil
}

// IsSystemScope reports whether a scope is for clients that act for themselves.
func IsSystemScope(scope string) bool { return strings.HasPrefix(scope, "system/") }

// CanRefresh reports whether the client can get refresh tokens.
func (c *Client) CanRefresh() bool {
	return c.AllowsResponseType("code") && (slices.Contains(c.Scopes, OfflineAccess) || slices.Contains(c.Scopes, OnlineAccess))
}

// WithoutRefresh removes the scopes that ask for a refresh token, for flows without one
// (OpenID Connect Core §11).
func WithoutRefresh(scope []string) []string {
	return slices.DeleteFunc(slices.Clone(scope), func(word string) bool {
		return word == OfflineAccess || word == OnlineAccess
	})
}

// GrantSystemScope grants the requested scope. Default: all system scopes of the client.
func (c *Client) GrantSystemScope(asked string) ([]string, error) {
	notSystem := func(scope string) bool { return !IsSystemScope(scope) }
	scope := slices.DeleteFunc(slices.Clone(c.Scopes), notSystem)
	var err error
	if asked != "" {
		scope, err = c.GrantScope(asked)
		scope = slices.DeleteFunc(scope, func(word string) bool { return notSystem(word) && smart.IsDefined(word) })
	}
	if err == nil && (len(scope) == 0 || slices.ContainsFunc(scope, notSystem)) {
		err = oauth2.InvalidScope(errors.New("client_credentials gives system scopes alone"))
	}
	return scope, err
}
