package searchparam

import (
	"cmp"
	"math/big"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Rank is the position of a resource in the order of a parameter. The zero value is the rank of a resource without a value.
type Rank struct {
	// HasValue is true if the resource has a value for the parameter.
	HasValue bool

	text   string
	number *big.Rat
	time   time.Time
}

// CanSort reports whether the gateway can sort resources by the parameter, i.e. by elements of the resources. It returns false
// for references, because servers sort by their targets.
func (p Parameter) CanSort() bool {
	return len(p.Paths) > 0 && slices.Contains([]Kind{Date, String, Token, Number, Quantity, URI}, p.Kind)
}

// Rank returns the position of a resource of the parameter's type in a search sorted by the parameter. Of several values, it
// uses the smallest or, in descending order, the greatest (https://hl7.org/fhir/R4/search.html#sort).
func (p Parameter) Rank(r resource.Resource, descending bool) Rank {
	var first Rank
	for _, path := range p.Paths {
		for element := range r.Values(path) {
			if rank := p.rank(path, element); rank.HasValue && (!first.HasValue || rank.Compare(first) < 0 != descending) {
				first = rank
			}
		}
	}
	return first
}

// Compare compares two ranks of the same parameter that have a value: negative if a is less, positive if it is greater.
func (a Rank) Compare(b Rank) int {
	if a.number != nil && b.number != nil {
		return a.number.Cmp(b.number)
	}
	return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.text, b.text))
}

// rank returns the position of a single value.
func (p Parameter) rank(path resource.Path, element []byte) Rank {
	switch p.Kind {
	case Date:
		return dateRank(path, element)
	case Number, Quantity:
		number, ok := parseDecimal(numberText(path, element))
		return Rank{HasValue: ok, number: number.value}
	case Token:
		return textRank(tokenText(path, element))
	case String:
		return textRank(firstText(path, element))
	default:
		return textRank(primitiveText(element))
	}
}

func textRank(s string) Rank { return Rank{HasValue: s != "", text: s} }

// dateRank returns the position of a date by the start of its range.
func dateRank(path resource.Path, element []byte) Rank {
	var found span
	var ok bool
	switch path.Type {
	case "Period":
		found, ok = parsePeriod(element)
	case "date", "dateTime", "instant":
		found, ok = parseDate(primitiveText(element))
	case "Timing":
		if events, has := resource.Field(element, "event"); has {
			for event := range resource.Elements(events) {
				if at, is := parseDate(primitiveText(event)); is && (!ok || at.start.Before(found.start)) {
					found, ok = at, true
				}
			}
		}
	}
	return Rank{HasValue: ok, time: found.start}
}

// numberText returns a number, or the number in a quantity, as written.
func numberText(path resource.Path, element []byte) string {
	switch path.Type {
	case "decimal", "integer", "positiveInt", "unsignedInt":
		return string(element)
	}
	return memberText(element, "value")
}

// tokenText returns a token in the form system|code.
func tokenText(path resource.Path, element []byte) string {
	if path.Type == "CodeableConcept" {
		codings, ok := resource.Field(element, "coding")
		if !ok {
			return ""
		}
		for coding := range resource.Elements(codings) {
			return memberText(coding, "system") + "|" + memberText(coding, "code")
		}
		return ""
	}
	if members, ok := codingMembers[path.Type]; ok {
		return memberText(element, members[0]) + "|" + memberText(element, members[1])
	}
	return primitiveText(element)
}

// firstText returns a folded string or, for a name or an address, the part that sorts first.
func firstText(path resource.Path, element []byte) string {
	members, ok := textMembers[path.Type]
	if !ok {
		return fold(resource.Text(element))
	}
	smallest := ""
	for _, name := range members {
		value, ok := resource.Field(element, name)
		if !ok {
			continue
		}
		for part := range resource.Elements(value) {
			if text := fold(resource.Text(part)); text != "" && (smallest == "" || text < smallest) {
				smallest = text
			}
		}
	}
	return smallest
}
