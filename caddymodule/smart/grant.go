package smart

import (
	"fmt"
	"slices"
	"strings"
)

// UnlistedError says that a requested scope is not covered by the client's list. OAuth answers it with invalid_scope.
type UnlistedError struct {
	// Scope is the first such scope, as requested.
	Scope string
}

// Error names the scope.
func (e *UnlistedError) Error() string {
	return fmt.Sprintf("scope %q is not listed for the client", e.Scope)
}

// Grant decides which of the requested scopes are granted to a client with the allowed ones. In the order of the
// request, each once:
//
//   - a listed scope is granted, and so is a resource scope that listed resource scopes cover, alone or together;
//   - a wildcard (type *, or the permission * of SMART 1) that the list covers in part is granted as that part;
//   - any other scope fails the whole request with an [UnlistedError].
//
// The result uses the words of SMART 1 if the request did and they suffice. The caller handles scopes that are open to
// every client (openid and the like), and parses: requested comes from [ParseScopes].
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

// GrantInPart is [Grant], but leaves out of the request what cannot be granted of SMART's scopes (RFC 6749 §3.3), and
// if ignoreUnknown is set, words that are no scopes of SMART's and not listed. If nothing is left of it, or one is
// nearly a scope of SMART's, it fails with an [UnlistedError].
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

// grantOne is what is granted for one requested scope; nothing is a refusal.
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

// withoutRole is a scope for launch context without the role that narrows it, such as
// launch/questionnaire of launch/questionnaire?role=https://example.org/role (SMART App Launch 2.2, "fhirContext"). Other
// scopes are returned as they are.
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

// covered reports whether the list covers asked. Permissions count separately: .r and .s in two scopes are as good as
// .rs.
func covered(asked ResourceScope, list []ResourceScope) bool {
	var have Permission
	for _, listed := range list {
		if listed.reaches(asked) {
			have |= listed.Permission
		}
	}
	return have&asked.Permission == asked.Permission
}

// isWildcardV1 reports whether the permission was written as *. The cruds of SMART 2 names each permission, so it is
// all or nothing.
func isWildcardV1(s ResourceScope) bool {
	return s.V1 && s.Permission == permissionsV1["*"]
}

// intersections are the parts of asked that the list covers, in the order of the list, without those that other parts
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

// addPart adds a part, or joins it with one for the same resources.
func addPart(parts []ResourceScope, part ResourceScope) []ResourceScope {
	for i, p := range parts {
		if p.Level == part.Level && p.Type == part.Type && p.Query == part.Query {
			parts[i].Permission |= part.Permission
			return parts
		}
	}
	return append(parts, part)
}

// intersect is what both scopes cover, in the letters of SMART 2. Two different queries have no intersection: it would
// be a scope that neither side has written.
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
