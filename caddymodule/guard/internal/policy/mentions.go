package policy

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

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
