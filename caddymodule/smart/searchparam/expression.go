package searchparam

import (
	_ "embed" // for the elements
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

const (
	maxExpression = 4096 // bytes
	maxPaths      = 512  // per expression, with those for all types of a choice
)

// Paths returns the paths of an expression for a resource type. Parts for other types are skipped. The expression may be a
// union of paths, with where(element='text'), where(resolve() is Type) at the end, extension('url'), and a type for a choice
// (as, as(), ofType()). Anything else looks at more than elements of the resource, or cannot be evaluated here, and is an
// error: the other parts of the expression alone would find too little.
func (s Structures) Paths(resourceType, expression string) ([]resource.Path, error) {
	if len(expression) > maxExpression {
		return nil, noPath("it has more than %d bytes", maxExpression)
	}
	tokens, err := tokenize(expression)
	if err != nil {
		return nil, err
	}
	var paths []resource.Path
	for _, part := range union(tokens) {
		p := &expressionParser{structures: s, resourceType: resourceType, tokens: part}
		if p.isForeign() {
			continue
		}
		if err := p.whole(); err != nil {
			return nil, err
		}
		for _, r := range p.reached {
			paths = append(paths, r.path)
		}
	}
	return paths, nil
}

// union splits an expression at its bars, and removes parentheses around whole parts.
func union(tokens []string) (parts [][]string) {
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
			parts = append(parts, union(tokens[start:i])...)
			start = i + 1
		}
	}
	if start == 0 {
		return [][]string{tokens}
	}
	return append(parts, union(tokens[start:])...)
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

// reached is the state of an expression: a path, and the path of its end's elements in [Structures].
type reached struct {
	path  resource.Path
	below string
}

// expressionParser parses one part of a union.
type expressionParser struct {
	structures   Structures
	resourceType string
	tokens       []string
	at           int
	reached      []reached
}

// isForeign reports whether the part is for another type.
func (p *expressionParser) isForeign() bool {
	i := slices.IndexFunc(p.tokens, func(t string) bool { return t != "(" })
	return i >= 0 && p.tokens[i] != p.resourceType && !isGeneral(p.tokens[i]) && p.structures.has(p.tokens[i])
}

// isGeneral reports whether a type is a base of other types.
func isGeneral(name string) bool { return name == "Resource" || name == "DomainResource" }

// next consumes and returns the next token; empty at the end.
func (p *expressionParser) next() string {
	if p.at == len(p.tokens) {
		return ""
	}
	p.at++
	return p.tokens[p.at-1]
}

// take consumes tokens if they are next.
func (p *expressionParser) take(tokens ...string) bool {
	if !slices.Equal(p.tokens[p.at:min(len(p.tokens), p.at+len(tokens))], tokens) {
		return false
	}
	p.at += len(tokens)
	return true
}

// whole parses the whole part.
func (p *expressionParser) whole() error {
	if err := p.part(); err != nil {
		return err
	}
	if p.at < len(p.tokens) {
		return noPath("%q is not known here", p.tokens[p.at])
	}
	if len(p.reached) == 1 && len(p.reached[0].path.Elements) == 0 {
		return noPath("it names no element")
	}
	return nil
}

// part parses a path, or a path in parentheses and its continuation.
func (p *expressionParser) part() error {
	if p.take("(") {
		if err := p.part(); err != nil {
			return err
		}
		if !p.take(")") {
			return noPath("a parenthesis is not closed, or %q stands in it", p.next())
		}
	} else if err := p.start(); err != nil {
		return err
	}
	for p.take(".") {
		if err := p.step(p.next()); err != nil {
			return err
		}
	}
	if p.take("as") {
		return p.cast(p.next())
	}
	return nil
}

// start parses the name of the type. One expression of R4 omits it.
func (p *expressionParser) start() error {
	p.reached = []reached{{below: p.resourceType}}
	first := p.next()
	if first == p.resourceType || isGeneral(first) {
		return nil
	}
	return p.step(first)
}

// step parses an element or a function.
func (p *expressionParser) step(name string) error {
	if name == "" || !isLetter(name[0]) {
		return noPath("a step is missing, or %q is none", name)
	}
	if p.take("(") {
		return p.function(name)
	}
	var next []reached
	for _, r := range p.reached {
		if r.path.Target != "" || r.path.Type == "Resource" {
			return noPath("it goes on in another resource")
		}
		for _, s := range p.structures.steps(r.below, name) {
			next = append(next, r.to(s))
		}
	}
	if len(next) == 0 || len(next) > maxPaths {
		return noPath("FHIR R4 has no element %q there, or too many", name)
	}
	p.reached = next
	return nil
}

// to returns the path extended by one element.
func (r reached) to(s step) reached {
	r.path.Elements = append(slices.Clip(r.path.Elements), s.name)
	r.path.Type, r.path.System, r.below = s.fhirType, s.system, s.below
	return r
}

// function parses the argument of a function and applies it.
func (p *expressionParser) function(name string) error {
	switch name {
	case "as", "ofType":
		if err := p.cast(p.next()); err != nil {
			return err
		}
	case "extension":
		url, ok := quoted(p.next())
		if err := p.step("extension"); err != nil || !ok {
			return noPath("extension() takes a URL")
		}
		p.filter("url", url)
	case "where":
		if err := p.where(); err != nil {
			return err
		}
	default:
		return noPath("it has the function %s()", name)
	}
	if !p.take(")") {
		return noPath("the argument of %s() is more than is known here", name)
	}
	return nil
}

