package judge

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
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

// maxDeletions is the number of versions among which the last one before a deletion is looked for.
const maxDeletions = 10

// CheckCurrent rejects a resource whose older versions are requested, if a policy denies its current version: a label that
// is added later protects all versions. For a deleted resource, the last version before the deletion counts. The rejection is that of a
// resource that does not exist.
func (x *Judge) CheckCurrent(ctx context.Context, of interaction.Reference) error {
	if !x.MayDeny() {
		return nil
	}
	a, err := x.Server.Ask(ctx, message.Get(of.String(), ""))
	if err != nil {
		return err
	}
	if a.Status == http.StatusGone {
		return x.checkLast(ctx, of)
	}
	if a.Status/100 == 5 || a.Status == http.StatusTooManyRequests {
		return message.Failed(a)
	}
	if a.Status != http.StatusOK {
		return message.NotFound()
	}
	return x.checkVersion(ctx, of, a.Body)
}

// checkLast is [Judge.CheckCurrent] for a deleted resource.
func (x *Judge) checkLast(ctx context.Context, of interaction.Reference) error {
	a, err := x.Server.Ask(ctx, message.Get(of.String()+"/_history", "_count="+strconv.Itoa(maxDeletions)))
	if err != nil {
		return err
	}
	b, err := x.At.BundleOf(a, false, nil, message.Call{}.Said)
	if err != nil {
		return err
	}
	for _, e := range b.Entries { // the newest first (R4 http.html#history)
		if len(e.Resource) > 0 {
			return x.checkVersion(ctx, of, e.Resource)
		}
	}
	return message.NotFound()
}

func (x *Judge) checkVersion(ctx context.Context, of interaction.Reference, text []byte) error {
	res, err := x.At.Parse(text)
	if err == nil && (res.Type != of.Type || res.ID != of.ID || x.Ruled(ctx, res) == policy.Deny) {
		err = message.NotFound()
	}
	return err
}

// isExportFile reports whether a resource is a Binary in which a FHIR server keeps a file of an export, as HAPI does. It
// holds any number of resources, which policies cannot judge in it.
func isExportFile(res resource.Resource) bool {
	if res.Type != "Binary" {
		return false
	}
	contentType, _ := res.Member("contentType")
	return strings.Contains(strings.ToLower(resource.Text(contentType)), "ndjson")
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
