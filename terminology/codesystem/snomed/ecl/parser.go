package ecl

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxLength is the maximum length of an expression in bytes.
const MaxLength = 256 << 10

// maxDepth is the maximum depth of the syntax tree. A pair of parentheses adds two levels.
const maxDepth = 200

// SyntaxError describes the first error in an expression.
type SyntaxError struct {
	// Column is the position in characters, starting at 1.
	Column int

	// Message describes the error and what was expected.
	Message string
}

// Error returns the message after the column.
func (e *SyntaxError) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Message) }

// Parse parses an expression constraint in brief or long syntax. The error is a *SyntaxError.
func Parse(text string) (x *Expression, err error) {
	s := &scanner{text: text}
	defer recoverFailure(&err)
	if len(text) > MaxLength {
		s.fail(MaxLength, "expression is longer than %d bytes", MaxLength)
	}
	if !utf8.ValidString(text) {
		s.fail(strings.IndexRune(text, utf8.RuneError), "expression is not UTF-8")
	}
	root := (&parser{s: s}).expression()
	if s.space(); s.pos < len(text) {
		s.failExpected("the end")
	}
	return &Expression{root: root, canonical: string(s.canonical)}, nil
}

// failure is the panic value that carries an error to Parse or Evaluate.
type failure struct{ err error }

// recoverFailure sets err to the error of a failure.
func recoverFailure(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}

// parser is a recursive descent parser for expressions and refinements. It panics with a failure, so that the functions of the
// grammar return nodes only.
type parser struct {
	s     *scanner
	depth int
}

// cacheable returns the expression whose canonical text begins at an offset and ends here.
func (p *parser) cacheable(from int, n node) node {
	return &cacheable{node: n, from: min(from+1, from*2), to: len(p.s.canonical)} // a space follows other text
}

// enter limits the depth of recursion. Callers defer the returned function.
func (p *parser) enter() (leave func()) {
	if p.depth++; p.depth > maxDepth {
		p.s.fail(p.s.pos, "expression is nested too deeply: expected at most %d levels", maxDepth)
	}
	return func() { p.depth-- }
}

// expression parses an expressionConstraint.
func (p *parser) expression() node {
	defer p.enter()()
	first := p.subexpression()
	if p.s.accept(":") {
		return &refined{operand: first, refinement: p.refinement(false)}
	}
	if p.s.accept(".") {
		return p.dotted(first)
	}
	operator, operands := parseOperands(p.s, first, p.subexpression, "AND", "OR", "MINUS")
	if operator == "" {
		return first
	}
	return &compound{operator: operator, operands: operands}
}

// dotted parses the attributes of a dottedExpressionConstraint after the first dot.
func (p *parser) dotted(n node) node {
	for {
		defer p.enter()() // the tree is as deep as the chain is long
		n = &dotted{operand: n, attribute: p.subexpression()}
		if !p.s.accept(".") {
			return n
		}
	}
}

var hierarchyOperators = []struct{ symbol, word string }{
	{"<<!", "childOrSelfOf"}, {"<<", "descendantOrSelfOf"}, {"<!", "childOf"}, {"<", "descendantOf"},
	{">>!", "parentOrSelfOf"}, {">>", "ancestorOrSelfOf"}, {">!", "parentOf"}, {">", "ancestorOf"},
	{"!!>", "top"}, {"!!<", "bottom"},
}

// subexpression parses a subExpressionConstraint.
func (p *parser) subexpression() node {
	defer p.enter()()
	from := len(p.s.canonical)
	for _, operator := range hierarchyOperators {
		if p.s.next(operator.symbol) {
			p.s.pos += len(operator.symbol)
		} else if p.s.acceptWord(operator.word) == "" {
			continue
		}
		p.s.emit(operator.symbol)
		n := &hierarchy{operator: operator.symbol, operand: p.members()}
		return p.filters(from, p.cacheable(from, n))
	}
	p.s.expect("an operator")
	return p.filters(from, p.members())
}

// members parses a focus concept or nested expression, optionally with an operator for reference sets.
func (p *parser) members() node {
	from := len(p.s.canonical)
	m := p.memberOperator()
	if m == nil {
		return p.focus()
	}
	m.operand = p.focus()
	for p.filterKind() == 'M' {
		m.filters = append(m.filters, p.criteria('M'))
	}
	return p.cacheable(from, m)
}

// memberOperator parses an optional refsetOperator. It returns nil without operator.
func (p *parser) memberOperator() *memberOf {
	m := new(memberOf)
	switch {
	case p.s.skip("^"):
		if m.containing = p.s.at() == 'R' && !p.s.isAlternateID(); m.containing {
			p.s.pos++
		}
	case p.s.acceptWord("refsetContainingAny") != "":
		m.containing = true
	case p.s.acceptWord("memberOf") == "":
		return nil
	}
	if m.containing {
		p.s.emit("^R")
		return m
	}
	p.s.emit("^")
	if p.s.accept("[") {
		m.fields = p.fieldNames()
		p.s.require("]")
	}
	return m
}

func (p *parser) fieldNames() []string {
	if p.wildcard() {
		return []string{"*"}
	}
	var names []string
	for {
		name := p.s.word()
		if name == "" {
			p.s.failExpected("the name of a column")
		}
		p.s.pos += len(name)
		p.s.emit(name)
		if names = append(names, name); !p.s.accept(",") {
			return names
		}
	}
}

// wildcard skips a wildcard if it follows.
func (p *parser) wildcard() bool {
	if p.s.accept("*") {
		return true
	}
	if p.s.acceptWord("any") == "" {
		return false
	}
	p.s.emit("*")
	return true
}

// focus parses an eclFocusConcept or an expression in parentheses.
func (p *parser) focus() node {
	p.s.space()
	switch c := p.s.at(); {
	case isDigit(c):
		return p.conceptReference()
	case c == '"' || p.s.isAlternateID():
		return p.alternateIdentifier()
	case p.wildcard():
		return anyConcept{}
	case p.s.accept("("):
		n := p.expression()
		p.s.require(")")
		return n
	}
	p.s.failExpected("a concept identifier")
	return nil
}

// conceptReference parses an eclConceptReference.
func (p *parser) conceptReference() node {
	id := p.s.identifier()
	p.s.term()
	return concept(id)
}

// alternateIdentifier parses an altIdentifier. The code, or scheme and code, may be quoted.
func (p *parser) alternateIdentifier() node {
	allQuoted := p.s.skip(`"`)
	if !p.s.isAlternateID() {
		p.s.failExpected("the alias of an identifier scheme and #")
	}
	n := &alternateID{scheme: p.s.scheme()}
	p.s.pos += len(n.scheme) + 1
	quoted := allQuoted || p.s.at() == '"' && p.s.skip(`"`)
	isCode := func(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' || c == '.' || c == '_' }
	if quoted {
		isCode = func(c byte) bool { return c != '"' && c != '\\' }
	}
	n.code = p.s.run(isCode)
	p.s.pos += len(n.code)
	if n.code == "" {
		p.s.failExpected("the code of an alternate identifier")
	}
	quote := ""
	if quoted {
		quote = `"`
		p.s.requireSilently(quote)
	}
	p.s.emit(n.scheme + "#" + quote + n.code + quote)
	p.s.term()
	return n
}
