package searchparam

import (
	"math/big"
	"strconv"
	"strings"
)

// decimal is a number, and half of the unit of its last digit: 100 is 100 ± 0.5, and 1.00 is 1 ± 0.005.
type decimal struct{ value, half *big.Rat }

// maxDigits bounds what comparing numbers costs.
const maxDigits = 40

// parseDecimal reads a number as JSON writes it, or with a plus sign.
func parseDecimal(s string) (decimal, bool) {
	mantissa, exponent, ok := splitExponent(s)
	if !ok || strings.Trim(mantissa, "+-0123456789.") != "" || strings.Trim(mantissa, "+-.") == "" {
		return decimal{}, false
	}
	value, ok := new(big.Rat).SetString(mantissa)
	if !ok {
		return decimal{}, false
	}
	_, fraction, _ := strings.Cut(mantissa, ".")
	scale := power(exponent)
	half := new(big.Rat).Mul(power(-len(fraction)), big.NewRat(1, 2))
	return decimal{value.Mul(value, scale), half.Mul(half, scale)}, true
}

// splitExponent splits off the exponent, which is bounded as the digits are.
func splitExponent(s string) (mantissa string, exponent int, ok bool) {
	mantissa, written, has := strings.Cut(strings.ToLower(s), "e")
	if len(mantissa) > maxDigits {
		return "", 0, false
	}
	if !has {
		return mantissa, 0, true
	}
	exponent, err := strconv.Atoi(written)
	return mantissa, exponent, err == nil && -maxDigits <= exponent && exponent <= maxDigits
}

// power returns a power of ten.
func power(n int) *big.Rat {
	p := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n, -n))), nil))
	if n < 0 {
		p.Inv(p)
	}
	return p
}

// contains reports whether a value rounds to the number.
func (d decimal) contains(value *big.Rat) bool {
	return new(big.Rat).Sub(d.value, d.half).Cmp(value) <= 0 && new(big.Rat).Add(d.value, d.half).Cmp(value) > 0
}

// isAbout reports whether a value differs by a tenth at most.
func (d decimal) isAbout(value *big.Rat) bool {
	tenth := new(big.Rat).Mul(d.value, big.NewRat(1, 10))
	difference := new(big.Rat).Sub(d.value, value)
	return difference.Abs(difference).Cmp(tenth.Abs(tenth)) <= 0
}
