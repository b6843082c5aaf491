package smart

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// errMalformedScope means that a scope string violates the grammar of RFC 6749 §3.3. The OAuth error is invalid_scope.
var errMalformedScope = errors.New("malformed scope")

// ParseScopes splits the value of a scope parameter into its scopes, in order and without duplicates. The grammar is that of
// RFC 6749 §3.3:
//
//	scope       = scope-token *( SP scope-token )
//	scope-token = 1*( %x21 / %x23-5B / %x5D-7E )
//
// Deviations are errors, because two parsers could split a malformed string differently and grant different scopes. An empty
// string contains no scopes, because a parameter without a value is treated as omitted (§3.1). Errors do not contain the input.
func ParseScopes(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	tokens := strings.Split(s, " ")
	scopes := make([]string, 0, len(tokens))
	seen := make(map[string]bool, len(tokens))
	for i, token := range tokens {
		if !IsScopeToken(token) {
			return nil, fmt.Errorf("%w at position %d", errMalformedScope, i+1)
		}
		if !seen[token] {
			seen[token] = true
			scopes = append(scopes, token)
		}
	}
	return slices.Clip(scopes), nil
}

// IsScopeToken reports whether s is a scope-token (RFC 6749 §3.3): visible ASCII except the quotation mark and the backslash.
func IsScopeToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < '!' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
}

// launchScope matches a launch context scope: an optional resource type with an optional role.
var launchScope = regexp.MustCompile(`^launch(/[A-Za-z]+(\?role=.+)?)?$`)

// IsDefined reports whether SMART App Launch 2.2 defines a scope. It returns false for the scopes of OpenID Connect, which are
// open to every client.
func IsDefined(scope string) bool {
	_, resource := ParseResourceScope(scope)
	return resource || launchScope.MatchString(scope) || slices.Contains([]string{"fhirUser", "offline_access", "online_access"}, scope)
}

// isMalformed reports whether a scope looks like a SMART resource or launch context scope but is invalid.
func isMalformed(scope string) bool {
	level, _, ok := strings.Cut(scope, "/")
	return ok && (isLevel(level) || level == "launch") && !IsDefined(scope)
}

// AnyType is the resource type of a scope for all types.
const AnyType = "*"

// ResourceScope is a SMART scope for FHIR resources, such as patient/Observation.rs?category=laboratory or, in the syntax of
// SMART 1, user/*.read. Two scopes are equal (==) if they are written in the same way.
type ResourceScope struct {
	// Level is patient, user or system.
	Level string
	// Type is a syntactically valid name of a FHIR resource type, or [AnyType].
	Type string
	// Permission is the set of permitted interactions; it is not empty.
	Permission Permission
	// Query is the search that narrows the scope, as written after the question mark; empty if there is none. SMART 1 has no
	// queries. [ResourceScope.Constraint] parses it.
	Query string
	// IsV1 is true if the permission is written as a word of SMART 1: read, write or *.
	IsV1 bool
}

