package ucum

import (
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
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
