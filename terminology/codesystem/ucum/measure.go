package ucum

import (
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// dimension maps the codes of base and arbitrary units to their exponents in an expression, which are nonzero. Arbitrary units
// are commensurable only with themselves (UCUM §24).
type dimension map[string]int

// measure is the dimension and the value of an expression.
type measure struct {
	dimension dimension
	value     big.Rat // in base units
}

// baseMeasure returns the measure of a unit that is not defined in terms of other units.
func baseMeasure(u *unit) *measure {
	m := &measure{dimension: dimension{u.Code: 1}}
	m.value.SetInt64(1)
	return m
}

// measureOf returns the measure of an expression. It returns false if numbers in its value exceed maxBits.
func measureOf(parts []part) (*measure, bool) {
	var f fraction
	f.numerator.SetInt64(1)
	f.denominator.SetInt64(1)
	if !f.multiply(parts, 1) {
		return nil, false
	}
	m := &measure{dimension: dimensionOf(parts)}
	m.value.SetFrac(&f.numerator, &f.denominator)
	return m, true
}

// dimensionOf returns the dimension of an expression. Special units have that of their corresponding proper units (§21).
func dimensionOf(parts []part) dimension {
	return sumExponents(parts, func(u *unit) dimension { return u.measure.dimension })
}

// sumExponents returns the sum of the exponents of all units in an expression. of returns the exponents of a single unit.
func sumExponents(parts []part, of func(u *unit) dimension) dimension {
	d := dimension{}
	d.add(parts, 1, of)
	maps.DeleteFunc(d, func(_ string, exponent int) bool { return exponent == 0 })
	return d
}

// add adds the exponents of an expression to d, multiplied by sign, which is 1 or -1.
func (d dimension) add(parts []part, sign int, of func(u *unit) dimension) {
	for i := range parts {
		p := &parts[i]
		s := p.exponentSign(sign)
		d.add(p.group, s, of)
		if p.unit != nil {
			for code, exponent := range of(p.unit) {
				d[code] += s * p.exponent * exponent
			}
		}
	}
}

// exponentSign returns the sign of the factor's exponent within an expression that itself has an exponent with the sign outer.
func (p *part) exponentSign(outer int) int {
	if p.divides {
		return -outer
	}
	return outer
}

// String returns the canonical form of the dimension: base units sorted by code, such as g.m-3.
func (d dimension) String() string {
	if len(d) == 0 {
		return "1"
	}
	var b strings.Builder
	for i, code := range slices.Sorted(maps.Keys(d)) {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(code)
		if d[code] != 1 {
			b.WriteString(strconv.Itoa(d[code]))
		}
	}
	return b.String()
}

// maxBits is the maximum size of numbers in conversions, in bits. Larger numbers are slow and of no practical use.
const maxBits = 1 << 13

// fraction is a number that is reduced only when complete, because reducing is the slowest operation.
type fraction struct{ numerator, denominator big.Int }

// multiply multiplies f by an expression, or by its inverse if sign is -1. It returns false if the result exceeds maxBits.
func (f *fraction) multiply(parts []part, sign int) bool {
	for i := range parts {
		if p := &parts[i]; !f.multiplyPart(p, p.exponentSign(sign)) {
			return false
		}
	}
	return true
}

func (f *fraction) multiplyPart(p *part, sign int) bool {
	switch {
	case p.unit == nil && p.number == "":
		return f.multiply(p.group, sign)
	case p.unit == nil:
		n, _ := new(big.Rat).SetString(p.number)
		return f.power(n, sign)
	case p.prefix != nil && !f.power(&p.prefix.Value.Number, sign*p.exponent):
		return false
	}
	return f.power(&p.unit.measure.value, sign*p.exponent)
}

// power multiplies f by x to the power of exponent. It returns false if the result exceeds maxBits.
func (f *fraction) power(x *big.Rat, exponent int) bool {
	numerator, denominator := x.Num(), x.Denom()
	if exponent < 0 {
		numerator, denominator, exponent = denominator, numerator, -exponent
	}
	return multiplyPower(&f.numerator, numerator, exponent) && multiplyPower(&f.denominator, denominator, exponent)
}

func multiplyPower(product, x *big.Int, exponent int) bool {
	if x.BitLen() == 1 || exponent == 0 {
		return true
	}
	if product.BitLen()+x.BitLen()*exponent > maxBits {
		return false
	}
	n := big.NewInt(int64(exponent))
	product.Mul(product, n.Exp(x, n, nil))
	return true
}

// Convert reports whether two units are commensurable. It returns their conversion factor with the precision of FHIR decimals.
// Special units have no factor: Cel to [degF] needs an offset, and pH a logarithm. Conversions between eq, osm and mol have
// none either: 1 mol of Ca++ is 2 eq, although UCUM defines both as 1 mol (§45).
func (system) Convert(from, to codesystem.Concept) (factor string, equal, ok bool) {
	a, b := parseValid(from.Code), parseValid(to.Code)
	if a == nil || b == nil || !maps.Equal(dimensionOf(a), dimensionOf(b)) {
		return "", false, false
	}
	s, t := specialUnit(a), specialUnit(b)
	if s != t {
		return "", false, s != mixedSpecialUnit && t != mixedSpecialUnit
	}
	if s == mixedSpecialUnit {
		return "", false, false
	}
	if !maps.Equal(particlesOf(a), particlesOf(b)) {
		return "", false, true
	}
	x, xOK := measureOf(a)
	y, yOK := measureOf(b)
	if !xOK || !yOK {
		return "", false, false
	}
	ratio := new(big.Rat).Quo(&x.value, &y.value)
	return decimal(ratio), ratio.IsInt() && ratio.Num().IsInt64() && ratio.Num().Int64() == 1, true
}

// particlesOf returns the exponents of eq and osm, the units that count the particles of a substance.
func particlesOf(parts []part) dimension {
	return sumExponents(parts, func(u *unit) dimension {
		if u.Code == "eq" || u.Code == "osm" {
			return dimension{u.Code: 1}
		}
		return nil
	})
}

// mixedSpecialUnit stands for a product of a special unit and other factors, which has no meaning (UCUM §22).
var mixedSpecialUnit = &unit{}

// specialUnit returns the special unit of an expression, nil if there is none, or mixedSpecialUnit if there are other factors.
func specialUnit(parts []part) (found *unit) {
	hasOtherFactors := 0
	for i := range parts {
		p := &parts[i]
		switch u := p.specialUnit(); {
		case u == nil:
			hasOtherFactors += min(1, p.exponent+len(p.number)+len(p.group))
		case found != nil, p.divides, p.unit != nil && p.exponent != 1:
			return mixedSpecialUnit
		default:
			found = u
		}
	}
	if found != nil && hasOtherFactors > 0 {
		return mixedSpecialUnit
	}
	return found
}

// specialUnit returns the special unit in a factor, or nil.
func (p *part) specialUnit() *unit {
	if p.unit != nil && p.unit.Special == flagTrue {
		return p.unit
	}
	return specialUnit(p.group)
}

// FHIR requires decimals to have 18 significant digits. precisionBits is more than enough for correct rounding.
const (
	significantDigits = 18
	precisionBits     = 256
)

// decimal formats a number with up to 18 significant digits.
func decimal(r *big.Rat) string {
	return new(big.Float).SetPrec(precisionBits).SetRat(r).Text('g', significantDigits)
}