// ParseResourceScope parses a resource scope; ok is false for any other scope, even a slightly malformed one. The grammar is:
//
//	( patient | user | system ) "/" ( Type | "*" ) "." permission
//	permission = ( c?r?u?d?s? | "create" | "search" ) [ "?" query ] | "read" | "write" | "*"
//	query      = name "=" value *( "&" name "=" value )
//
// Names and values are percent-encoded as in a URL. Names have no modifiers or chains. They must be search parameters that can
// be evaluated on a resource; those that include other resources or format the result are not accepted. Values and their
// alternatives must not be empty.
func ParseResourceScope(s string) (scope ResourceScope, ok bool) {
	if !IsScopeToken(s) {
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
	if _, isValid := parseConstraint(query); hasQuery && !isValid {
		return ResourceScope{}, false
	}
	scope = ResourceScope{Level: level, Type: typ, Query: query}
	scope.Permission, scope.IsV1 = permissionsV1[permission]
	if scope.IsV1 {
		return scope, !hasQuery
	}
	scope.Permission, ok = parsePermission(permission)
	return scope, ok
}

// String returns the scope in the syntax of its SMART version.
func (s ResourceScope) String() string {
	permission := s.Permission.String()
	if s.IsV1 {
		if word, ok := s.Permission.wordV1(); ok {
			permission = word
		}
	}
	formatted := s.Level + "/" + s.Type + "." + permission
	if s.Query != "" {
		formatted += "?" + s.Query
	}
	return formatted
}

// includesResources reports whether s covers all resources of o, regardless of the permissions. A scope without a query covers
// all queries. A scope with a query covers only the same query: whether one search is narrower than another is not evaluated.
func (s ResourceScope) includesResources(o ResourceScope) bool {
	return s.Level == o.Level &&
		(s.Type == AnyType || s.Type == o.Type) &&
		(s.Query == "" || s.Query == o.Query)
}

func isLevel(s string) bool {
	return s == "patient" || s == "user" || s == "system"
}

// isType reports whether s is "*" or has the syntax of a FHIR type name. The set of types depends on the FHIR version, and the
// client's allowed scopes restrict it anyway.
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

// Permission is the set of interactions in a resource scope.
type Permission uint8

// Interactions of SMART App Launch 2, in the order required in scopes.
const (
	// Create is c: create on type level.
	Create Permission = 1 << iota
	// Read is r: read, vread and history on instance level.
	Read
	// Update is u: update and patch on instance level.
	Update
	// Delete is d: delete on instance level.
	Delete
	// Search is s: search and history on type and system level.
	Search
)

// permissionLetters are the letters of the permissions, starting with the lowest bit.
const permissionLetters = "cruds"

// permissionsV1 maps the words of SMART App Launch 1 to permissions of version 2 ("Scopes for requesting FHIR Resources",
// backwards compatibility).
var permissionsV1 = map[string]Permission{
	"read":  Read | Search,
	"write": Create | Update | Delete,
	"*":     Create | Read | Update | Delete | Search,
}

// europeanPermissions are the words for two permissions in HL7 Europe's API.
var europeanPermissions = map[string]Permission{"create": Create, "search": Search}

// parsePermission parses c?r?u?d?s? with at least one letter, or one of europeanPermissions. The specification declares other
// orders of the letters invalid.
func parsePermission(s string) (Permission, bool) {
	if p, ok := europeanPermissions[s]; ok {
		return p, true
	}
	var p Permission
	next := 0
	for i := range len(s) {
		at := strings.IndexByte(permissionLetters[next:], s[i])
		if at < 0 {
			return 0, false
		}
		p |= 1 << (next + at)
		next += at + 1
	}
	return p, p != 0
}

// wordV1 returns p as a word of SMART 1; ok is false if there is none.
func (p Permission) wordV1() (word string, ok bool) {
	for word, meaning := range permissionsV1 {
		if meaning == p {
			return word, true
		}
	}
	return "", false
}

// String returns p in the letters of SMART 2, e.g. "rs".
func (p Permission) String() string {
	var b strings.Builder
	for i := range len(permissionLetters) {
		if p&(1<<i) != 0 {
			b.WriteByte(permissionLetters[i])
		}
	}
	return b.String()
}

// Constraint returns the search that narrows the scope, as parameters in order: a resource is in the scope if it matches all of
// them. It returns none if the scope has no query. A Query that [ParseResourceScope] would reject becomes a nameless parameter,
// which no resource matches.
func (s ResourceScope) Constraint() []Parameter {
	if s.Query == "" {
		return nil
	}
	list, ok := parseConstraint(s.Query)
	if !ok {
		return []Parameter{{}}
	}
	return list
}

// parseConstraint parses the query of a scope. SMART App Launch 2.2 ("Finer-grained resource constraints using search
// parameters") does not specify which parameters are supported and calls modifiers, chains and _filter experimental. Only
// parameters that can be evaluated on the resource itself are accepted.
//
// Plus signs are rejected: they mean spaces in a query, but their meaning in a scope is undefined.
func parseConstraint(query string) ([]Parameter, bool) {
	if hasEmptyPair(query) || strings.Contains(query, "+") {
		return nil, false
	}
	list, err := ParseParameters(query)
	if err != nil {
		return nil, false
	}
	for _, p := range list {
		if !isConstraintName(p.Name) || hasEmptyAlternative(p.Value) {
			return nil, false
		}
	}
	return list, true
}

func hasEmptyPair(query string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			return true
		}
	}
	return false
}

