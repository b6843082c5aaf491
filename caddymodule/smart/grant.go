package smart

import (
	"fmt"
	"slices"
	"strings"
)

// UnlistedError means that the client's allowed scopes do not cover a requested scope. The OAuth error is invalid_scope.
type UnlistedError struct {
	// Scope is the first uncovered scope, as requested.
	Scope string
}

// Error implements error. The message contains the scope.
func (e *UnlistedError) Error() string {
	return fmt.Sprintf("scope %q is not allowed for the client", e.Scope)
}

// Grant returns the scopes to grant to a client with the allowed scopes, in the order of the request and without duplicates:
//
//   - a listed scope is granted, and so is a resource scope that listed resource scopes cover, alone or together;
//   - a wildcard (type *, or the permission * of SMART 1) that the list covers partially is reduced to that part;
//   - any other scope causes an [UnlistedError] for the entire request.
//
// The result uses the permission words of SMART 1 if the request does and they suffice. The caller parses the request with
// [ParseScopes] and handles scopes that are open to every client, such as openid.
func Grant(requested, allowed []string) (granted []string, err error) {
	list := resourceScopes(allowed)
	for _, scope := range requested {
		parts := grantScope(scope, allowed, list)
		if len(parts) == 0 {
			return nil, &UnlistedError{Scope: scope}
		}
		granted = appendMissing(granted, parts)
	}
	return granted, nil
}

// GrantPartially is like [Grant], but drops SMART scopes that cannot be granted (RFC 6749 §3.3) and, if ignoreUnknown is true,
// unlisted scopes that SMART does not define. It returns an [UnlistedError] if no scope remains or if a SMART scope is
// malformed.
func GrantPartially(requested, allowed []string, ignoreUnknown bool) (granted []string, err error) {
	list := resourceScopes(allowed)
	var firstErr error
	for _, scope := range requested {
		parts := grantScope(scope, allowed, list)
		if requested, ok := ParseResourceScope(scope); ok && len(parts) == 0 {
			parts = intersections(requested, list)
		}
		granted = appendMissing(granted, parts)
		if len(parts) > 0 {
			continue
		}
		if firstErr = (&UnlistedError{Scope: scope}); isMalformed(scope) || !ignoreUnknown && !IsDefined(scope) {
			return nil, firstErr
		}
	}
	if len(granted) == 0 {
		return nil, firstErr
	}
	return granted, nil
}

func appendMissing(granted, parts []string) []string {
	for _, part := range parts {
		if !slices.Contains(granted, part) {
			granted = append(granted, part)
		}
	}
	return granted
}

// grantScope returns the scopes to grant for one requested scope; none if it is rejected.
func grantScope(scope string, allowed []string, list []ResourceScope) []string {
	if slices.Contains(allowed, scope) || slices.Contains(allowed, removeRole(scope)) {
		return []string{scope}
	}
	requested, ok := ParseResourceScope(scope)
	if !ok {
		return nil
	}
	if isCovered(requested, list) {
		return []string{scope}
	}
	if requested.Type != AnyType && !isWildcardV1(requested) {
		return nil
	}
	return intersections(requested, list)
}

// removeRole removes the role from a launch context scope: launch/questionnaire?role=https://example.org/role becomes
// launch/questionnaire (SMART App Launch 2.2, "fhirContext"). Other scopes are returned unchanged.
func removeRole(scope string) string {
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

// isCovered reports whether the list covers requested. Permissions of scopes are combined: .r and .s together equal .rs.
func isCovered(requested ResourceScope, list []ResourceScope) bool {
	var permissions Permission
	for _, listed := range list {
		if listed.includesResources(requested) {
			permissions |= listed.Permission
		}
	}
	return permissions&requested.Permission == requested.Permission
}

// isWildcardV1 reports whether the permission was written as an asterisk. The permission cruds of SMART 2 lists each
// permission, so it is not reduced to a part.
func isWildcardV1(s ResourceScope) bool {
	return s.IsV1 && s.Permission == permissionsV1["*"]
}

// intersections returns the parts of requested that the list covers, in the order of the list. It omits parts that other parts
// cover.
func intersections(requested ResourceScope, list []ResourceScope) []string {
	var parts []ResourceScope
	for _, listed := range list {
		if part, ok := intersect(requested, listed); ok {
			parts = addPart(parts, part)
		}
	}
	var granted []string
	for i, part := range parts {
		if others := slices.Delete(slices.Clone(parts), i, i+1); isCovered(part, others) {
			continue
		}
		if _, ok := part.Permission.wordV1(); ok && part.Query == "" {
			part.IsV1 = requested.IsV1
		}
		granted = append(granted, part.String())
	}
	return granted
}

// addPart adds a part or merges it with a part for the same resources.
func addPart(parts []ResourceScope, part ResourceScope) []ResourceScope {
	for i, p := range parts {
		if p.Level == part.Level && p.Type == part.Type && p.Query == part.Query {
			parts[i].Permission |= part.Permission
			return parts
		}
	}
	return append(parts, part)
}

// intersect returns the intersection of two scopes, written in SMART 2. Scopes with different queries have none: it would be a
// scope that neither side has written.
func intersect(a, b ResourceScope) (intersection ResourceScope, ok bool) {
	intersection = ResourceScope{Level: a.Level, Type: a.Type, Query: a.Query, Permission: a.Permission & b.Permission}
	if a.Type == AnyType {
		intersection.Type = b.Type
	}
	if a.Query == "" {
		intersection.Query = b.Query
	}
	return intersection, intersection.Permission != 0 && a.includesResources(intersection) && b.includesResources(intersection)
}
