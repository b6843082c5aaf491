package snomed

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// expression is a post-coordinated expression (SNOMED CT Compositional Grammar 2.4). As a concept of a [System], it has the
// number of its first focus concept, and its text as the code.
type expression struct {
	prefix string // === or <<<, or empty
	focus  []uint32
	groups []attributeGroup // in the order of the text
}

// attributeGroup is a group in braces or a single attribute.
type attributeGroup struct {
	isGroup    bool
	attributes []attributeValue
}

// attributeValue is an attribute with a concept, a nested expression, or a concrete value such as #500 or "text". concept is none
// for a concrete value and for a nested expression that is more than a plain concept.
type attributeValue struct {
	kind, concept uint32
	nested        *expression
	concrete      []byte
}

// plain returns the concept that an expression means if it has neither a refinement nor a second focus concept.
func (e *expression) plain() (concept uint32, ok bool) {
	return e.focus[0], len(e.focus) == 1 && len(e.groups) == 0 && !e.isSubtype()
}

// isSubtype reports whether an expression means a subtype of its definition.
func (e *expression) isSubtype() bool { return strings.HasPrefix(e.prefix, "<<<") }

// Limits on the length of an expression in bytes and on the depth of nested expressions.
const (
	maxExpression      = 4096
	maxExpressionDepth = 8
)

// Ancestors of attribute types.
const (
	conceptModelAttribute sctid = 410662002
	linkageConcept        sctid = 106237007
)

// expressionParser parses an expression of concepts of a system. The messages of its errors are those of HL7's test cases.
type expressionParser struct {
	snapshot *snapshot
	text     []byte
	at       int
	depth    int
}

// parseExpression parses an expression.
func (s *snapshot) parseExpression(text []byte) (*expression, error) {
	p := &expressionParser{snapshot: s, text: text}
	if len(text) > maxExpression {
		return nil, fmt.Errorf("longer than %d bytes", maxExpression)
	}
	e, err := p.expression()
	if p.skipSpace(); err == nil && p.at < len(text) {
		err = p.expected("the end")
	}
	return e, err
}

// expected returns the error for an unexpected character.
func (p *expressionParser) expected(what string) error {
	return fmt.Errorf("%s not found (next char = %q, in %q) at character %d", what, p.text[p.at:min(p.at+1, len(p.text))], p.text, p.at+1)
}

func (p *expressionParser) skipSpace() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t' || p.text[p.at] == '\r' || p.text[p.at] == '\n') {
		p.at++
	}
}

// skip skips a token if it is next. It returns false for other text.
func (p *expressionParser) skip(token string) bool {
	p.skipSpace()
	found := bytes.HasPrefix(p.text[p.at:], []byte(token))
	if found {
		p.at += len(token)
	}
	return found
}

func (p *expressionParser) expression() (*expression, error) {
	if p.depth++; p.depth > maxExpressionDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxExpressionDepth)
	}
	defer func() { p.depth-- }()
	e := new(expression)
	for _, prefix := range []string{"===", "<<<"} {
		if p.skip(prefix) {
			e.prefix = prefix + " "
			break
		}
	}
	for first := true; first || p.skip("+"); first = false {
		focus, err := p.concept()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(e.focus, focus) {
			e.focus = append(e.focus, focus)
		}
	}
	if !p.skip(":") {
		return e, nil
	}
	for first := true; first || p.skip(",") || p.isNext('{'); first = false {
		g, err := p.group()
		if err != nil {
			return nil, err
		}
		e.groups = append(e.groups, g)
	}
	return e, nil
}

func (p *expressionParser) isNext(c byte) bool {
	p.skipSpace()
	return p.at < len(p.text) && p.text[p.at] == c
}

func (p *expressionParser) group() (g attributeGroup, err error) {
	g.isGroup = p.skip("{")
	for first := true; first || g.isGroup && p.skip(","); first = false {
		a, err := p.attribute()
		if err != nil {
			return g, err
		}
		g.attributes = append(g.attributes, a)
	}
	if g.isGroup && !p.skip("}") {
		return g, p.expected("}")
	}
	return g, nil
}

func (p *expressionParser) attribute() (a attributeValue, err error) {
	if a.kind, err = p.concept(); err != nil {
		return a, err
	}
	if err := p.checkAttribute(a.kind); err != nil {
		return a, err
	}
	if !p.skip("=") {
		return a, p.expected("=")
	}
	a.concept = none
	switch {
	case p.isNext('#'), p.isNext('"'):
		a.concrete, err = p.concreteValue()
	case p.skip("("):
		if a.nested, err = p.expression(); err == nil && !p.skip(")") {
			err = p.expected(")")
		}
		if err != nil {
			return a, err
		}
		if concept, ok := a.nested.plain(); ok {
			a.concept = concept
		}
	default:
		a.concept, err = p.concept()
	}
	return a, err
}

// checkAttribute returns an error unless a concept is an attribute type.
func (p *expressionParser) checkAttribute(kind uint32) error {
	above, err := p.snapshot.table.Above(kind, func(int) error { return nil })
	if err != nil {
		return err
	}
	for _, id := range []sctid{conceptModelAttribute, linkageConcept} {
		if general := p.snapshot.concept(id); general != none && above.Has(general) {
			return nil
		}
	}
	return fmt.Errorf("Concept %s is not valid in this context (must be a descendent of one of %d,%d)", p.snapshot.code(kind), conceptModelAttribute, linkageConcept)
}

