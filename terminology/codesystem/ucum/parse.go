package ucum

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits on an expression: length in bytes, nesting depth of parentheses, and absolute values of exponents, both in the
// expression and in its canonical form.
const (
	maxLength   = 256
	maxDepth    = 16
	maxExponent = 999
)

// part is a factor of an expression: a unit, a number, an expression in parentheses, or an annotation. For an annotation, none
// of these fields is set, and its value is 1.
type part struct {
	divides  bool
	prefix   *prefix
	unit     *unit
	exponent int
	number   string
	group    []part
}

type parser struct {
	essence  *essence
	code     string
	position int
	depth    int
}

// parse returns the factors and the dimension of a code. The canonical form of a code must also be a valid code, so the same
// limits apply to it.
func parse(code string) ([]part, dimension, error) {
	parts, err := loadEssence().parse(code)
	if err != nil {
		return nil, nil, err
	}
	d := dimensionOf(parts)
	longest := 0 // maximum length of the canonical form in bytes
	for unit, exponent := range d {
		if max(exponent, -exponent) > maxExponent {
			return nil, nil, fmt.Errorf("the exponent of %s in the canonical form exceeds %d", unit, maxExponent)
		}
		longest += len(unit) + len("-999.")
	}
	if longest > maxLength && len(d.String()) > maxLength {
		return nil, nil, fmt.Errorf("the canonical form is longer than %d bytes", maxLength)
	}
	return parts, d, nil
}

// parse returns the factors of an expression. An error contains the position.
func (e *essence) parse(code string) ([]part, error) {
	if len(code) > maxLength {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxLength)
	}
	p := parser{essence: e, code: code}
	divide := p.peek() == '/'
	if divide {
		p.position++
	}
	parts, err := p.term(divide)
	if err == nil && p.position < len(code) {
		err = p.newUnexpectedError()
	}
	return parts, err
}

// peek returns the next byte, or 0 at the end. No valid code contains 0.
func (p *parser) peek() byte {
	if p.position == len(p.code) {
		return 0
	}
	return p.code[p.position]
}

// column returns the position of the byte at index at in characters, starting at 1.
func (p *parser) column(at int) int { return utf8.RuneCountInString(p.code[:at]) + 1 }

func (p *parser) newUnexpectedError() error {
	if p.position == len(p.code) {
		return fmt.Errorf("unexpected end at character %d", p.column(p.position))
	}
	r, _ := utf8.DecodeRuneInString(p.code[p.position:])
	return fmt.Errorf("unexpected %q at character %d", r, p.column(p.position))
}

// term parses components separated by operators. divide reports whether a leading division operator has been read.
func (p *parser) term(divide bool) ([]part, error) {
	parts := make([]part, 0, 2) // most expressions have at most two factors
	for {
		c, err := p.component()
		if err != nil {
			return nil, err
		}
		c.divides = divide
		parts = append(parts, c)
		for p.peek() == '{' {
			if err := p.annotation(); err != nil {
				return nil, err
			}
			parts = append(parts, part{})
		}
		if divide = p.peek() == '/'; !divide && p.peek() != '.' {
			return parts, nil
		}
		p.position++
	}
}

func (p *parser) component() (part, error) {
	switch c := p.peek(); {
	case c == '{':
		return part{}, p.annotation()
	case c == '(':
		return p.parenthesis()
	case strings.HasPrefix(p.code[p.position:], "10*"), strings.HasPrefix(p.code[p.position:], "10^"):
		start := p.position
		p.position += len("10*")
		return p.unitWithExponent(p.code[start:p.position], start)
	case isDigit(c):
		return p.number()
	case c == '[', isSymbol(c):
		start := p.position
		symbol, err := p.symbol()
		if err != nil {
			return part{}, err
		}
		return p.unitWithExponent(symbol, start)
	}
	return part{}, p.newUnexpectedError()
}

// annotation skips an annotation, which does not affect the value.
func (p *parser) annotation() error {
	start := p.position
	for p.position++; p.peek() != '}'; p.position++ {
		if c := p.peek(); c == 0 && p.position == len(p.code) {
			return p.newUnclosedError(start)
		} else if c < ' ' || c > '~' || c == '{' {
			return p.newUnexpectedError()
		}
	}
	p.position++
	return nil
}

func (p *parser) newUnclosedError(start int) error {
	return fmt.Errorf("unclosed %q at character %d", p.code[start], p.column(start))
}

func (p *parser) parenthesis() (part, error) {
	start := p.position
	if p.depth++; p.depth > maxDepth {
		return part{}, fmt.Errorf("more than %d nested parentheses at character %d", maxDepth, p.column(start))
	}
	p.position++
	group, err := p.term(false)
	switch {
	case err != nil:
		return part{}, err
	case p.position == len(p.code):
		return part{}, p.newUnclosedError(start)
	case p.peek() != ')':
		return part{}, p.newUnexpectedError()
	}
	p.depth--
	p.position++
	return part{group: group}, nil
}

// number parses a numeric factor, which must be positive (§8).
func (p *parser) number() (part, error) {
	start := p.position
	digits := p.digits()
	if strings.Trim(digits, "0") == "" {
		return part{}, fmt.Errorf("the number at character %d is not positive", p.column(start))
	}
	return part{number: digits}, nil
}

func (p *parser) digits() string {
	start := p.position
	for isDigit(p.peek()) {
		p.position++
	}
	return p.code[start:p.position]
}

// symbol parses a unit including its prefix. Brackets may contain characters that are otherwise invalid in symbols: B[10.nV].
func (p *parser) symbol() (string, error) {
	start := p.position
	for {
		switch c := p.peek(); {
		case c == '[':
			end := strings.IndexByte(p.code[p.position:], ']')
			if end < 0 {
				return "", p.newUnclosedError(p.position)
			}
			p.position += end + 1
		case isSymbol(c):
			p.position++
		default:
			return p.code[start:p.position], nil
		}
	}
}

// unitWithExponent returns the unit with this symbol and parses its exponent, if any.
func (p *parser) unitWithExponent(symbol string, start int) (part, error) {
	prefix, unit := p.essence.find(symbol)
	if unit == nil {
		return part{}, fmt.Errorf("the unit '%s' is unknown at character %d", symbol, p.column(start))
	}
	exponent, err := p.exponent()
	return part{prefix: prefix, unit: unit, exponent: exponent}, err
}

// exponent parses an exponent and returns 1 if there is none.
func (p *parser) exponent() (int, error) {
	start, sign := p.position, 1
	switch p.peek() {
	case '-':
		sign = -1
		p.position++
	case '+':
		p.position++
	}
	digits := p.digits()
	if digits == "" {
		if p.position > start {
			return 0, p.newUnexpectedError()
		}
		return 1, nil
	}
	n := 0
	for _, d := range []byte(digits) {
		if n = n*10 + int(d-'0'); n > maxExponent {
			return 0, fmt.Errorf("the exponent at character %d exceeds %d", p.column(start), maxExponent)
		}
	}
	return sign * n, nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isSymbol reports whether a character is valid in symbols outside brackets (UCUM §3).
func isSymbol(c byte) bool {
	return c > ' ' && c <= '~' && !isDigit(c) && !strings.ContainsRune(`"()+-./=[]{}`, rune(c))
}
