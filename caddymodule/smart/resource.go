package smart

import "strings"

// AnyType is the resource type of a scope over all types.
const AnyType = "*"

// ResourceScope is a SMART scope for FHIR resources, such as patient/Observation.rs?category=laboratory or, in the
// form of SMART 1, user/*.read. Two scopes are equal (==) if they are written alike.
type ResourceScope struct {
	// Level is whose data the scope is about: patient, user or system.
	Level string
	// Type is a syntactically valid name of a FHIR resource type, or [AnyType].
	Type string
	// Permission is the set of permitted interactions; never empty.
	Permission Permission
	// Query is the search that narrows the scope, as written after the question mark; empty if there is none. SMART 1
	// has no queries. [ResourceScope.Constraint] reads it.
	Query string
	// V1 says that the permission is written as a word of SMART 1: read, write or *.
	V1 bool
}

// ParseResourceScope reads a resource scope; ok is false for any other scope, even if it is nearly right. The grammar
// is
//
//	( patient | user | system ) "/" ( Type | "*" ) "." permission
//	permission = ( c?r?u?d?s? | "create" | "search" ) [ "?" query ] | "read" | "write" | "*"
//	query      = name "=" value *( "&" name "=" value )
//
// Names and values are percent-encoded where a URL's would be. Names have no modifiers or chains, and are those of
// search parameters that a resource is judged by, not of those that include others or shape the result. Values are not
// empty, nor is one of their alternatives.
func ParseResourceScope(s string) (scope ResourceScope, ok bool) {
	if !isScopeToken(s) {
		return ResourceScope{}, false
	}
	level, rest, ok := strings.Cut(s, "/")
	if !ok || !isLevel(level) {
		return ResourceScope{}, false
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	typ, permission, ok := strings.Cut(rest, ".")
	if !ok || !isType(typ) {
		return ResourceScope{}, false
	}
	if _, sound := parseConstraint(query); hasQuery && !sound {
		return ResourceScope{}, false
	}
	scope = ResourceScope{Level: level, Type: typ, Query: query}
	scope.Permission, scope.V1 = permissionsV1[permission]
	if scope.V1 {
		return scope, !hasQuery
	}
	scope.Permission, ok = parsePermission(permission)
	return scope, ok
}

// String writes the scope in its version of SMART.
func (s ResourceScope) String() string {
	permission := s.Permission.String()
	if s.V1 {
		if word, ok := s.Permission.wordV1(); ok {
			permission = word
		}
	}
	written := s.Level + "/" + s.Type + "." + permission
	if s.Query != "" {
		written += "?" + s.Query
	}
	return written
}

// reaches reports whether s is about all resources that o is about, whatever the permissions. A scope without a query
// reaches all queries, and one with a query only the same one: whether one search is narrower than another is not
// decided here.
func (s ResourceScope) reaches(o ResourceScope) bool {
	return s.Level == o.Level &&
		(s.Type == AnyType || s.Type == o.Type) &&
		(s.Query == "" || s.Query == o.Query)
}

func isLevel(s string) bool {
	return s == "patient" || s == "user" || s == "system"
}

// isType reports whether s is * or has the syntax of a FHIR type name. The names themselves differ by FHIR version,
// and the client's list of scopes decides anyway.
func isType(s string) bool {
	if s == AnyType {
		return true
	}
	for i := range len(s) {
		upper, lower := 'A' <= s[i] && s[i] <= 'Z', 'a' <= s[i] && s[i] <= 'z'
		if !upper && (!lower || i == 0) {
			return false
		}
	}
	return s != ""
}
