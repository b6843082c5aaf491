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
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Rule allows or denies requests and resources. It is a CEL expression over `token`, `request`, `resource` and `now`; see
// docs/reference/policies.md.
type Rule struct {
	// `allow` or `deny`. Deny rules take precedence. Required.
	Effect rule.Effect `json:"effect,omitempty"`

	// The name of the rule in logs and errors: up to 64 letters, digits, hyphens, underscores and dots. Default: the number of
	// the rule.
	Name string `json:"name,omitempty"`

	// The CEL expression. Its result must be boolean. Required.
	Expression string `json:"expression,omitempty"`

	option.Source
}

// Set is a compiled list of rules. It is safe for concurrent use.
type Set struct {
	denyRules, allowRules ruleList
	elements              []string // resource elements that rules use
}

// ruleList contains the rules with one effect.
type ruleList struct{ requestRules, resourceRules []*compiledRule }

type compiledRule struct {
	name           string
	program        cel.Program
	partialProgram cel.Program // evaluates with unknown values: before the resource is available, or if claims could not be read
}

// Compile compiles rules. If rules are invalid, the error lists all of them.
func Compile(rules []Rule) (*Set, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	s := &Set{}
	var invalid []error
	names := map[string]bool{}
	for i, r := range rules {
		if r.Name == "" {
			r.Name = strconv.Itoa(i + 1)
		}
		err := r.check()
		if err == nil && names[r.Name] {
			err = fmt.Errorf("%w: another rule has this name", errInvalidRule)
		}
		names[r.Name] = true
		if err == nil {
			err = s.addRule(env, r)
		}
		if err != nil {
			invalid = append(invalid, r.annotate(err))
		}
	}
	slices.Sort(s.elements)
	s.elements = slices.Compact(s.elements)
	return s, errors.Join(invalid...)
}

var ruleName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func (r Rule) check() error {
	switch {
	case r.Effect != rule.Allow && r.Effect != rule.Deny:
		return fmt.Errorf("%w: the effect %q is neither allow nor deny", errInvalidRule, r.Effect)
	case !ruleName.MatchString(r.Name):
		return fmt.Errorf("%w: the name must be 1 to 64 letters, digits, hyphens, underscores and dots", errInvalidRule)
	}
	return nil
}

// annotate adds the effect, name and position of the rule to an error.
func (r Rule) annotate(err error) error {
	err = fmt.Errorf("%s %s: %w", r.Effect, r.Name, err)
	if r.Source.Source != "" {
		err = fmt.Errorf("%s: %w", r.Source.Source, err)
	}
	return err
}

func (s *Set) addRule(env *cel.Env, source Rule) error {
	compiled, issues := env.Compile(source.Expression)
	if err := issues.Err(); err != nil {
		return issueErrors(issues)
	}
	if compiled.OutputType() != cel.BoolType {
		return fmt.Errorf("%w: the result is %v, not bool: add a comparison", errInvalidExpression, compiled.OutputType())
	}
	elements, usesResource, err := resourceElements(compiled.NativeRep())
	if err != nil {
		return err
	}
	s.elements = append(s.elements, elements...)
	r := &compiledRule{name: source.Name}
	if r.program, err = env.Program(compiled, programOptions(cel.OptOptimize)...); err != nil {
		return fmt.Errorf("%w: %w", errInvalidExpression, err)
	}
	if r.partialProgram, err = env.Program(compiled, programOptions(cel.OptOptimize|cel.OptPartialEval)...); err != nil {
		return fmt.Errorf("%w: %w", errInvalidExpression, err)
	}
	list := &s.allowRules
	if source.Effect == rule.Deny {
		list = &s.denyRules
	}
	if !usesResource {
		list.requestRules = append(list.requestRules, r)
		return nil
	}
	list.resourceRules = append(list.resourceRules, r)
	return nil
}

func programOptions(o cel.EvalOption) []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.EvalOptions(o), cel.CostLimit(maxCost), cel.InterruptCheckFrequency(interruptInterval),
	}
}

