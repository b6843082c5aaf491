package searchparam

import "github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"

// token is code, system|code, |code (without a system) or system| (any code of it). Letters' case counts, as it does
// in most code systems.
type token struct {
	system, code string
	hasSystem    bool // a bar was written: the system, or that there is none, counts
}

// readToken reads a token.
func readToken(s string) (criterion, error) {
	parts := split(s, '|')
	switch {
	case len(parts) == 1:
		return token{code: unescape(s)}, nil
	case len(parts) == 2 && s != "|":
		return token{unescape(parts[0]), unescape(parts[1]), true}, nil
	default:
		return nil, errValue
	}
}

// codingMembers are where the types that have a system keep it, and where their code.
var codingMembers = map[string][2]string{
	"Coding":       {"system", "code"},
	"Identifier":   {"system", "value"},
	"ContactPoint": {"", "value"},
}

// matches compares with codes of all sorts.
func (t token) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	if path.Type == "CodeableConcept" {
		return t.matchesAny(element)
	}
	if members, ok := codingMembers[path.Type]; ok {
		return t.matchesCoding(element, members[0], members[1])
	}
	return t.matchesPrimitive(primitive(element), path.System)
}

// matchesPrimitive compares with a code whose system is not written in the resource: R4 says which it is. Other
// primitive values have none that could be asked for.
func (t token) matchesPrimitive(found, system string) bool {
	if t.hasSystem && (system == "" || t.system != system) {
		return false
	}
	return found != "" && (found == t.code || t.code == "")
}

// matchesAny compares with the codings of a concept.
func (t token) matchesAny(concept []byte) bool {
	codings, ok := resource.Field(concept, "coding")
	if !ok {
		return false
	}
	for coding := range resource.Elements(codings) {
		if t.matchesCoding(coding, "system", "code") {
			return true
		}
	}
	return false
}

// matchesCoding compares with an element that has its system and its code in two members.
func (t token) matchesCoding(element []byte, system, code string) bool {
	if t.hasSystem && member(element, system) != t.system {
		return false
	}
	found := member(element, code)
	return found == t.code && found != "" || t.hasSystem && t.code == ""
}

// member returns what a member of an object says, if it is a string, or else nothing.
func member(object []byte, name string) string {
	if name == "" {
		return ""
	}
	value, ok := resource.Field(object, name)
	if !ok {
		return ""
	}
	return primitive(value)
}

// primitive returns what a string says, or how a number or a boolean is written; nothing for anything else.
func primitive(value []byte) string {
	if value[0] == '{' || value[0] == '[' || value[0] == 'n' {
		return ""
	}
	if value[0] != '"' {
		return string(value)
	}
	return resource.Text(value)
}
