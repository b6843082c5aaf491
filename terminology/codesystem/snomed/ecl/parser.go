package ecl

import (
	"fmt"
	"slices"
	"strconv"
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
	p := parser{text: text}
	defer recoverFailure(&err)
	if len(text) > MaxLength {
		p.fail(MaxLength, "expression is longer than %d bytes", MaxLength)
	}
	if !utf8.ValidString(text) {
		p.fail(strings.IndexRune(text, utf8.RuneError), "expression is not UTF-8")
	}
	root := p.expression()
	if p.space(); p.pos < len(text) {
		p.failExpected("the end")
	}
	return &Expression{root: root, canonical: string(p.canonical)}, nil
}

// failure is the panic value with which the parser and the evaluator return an error to their callers.
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

// parser is a recursive descent parser without tokens, because the meaning of characters depends on the context. It panics with
// a failure, so that the functions of the grammar return nodes only.
type parser struct {
	text  string
	pos   int // byte offset
	depth int

	expected   []string // labels of tokens that were not found at the offset expectedAt
	expectedAt int
	isAhead    bool // ahead is reading: labels are not recorded

	canonical []byte
}

// emit appends a token to the canonical text.
func (p *parser) emit(token string) {
	if len(p.canonical) > 0 {
		p.canonical = append(p.canonical, ' ')
	}
	p.canonical = append(p.canonical, token...)
}

// cacheable returns the expression whose canonical text begins at an offset and ends here.
func (p *parser) cacheable(from int, n node) node {
	return &cacheable{node: n, from: min(from+1, from*2), to: len(p.canonical)} // a space follows other text
}

// fail reports an error at a byte offset.
func (p *parser) fail(at int, format string, args ...any) {
	at = min(at, len(p.text))
	panic(failure{&SyntaxError{Column: utf8.RuneCountInString(p.text[:at]) + 1, Message: fmt.Sprintf(format, args...)}})
}

// failExpected reports that neither label nor a token that was recorded at the current position was found.
func (p *parser) failExpected(label string) {
	p.isAhead = false
	p.expect(label)
	found := "the end"
	if fields := strings.Fields(p.text[p.pos:]); len(fields) > 0 {
		found = fmt.Sprintf("%.32q", fields[0])
	}
	last := len(p.expected) - 1
	list := strings.Join(p.expected[:last], ", ")
	p.fail(p.pos, "expected %s, found %s", strings.TrimPrefix(list+" or "+p.expected[last], " or "), found)
}

// expect records the label of a token that was not found at the current position.
func (p *parser) expect(label string) {
	if p.isAhead {
		return
	}
	if p.pos != p.expectedAt {
		p.expected, p.expectedAt = p.expected[:0], p.pos
	}
	if !slices.Contains(p.expected, label) {
		p.expected = append(p.expected, label)
	}
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// isNotCodeRune reports whether a code of an alternate identifier must be quoted because of r.
func isNotCodeRune(r rune) bool {
	return r >= utf8.RuneSelf || !isLetter(byte(r)) && !isDigit(byte(r)) && r != '-' && r != '.' && r != '_'
}

// at returns the byte at the current position, or 0 at the end.
func (p *parser) at() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

// space skips white space and comments.
func (p *parser) space() {
	for {
		switch c := p.at(); {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			p.pos++
		case c == '/' && strings.HasPrefix(p.text[p.pos:], "/*"):
			end := strings.Index(p.text[p.pos+2:], "*/")
			if end < 0 {
				p.fail(p.pos, `comment has no end: expected "*/"`)
			}
			p.pos += end + 4
		default:
			return
		}
	}
}

// next reports whether token follows after white space. It skips the white space.
func (p *parser) next(token string) bool {
	p.space()
	return strings.HasPrefix(p.text[p.pos:], token)
}

// skip skips token if it follows.
func (p *parser) skip(token string) bool {
	if p.next(token) {
		p.pos += len(token)
		return true
	}
	p.expect(strconv.Quote(token))
	return false
}

// accept skips and emits token if it follows.
func (p *parser) accept(token string) bool {
	if !p.skip(token) {
		return false
	}
	p.emit(token)
	return true
}

// require skips and emits token, or fails.
func (p *parser) require(token string) {
	p.requireSilently(token)
	p.emit(token)
}

// requireSilently skips token, or fails.
func (p *parser) requireSilently(token string) {
	if !p.skip(token) {
		p.failExpected(strconv.Quote(token))
	}
}

// run returns the longest text at the current position whose bytes all match.
func (p *parser) run(matches func(c byte) bool) string {
	end := p.pos
	for end < len(p.text) && matches(p.text[end]) {
		end++
	}
	return p.text[p.pos:end]
}

// word returns the letters that follow after white space.
func (p *parser) word() string {
	p.space()
	return p.run(isLetter)
}

// acceptWord skips the word that follows if it is one of words, ignoring case, and returns its index; otherwise -1.
func (p *parser) acceptWord(words ...string) int {
	word := p.word()
	i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, word) })
	if i < 0 || strings.HasPrefix(p.text[p.pos+len(word):], "#") { // an alternate identifier
		return -1
	}
	p.pos += len(word)
	return i
}

