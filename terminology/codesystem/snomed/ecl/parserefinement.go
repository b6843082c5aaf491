package ecl

import (
	"fmt"
	"strings"
)

// refinement parses an eclRefinement, or an eclAttributeSet if inGroup is set.
func (p *parser) refinement(inGroup bool) refinement {
	parse := func() refinement { return p.subrefinement(inGroup) }
	operator, parts := parseOperands(p.s, parse(), parse, "AND", "OR")
	if operator == "" {
		return parts[0]
	}
	return &refinements{operator: operator, parts: parts}
}

func (p *parser) subrefinement(inGroup bool) refinement {
	defer p.enter()()
	if p.isNestedRefinement() {
		p.s.require("(")
		r := p.refinement(inGroup)
		p.s.require(")")
		return r
	}
	c := p.cardinality()
	if inGroup || !p.s.accept("{") {
		return p.attribute(c)
	}
	g := &group{cardinality: c, attributes: p.refinement(true)}
	p.s.require("}")
	return g
}

// isNestedRefinement reports whether a refinement in parentheses follows. Names of attributes may be in parentheses, too.
func (p *parser) isNestedRefinement() bool {
	return p.s.next("(") && p.s.ahead(func() bool {
		p.s.pos = closingParenthesis(p.s.text, p.s.pos) + 1
		p.s.space()
		return !strings.ContainsRune("=!<>", rune(p.s.at())) && !p.s.next("{{") && !strings.EqualFold(p.s.word(), "not")
	})
}

// closingParenthesis returns the offset of the parenthesis that closes the one at the offset i, or the offset of the last byte. It
// ignores parentheses in terms, strings and comments.
func closingParenthesis(text string, i int) int {
	for open := 0; i < len(text); i++ {
		switch text[i] {
		case '|', '"', '/':
			i = skipText(text, i)
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				return i
			}
		}
	}
	return len(text) - 1
}

// skipText returns the offset of the last byte of the term, string or comment that begins at i. Without an end, this is the last
// byte of text, so that each byte is read once.
func skipText(text string, i int) int {
	var end int
	switch {
	case text[i] == '|':
		end = strings.IndexByte(text[i+1:], '|') + 1
	case text[i] == '"':
		for end = 1; i+end < len(text) && text[i+end] != '"'; end++ {
			if text[i+end] == '\\' {
				end++
			}
		}
	case strings.HasPrefix(text[i:], "/*"):
		if end = strings.Index(text[i+2:], "*/") + 1; end > 0 {
			end += 2
		}
	default:
		return i
	}
	if end == 0 {
		return len(text) - 1
	}
	return i + end
}

// cardinality parses an optional cardinality.
func (p *parser) cardinality() cardinality {
	if !p.s.skip("[") {
		return cardinality{min: 1, max: many}
	}
	p.s.space()
	at := p.s.pos
	c := cardinality{min: p.s.count(), max: many}
	if p.s.acceptWord("to") == "" && !p.s.skip("..") {
		p.s.failExpected("to")
	}
	upper := "*"
	if p.s.acceptWord("many") == "" && !p.s.skip("*") {
		c.max = p.s.count()
		upper = fmt.Sprint(c.max)
	}
	if c.min > c.max {
		p.s.fail(at, "expected a minimum cardinality that is not greater than the maximum")
	}
	p.s.requireSilently("]")
	if c.min != 1 || c.max != many {
		p.s.emit(fmt.Sprintf("[%d..%s]", c.min, upper))
	}
	return c
}

// attribute parses an eclAttribute after its cardinality.
func (p *parser) attribute(c cardinality) refinement {
	a := &attribute{cardinality: c, reverse: p.reverseFlag()}
	a.name = p.subexpression()
	a.operator = p.s.comparison(true)
	p.s.space()
	at := p.s.pos
	if a.concrete = p.concreteValue(); a.concrete.literal == "" && a.concrete.texts == nil {
		a.value = p.subexpression()
	}
	switch isNumber := strings.HasPrefix(a.concrete.literal, "#"); {
	case a.operator != "=" && a.operator != "!=" && !isNumber:
		p.s.fail(at, "expected a number after %s, such as #5", a.operator)
	case a.reverse && a.value == nil:
		p.s.fail(at, "expected a concept: reverse attributes have no concrete values")
	}
	return a
}

func (p *parser) reverseFlag() bool {
	if p.s.space(); p.s.isAlternateID() {
		return false
	}
	if p.s.word() != "R" && p.s.acceptWord("reverseOf") == "" {
		p.s.expect("R")
		return false
	}
	p.s.pos += len(p.s.run(isLetter)) // R
	p.s.emit("R")
	return true
}

// concreteValue parses a concrete value. It returns the zero value if a concept follows.
func (p *parser) concreteValue() (v concrete) {
	p.s.space()
	switch c := p.s.at(); {
	case c == '#':
		v.literal = p.s.number()
	case p.s.ahead(func() bool { return p.s.skip("(") && p.s.next(`"`) || c == '"' }):
		v.texts = parseSet(p.s, p.concreteString)
	case strings.EqualFold(p.s.word(), "true") || strings.EqualFold(p.s.word(), "false"):
		if !p.s.isAlternateID() {
			v.literal = p.s.lowerWord()
		}
	default:
		p.s.expect("a concrete value")
	}
	return v
}

// concreteString parses a concreteString and returns it without escapes.
func (p *parser) concreteString() string {
	at := p.s.pos
	raw := p.s.quoted(true)
	if raw == "" {
		p.s.fail(at, "expected a string that is not empty")
	}
	p.s.emit(`"` + raw + `"`)
	return unescape(raw)
}