func (p *expressionParser) concreteValue() ([]byte, error) {
	start := p.at
	if p.text[p.at] == '"' {
		end := bytes.IndexByte(p.text[p.at+1:], '"')
		if end < 0 {
			return nil, p.expected("the closing quotation mark")
		}
		p.at += end + 2
		return p.text[start:p.at], nil
	}
	for p.at++; p.at < len(p.text) && strings.IndexByte("0123456789.+-", p.text[p.at]) >= 0; p.at++ {
	}
	return p.text[start:p.at], nil
}

// concept reads the identifier of a concept and its optional term.
func (p *expressionParser) concept() (uint32, error) {
	p.skipSpace()
	start := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	if p.at == start {
		return none, p.expected("Concept")
	}
	code := p.text[start:p.at]
	c, ok := p.snapshot.table.Locate(code)
	if !ok {
		return none, fmt.Errorf("Concept %s not found", code)
	}
	if p.skip("|") {
		end := bytes.IndexByte(p.text[p.at:], '|')
		if end < 0 {
			return none, errors.New("a term has no closing |")
		}
		p.at += end + 1
	}
	return c.Number, nil
}

// appendExpression appends an expression, with or without preferred terms.
func (s *snapshot) appendExpression(dst []byte, e *expression, terms bool) []byte {
	dst = append(dst, e.prefix...)
	for i, focus := range e.focus {
		if i > 0 {
			dst = append(dst, '+')
		}
		dst = s.appendReference(dst, focus, terms)
	}
	for i, g := range e.groups {
		dst = s.appendGroup(append(dst, ":,"[min(i, 1)]), g, terms)
	}
	return dst
}

func (s *snapshot) appendGroup(dst []byte, g attributeGroup, terms bool) []byte {
	if g.isGroup {
		dst = append(dst, '{')
	}
	for i, a := range g.attributes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(s.appendReference(dst, a.kind, terms), '=')
		switch {
		case a.nested != nil:
			dst = append(s.appendExpression(append(dst, '('), a.nested, terms), ')')
		case a.concrete != nil:
			dst = append(dst, a.concrete...)
		default:
			dst = s.appendReference(dst, a.concept, terms)
		}
	}
	if g.isGroup {
		dst = append(dst, '}')
	}
	return dst
}

// locate returns the concept with an identifier, or the concept of an expression. An identifier with a term is the concept.
func (s *snapshot) locate(code []byte) (c codesystem.Concept, ok bool) {
	if c, ok = s.table.Locate(code); ok || !isExpression(code) {
		return c, ok
	}
	e, err := s.parseExpression(code)
	if err != nil {
		return c, false
	}
	if concept, ok := e.plain(); ok {
		return codesystem.ConceptAt(concept), true
	}
	return codesystem.Concept{Number: e.focus[0], Code: bytes.Clone(code)}, true
}

// expressionOf returns a concept as an expression. ok is false if its code is not valid.
func (s *snapshot) expressionOf(c codesystem.Concept) (e *expression, ok bool) {
	if c.Code == nil {
		return &expression{focus: []uint32{c.Number}}, true
	}
	e, err := s.parseExpression(c.Code)
	return e, err == nil
}

// inactiveFocus returns the first inactive focus concept of an expression, or none.
func (s *snapshot) inactiveFocus(e *expression) uint32 {
	for _, focus := range e.focus {
		if !s.active.Has(focus) {
			return focus
		}
	}
	return none
}

// isExpression reports whether a code contains characters of the grammar.
func isExpression(code []byte) bool { return bytes.ContainsAny(code, ":+=|<") }

// Locate returns the concept with an identifier, or the concept of an expression.
func (s *System) Locate(code []byte) (codesystem.Concept, bool) { return s.snapshot.locate(code) }

// InvalidReason implements [codesystem.CodeExplainer].
func (s *System) InvalidReason(code []byte) string {
	if _, err := s.snapshot.parseExpression(code); err != nil {
		return "Not a valid expression: " + err.Error()
	}
	return ""
}

// Code returns the identifier or the text of an expression.
func (s *System) Code(c codesystem.Concept) []byte {
	if c.Code != nil {
		return c.Code
	}
	return s.Table.Code(c)
}

// Concept returns the code, display and flags of a concept. The display of an expression contains preferred terms. An expression
// with an inactive focus concept is inactive.
func (s *System) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	if c.Code == nil {
		return s.Table.Concept(c)
	}
	e, ok := s.snapshot.expressionOf(c)
	if !ok {
		return c.Code, nil, 0
	}
	if focus := s.snapshot.inactiveFocus(e); focus != none {
		_, _, flags = s.Table.Concept(codesystem.ConceptAt(focus))
	}
	return c.Code, s.snapshot.appendExpression(nil, e, true), flags & codesystem.ReportedFlags
}

// AppendTexts appends the texts of a concept, or the display of an expression.
func (s *System) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	if c.Code == nil {
		return s.Table.AppendTexts(dst, c)
	}
	_, display, _ := s.Concept(c)
	return append(dst, codesystem.Text{Language: s.Language(), Use: codesystem.PreferredForLanguage, Value: display, IsDisplay: true})
}

// Definition returns the definition of a concept, or nil.
func (s *System) Definition(c codesystem.Concept) []byte {
	if c.Code != nil {
		return nil
	}
	return s.Table.Definition(c)
}

// Status returns the status of a concept unless it is active.
func (s *System) Status(c codesystem.Concept) string {
	if c.Code == nil {
		return s.Table.Status(c)
	}
	e, ok := s.snapshot.expressionOf(c)
	if !ok || s.snapshot.inactiveFocus(e) == none {
		return ""
	}
	return s.Table.Status(codesystem.ConceptAt(s.snapshot.inactiveFocus(e)))
}