// issueErrors returns CEL's issues as errors with their positions. CEL counts columns from 0.
func issueErrors(issues *cel.Issues) error {
	var all []error
	for _, issue := range issues.Errors() {
		at := fmt.Sprintf("column %d", issue.Location.Column()+1)
		if line := issue.Location.Line(); line > 1 {
			at = fmt.Sprintf("line %d, %s", line, at)
		}
		all = append(all, fmt.Errorf("%w: %s: %s", errInvalidExpression, at, issue.Message))
	}
	return errors.Join(all...)
}

const (
	// maxCost limits the cost of an evaluation, in CEL's cost units. It suffices for about a thousand codings.
	maxCost = 100_000
	// maxLength is the maximum length of an expression in characters.
	maxLength = 10_000
	// interruptInterval is the number of loop iterations between checks of the context.
	interruptInterval = 100
)

// environment returns the CEL environment with the variables. Their fields are typed, so that misspelled names are compile
// errors. The resource is dynamic because its elements depend on its type.
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

// resourceElements returns the names of the resource elements in an expression. usesResource reports whether the expression
// uses the resource at all. Element names must be literals, so that only these elements are read.
func resourceElements(checked *ast.AST) (elements []string, usesResource bool, err error) {
	isResource := func(e ast.NavigableExpr) bool {
		return e.Kind() == ast.IdentKind && strings.TrimPrefix(e.AsIdent(), ".") == resourceName
	}
	for _, node := range ast.MatchDescendants(ast.NavigateAST(checked), isResource) {
		element, ok := selectedElement(node)
		if !ok {
			at := checked.SourceInfo().GetStartLocation(node.ID())
			return nil, false, fmt.Errorf("%w: column %d: resource must be used with an element, such as resource.subject or has(resource.subject)",
				errInvalidExpression, at.Column()+1)
		}
		elements, usesResource = append(elements, element), true
	}
	return elements, usesResource, nil
}

