package smart

import (
	"fmt"
	"slices"
	"strings"
)

// UnlistedError means that the client's allowed scopes do not cover a requested scope. The OAuth error is invalid_scope.
type UnlistedError struct {
	// Scope is the first such scope, as requested.
	Scope string
}

// Error names the scope.
func (e *UnlistedError) Error() string {
	return fmt.Sprintf("scope %q is not listed for the client", e.Scope)
}

// Grant returns the scopes to grant to a client with the allowed scopes, in the order of the request and without duplicates:
//
//   - a listed scope is granted, and so is a resource scope that listed resource scopes cover, alone or together;
//   - a wildcard (type *, or the permission * of SMART 1) that the list covers in part is granted as that part;
//   - any other scope rejects the whole request with an [UnlistedError].
//
// The result uses the permission words of SMART 1 if the request did and they suffice. The caller handles scopes that are open
// to every client, such as openid, and parses the request with [ParseScopes].
func Grant(requested, allowed []string) (granted []string, err error) {
	list := resourceScopes(allowed)
	for _, scope := range requested {
		parts := grantOne(scope, allowed, list)
		if len(parts) == 0 {
			return nil, &UnlistedError{Scope: scope}
		}
		granted = appendNew(granted, parts)
	}
	return granted, nil
}

// GrantInPart is [Grant], but drops SMART scopes that cannot be granted (RFC 6749 §3.3) and, with ignoreUnknown, unlisted
// scopes that SMART does not define. It fails with an [UnlistedError] if no scope remains, or if a scope is a malformed SMART
// scope.
func GrantInPart(requested, allowed []string, ignoreUnknown bool) (granted []string, err error) {
	list := resourceScopes(allowed)
	var left error
	for _, scope := range requested {
		parts := grantOne(scope, allowed, list)
		if asked, ok := ParseResourceScope(scope); ok && len(parts) == 0 {
			parts = intersections(asked, list)
		}
		granted = appendNew(granted, parts)
		if len(parts) > 0 {
			continue
		}
		if left = (&UnlistedError{Scope: scope}); isMalformed(scope) || !ignoreUnknown && !IsDefined(scope) {
			return nil, left
		}
	}
	if len(granted) == 0 {
		return nil, left
	}
	return granted, nil
}

func appendNew(granted, parts []string) []string {
	for _, part := range parts {
		if !slices.Contains(granted, part) {
			granted = append(granted, part)
		}
	}
	return granted
}

// grantOne returns the grant for one requested scope; empty means rejected.
func grantOne(scope string, allowed []string, list []ResourceScope) []string {
	if slices.Contains(allowed, scope) || slices.Contains(allowed, withoutRole(scope)) {
		return []string{scope}
	}
	asked, ok := ParseResourceScope(scope)
	if !ok {
		return nil
	}
	if covered(asked, list) {
		return []string{scope}
	}
	if asked.Type != AnyType && !isWildcardV1(asked) {
		return nil
	}
	return intersections(asked, list)
}

// withoutRole removes the role from a scope for launch context: launch/questionnaire?role=https://example.org/role becomes
// launch/questionnaire (SMART App Launch 2.2, "fhirContext"). Other scopes are returned unchanged.
func withoutRole(scope string) string {
	if context, role, ok := strings.Cut(scope, "?role="); ok && strings.HasPrefix(context, "launch/") && role != "" {
		return context
	}
	return scope
}

func resourceScopes(scopes []string) []ResourceScope {
	var list []ResourceScope
	for _, s := range scopes {
		if scope, ok := ParseResourceScope(s); ok {
			list = append(list, scope)
		}
	}
	return list
}

// covered reports whether the list covers asked. Permissions count separately: .r and .s in two scopes equal .rs.
func covered(asked ResourceScope, list []ResourceScope) bool {
	var have Permission
	for _, listed := range list {
		if listed.reaches(asked) {
			have |= listed.Permission
		}
	}
	return have&asked.Permission == asked.Permission
}

// isWildcardV1 reports whether the permission was written as *. The cruds of SMART 2 names each permission, so it is not
// reduced to a part.
func isWildcardV1(s ResourceScope) bool {
	return s.V1 && s.Permission == permissionsV1["*"]
}

// intersections returns the parts of asked that the list covers, in the order of the list, without those that other parts
// cover.
func intersections(asked ResourceScope, list []ResourceScope) []string {
	var parts []ResourceScope
	for _, listed := range list {
		if part, ok := intersect(asked, listed); ok {
			parts = addPart(parts, part)
		}
	}
	var granted []string
	for i, part := range parts {
		if others := slices.Delete(slices.Clone(parts), i, i+1); covered(part, others) {
			continue
		}
		if _, ok := part.Permission.wordV1(); ok && part.Query == "" {
			part.V1 = asked.V1
		}
		granted = append(granted, part.String())
	}
	return granted
}

// addPart adds a part, or merges it with a part for the same resources.
func addPart(parts []ResourceScope, part ResourceScope) []ResourceScope {
	for i, p := range parts {
		if p.Level == part.Level && p.Type == part.Type && p.Query == part.Query {
			parts[i].Permission |= part.Permission
			return parts
		}
	}
	return append(parts, part)
}

// intersect returns the intersection of two scopes, in the letters of SMART 2. Two different queries have none: it would be a
// scope that neither side has written.
func intersect(a, b ResourceScope) (both ResourceScope, ok bool) {
	both = ResourceScope{Level: a.Level, Type: a.Type, Query: a.Query, Permission: a.Permission & b.Permission}
	if a.Type == AnyType {
		both.Type = b.Type
	}
	if a.Query == "" {
		both.Query = b.Query
	}
	return both, both.Permission != 0 && a.reaches(both) && b.reaches(both)
}