// where parses element='text', or resolve() is Type.
func (p *expressionParser) where() error {
	if p.take("resolve", "(", ")", "is") {
		return p.target(p.next())
	}
	element := p.next()
	equals := p.take("=")
	value, ok := quoted(p.next())
	for _, r := range p.reached {
		ok = ok && len(r.path.Elements) > 0 && len(p.structures.steps(r.below, element)) == 1
	}
	if !equals || !ok {
		return noPath("where() takes element='text' or resolve() is Type")
	}
	p.filter(element, value)
	return nil
}

// filter adds a filter at the end of all reached paths.
func (p *expressionParser) filter(element, value string) {
	for i := range p.reached {
		path := &p.reached[i].path
		f := resource.Filter{Depth: len(path.Elements), Element: element, Value: value}
		path.Filters = append(slices.Clip(path.Filters), f)
	}
}

// target restricts the reached references to targets of a type.
func (p *expressionParser) target(fhirType string) error {
	for i := range p.reached {
		if p.reached[i].path.Type != "Reference" || !p.structures.has(fhirType) {
			return noPath("resolve() is for references, and to a type of FHIR R4")
		}
		p.reached[i].path.Target = fhirType
	}
	return nil
}

// cast restricts the reached paths to elements of a type.
func (p *expressionParser) cast(fhirType string) error {
	p.reached = slices.DeleteFunc(p.reached, func(r reached) bool { return r.path.Type != fhirType })
	if len(p.reached) == 0 {
		return noPath("what it leads to is no %q", fhirType)
	}
	return nil
}

// quoted returns the value of a string literal.
func quoted(token string) (string, bool) {
	said, ok := strings.CutPrefix(token, "'")
	return said, ok
}

// tokenize splits a FHIRPath expression into names, string literals (with only the first quotation mark), and symbols.
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

// firstToken returns the first token of a non-empty text, and its length in the text.
func firstToken(s string) (token string, length int, err error) {
	switch {
	case strings.IndexByte("().|=", s[0]) >= 0:
		return s[:1], 1, nil
	case s[0] == '\'':
		end := strings.IndexByte(s[1:], '\'')
		if end < 0 || strings.Contains(s[1:1+end], `\`) {
			return "", 0, noPath("a string has no end, or an escape")
		}
		return s[:1+end], end + 2, nil
	case isLetter(s[0]):
		for length < len(s) && (isLetter(s[length]) || '0' <= s[length] && s[length] <= '9') {
			length++
		}
		return s[:length], length, nil
	}
	return "", 0, noPath("it has the sign %q", s[0])
}

func isLetter(c byte) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' }

func noPath(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errExpression}, args...)...)
}

// errExpression means that a FHIRPath expression cannot be evaluated here.
var errExpression = errors.New("the expression cannot be judged here")

// elements has a line for each element of R4's types: its path, and its types.
//
//go:embed elements.tsv
var elements string

// Structures contains the elements of FHIR's types by path, such as Observation.value[x], with their possible types. A type
// code has its code system, as code@system. An element that shares its content with another has that element's path, as
// #Observation.referenceRange.
//
// The elements of all types (id, extension and modifierExtension) are omitted.
type Structures map[string][]string

// r4Structures are R4's. They are parsed once, and only if a site adds search parameters.
var r4Structures = sync.OnceValue(func() Structures { return ReadStructures(elements) })

// ReadStructures parses lines of a path, a tab, and types separated by spaces.
func ReadStructures(lines string) Structures {
	s := make(Structures, 8192)
	for line := range strings.Lines(lines) {
		path, types, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		s[path] = strings.Fields(types)
	}
	return s
}

// has reports whether a resource type exists.
func (s Structures) has(resourceType string) bool { return s[resourceType+".meta"] != nil }

// step is an element in JSON: its name, type and code system, and the path of its own elements.
type step struct{ name, fhirType, system, below string }

// steps returns the members for an element below a path: usually one, or one for each type of a choice. The name may include a
// type of the choice, such as valueDateTime, as in JSON. A primitive has no members, because JSON puts its extensions
// elsewhere.
func (s Structures) steps(below, name string) []step {
	switch {
	case below[0] >= 'a':
		return nil
	case name == "id":
		return []step{{name, "string", "", "string"}}
	case name == "extension", name == "modifierExtension":
		return []step{{name, "Extension", "", "Extension"}}
	}
	if types := s[below+"."+name]; len(types) > 0 {
		return []step{s.step(below+"."+name, name, types[0])}
	}
	if types := s.choice(below, name); len(types) > 0 {
		return types
	}
	for at := 1; at < len(name); at++ {
		all := s.choice(below, name[:at])
		if i := slices.IndexFunc(all, func(e step) bool { return e.name == name }); i >= 0 {
			return all[i : i+1]
		}
	}
	return nil
}

// choice returns the members for an element with a choice of types.
func (s Structures) choice(below, name string) (all []step) {
	path := below + "." + name + "[x]"
	for _, t := range s[path] {
		typed, _, _ := strings.Cut(t, "@")
		all = append(all, s.step(path, name+strings.ToUpper(typed[:1])+typed[1:], t))
	}
	return all
}

// step returns the member for one of the types of an element.
func (s Structures) step(path, name, fhirType string) step {
	if same, ok := strings.CutPrefix(fhirType, "#"); ok {
		return step{name, "BackboneElement", "", same}
	}
	fhirType, system, _ := strings.Cut(fhirType, "@")
	if fhirType == "BackboneElement" || fhirType == "Element" {
		return step{name, fhirType, "", path}
	}
	return step{name, fhirType, system, fhirType}
}
