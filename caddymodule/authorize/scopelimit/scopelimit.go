// Package scopelimit limits the scopes of users by their groups and claims, in addition to the limits of the client.
package scopelimit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Limits contains the rows of the configuration. nil means no limits. Safe for concurrent use.
type Limits struct {
	rows       []Row
	coverCache boundedcache.Cache[string, bool] // results of Covers by the set of matching rows and the scope
}

// maxCachedCovers is the maximum number of cached results of [Limits.Covers].
const maxCachedCovers = 10_000

// New returns the limits with the given rows, or an error for an invalid row. If there are no rows, it returns nil.
func New(rows []Row) (*Limits, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	for _, r := range rows {
		if err := r.Check(); err != nil {
			return nil, err
		}
	}
	l := &Limits{rows: rows}
	l.coverCache.MaxEntries = maxCachedCovers
	return l, nil
}

// Matches reports whether the row grants its scopes to a user.
func (r *Row) Matches(p tokenclaim.Attributes) bool {
	switch {
	case r.IDP != "" && r.IDP != p.IDP:
		return false
	case r.MatchBy == "group":
		return slices.Contains(p.Groups, r.Value)
	case r.MatchBy == "claim":
		return slices.Contains(p.Claims[r.Claim], r.Value)
	}
	return r.MatchBy == "any"
}

// Narrow returns the part of a scope that a user may have: the parts that the user's rows cover, also of scopes with wildcards,
// and scopes that cannot be limited. It returns nil if only modifiers such as offline_access remain.
func (l *Limits) Narrow(p tokenclaim.Attributes, scope []string) []string {
	if l == nil {
		return scope
	}
	var allowed []string
	for i := range l.rows {
		if l.rows[i].Matches(p) {
			allowed = append(allowed, l.rows[i].Scopes...)
		}
	}
	for _, s := range scope {
		if isUnlimited(s) {
			allowed = append(allowed, s)
		}
	}
	granted, err := smart.GrantPartially(scope, allowed, true)
	if err != nil || !slices.Equal(granted, scope) && !slices.ContainsFunc(granted, func(s string) bool { return !isModifier(s) }) {
		return nil
	}
	return granted
}

// Covers reports whether a user may currently have all of a scope. The result is cached, because computing it takes longer than
// the rest of a request.
func (l *Limits) Covers(p tokenclaim.Attributes, scope string) bool {
	if l == nil {
		return true
	}
	key := make([]byte, len(l.rows), len(l.rows)+len(scope))
	for i := range l.rows {
		if l.rows[i].Matches(p) {
			key[i] = 1
		}
	}
	cacheKey := string(append(key, scope...))
	covers, ok := l.coverCache.Get(cacheKey)
	if !ok {
		words := strings.Fields(scope)
		covers = slices.Equal(l.Narrow(p, words), words)
		l.coverCache.Put(cacheKey, covers, 0)
	}
	return covers
}

// GrantsCustomScope reports whether a row grants a user a site-specific scope. If there are no rows, no user has it.
func (l *Limits) GrantsCustomScope(p tokenclaim.Attributes, scope string) bool {
	return l != nil && l.Covers(p, scope)
}

// CheckNames returns an error for rows that can never match, because claims does not contain their provider or claim.
func (l *Limits) CheckNames(claims map[string][]string) error {
	if l == nil {
		return nil
	}
	all := slices.Concat(slices.Collect(maps.Values(claims))...)
	for _, r := range l.rows {
		names, found := claims[r.IDP]
		switch {
		case r.IDP != "" && r.IDP != tokenclaim.LocalIDP && !found: // local users may be added later, without a configuration change
			return fmt.Errorf("scope_limit: idp %s is not configured", r.IDP)
		case r.MatchBy != "claim":
		case r.IDP == "" && !slices.Contains(all, r.Claim):
			return fmt.Errorf("scope_limit: no idp has a token_claim named %s", r.Claim)
		case r.IDP != "" && !slices.Contains(names, r.Claim):
			return fmt.Errorf("scope_limit: idp %s has no token_claim named %s", r.IDP, r.Claim)
		}
	}
	return nil
}

// Row grants scopes to the users that it matches.
type Row struct {
	// The identity provider of the user, or `local` for local users. Default: any.
	IDP string `json:"idp,omitempty"`

	// How the row matches users: by `group` or `claim`, or `any`. Required.
	MatchBy string `json:"by,omitempty"`

	// The name of a `token_claim` of an identity provider. Required if `by` is `claim`.
	Claim string `json:"claim,omitempty"`

	// The group, or a value of the claim. Required unless `by` is `any`.
	Value string `json:"value,omitempty"`

	// The permitted scopes: resource scopes such as `user/*.rs`, and site-specific scopes. Required.
	Scopes []string `json:"scopes,omitempty"`
}

// Check returns an error for a row that can never match or has invalid scopes.
func (r Row) Check() error {
	byClaim := r.MatchBy == "claim"
	switch {
	case !byClaim && r.MatchBy != "group" && r.MatchBy != "any":
		return fmt.Errorf("scope_limit: unknown condition %q: use group, claim or any", r.MatchBy)
	case (r.Value == "") != (r.MatchBy == "any"), (r.Claim == "") == byClaim:
		return fmt.Errorf("scope_limit %s: expected group <name>, claim <name> <value> or any, followed by the scopes", r.MatchBy)
	case len(r.Scopes) == 0:
		return fmt.Errorf("scope_limit %s: no scopes: list at least one", r.MatchBy)
	}
	for _, scope := range r.Scopes {
		if err := checkScope(scope); err != nil {
			return fmt.Errorf("scope_limit %s: %w", r.MatchBy, err)
		}
	}
	return nil
}

func checkScope(scope string) error {
	if err := smart.CheckScope(scope); err != nil {
		return err
	}
	resource, ok := smart.ParseResourceScope(scope)
	switch {
	case isUnlimited(scope):
		return fmt.Errorf("scope %q cannot be limited: every user may request it", scope)
	case client.IsSystemScope(scope):
		return fmt.Errorf("scope %q cannot be granted to people: it is a system scope", scope)
	case ok && resource.Type != smart.AnyType && !interaction.IsType(resource.Type):
		return fmt.Errorf("scope %q: %s is not a FHIR R4 resource type", scope, resource.Type)
	}
	return nil
}

// CheckCustomScope returns an error unless a scope is site-specific.
func CheckCustomScope(scope string) error {
	if _, resource := smart.ParseResourceScope(scope); resource {
		return fmt.Errorf("scope %q is a resource scope: use a custom scope", scope)
	}
	return checkScope(scope)
}

// isUnlimited reports whether rows cannot limit a scope, because it is neither a resource scope nor site-specific.
func isUnlimited(scope string) bool {
	return isModifier(scope) ||
		slices.Contains([]string{"openid", "profile", "email", "phone", "address", "fhirUser", "groups"}, scope)
}

// isModifier reports whether a scope grants no data itself, but modifies the use of other scopes.
func isModifier(scope string) bool {
	return scope == client.OfflineAccess || scope == client.OnlineAccess || scope == "launch" || strings.HasPrefix(scope, "launch/")
}
