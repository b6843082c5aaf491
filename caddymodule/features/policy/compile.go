package policy

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// Rule is one rule of a site about who may see or do what, as a CEL expression over `token`, `request`, `resource` and `now`.
// docs/guard.md describes them.
type Rule struct {
	// `allow` or `deny`. Required. A rule that denies wins.
	Effect rule.Effect `json:"effect,omitempty"`

	// The rule's name in logs and errors: up to 64 letters, digits, hyphens, underscores and dots. Default: its number
	// among all.
	Name string `json:"name,omitempty"`

	// The CEL expression, which must be boolean. Required.
	Expression string `json:"expression,omitempty"`

	option.Source
}

// Set is a site's rules, compiled. It is safe for concurrent use.
type Set struct {
	denies, allows ruleList
	elements       []string // of resources, that some rule looks at
}

// ruleList are rules with one effect.
type ruleList struct{ ofRequest, ofResource []*compiledRule }

// compiledRule is a rule that can be evaluated.
type compiledRule struct {
	name    string
	program cel.Program
	partial cel.Program // evaluates what is known, before there is a resource, or without claims
}

// Compile compiles rules. Its error names all invalid rules.
func Compile(rules []Rule) (*Set, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	s := &Set{}
	var wrong []error
	names := map[string]bool{}
	for i, r := range rules {
		if r.Name == "" {
			r.Name = strconv.Itoa(i + 1)
		}
		err := r.check()
		if err == nil && names[r.Name] {
			err = fmt.Errorf("%w: another has this name", errRule)
		}
		names[r.Name] = true
		if err == nil {
			err = s.add(env, r)
		}
		if err != nil {
			wrong = append(wrong, r.wrong(err))
		}
	}
	slices.Sort(s.elements)
	s.elements = slices.Compact(s.elements)
	return s, errors.Join(wrong...)
}

var ruleName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func (r Rule) check() error {
	switch {
	case r.Effect != rule.Allow && r.Effect != rule.Deny:
		return fmt.Errorf("%w: the effect is %q, not allow or deny", errRule, r.Effect)
	case !ruleName.MatchString(r.Name):
		return fmt.Errorf("%w: the name may have 64 letters, digits, hyphens, underscores and dots", errRule)
	}
	return nil
}

// wrong says which rule an error is about.
func (r Rule) wrong(err error) error {
	err = fmt.Errorf("%s %s: %w", r.Effect, r.Name, err)
	if r.Source.Source != "" {
		err = fmt.Errorf("%s: %w", r.Source.Source, err)
	}
	return err
}

// add compiles a rule.
func (s *Set) add(env *cel.Env, from Rule) error {
	checked, issues := env.Compile(from.Expression)
	if err := issues.Err(); err != nil {
		return located(issues)
	}
	if checked.OutputType() != cel.BoolType {
		return fmt.Errorf("%w: it is %v, not bool: compare it with something", errExpression, checked.OutputType())
	}
	elements, looks, err := mentioned(checked.NativeRep())
	if err != nil {
		return err
	}
	s.elements = append(s.elements, elements...)
	r := &compiledRule{name: from.Name}
	if r.program, err = env.Program(checked, options(cel.OptOptimize)...); err != nil {
		return fmt.Errorf("%w: %w", errExpression, err)
	}
	if r.partial, err = env.Program(checked, options(cel.OptOptimize|cel.OptPartialEval)...); err != nil {
		return fmt.Errorf("%w: %w", errExpression, err)
	}
	list := &s.allows
	if from.Effect == rule.Deny {
		list = &s.denies
	}
	if !looks {
		list.ofRequest = append(list.ofRequest, r)
		return nil
	}
	list.ofResource = append(list.ofResource, r)
	return nil
}

func options(o cel.EvalOption) []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.EvalOptions(o), cel.CostLimit(maxCost), cel.InterruptCheckFrequency(interruptEvery),
	}
}

// located are the issues that CEL found, each with its place in the expression. CEL counts columns from 0.
func located(issues *cel.Issues) error {
	var all []error
	for _, issue := range issues.Errors() {
		at := fmt.Sprintf("column %d", issue.Location.Column()+1)
		if line := issue.Location.Line(); line > 1 {
			at = fmt.Sprintf("line %d, %s", line, at)
		}
		all = append(all, fmt.Errorf("%w: %s: %s", errExpression, at, issue.Message))
	}
	return errors.Join(all...)
}

const (
	// maxCost is how much an evaluation may cost, in CEL's units: about what it takes to look at a thousand codings.
	maxCost = 100_000
	// maxLength is how long an expression may be, in characters.
	maxLength = 10_000
	// interruptEvery is after how many steps of a loop the context is asked whether it is done.
	interruptEvery = 100
)

// environment is what expressions may use. Variables and their fields have types, so that a wrong name is found when
// the rule is compiled. Of a resource that is unknown: its elements depend on its type.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		ext.NativeTypes(ext.ParseStructTags(true), reflect.TypeFor[Token](), reflect.TypeFor[Request]()),
		cel.Variable("token", cel.ObjectType("policy.Token")),
		cel.Variable("request", cel.ObjectType("policy.Request")),
		cel.Variable("now", cel.TimestampType),
		cel.Variable(resourceName, cel.MapType(cel.StringType, cel.DynType)),
		cel.OptionalTypes(),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxLength),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
		ext.Strings(),
		ext.Network(),
	)
})

// mentioned are the elements of the resource that an expression looks at; looks reports whether there are any. The
// expression must name them, so that no more of a resource is read than needed.
func mentioned(checked *ast.AST) (elements []string, looks bool, err error) {
	isResource := func(e ast.NavigableExpr) bool {
		return e.Kind() == ast.IdentKind && strings.TrimPrefix(e.AsIdent(), ".") == resourceName
	}
	for _, found := range ast.MatchDescendants(ast.NavigateAST(checked), isResource) {
		element, ok := elementOf(found)
		if !ok {
			at := checked.SourceInfo().GetStartLocation(found.ID())
			return nil, false, fmt.Errorf("%w: column %d: name an element, such as resource.subject or has(resource.subject)",
				errExpression, at.Column()+1)
		}
		elements, looks = append(elements, element), true
	}
	return elements, looks, nil
}

// elementOf is the element that is selected from the resource: resource.name, resource.?name, resource["name"] or
// resource[?"name"].
func elementOf(found ast.NavigableExpr) (string, bool) {
	parent, ok := found.Parent()
	if !ok {
		return "", false
	}
	switch parent.Kind() {
	case ast.SelectKind:
		return parent.AsSelect().FieldName(), true
	case ast.CallKind:
		call := parent.AsCall()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			if by := call.Args()[1]; by.Kind() == ast.LiteralKind {
				name, ok := by.AsLiteral().(types.String)
				return string(name), ok
			}
		}
	}
	return "", false
}

// The causes for which [Compile] refuses a rule.
var (
	// errRule says that a rule's effect or name is not one.
	errRule = errors.New("no rule")
	// errExpression says that CEL does not accept the expression, or that it is not boolean.
	errExpression = errors.New("invalid expression")
)
