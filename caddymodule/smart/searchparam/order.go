package searchparam

import (
	"cmp"
	"math/big"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Rank is where a resource stands in the order of a parameter. The zero value is that of a resource without a value.
type Rank struct {
	// Has says that the resource has a value.
	Has bool

	text   string
	number *big.Rat
	time   time.Time
}

// CanSort reports whether resources can be ordered by the parameter here: by what is in them, which of references is
// not what counts.
func (p Parameter) CanSort() bool {
	return len(p.Paths) > 0 && slices.Contains([]Kind{Date, String, Token, Number, Quantity, URI}, p.Kind)
}

// Rank is where a resource of the parameter's type stands in a search that is sorted by it. Of several values that one
// counts which comes first: the least, or the greatest in descending order (https://hl7.org/fhir/R4/search.html#sort).
func (p Parameter) Rank(r resource.Resource, descending bool) Rank {
	var first Rank
	for _, path := range p.Paths {
		for element := range r.Values(path) {
			if rank := p.rank(path, element); rank.Has && (!first.Has || rank.Compare(first) < 0 != descending) {
				first = rank
			}
		}
	}
	return first
}

// Compare orders two ranks of the same parameter that have a value: below 0 if a is less, above if it is greater.
func (a Rank) Compare(b Rank) int {
	if a.number != nil && b.number != nil {
		return a.number.Cmp(b.number)
	}
	return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.text, b.text))
}

// rank is where one value stands.
func (p Parameter) rank(path resource.Path, element []byte) Rank {
	switch p.Kind {
	case Date:
		return dateRank(path, element)
	case Number, Quantity:
		number, ok := parseDecimal(numberOf(path, element))
		return Rank{Has: ok, number: number.value}
	case Token:
		return textRank(tokenText(path, element))
	case String:
		return textRank(firstText(path, element))
	default:
		return textRank(primitive(element))
	}
}

func textRank(s string) Rank { return Rank{Has: s != "", text: s} }

// dateRank orders by when something begins.
func dateRank(path resource.Path, element []byte) Rank {
	var found span
	var ok bool
	switch path.Type {
	case "Period":
		found, ok = period(element)
	case "date", "dateTime", "instant":
		found, ok = parseDate(primitive(element))
	case "Timing":
		if events, has := resource.Field(element, "event"); has {
			for event := range resource.Elements(events) {
				if at, is := parseDate(primitive(event)); is && (!ok || at.start.Before(found.start)) {
					found, ok = at, true
				}
			}
		}
	}
	return Rank{Has: ok, time: found.start}
}

// numberOf is how a number, or that of a quantity, is written.
func numberOf(path resource.Path, element []byte) string {
	switch path.Type {
	case "decimal", "integer", "positiveInt", "unsignedInt":
		return string(element)
	}
	return member(element, "value")
}

// tokenText is a code behind its system.
func tokenText(path resource.Path, element []byte) string {
	if path.Type == "CodeableConcept" {
		codings, ok := resource.Field(element, "coding")
		if !ok {
			return ""
		}
		for coding := range resource.Elements(codings) {
			return member(coding, "system") + "|" + member(coding, "code")
		}
		return ""
	}
	if members, ok := codingMembers[path.Type]; ok {
		return member(element, members[0]) + "|" + member(element, members[1])
	}
	return primitive(element)
}

// firstText is a string as it is compared, or the first part that a name or an address has.
func firstText(path resource.Path, element []byte) string {
	members, ok := textMembers[path.Type]
	if !ok {
		return fold(resource.Text(element))
	}
	least := ""
	for _, name := range members {
		value, ok := resource.Field(element, name)
		if !ok {
			continue
		}
		for part := range resource.Elements(value) {
			if text := fold(resource.Text(part)); text != "" && (least == "" || text < least) {
				least = text
			}
		}
	}
	return least
}
