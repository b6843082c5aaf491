package enforce

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// judging says what the token's rights and the site's rules make of requests and resources.
type judging struct {
	*backend
	rights    *access.Rights
	token     *guard.Token
	known     map[known]bool   // resources that were looked up for others: are they covered?
	promised  map[known]bool   // as known, of what the transaction will write
	judgement policy.Judgement // by the site's rules, of the call that is being answered
}

// parse reads a resource of an answer.
func (x *judging) parse(text []byte) (resource.Resource, error) {
	res, err := resource.Parse(text, x.BaseURL)
	if err != nil {
		return res, withheld(err)
	}
	return res, nil
}

// covered reports whether one of the grants covers the resource, unless the site's rules say otherwise.
func (x *judging) covered(ctx context.Context, res resource.Resource, grants []access.Grant) (bool, error) {
	if effect := x.ruled(ctx, res); effect != "" {
		return effect == policy.Allow, nil
	}
	for _, g := range grants {
		ok, err := x.holds(ctx, g, x.rights.Covers(g, res))
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// holds reports whether a verdict holds, after looking up what it needs.
func (x *judging) holds(ctx context.Context, g access.Grant, v access.Verdict) (bool, error) {
	if !v.Covered {
		return false, nil
	}
	for _, needed := range v.Needed {
		ok, err := x.isKnown(ctx, g, needed)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// isKnown reports whether a grant's context covers a resource on which another depends. It is not asked what that one
// depends on in turn.
func (x *judging) isKnown(ctx context.Context, g access.Grant, of interaction.Reference) (bool, error) {
	key := known{of, g.Patient}
	if ok, found := x.promised[key]; found {
		return ok, nil
	}
	if ok, found := x.known[key]; found {
		return ok, nil
	}
	if _, err := interaction.Parse(http.MethodGet, of.String(), "", nil); err != nil {
		return false, nil // no resource that FHIR has, or a dot segment
	}
	a, err := x.ask(ctx, get(of.String(), ""))
	if err != nil {
		return false, err
	}
	ok := false
	if a.status == http.StatusOK && a.isJSON() {
		res, err := x.parse(a.body)
		context := access.Grant{Type: smart.AnyType, Patient: g.Patient}
		v := x.rights.Covers(context, res)
		ok = err == nil && res.Type == of.Type && res.ID == of.ID && v.Covered && len(v.Needed) == 0 &&
			x.ruled(ctx, res) != policy.Deny
	}
	if x.known == nil {
		x.known = map[known]bool{}
	}
	x.known[key] = ok
	return ok, nil
}

// known is a resource that was looked up in a patient's compartment.
type known struct {
	of      interaction.Reference
	patient string
}

// requireJSON withholds an answer that cannot be read.
func requireJSON(a *answer) error {
	if !a.isJSON() {
		return withheld(fmt.Errorf("the answer is %q, no JSON", a.header.Get("Content-Type")))
	}
	return nil
}
