package ucum

import (
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// dimension is what an expression measures: exponents, which are not 0, by the code of a base unit or of an arbitrary unit,
// which is commensurable with nothing but itself (UCUM §24).
type dimension map[string]int

// measure is what an expression comes to.
type measure struct {
	dimension dimension
	value     big.Rat // in base units
}

// own returns the measure of a unit that is not defined by others.
func own(u *unit) *measure {
	m := &measure{dimension: dimension{u.Code: 1}}
	m.value.SetInt64(1)
	return m
}

// measured returns what an expression comes to, unless its value is beyond maxBits.
func measured(parts []part) (*measure, bool) {
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

// dimensionOf returns what an expression measures. Special units count as the proper units that correspond to them (§21).
func dimensionOf(parts []part) dimension {
	return total(parts, func(u *unit) dimension { return u.measure.dimension })
}

// total returns the exponents of an expression, by those that each unit has.
func total(parts []part, of func(u *unit) dimension) dimension {
	d := dimension{}
	d.add(parts, 1, of)
	maps.DeleteFunc(d, func(_ string, exponent int) bool { return exponent == 0 })
	return d
}

// add adds the exponents of an expression to the power of sign, which is 1 or -1.
func (d dimension) add(parts []part, sign int, of func(u *unit) dimension) {
	for i := range parts {
		p := &parts[i]
		s := p.sign(sign)
		d.add(p.group, s, of)
		if p.unit != nil {
			for code, exponent := range of(p.unit) {
				d[code] += s * p.exponent * exponent
			}
		}
	}
}

// sign returns the sign of a factor's exponent in an expression to the power of another.
func (p *part) sign(whole int) int {
	if p.divide {
		return -whole
	}
	return whole
}

// String returns the canonical form of what measures a dimension: base units in the order of their codes, such as g.m-3.
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

// maxBits bounds the numbers that conversions work with. What is larger has no use, and takes long.
const maxBits = 1 << 13

// fraction is a number that is not reduced until it is whole, since that takes the longest.
type fraction struct{ numerator, denominator big.Int }

// multiply multiplies by the value of an expression to the power of sign. It reports whether that fits.
func (f *fraction) multiply(parts []part, sign int) bool {
	for i := range parts {
		if p := &parts[i]; !f.multiplyPart(p, p.sign(sign)) {
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

// power multiplies by a number to some power.
func (f *fraction) power(x *big.Rat, exponent int) bool {
	numerator, denominator := x.Num(), x.Denom()
	if exponent < 0 {
		numerator, denominator, exponent = denominator, numerator, -exponent
	}
	return raise(&f.numerator, numerator, exponent) && raise(&f.denominator, denominator, exponent)
}

func raise(product, x *big.Int, exponent int) bool {
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
