package searchparam

import (
	_ "embed" // for r4Elements
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

const (
	maxExpression = 4096 // maximum length in bytes
	maxPaths      = 512  // maximum per expression, including one for each type of a choice
)

// Paths returns the paths of an expression for a resource type. Parts for other types are skipped. The expression may be a
// union of paths, with where(element='text'), where(resolve() is Type) at the end, extension('url'), and a type for a choice
// (as, as(), ofType()). Any other syntax evaluates more than elements of the resource, or is not supported here. It is an
// error, because the other parts of the expression alone would match too little.
func (s Structures) Paths(resourceType, expression string) ([]resource.Path, error) {
	if len(expression) > maxExpression {
		return nil, expressionError("expression exceeds %d bytes", maxExpression)
	}
	tokens, err := tokenize(expression)
	if err != nil {
		return nil, err
	}
	var paths []resource.Path
	for _, part := range splitUnion(tokens) {
		p := &expressionParser{structures: s, resourceType: resourceType, tokens: part}
		if p.isForOtherType() {
			continue
		}
		if err := p.parseAll(); err != nil {
			return nil, err
		}
		for _, r := range p.states {
			paths = append(paths, r.path)
		}
	}
	return paths, nil
}

// splitUnion splits an expression at its bars and removes parentheses that enclose a complete part.
func splitUnion(tokens []string) (parts [][]string) {
	for isEnclosed(tokens) {
		tokens = tokens[1 : len(tokens)-1]
	}
	depth, start := 0, 0
	for i, t := range tokens {
		switch {
		case t == "(":
			depth++
		case t == ")":
			depth--
		case t == "|" && depth == 0:
			parts = append(parts, splitUnion(tokens[start:i])...)
			start = i + 1
		}
	}
	if start == 0 {
		return [][]string{tokens}
	}
	return append(parts, splitUnion(tokens[start:])...)
}

// isEnclosed reports whether the last token closes the parenthesis that the first token opens.
func isEnclosed(tokens []string) bool {
	depth := 0
	for i, t := range tokens {
		switch t {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 0 {
			return t == ")" && i == len(tokens)-1
		}
	}
	return false
}

// pathState is the parsing state of an expression: a path, and the path in [Structures] of the elements at its end.
type pathState struct {
	path        resource.Path
	elementPath string
}

// expressionParser parses one part of a union.
type expressionParser struct {
	structures   Structures
	resourceType string
	tokens       []string
	position     int
	states       []pathState
}

// isForOtherType reports whether the part applies to another resource type.
func (p *expressionParser) isForOtherType() bool {
	i := slices.IndexFunc(p.tokens, func(t string) bool { return t != "(" })
	return i >= 0 && p.tokens[i] != p.resourceType && !isBaseType(p.tokens[i]) && p.structures.hasType(p.tokens[i])
}

// isBaseType reports whether name is an abstract base type.
func isBaseType(name string) bool { return name == "Resource" || name == "DomainResource" }

// next consumes and returns the next token, or "" at the end.
func (p *expressionParser) next() string {
	if p.position == len(p.tokens) {
		return ""
	}
	p.position++
	return p.tokens[p.position-1]
}

// consume consumes the given tokens if they come next, and reports whether they do.
func (p *expressionParser) consume(tokens ...string) bool {
	if !slices.Equal(p.tokens[p.position:min(len(p.tokens), p.position+len(tokens))], tokens) {
		return false
	}
	p.position += len(tokens)
	return true
}

// parseAll parses the complete part.
func (p *expressionParser) parseAll() error {
	if err := p.parsePart(); err != nil {
		return err
	}
	if p.position < len(p.tokens) {
		return expressionError("unexpected %q", p.tokens[p.position])
	}
	if len(p.states) == 1 && len(p.states[0].path.Elements) == 0 {
		return expressionError("expression contains no element")
	}
	return nil
}

// parsePart parses a path, or a path in parentheses followed by more steps.
func (p *expressionParser) parsePart() error {
	if p.consume("(") {
		if err := p.parsePart(); err != nil {
			return err
		}
		if !p.consume(")") {
			return expressionError("missing closing parenthesis before %q", p.next())
		}
	} else if err := p.parseStart(); err != nil {
		return err
	}
	for p.consume(".") {
		if err := p.parseStep(p.next()); err != nil {
			return err
		}
	}
	if p.consume("as") {
		return p.restrictType(p.next())
	}
	return nil
}

// parseStart parses the name of the type. An expression of R4 omits it.
func (p *expressionParser) parseStart() error {
	p.states = []pathState{{elementPath: p.resourceType}}
	first := p.next()
	if first == p.resourceType || isBaseType(first) {
		return nil
	}
	return p.parseStep(first)
}

// parseStep parses an element or a function.
func (p *expressionParser) parseStep(name string) error {
	if name == "" || !isLetter(name[0]) {
		return expressionError("expected an element or function, found %q", name)
	}
	if p.consume("(") {
		return p.parseFunction(name)
	}
	var next []pathState
	for _, r := range p.states {
		if r.path.Target != "" || r.path.Type == "Resource" {
			return expressionError("path continues in another resource")
		}
		for _, s := range p.structures.memberSteps(r.elementPath, name) {
			next = append(next, r.extend(s))
		}
	}
	if len(next) == 0 || len(next) > maxPaths {
		return expressionError("element %q does not exist in FHIR R4, or has too many types", name)
	}
	p.states = next
	return nil
}

// extend returns the path extended by one element.
func (r pathState) extend(s elementStep) pathState {
	r.path.Elements = append(slices.Clip(r.path.Elements), s.name)
	r.path.Type, r.path.System, r.elementPath = s.fhirType, s.system, s.elementPath
	return r
}

// parseFunction parses the argument of a function and applies it.
func (p *expressionParser) parseFunction(name string) error {
	switch name {
	case "as", "ofType":
		if err := p.restrictType(p.next()); err != nil {
			return err
		}
	case "extension":
		url, ok := stringLiteral(p.next())
		if err := p.parseStep("extension"); err != nil || !ok {
			return expressionError("extension() requires a URL")
		}
		p.addFilter("url", url)
	case "where":
		if err := p.parseWhere(); err != nil {
			return err
		}
	default:
		return expressionError("unsupported function %s()", name)
	}
	if !p.consume(")") {
		return expressionError("unsupported argument of %s()", name)
	}
	return nil
}

// parseWhere parses element='text' or resolve() is Type.
func (p *expressionParser) parseWhere() error {
	if p.consume("resolve", "(", ")", "is") {
		return p.restrictTarget(p.next())
	}
	element := p.next()
	hasEquals := p.consume("=")
	value, ok := stringLiteral(p.next())
	for _, r := range p.states {
		ok = ok && len(r.path.Elements) > 0 && len(p.structures.memberSteps(r.elementPath, element)) == 1
	}
	if !hasEquals || !ok {
		return expressionError("where() supports only element='text' and resolve() is Type")
	}
	p.addFilter(element, value)
	return nil
}

// addFilter adds a filter at the end of all paths parsed so far.
func (p *expressionParser) addFilter(element, value string) {
	for i := range p.states {
		path := &p.states[i].path
		f := resource.Filter{Depth: len(path.Elements), Element: element, Value: value}
		path.Filters = append(slices.Clip(path.Filters), f)
	}
}

// restrictTarget restricts the references at the end of the paths to targets of a type.
func (p *expressionParser) restrictTarget(fhirType string) error {
	for i := range p.states {
		if p.states[i].path.Type != "Reference" || !p.structures.hasType(fhirType) {
			return expressionError("resolve() requires a reference, and a resource type of FHIR R4")
		}
		p.states[i].path.Target = fhirType
	}
	return nil
}

// restrictType restricts the paths parsed so far to elements of a type.
func (p *expressionParser) restrictType(fhirType string) error {
	p.states = slices.DeleteFunc(p.states, func(r pathState) bool { return r.path.Type != fhirType })
	if len(p.states) == 0 {
		return expressionError("path does not lead to elements of type %q", fhirType)
	}
	return nil
}

// stringLiteral returns the value of a token that is a string literal; false for other tokens.
func stringLiteral(token string) (string, bool) {
	content, ok := strings.CutPrefix(token, "'")
	return content, ok
}

// tokenize splits a FHIRPath expression into names, string literals (without the closing quotation mark) and symbols.
func tokenize(s string) (tokens []string, err error) {
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimLeft(s, " \t\r\n") {
		token, length, err := firstToken(s)
		if err != nil {
			return nil, err
		}
		tokens, s = append(tokens, token), s[length:]
	}
	return tokens, nil
}

// firstToken returns the first token of a non-empty text and its length in the text.
func firstToken(s string) (token string, length int, err error) {
	switch {
	case strings.IndexByte("().|=", s[0]) >= 0:
		return s[:1], 1, nil
	case s[0] == '\'':
		end := strings.IndexByte(s[1:], '\'')
		if end < 0 || strings.Contains(s[1:1+end], `\`) {
			return "", 0, expressionError("unterminated string, or unsupported escape sequence")
		}
		return s[:1+end], end + 2, nil
	case isLetter(s[0]):
		for length < len(s) && (isLetter(s[length]) || '0' <= s[length] && s[length] <= '9') {
			length++
		}
		return s[:length], length, nil
	}
	return "", 0, expressionError("unexpected character %q", s[0])
}

func isLetter(c byte) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' }

func expressionError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errExpression}, args...)...)
}

// errExpression means that a FHIRPath expression cannot be evaluated here.
var errExpression = errors.New("unsupported FHIRPath expression")

// r4Elements has a line for each element of R4's types. It consists of the element's path and its types.
//
//go:embed elements.tsv
var r4Elements string

// Structures maps the elements of FHIR's types, by path (such as Observation.value[x]), to their possible types. A type code
// includes its code system, as code@system. An element that shares its content with another one has that element's path, as
// #Observation.referenceRange.
//
// The elements of all types (id, extension and modifierExtension) are omitted.
type Structures map[string][]string

// r4Structures returns the structures of R4. They are parsed once, and only if a site adds search parameters.
var r4Structures = sync.OnceValue(func() Structures { return ReadStructures(r4Elements) })

// ReadStructures parses lines that consist of a path, a tab, and types separated by spaces.
func ReadStructures(lines string) Structures {
	s := make(Structures, 8192)
	for line := range strings.Lines(lines) {
		path, types, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		s[path] = strings.Fields(types)
	}
	return s
}

// hasType reports whether a resource type exists.
func (s Structures) hasType(resourceType string) bool { return s[resourceType+".meta"] != nil }

// elementStep is an element in JSON: its name, type and code system, and the path of its child elements.
type elementStep struct{ name, fhirType, system, elementPath string }

// memberSteps returns the JSON members for an element below a path: usually one, or one for each type of a choice. As in JSON,
// the name may include a type of the choice, such as valueDateTime. A primitive has no members, because JSON stores its
// extensions separately.
func (s Structures) memberSteps(parentPath, name string) []elementStep {
	switch {
	case parentPath[0] >= 'a':
		return nil
	case name == "id":
		return []elementStep{{name, "string", "", "string"}}
	case name == "extension", name == "modifierExtension":
		return []elementStep{{name, "Extension", "", "Extension"}}
	}
	if types := s[parentPath+"."+name]; len(types) > 0 {
		return []elementStep{s.newStep(parentPath+"."+name, name, types[0])}
	}
	if types := s.choiceSteps(parentPath, name); len(types) > 0 {
		return types
	}
	for at := 1; at < len(name); at++ {
		all := s.choiceSteps(parentPath, name[:at])
		if i := slices.IndexFunc(all, func(e elementStep) bool { return e.name == name }); i >= 0 {
			return all[i : i+1]
		}
	}
	return nil
}

// choiceSteps returns the JSON members for an element with a choice of types.
func (s Structures) choiceSteps(parentPath, name string) (all []elementStep) {
	path := parentPath + "." + name + "[x]"
	for _, t := range s[path] {
		typed, _, _ := strings.Cut(t, "@")
		all = append(all, s.newStep(path, name+strings.ToUpper(typed[:1])+typed[1:], t))
	}
	return all
}

// newStep returns the JSON member for one of the types of an element.
func (s Structures) newStep(path, name, fhirType string) elementStep {
	if reusedPath, ok := strings.CutPrefix(fhirType, "#"); ok {
		return elementStep{name, "BackboneElement", "", reusedPath}
	}
	fhirType, system, _ := strings.Cut(fhirType, "@")
	if fhirType == "BackboneElement" || fhirType == "Element" {
		return elementStep{name, fhirType, "", path}
	}
	return elementStep{name, fhirType, system, fhirType}
}
