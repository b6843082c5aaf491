package smart

import (
	"fmt"
	"slices"
)

// UnlistedError says that a scope was asked which the client's list does not
// cover. OAuth answers it with invalid_scope.
type UnlistedError struct {
	// Scope is the first such scope, as it was asked.
	Scope string
}

// Error names the scope.
func (e *UnlistedError) Error() string {
	return fmt.Sprintf("scope %q is not listed for the client", e.Scope)
}

// Grant decides which of the requested scopes are granted to a client that
// may have the allowed ones. In the order of the request, each once:
//
//   - a scope that is listed is granted, and so is a resource scope that
//     listed resource scopes cover, alone or together;
//   - a wildcard (type *, or the permission * of SMART 1) of which the list
//     covers a part is granted as that part, and only that;
//   - for any other the whole request fails with an [UnlistedError].
//
// The answer speaks SMART 1 where the request did and the words suffice.
// Scopes open to every client (openid and its kin) are the caller's matter,
// as is parsing: requested comes from [ParseScopes].
func Grant(requested, allowed []string) (granted []string, err error) {
	list := resourceScopes(allowed)
	for _, scope := range requested {
		parts := grantOne(scope, allowed, list)
		if len(parts) == 0 {
			return nil, &UnlistedError{Scope: scope}
		}
		for _, part := range parts {
			if !slices.Contains(granted, part) {
				granted = append(granted, part)
			}
		}
	}
	return granted, nil
}

// grantOne is what is granted for one requested scope; nothing is a refusal.
func grantOne(scope string, allowed []string, list []ResourceScope) []string {
	if slices.Contains(allowed, scope) {
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

// resourceScopes are the resource scopes among scopes.
func resourceScopes(scopes []string) []ResourceScope {
	var list []ResourceScope
	for _, s := range scopes {
		if scope, ok := ParseResourceScope(s); ok {
			list = append(list, scope)
		}
	}
	return list
}

// covered says whether the list covers asked, each permission by itself: .r
// and .s listed apart are no less than .rs.
func covered(asked ResourceScope, list []ResourceScope) bool {
	var have Permission
	for _, listed := range list {
		if listed.reaches(asked) {
			have |= listed.Permission
		}
	}
	return have&asked.Permission == asked.Permission
}

// isWildcardV1 says whether the permission was written as *. The cruds of
// SMART 2 names each permission, so it asks for all or nothing.
func isWildcardV1(s ResourceScope) bool {
	return s.V1 && s.Permission == permissionsV1["*"]
}

// intersections are the parts of asked that the list covers, in the order of
// the list, without those that another part holds.
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

// addPart adds part to parts, joining it with one over the same resources.
func addPart(parts []ResourceScope, part ResourceScope) []ResourceScope {
	for i, p := range parts {
		if p.Level == part.Level && p.Type == part.Type && p.Query == part.Query {
			parts[i].Permission |= part.Permission
			return parts
		}
	}
	return append(parts, part)
}

// intersect is what both scopes cover, in the letters of SMART 2. Of two
// different queries it makes nothing: their conjunction is a scope that
// neither side has written.
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