// isConstraintName reports whether a parameter can be evaluated on the resource itself: plain parameters, without modifiers and
// chains, and some of the parameters for all types (R4 search.html), listed below. The others search text in a server-specific
// way, evaluate other resources, or format the result.
func isConstraintName(name string) bool {
	switch name {
	case "_id", "_lastUpdated", "_profile", "_security", "_source", "_tag", "_type":
		return true
	}
	return name[0] != '_' && !strings.ContainsAny(name, ".:")
}

// hasEmptyAlternative reports whether an unescaped comma has no text on one side, which some servers interpret as any value.
func hasEmptyAlternative(value string) bool {
	length := 0
	for i := 0; i < len(value); i++ {
		switch {
		case value[i] == ',' && length == 0:
			return true
		case value[i] == ',':
			length = -1
		case value[i] == '\\':
			i++
		}
		length++
	}
	return length == 0
}

// errAmbiguousParameters means that servers could interpret a query differently.
var errAmbiguousParameters = errors.New("ambiguous query parameters")

// Parameter is a condition of a search, such as category=laboratory.
type Parameter struct {
	// Name is the name of the parameter, including a modifier or chain (R4 search.html).
	Name string
	// Value is the value to compare with. Prefixes, commas and backslashes are as written.
	Value string
}

// nameCharacters are the characters that parameter names may contain.
const nameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-"

// typicalParameters is the typical maximum number of parameters.
const typicalParameters = 16

// ParseParameters parses a query, or a form in the same syntax, in order. A name may be repeated; in a search, all conditions
// must then hold. A parameter without an equals sign has an empty value, plus signs mean spaces, and empty pairs are skipped.
// Text that servers interpret differently is rejected:
//
//   - names with characters other than letters, digits and "_.:-";
//   - semicolons, which some servers treat as separators, and number signs, which some treat as the end;
//   - spaces, control characters and non-ASCII characters, unless percent-encoded;
//   - escapes that are malformed, or that produce invalid UTF-8 or a NUL.
//
// Errors do not contain the query, which may include patient data.
func ParseParameters(query string) ([]Parameter, error) {
	var list []Parameter
	if query != "" {
		list = make([]Parameter, 0, min(strings.Count(query, "&")+1, typicalParameters))
	}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := decodePercent(name)
		if err == nil && (name == "" || strings.Trim(name, nameCharacters) != "") {
			err = fmt.Errorf("%w: invalid name", errAmbiguousParameters)
		}
		if err != nil {
			return nil, err
		}
		if value, err = decodePercent(value); err != nil {
			return nil, err
		}
		list = append(list, Parameter{Name: name, Value: value})
	}
	return list, nil
}

// decodePercent decodes the percent-encoding of a name or value.
func decodePercent(s string) (string, error) {
	escaped := false
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c > '~' || c == ';' || c == '#' {
			return "", fmt.Errorf("%w: invalid character", errAmbiguousParameters)
		}
		escaped = escaped || c == '%' || c == '+'
	}
	if !escaped {
		return s, nil
	}
	decoded, err := url.QueryUnescape(s)
	if err != nil || !utf8.ValidString(decoded) || strings.ContainsRune(decoded, 0) {
		return "", fmt.Errorf("%w: invalid percent-encoding", errAmbiguousParameters)
	}
	return decoded, nil
}

// EncodeParameters returns a query that [ParseParameters] parses into the same list.
func EncodeParameters(list []Parameter) string {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(p.Name))
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(p.Value))
	}
	return b.String()
}

// ReservedScopes are the scopes of OpenID Connect that every client of the authorization server may request.
var ReservedScopes = []string{"openid", "email", "phone", "profile"}

// CheckScope returns an error if a text is not exactly one scope (RFC 6749 §3.3) or is a malformed SMART resource scope.
func CheckScope(scope string) error {
	if parsed, err := ParseScopes(scope); err != nil || len(parsed) != 1 {
		return fmt.Errorf("%q is not a valid scope (RFC 6749 §3.3)", scope)
	}
	level, _, resource := strings.Cut(scope, "/")
	if resource && slices.Contains([]string{"patient", "user", "system"}, level) {
		if _, ok := ParseResourceScope(scope); !ok {
			return fmt.Errorf("%q is not a valid SMART scope, such as %s/Observation.rs", scope, level)
		}
	}
	return nil
}