// enter limits the depth of recursion. Callers defer the returned function.
func (p *parser) enter() (leave func()) {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.pos, "expression is nested too deeply: expected at most %d levels", maxDepth)
	}
	return func() { p.depth-- }
}

// ahead returns the result of read and restores the position.
func (p *parser) ahead(read func() bool) bool {
	at := p.pos
	p.isAhead = true
	defer func() { p.pos, p.isAhead = at, false }()
	return read()
}

// expression parses an expressionConstraint.
func (p *parser) expression() node {
	defer p.enter()()
	first := p.subexpression()
	if p.accept(":") {
		return &refined{operand: first, refinement: p.refinement(false)}
	}
	if p.next(".") {
		return p.dotted(first)
	}
	p.expect(`"."`)
	return p.compound(first)
}

func (p *parser) dotted(n node) node {
	for p.accept(".") {
		defer p.enter()() // the tree is as deep as the chain is long
		n = &dotted{operand: n, attribute: p.subexpression()}
	}
	return n
}

func (p *parser) compound(first node) node {
	operator, operands := parseOperands(p, first, p.subexpression, "AND", "OR", "MINUS")
	if operator == "" {
		return first
	}
	return &compound{operator: operator, operands: operands}
}

// parseOperands parses operands after the first one. It returns an empty operator if no operator follows.
func parseOperands[T any](p *parser, first T, parse func() T, operators ...string) (operator string, operands []T) {
	operands = []T{first}
	operator = p.connective(operators...)
	for next := operator; next != ""; {
		operands = append(operands, parse())
		p.space()
		at := p.pos
		if next = p.connective(operators...); next != "" && (next != operator || operator == "MINUS") {
			p.fail(at, "expected parentheses: %s cannot follow %s without them", next, operator)
		}
	}
	return operator, operands
}

// connective skips one of the operators and returns it, or "". A comma means AND.
func (p *parser) connective(operators ...string) string {
	i := p.acceptWord(operators...)
	if i < 0 && p.skip(",") {
		i = 0
	}
	if i >= 0 {
		p.emit(operators[i])
		return operators[i]
	}
	for _, operator := range operators {
		p.expect(operator)
	}
	return ""
}

var hierarchyOperators = []struct{ symbol, word string }{
	{"<<!", "childOrSelfOf"}, {"<<", "descendantOrSelfOf"}, {"<!", "childOf"}, {"<", "descendantOf"},
	{">>!", "parentOrSelfOf"}, {">>", "ancestorOrSelfOf"}, {">!", "parentOf"}, {">", "ancestorOf"},
	{"!!>", "top"}, {"!!<", "bottom"},
}

// subexpression parses a subExpressionConstraint.
func (p *parser) subexpression() node {
	defer p.enter()()
	from := len(p.canonical)
	for _, operator := range hierarchyOperators {
		if p.next(operator.symbol) {
			p.pos += len(operator.symbol)
		} else if p.acceptWord(operator.word) < 0 {
			continue
		}
		p.emit(operator.symbol)
		n := &hierarchy{operator: operator.symbol, operand: p.members()}
		return p.filters(from, p.cacheable(from, n))
	}
	p.expect("an operator")
	return p.filters(from, p.members())
}

