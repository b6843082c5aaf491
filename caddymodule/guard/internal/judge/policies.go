package judge

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// judgement is the judgement of all policies about one call. The zero value leaves everything to scopes.
type judgement struct {
	rule.Decision // about the whole call

	mayDeny, mayAllow bool // whether some policy may deny or allow resources
	open              []openPolicy
}

// openPolicy is a policy whose decision depends on resources.
type openPolicy struct {
	policy    rule.Policy
	resources rule.Resources
}

// judge judges a call by all policies. Capabilities are public, and requested without a token.
func (x *Judge) judge(ctx context.Context, c message.Call, i interaction.Interaction, reporting bool) (j judgement) {
	if i.Kind == interaction.Capabilities {
		return j
	}
	r := rule.Request{Client: x.R, Token: x.Token, Method: c.Method, Interaction: i}
	for _, p := range x.Policies {
		by := p.Judge(ctx, r)
		if by.Err != nil && reporting {
			p.Failed(x.R, by.Err)
		}
		if j.Decision = combine(j.Decision, by.Decision); j.Effect == rule.Deny {
			return judgement{Decision: j.Decision}
		}
		if by.Resources != nil && (by.Resources.MayDeny() || by.Resources.MayAllow()) {
			j.open = append(j.open, openPolicy{p, by.Resources})
			j.mayDeny, j.mayAllow = j.mayDeny || by.Resources.MayDeny(), j.mayAllow || by.Resources.MayAllow()
		}
	}
	return j
}

// combine combines the decisions of two policies: one that denies wins, then the first that allows.
func combine(d, next rule.Decision) rule.Decision {
	switch {
	case next.Effect != "" && next.Effect != rule.Allow:
		next.Effect = rule.Deny
		return next
	case d.Effect == "":
		return next
	}
	return d
}

// ofResource judges a resource by the policies whose decision depends on it.
func (j judgement) ofResource(ctx context.Context, r *http.Request, res resource.Resource) (d rule.Decision) {
	for _, o := range j.open {
		by := o.resources.Judge(ctx, res)
		if by.Err != nil {
			o.policy.Failed(r, by.Err)
		}
		if d = combine(d, by); d.Effect == rule.Deny {
			return d
		}
	}
	return d
}

// deniesType reports whether a policy denies all resources of a type.
func (j judgement) deniesType(ctx context.Context, resourceType string) bool {
	return slices.ContainsFunc(j.open, func(o openPolicy) bool { return o.resources.DeniesType(ctx, resourceType) })
}

// looksAt reports whether a policy may look at an element of resources.
func (j judgement) looksAt(element string) bool {
	return slices.ContainsFunc(j.open, func(o openPolicy) bool { return o.resources.LooksAt(element) })
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
	if err == nil && (res.Type != of.Type || res.ID != of.ID || x.Ruled(ctx, res) == rule.Deny) {
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

// allowed is the grant that policies give for one interaction: over the whole type, or over what they will say of
// each resource. An operation may be about any type. A bundle needs none, because its entries are judged.
func allowed(j judgement, i interaction.Interaction) access.Grant {
	g := access.Grant{Type: i.Type, Permission: i.Permission(), ByRule: j.Effect != rule.Allow, Scope: "allow " + j.Rule}
	if i.Kind == interaction.Operation {
		g.Type, g.Permission = smart.AnyType, smart.Create|smart.Read|smart.Update|smart.Delete|smart.Search
	}
	if g.Type == "" {
		g.Type = smart.AnyType
	}
	return g
}
