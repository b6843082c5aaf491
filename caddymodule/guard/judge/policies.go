package judge

import (
	"context"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
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

// ask is what the rules say of a call. Capabilities are public, and asked for without a token.
func (x *Judge) ask(ctx context.Context, c message.Call, i interaction.Interaction) policy.Judgement {
	if x.policies.Rules == nil || i.Kind == interaction.Capabilities {
		return policy.Judgement{}
	}
	in := x.policies.Input(x.r, x.token)
	in.Request = policy.Request{
		Interaction: i.Kind.String(), Type: i.Type, ID: i.ID, Operation: i.Operation, Method: c.Method,
		Parameters: map[string][]string{}, ClientIP: in.Request.ClientIP,
	}
	if i.Kind == interaction.CompartmentSearch {
		in.Request.Compartment = i.Compartment.String()
	}
	for _, p := range i.Parameters {
		in.Request.Parameters[p.Name] = append(in.Request.Parameters[p.Name], p.Value)
	}
	return x.policies.Rules.Request(ctx, &in)
}

// LeavesPassing reports whether the rules let a request of the client's pass as it is, and its answer, which the scopes
// let pass. The form of a search has parameters that the rules must see, and is not read yet.
func (x *Judge) LeavesPassing(c message.Call, i interaction.Interaction) bool {
	if x.policies.Rules == nil {
		return true
	}
	j := x.ask(x.r.Context(), c, i)
	return j.Effect != policy.Deny && !j.MayDeny() && !strings.HasSuffix(c.Path, "_search")
}

// Under does what answers a call under the rules' judgement of it. It ends with the call: an entry of a batch
// is judged by itself.
func (x *Judge) Under(ctx context.Context, c message.Call, i interaction.Interaction, answer func() (*message.Answer, error)) (*message.Answer, error) {
	if x.policies.Rules == nil {
		return answer()
	}
	j := x.ask(ctx, c, i)
	x.report(j.Decision)
	if j.Effect == policy.Deny {
		return nil, message.Denied(j.Decision)
	}
	judgement, rights, known := x.judgement, x.rights, x.known
	defer func() { x.judgement, x.rights, x.known = judgement, rights, known }()
	x.judgement, x.known = j, nil
	if j.Effect == policy.Allow || j.MayAllow() {
		x.rights = x.rights.With(allowed(j, i))
	}
	if j.MayDeny() {
		x.rights = x.rights.Judged()
	}
	return answer()
}

// report reports a rule that failed.
func (x *Judge) report(d policy.Decision) {
	if d.Err != nil && x.policies.Failed != nil {
		x.policies.Failed(x.r, d.Err)
	}
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

// Ruled is what the rules say of a resource, in the call that is being answered.
func (x *Judge) Ruled(ctx context.Context, res resource.Resource) policy.Effect {
	d := x.judgement.Resource(ctx, res)
	x.report(d)
	return d.Effect
}
