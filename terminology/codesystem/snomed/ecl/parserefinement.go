package ecl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// refinement parses an eclRefinement, or an eclAttributeSet if inGroup is set.
func (p *parser) refinement(inGroup bool) refinement {
	parse := func() refinement { return p.subrefinement(inGroup) }
	operator, parts := parseOperands(p, parse(), parse, "AND", "OR")
	if operator == "" {
		return parts[0]
	}
	return &refinements{operator: operator, parts: parts}
}

func (p *parser) subrefinement(inGroup bool) refinement {
	defer p.enter()()
	if p.isNestedRefinement() {
		p.require("(")
		r := p.refinement(inGroup)
		p.require(")")
		return r
	}
	c := p.cardinality()
	if inGroup || !p.accept("{") {
		return p.attribute(c)
	}
	g := &group{cardinality: c, attributes: p.refinement(true)}
	p.require("}")
	return g
}

// isNestedRefinement reports whether a parenthesis follows that encloses a refinement, and not the name of an attribute.
func (p *parser) isNestedRefinement() bool {
	return p.next("(") && p.ahead(func() bool {
		p.pos = closingParenthesis(p.text, p.pos) + 1
		p.space()
		return !strings.ContainsRune("=!<>", rune(p.at())) && !p.next("{{") && !strings.EqualFold(p.word(), "not")
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
	if !p.skip("[") {
		return cardinality{min: 1, max: many}
	}
	p.space()
	at := p.pos
	c := cardinality{min: p.count(), max: many}
	if p.acceptWord("to") < 0 && !p.skip("..") {
		p.failExpected("to")
	}
	upper := "*"
	if p.acceptWord("many") < 0 && !p.skip("*") {
		c.max = p.count()
		upper = fmt.Sprint(c.max)
	}
	if c.min > c.max {
		p.fail(at, "expected a minimum cardinality that is not greater than the maximum")
	}
	p.requireSilently("]")
	if c.min != 1 || c.max != many {
		p.emit(fmt.Sprintf("[%d..%s]", c.min, upper))
	}
	return c
}

// count parses a nonNegativeIntegerValue.
func (p *parser) count() uint32 {
	p.space()
	digits := p.run(isDigit)
	if digits == "" || len(digits) > 1 && digits[0] == '0' || len(digits) > 9 {
		p.failExpected("an integer of up to 9 digits")
	}
	p.pos += len(digits)
	n, _ := strconv.ParseUint(digits, 10, 32) // 9 digits are within the range
	return uint32(n)
}

// attribute parses an eclAttribute after its cardinality.
func (p *parser) attribute(c cardinality) refinement {
	a := &attribute{cardinality: c, reverse: p.reverseFlag()}
	a.name = p.subexpression()
	a.operator = p.comparison(true)
	p.space()
	at := p.pos
	if a.concrete = p.concreteValue(); a.concrete.literal == "" && a.concrete.texts == nil {
		a.value = p.subexpression()
	}
	switch isNumber := strings.HasPrefix(a.concrete.literal, "#"); {
	case a.operator != "=" && a.operator != "!=" && !isNumber:
		p.fail(at, "expected a number after %s, such as #5", a.operator)
	case a.reverse && a.value == nil:
		p.fail(at, "expected a concept: reverse attributes have no concrete values")
	}
	return a
}

func (p *parser) reverseFlag() bool {
	if p.space(); p.isAlternateID() {
		return false
	}
	if p.word() != "R" && p.acceptWord("reverseOf") < 0 {
		p.expect("R")
		return false
	}
	p.pos += len(p.run(isLetter)) // R
	p.emit("R")
	return true
}

// comparison parses a comparison operator. ordered permits < and so on.
func (p *parser) comparison(ordered bool) string {
	for _, operator := range []string{"=", "!=", "<>", "<=", "<", ">=", ">"} {
		if p.next(operator) && (ordered || operator[0] != '<' && operator[0] != '>' || operator == "<>") {
			p.pos += len(operator)
			operator = strings.Replace(operator, "<>", "!=", 1)
			p.emit(operator)
			return operator
		}
	}
	if p.acceptWord("not") < 0 || !p.skip("=") {
		p.failExpected(`"=" or another comparison operator`)
	}
	p.emit("!=")
	return "!="
}

// concreteValue parses a concrete value. It returns the zero value if a concept follows.
func (p *parser) concreteValue() (v concrete) {
	p.space()
	switch c := p.at(); {
	case c == '#':
		v.literal = p.number()
	case p.ahead(func() bool { return p.skip("(") && p.next(`"`) || c == '"' }):
		v.texts = parseSet(p, p.concreteString)
	case strings.EqualFold(p.word(), "true") || strings.EqualFold(p.word(), "false"):
		if !p.isAlternateID() {
			v.literal = p.lowerWord()
		}
	default:
		p.expect("a concrete value")
	}
	return v
}

// lowerWord skips and emits a word and returns it in lower case.
func (p *parser) lowerWord() string {
	word := p.word()
	p.pos += len(word)
	word = strings.ToLower(word)
	p.emit(word)
	return word
}

// number parses a numericValue and returns it in canonical form: without plus sign and trailing zeros.
func (p *parser) number() string {
	p.pos++
	at := p.pos
	negative := p.at() == '-'
	if negative || p.at() == '+' {
		p.pos++
	}
	whole, fraction := p.run(isDigit), ""
	p.pos += len(whole)
	if whole == "" || len(whole) > 1 && whole[0] == '0' {
		p.fail(at, "expected a number without leading zeros after #")
	}
	if p.at() == '.' && p.pos+1 < len(p.text) && isDigit(p.text[p.pos+1]) {
		p.pos++
		fraction = p.run(isDigit)
		p.pos += len(fraction)
	}
	text := "#" + whole
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		text += "." + fraction
	}
	if negative && text != "#0" {
		text = "#-" + text[1:]
	}
	p.emit(text)
	return text
}

// concreteString parses a concreteString and returns it without escapes.
func (p *parser) concreteString() string {
	at := p.pos
	raw := p.quoted(true)
	if raw == "" {
		p.fail(at, "expected a string that is not empty")
	}
	p.emit(`"` + raw + `"`)
	return unescape(raw)
}

// quoted parses a string in double quotes and returns it with its escapes: \" and \\, and \* if stars can be escaped.
func (p *parser) quoted(stars bool) string {
	p.requireSilently(`"`)
	from := p.pos
	for ; p.at() != '"'; p.pos++ {
		if p.pos >= len(p.text) {
			p.failExpected(`"\""`)
		}
		if p.at() == '\\' {
			if p.pos++; p.at() != '"' && p.at() != '\\' && (p.at() != '*' || !stars) {
				p.failExpected("a character that can be escaped")
			}
		}
	}
	p.pos++
	return p.text[from : p.pos-1]
}

var escapes = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\*`, `*`)

func unescape(raw string) string { return escapes.Replace(raw) }

// parseSet parses one item, or items in parentheses. The canonical text of one item has no parentheses.
func parseSet[T any](p *parser, item func() T) []T {
	if !p.accept("(") {
		return []T{item()}
	}
	from := len(p.canonical) - 2 // of " ("
	list := parseItems(p, item)
	if len(list) == 1 {
		p.canonical = slices.Delete(p.canonical[:len(p.canonical)-2], from, from+2)
	}
	return list
}

// parseItems parses items up to a closing parenthesis.
func parseItems[T any](p *parser, item func() T) []T {
	list := []T{item()}
	for !p.accept(")") {
		list = append(list, item())
	}
	return list
}
