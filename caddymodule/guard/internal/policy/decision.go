package policy

import (
	"context"
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// Decision is what rules say.
type Decision struct {
	// Effect is [Deny], [Allow], or empty if no rule applies.
	Effect Effect
	// Rule is the name of the rule that decided. Empty if none did.
	Rule string
	// Err says why that rule, or one that allows nothing for it, failed. It may hold what a resource says: it is for
	// the operator, not for the client.
	Err error
}

// or is a decision with what one more rule that allows says. The first that does decides.
func (d Decision) or(r *rule, yes bool, err error) Decision {
	if d.Err == nil {
		d.Err = err
	}
	if yes && d.Effect == "" {
		d.Effect, d.Rule = Allow, r.name
	}
	return d
}

// isTrue evaluates a rule.
func (r *rule) isTrue(ctx context.Context, p cel.Program, v cel.Activation) (bool, error) {
	value, _, err := p.ContextEval(ctx, v)
	if err != nil {
		return false, fmt.Errorf("rule %s: %w", r.name, err)
	}
	return value == types.True, nil
}
