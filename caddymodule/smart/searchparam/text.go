package searchparam

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// text is what a string must start with, whatever its case and accents; it is folded.
type text string

// readText reads a string, which must say something: everything starts with nothing.
func readText(s string) (criterion, error) {
	folded := fold(unescape(s))
	if folded == "" {
		return nil, errValue
	}
	return text(folded), nil
}

// textMembers are the parts of the types that a string search looks into.
var textMembers = map[string][]string{
	"HumanName": {"text", "family", "given", "prefix", "suffix"},
	"Address":   {"text", "line", "city", "district", "state", "postalCode", "country"},
}

// matches compares with a string, or the parts of a name or an address.
func (t text) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	members, ok := textMembers[path.Type]
	if !ok {
		return t.starts(element)
	}
	for _, name := range members {
		if value, ok := resource.Field(element, name); ok && t.startsAny(value) {
			return true
		}
	}
	return false
}

// startsAny compares with a string, or each of an array of them.
func (t text) startsAny(value []byte) bool {
	for element := range resource.Elements(value) {
		if t.starts(element) {
			return true
		}
	}
	return false
}

// starts compares with a string.
func (t text) starts(value []byte) bool {
	return strings.HasPrefix(fold(resource.Text(value)), string(t))
}

// fold returns s without case, accents and superfluous spaces.
func fold(s string) string {
	letters := func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return unicode.ToLower(r)
	}
	return strings.Join(strings.Fields(strings.Map(letters, norm.NFKD.String(s))), " ")
}
