package ucum

import (
	"maps"
	"math/big"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// Convert reports whether two units measure the same, and the factor between their values, to the precision that FHIR
// wants of decimals. Between a special unit and another there is none: Cel to [degF] takes an offset, pH a logarithm. Nor is
// there between eq, osm and mol: 1 mol of Ca++ is 2 eq, though UCUM calls either 1 mol (§45).
func (system) Convert(from, to codesystem.Concept) (factor string, equal, ok bool) {
	a, b := expression(from.Code), expression(to.Code)
	if a == nil || b == nil || !maps.Equal(dimensionOf(a), dimensionOf(b)) {
		return "", false, false
	}
	s, t := special(a), special(b)
	if s != t {
		return "", false, s != mixed && t != mixed
	}
	if s == mixed {
		return "", false, false
	}
	if !maps.Equal(particlesOf(a), particlesOf(b)) {
		return "", false, true
	}
	x, xOK := measured(a)
	y, yOK := measured(b)
	if !xOK || !yOK {
		return "", false, false
	}
	ratio := new(big.Rat).Quo(&x.value, &y.value)
	return decimal(ratio), ratio.IsInt() && ratio.Num().IsInt64() && ratio.Num().Int64() == 1, true
}

// particlesOf returns the exponents of the units that count what a substance comes apart into.
func particlesOf(parts []part) dimension {
	return total(parts, func(u *unit) dimension {
		if u.Code == "eq" || u.Code == "osm" {
			return dimension{u.Code: 1}
		}
		return nil
	})
}

// mixed stands for a product of a special unit and something else, which has no meaning (UCUM §22).
var mixed = &unit{}

// special returns the special unit that an expression is, perhaps with a prefix or annotated; nil if it has none.
func special(parts []part) (found *unit) {
	others := 0
	for i := range parts {
		p := &parts[i]
		switch u := p.special(); {
		case u == nil:
			others += min(1, p.exponent+len(p.number)+len(p.group))
		case found != nil, p.divide, p.unit != nil && p.exponent != 1:
			return mixed
		default:
			found = u
		}
	}
	if found != nil && others > 0 {
		return mixed
	}
	return found
}

// special returns the special unit that a factor has, or nil.
func (p *part) special() *unit {
	if p.unit != nil && p.unit.Special == yes {
		return p.unit
	}
	return special(p.group)
}

// FHIR wants 18 significant digits of a decimal. More bits than these take are exact enough to round from.
const (
	significant = 18
	precision   = 256
)

// decimal writes a number, exactly if that takes no more digits.
func decimal(r *big.Rat) string {
	return new(big.Float).SetPrec(precision).SetRat(r).Text('g', significant)
}