// members parses a focus concept or nested expression, optionally with an operator for reference sets.
func (p *parser) members() node {
	from := len(p.canonical)
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

// memberOperator parses a refsetOperator. It returns nil if none follows.
func (p *parser) memberOperator() *memberOf {
	m := new(memberOf)
	isSymbol := p.skip("^")
	switch {
	case isSymbol && p.at() == 'R' && !p.isAlternateID():
		p.pos++
		m.containing = true
	case isSymbol:
	case p.acceptWord("refsetContainingAny") >= 0:
		m.containing = true
	case p.acceptWord("memberOf") < 0:
		return nil
	}
	if m.containing {
		p.emit("^R")
		return m
	}
	p.emit("^")
	if p.accept("[") {
		m.fields = p.fieldNames()
		p.require("]")
	}
	return m
}

func (p *parser) fieldNames() []string {
	if p.wildcard() {
		return []string{"*"}
	}
	var names []string
	for {
		name := p.word()
		if name == "" {
			p.failExpected("the name of a column")
		}
		p.pos += len(name)
		p.emit(name)
		if names = append(names, name); !p.accept(",") {
			return names
		}
	}
}

// wildcard skips a wildcard if it follows.
func (p *parser) wildcard() bool {
	if p.accept("*") {
		return true
	}
	if p.acceptWord("any") < 0 {
		return false
	}
	p.emit("*")
	return true
}

// focus parses an eclFocusConcept or an expression in parentheses.
func (p *parser) focus() node {
	p.space()
	switch c := p.at(); {
	case isDigit(c):
		return p.conceptReference()
	case c == '"' || p.isAlternateID():
		return p.alternateIdentifier()
	case p.wildcard():
		return anyConcept{}
	case p.accept("("):
		n := p.expression()
		p.require(")")
		return n
	}
	p.failExpected("a concept identifier")
	return nil
}

// conceptReference parses an eclConceptReference.
func (p *parser) conceptReference() node {
	id := p.identifier()
	p.term()
	return concept(id)
}

// identifier parses an SCTID.
func (p *parser) identifier() uint64 {
	p.space()
	digits := p.run(isDigit)
	if digits == "" {
		p.failExpected("an identifier")
	}
	if len(digits) < 6 || len(digits) > 18 || digits[0] == '0' {
		p.fail(p.pos, "expected an identifier of 6 to 18 digits, found %.32q", digits)
	}
	p.pos += len(digits)
	p.emit(digits)
	id, _ := strconv.ParseUint(digits, 10, 64) // 18 digits are within the range
	return id
}

// term skips a term between vertical bars. Terms are not compared with the content: they may be outdated or translated.
func (p *parser) term() {
	if !p.skip("|") {
		return
	}
	term, _, closed := strings.Cut(p.text[p.pos:], "|")
	switch {
	case !closed:
		p.fail(len(p.text), `expected "|" at the end of the term, found the end`)
	case strings.TrimSpace(term) == "":
		p.failExpected("a term")
	}
	p.pos += len(term) + 1
}

// isAlternateID reports whether an alternate identifier without leading quote follows.
func (p *parser) isAlternateID() bool {
	scheme := p.scheme()
	return scheme != "" && strings.HasPrefix(p.text[p.pos+len(scheme):], "#")
}

// scheme returns the alias that follows: of a scheme or of a dialect.
func (p *parser) scheme() string {
	if !isLetter(p.at()) {
		return ""
	}
	return p.run(func(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' })
}

// alternateIdentifier parses an altIdentifier. The code, or scheme and code, may be quoted.
func (p *parser) alternateIdentifier() node {
	allQuoted := p.skip(`"`)
	if !p.isAlternateID() {
		p.failExpected("the alias of an identifier scheme and #")
	}
	n := &alternateID{scheme: p.scheme()}
	p.pos += len(n.scheme) + 1
	quoted := allQuoted || p.at() == '"' && p.skip(`"`)
	n.code = p.run(func(c byte) bool { return quoted && c != '"' && c != '\\' || !quoted && !isNotCodeRune(rune(c)) })
	p.pos += len(n.code)
	if n.code == "" {
		p.failExpected("the code of an alternate identifier")
	}
	quote := ""
	if quoted {
		quote = `"`
		p.requireSilently(quote)
	}
	p.emit(n.scheme + "#" + quote + n.code + quote)
	p.term()
	return n
}