// selectedElement returns the element selected from the resource: resource.name, resource.?name, resource["name"] or
// resource[?"name"].
func selectedElement(node ast.NavigableExpr) (string, bool) {
	parent, ok := node.Parent()
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

// Errors of [Compile].
var (
	// errInvalidRule is returned for an invalid effect or name.
	errInvalidRule = errors.New("invalid rule")
	// errInvalidExpression is returned for an invalid or non-boolean expression.
	errInvalidExpression = errors.New("invalid rule expression")
)

// Input contains the variables of rules, except the resource. It must not be changed while the [rule.Evaluation] is in use.
type Input struct {
	// Token is the client's access token, as the variable token of expressions.
	Token Token
	// Request is the client's request, as the variable request of expressions.
	Request Request
	// UnreadClaims are the names of the person's claims that could not be read. Expressions that depend on them fail.
	UnreadClaims []string
	// Now is the time of the evaluation, as the variable now of expressions.
	Now time.Time
}

// Token is the access token in expressions. Missing values are empty.
type Token struct {
	// Issuer is the iss claim.
	Issuer string `cel:"issuer"`
	// Subject is the sub claim.
	Subject string `cel:"subject"`
	// ClientID is the client_id claim.
	ClientID string `cel:"client_id"`
	// Scopes are the granted scopes.
	Scopes []string `cel:"scopes"`
	// Patient is the id of the patient in context.
	Patient string `cel:"patient"`
	// FHIRUser is the fhirUser claim.
	FHIRUser string `cel:"fhir_user"`
	// IDP is the source of Groups and Claims: the key of an identity provider, or local.
	IDP string `cel:"idp"`
	// Groups are the person's groups.
	Groups []string `cel:"groups"`
	// Claims are the additional claims in the configuration, by name. A missing claim has no values.
	Claims map[string][]string `cel:"claims"`
}

// Request is a request or batch entry in expressions. Missing values are empty.
type Request struct {
	// Interaction is the FHIR interaction code, such as read or search-type.
	Interaction string `cel:"interaction"`
	// Type is the resource type.
	Type string `cel:"type"`
	// ID is the resource's logical id.
	ID string `cel:"id"`
	// Compartment is the compartment of a search, such as Patient/1.
	Compartment string `cel:"compartment"`
	// Operation is the name of an operation, such as $everything.
	Operation string `cel:"operation"`
	// Parameters are the query and form parameters. Their names include modifiers.
	Parameters map[string][]string `cel:"parameters"`
	// Method is the HTTP method.
	Method string `cel:"method"`
	// ClientIP is the IP address of the client.
	ClientIP string `cel:"client_ip"`
}

// newInput returns the input for a request. Configured claims that are missing from the token have no values, because issuers
// include different claims.
func newInput(r rule.Request, claims []string) *Input {
	i := r.Interaction
	in := &Input{Now: time.Now(), Request: Request{
		Interaction: i.Kind.String(), Type: i.Type, ID: i.ID, Operation: i.Operation, Method: r.Method,
		Parameters: map[string][]string{}, ClientIP: requester.Address(r.ClientRequest),
	}}
	if i.Kind == interaction.CompartmentSearch {
		in.Request.Compartment = i.Compartment.String()
	}
	for _, p := range i.Parameters {
		in.Request.Parameters[p.Name] = append(in.Request.Parameters[p.Name], p.Value)
	}
	if t := r.Token; t != nil {
		in.UnreadClaims = t.UnreadClaims
		in.Token = Token{
			Issuer: t.Issuer, Subject: t.Subject, ClientID: t.ClientID, Scopes: strings.Fields(t.Scope), Patient: t.Patient,
			FHIRUser: t.FHIRUser, IDP: t.IDP, Groups: t.Groups, Claims: make(map[string][]string, len(claims)),
		}
		for _, name := range claims {
			in.Token.Claims[name] = t.Claims[name]
		}
	}
	return in
}

type variables struct {
	input    *Input
	resource *lazyResource // nil if only the request is evaluated
}

// ResolveName implements cel.Activation.
func (v variables) ResolveName(name string) (any, bool) {
	switch name {
	case "token":
		return &v.input.Token, true
	case "request":
		return &v.input.Request, true
	case "now":
		return types.Timestamp{Time: v.input.Now}, true
	case resourceName:
		if v.resource != nil {
			return v.resource.value(), true
		}
	}
	return nil, false
}

// Parent implements cel.Activation.
func (variables) Parent() cel.Activation { return nil }

const resourceName = "resource"

// lazyResource provides the resource elements that rules use. They are read on first use.
type lazyResource struct {
	resource resource.Resource
	names    []string
	cached   any
}

// value returns the resource as a CEL value. If it cannot be read, expressions that use it fail.
func (e *lazyResource) value() any {
	if e.cached != nil {
		return e.cached
	}
	members := make(map[string]any, len(e.names))
	e.cached = members
	for _, name := range e.names {
		text, ok := e.resource.Member(name)
		if !ok {
			continue
		}
		value, err := readValue(rawjson.NewCursor(text))
		if err != nil {
			e.cached = types.WrapErr(fmt.Errorf("element %s: %w", name, err))
			break
		}
		members[name] = value
	}
	return e.cached
}

// readValue reads a JSON value. Numbers without a fraction become integers if they fit.
func readValue(c *rawjson.Cursor) (any, error) {
	switch c.Kind() {
	case rawjson.Object:
		members := map[string]any{}
		err := c.Object(func(name []byte) (err error) {
			key := string(name)
			members[key], err = readValue(c)
			return err
		})
		return members, err
	case rawjson.Array:
		list := []any{}
		err := c.Array(func() error {
			element, err := readValue(c)
			list = append(list, element)
			return err
		})
		return list, err
	case rawjson.String:
		return c.Text()
	case rawjson.Number:
		return readNumber(c)
	case rawjson.Bool:
		text, err := c.Raw()
		return len(text) == len("true"), err
	}
	return nil, c.Skip() // null, or no value
}

func readNumber(c *rawjson.Cursor) (any, error) {
	text, err := c.Raw()
	if err != nil {
		return nil, err
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(string(text), 64)
}
