package smart

import "strings"

// Permission is the set of interactions that a resource scope names.
type Permission uint8

// The interactions of SMART App Launch 2, in the order in which a scope has to write them.
const (
	// Create is c: type level create.
	Create Permission = 1 << iota
	// Read is r: instance level read, vread and history.
	Read
	// Update is u: instance level update and patch.
	Update
	// Delete is d: instance level delete.
	Delete
	// Search is s: type level search and history, system level too.
	Search
)

// letters are the permissions' letters, lowest bit first.
const letters = "cruds"

// permissionsV1 are the words of SMART App Launch 1 and their meaning in 2 ("Scopes for requesting FHIR Resources",
// backwards compatibility).
var permissionsV1 = map[string]Permission{
	"read":  Read | Search,
	"write": Create | Update | Delete,
	"*":     Create | Read | Update | Delete | Search,
}

// permissionWords are how HL7 Europe's API writes two of them.
var permissionWords = map[string]Permission{"create": Create, "search": Search}

// parsePermission reads c?r?u?d?s?, at least one letter and all in this order, as the specification calls any other order
// invalid; or one of permissionWords.
func parsePermission(s string) (Permission, bool) {
	if p, ok := permissionWords[s]; ok {
		return p, true
	}
	var p Permission
	next := 0
	for i := range len(s) {
		at := strings.IndexByte(letters[next:], s[i])
		if at < 0 {
			return 0, false
		}
		p |= 1 << (next + at)
		next += at + 1
	}
	return p, p != 0
}

// wordV1 is p as a word of SMART 1, if there is one.
func (p Permission) wordV1() (word string, ok bool) {
	for word, meaning := range permissionsV1 {
		if meaning == p {
			return word, true
		}
	}
	return "", false
}

// String is p in the letters of SMART 2, such as "rs".
func (p Permission) String() string {
	var b strings.Builder
	for i := range len(letters) {
		if p&(1<<i) != 0 {
			b.WriteByte(letters[i])
		}
	}
	return b.String()
}
