package operation

import (
	"context"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// isOpen reports whether the token may call an operation for which any valid one will do. Operations on terminology
// take one of the scopes that the site has set for them.
func (x *Calls) isOpen(op Operation) bool {
	return !isOnTerminology(op.Name) || len(x.ExpandScopes) == 0 || x.Judge.Rights().HasOne(x.ExpandScopes)
}

// isOnTerminology reports whether an operation is about definitions alone, which any token may ask about by default.
func isOnTerminology(name string) bool {
	defaults := defaultOperations[name]
	return len(defaults) > 0 && defaults[0].Reach == TokenReach
}

// AsksDefinitions reports whether an interaction is an operation about definitions alone.
func AsksDefinitions(i interaction.Interaction) bool {
	return i.Kind == interaction.Operation && isOnTerminology(i.Operation)
}

// openOperation answers an operation that needs no more than a token, as an entry of a batch.
func (x *Calls) openOperation(ctx context.Context, c message.Call, op Operation) (*message.Answer, error) {
	if !x.isOpen(op) {
		return nil, message.Forbidden(message.ErrScope, "The token has none of the scopes that %s takes here.", op.Name).Lifted(strings.Join(x.ExpandScopes, " "))
	}
	a, err := x.Server.Ask(ctx, operationCall(c))
	if err != nil {
		return nil, err
	}
	return x.At.Localize(a), nil
}
