package searchparam

import (
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// quantity is a number with a prefix, and the unit if one is asked for: 5.4|http://unitsofmeasure.org|mg, or 5.4||mg for
// the unit as it is written, or coded in any system.
type quantity struct {
	prefix  prefix
	number  decimal
	unit    token
	hasUnit bool
}

// readQuantity reads a number, or a quantity.
func readQuantity(s string) (criterion, error) {
	parts := split(s, '|')
	var q quantity
	p, rest := cutPrefix(parts[0])
	number, ok := parseDecimal(rest)
	if !ok || len(parts) != 1 && len(parts) != 3 {
		return nil, fmt.Errorf("%w: no quantity", errValue)
	}
	q.prefix, q.number = p, number
	if len(parts) == 3 && parts[1]+parts[2] != "" {
		q.unit = token{unescape(parts[1]), unescape(parts[2]), parts[1] != ""}
		q.hasUnit = true
	}
	return q, nil
}

// matches compares with a number or a quantity. Units are not converted. A quantity of which only a bound is known, a
// range and sampled data do not match.
func (q quantity) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	switch path.Type {
	case "decimal", "integer", "positiveInt", "unsignedInt":
		return !q.hasUnit && q.compare(string(element))
	case "Quantity", "Age", "Count", "Distance", "Duration":
		if _, bound := resource.Field(element, "comparator"); bound {
			return false
		}
		return q.matchesUnit(element) && q.compare(member(element, "value"))
	case "Money":
		return q.matchesCurrency(element) && q.compare(member(element, "value"))
	default:
		return false
	}
}

// matchesUnit compares the unit.
func (q quantity) matchesUnit(element []byte) bool {
	if !q.hasUnit || q.unit.matchesCoding(element, "system", "code") {
		return true
	}
	return !q.unit.hasSystem && member(element, "unit") == q.unit.code
}

// matchesCurrency compares the currency, the codes of which are those of ISO 4217.
func (q quantity) matchesCurrency(element []byte) bool {
	if !q.hasUnit {
		return true
	}
	if q.unit.hasSystem && q.unit.system != "urn:iso:std:iso:4217" {
		return false
	}
	return q.unit.code == "" || member(element, "currency") == q.unit.code
}

// compare compares the number. Only equality takes its precision into account.
func (q quantity) compare(written string) bool {
	found, ok := parseDecimal(written)
	if !ok {
		return false
	}
	order := found.value.Cmp(q.number.value)
	switch q.prefix {
	case "eq":
		return q.number.contains(found.value)
	case "ne":
		return !q.number.contains(found.value)
	case "gt", "sa":
		return order > 0
	case "lt", "eb":
		return order < 0
	case "ge":
		return order >= 0
	case "le":
		return order <= 0
	default:
		return q.number.isAbout(found.value)
	}
}
