package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"cel.dev/cel-go/cel"
)

// Effect is what a rule does if its expression is true.
type Effect string

// The effects. Deny wins over Allow, and over what scopes allow.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
)

// Rule is one rule of a site.
type Rule struct {
	// Effect is [Allow] or [Deny].
	Effect Effect
	// Name stands for the rule in logs and errors: up to 64 letters, digits, hyphens, underscores and dots. Default: the
	// rule's number among all.
	Name string
	// Expression is in CEL, and boolean.
	Expression string
	// Place is where the rule is written, such as Caddyfile:12. Errors of [Compile] name it. May be empty.
	Place string
}

// Set is a site's rules. It is safe for concurrent use. A nil Set has no rules.
type Set struct {
	denies, allows []*rule
	elements       []string // of resources, that some rule looks at
}

// rule is a rule that is ready.
type rule struct {
	name    string
	program cel.Program
	// partial evaluates what is known before there is a resource. Nil if the rule does not look at one.
	partial cel.Program
}

// Compile checks rules. It returns nil for none, and the errors of all that are wrong.
func Compile(rules []Rule) (*Set, error) {
	if len(rules) == 0 {
		return nil, nil
	}
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
	case r.Effect != Allow && r.Effect != Deny:
		return fmt.Errorf("%w: the effect is %q, not allow or deny", errRule, r.Effect)
	case !ruleName.MatchString(r.Name):
		return fmt.Errorf("%w: the name may have 64 letters, digits, hyphens, underscores and dots", errRule)
	}
	return nil
}

// wrong says which rule an error is about.
func (r Rule) wrong(err error) error {
	err = fmt.Errorf("%s %s: %w", r.Effect, r.Name, err)
	if r.Place != "" {
		err = fmt.Errorf("%s: %w", r.Place, err)
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
	r := &rule{name: from.Name}
	if r.program, err = env.Program(checked, options(cel.OptOptimize)...); err != nil {
		return fmt.Errorf("%w: %w", errExpression, err)
	}
	if looks {
		if r.partial, err = env.Program(checked, options(cel.OptOptimize|cel.OptPartialEval)...); err != nil {
			return fmt.Errorf("%w: %w", errExpression, err)
		}
	}
	if from.Effect == Deny {
		s.denies = append(s.denies, r)
	} else {
		s.allows = append(s.allows, r)
	}
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
