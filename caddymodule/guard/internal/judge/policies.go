package judge

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Policies are a site's own rules, on top of what scopes say.
type Policies struct {
	// Rules are the rules. Nil: none.
	Rules *policy.Set
	// Input is what rules are told of a client's request: the token, which may be nil, the time, and of the request the
	// client's address. Required if there are rules.
	Input func(r *http.Request, t *guard.Token) policy.Input
	// Failed is called with the error of a rule that could not be evaluated, which names the rule. Nil if nobody wants
	// to know.
	Failed func(r *http.Request, err error)
}

// ask is what the rules say of a call that is made for a client's request. Capabilities are public, and asked for without
// a token.
func (p Policies) ask(ctx context.Context, r *http.Request, t *guard.Token, c message.Call, i interaction.Interaction) policy.Judgement {
	if p.Rules == nil || i.Kind == interaction.Capabilities {
		return policy.Judgement{}
	}
	in := p.Input(r, t)
	in.Request = policy.Request{
		Interaction: i.Kind.String(), Type: i.Type, ID: i.ID, Operation: i.Operation, Method: c.Method,
		Parameters: map[string][]string{}, ClientIP: in.Request.ClientIP,
	}
	if i.Kind == interaction.CompartmentSearch {
		in.Request.Compartment = i.Compartment.String()
	}
	for _, of := range i.Parameters {
		in.Request.Parameters[of.Name] = append(in.Request.Parameters[of.Name], of.Value)
	}
	return p.Rules.Request(ctx, &in)
}

// allowed is the grant that the rules give for one interaction: over the whole type, or over what they will say of
// each resource. An operation may be about any type. A bundle needs none, because its entries are judged.
func allowed(j policy.Judgement, i interaction.Interaction) access.Grant {
	g := access.Grant{Type: i.Type, Permission: i.Permission(), ByRule: j.Effect != policy.Allow, Scope: "allow " + j.Rule}
	if i.Kind == interaction.Operation {
		g.Type, g.Permission = smart.AnyType, smart.Create|smart.Read|smart.Update|smart.Delete|smart.Search
	}
	if g.Type == "" {
		g.Type = smart.AnyType
	}
	return g
}
