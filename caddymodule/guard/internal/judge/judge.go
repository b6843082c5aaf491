package judge

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// asker asks the FHIR server, and counts how often.
type asker interface {
	Ask(ctx context.Context, c message.Call) (*message.Answer, error)
	Asked() int
}

// Judge says what the token's rights and the site's rules make of requests and resources.
type Judge struct {
	Server    asker             // asks what others depend on
	At        message.Addresses // names what it holds as clients know it
	Policies  Policies          // are the site's rules
	R         *http.Request     // is the client's
	Token     *guard.Token      // is the client's; may be nil
	Granted   *access.Rights    // are the token's, and what rules add in the call that is being answered
	judgement policy.Judgement  // by the site's rules, of the call that is being answered
	known     map[known]bool    // resources that were looked up for others: are they covered?
	promised  map[known]bool    // as known, of what the transaction will write
}

// known is a resource that was looked up in a patient's compartment.
type known struct {
	of      interaction.Reference
	patient string
}

// Rights are what the token may do in the call that is being answered.
func (x *Judge) Rights() *access.Rights { return x.Granted }

// MayDeny reports whether the site's rules must be asked about each resource.
func (x *Judge) MayDeny() bool { return x.Policies.Rules != nil && x.judgement.MayDeny() }

// LeavesPassing reports whether the rules let a request of the client's pass as it is, and its answer, which the scopes
// let pass. The form of a search has parameters that the rules must see, and is not read yet.
func (x *Judge) LeavesPassing(c message.Call, i interaction.Interaction) bool {
	if x.Policies.Rules == nil {
		return true
	}
	j := x.Policies.ask(x.R.Context(), x.R, x.Token, c, i)
	return j.Effect != policy.Deny && !j.MayDeny() && !strings.HasSuffix(c.Path, "_search")
}

// Under does what answers a call under the rules' judgement of it. It ends with the call: an entry of a batch
// is judged by itself.
func (x *Judge) Under(ctx context.Context, c message.Call, i interaction.Interaction, answer func() (*message.Answer, error)) (*message.Answer, error) {
	if x.Policies.Rules == nil {
		return answer()
	}
	j := x.Policies.ask(ctx, x.R, x.Token, c, i)
	x.report(j.Decision)
	if j.Effect == policy.Deny {
		return nil, message.Denied(j.Decision)
	}
	judgement, rights, known := x.judgement, x.Granted, x.known
	defer func() { x.judgement, x.Granted, x.known = judgement, rights, known }()
	x.judgement, x.known = j, nil
	if j.Effect == policy.Allow || j.MayAllow() {
		x.Granted = x.Granted.With(allowed(j, i))
	}
	if j.MayDeny() {
		x.Granted = x.Granted.Judged()
	}
	return answer()
}

// report reports a rule that failed.
func (x *Judge) report(d policy.Decision) {
	if d.Err != nil && x.Policies.Failed != nil {
		x.Policies.Failed(x.R, d.Err)
	}
}

// Ruled is what the rules say of a resource, in the call that is being answered.
func (x *Judge) Ruled(ctx context.Context, res resource.Resource) policy.Effect {
	if x.MayDeny() && isExportFile(res) {
		return policy.Deny
	}
	d := x.judgement.Resource(ctx, res)
	x.report(d)
	return d.Effect
}

// Covered reports whether one of the grants covers the resource, unless the site's rules say otherwise.
func (x *Judge) Covered(ctx context.Context, res resource.Resource, grants []access.Grant) (bool, error) {
	if x.Policies.Rules != nil {
		if effect := x.Ruled(ctx, res); effect != "" {
			return effect == policy.Allow, nil
		}
	}
	for _, g := range grants {
		ok, err := x.Holds(ctx, g, x.Granted.Covers(g, res))
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// Holds reports whether a verdict holds, after looking up what it needs.
func (x *Judge) Holds(ctx context.Context, g access.Grant, v access.Verdict) (bool, error) {
	if !v.Covered {
		return false, nil
	}
	for _, needed := range v.Needed {
		ok, err := x.IsKnown(ctx, g, needed)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// IsKnown reports whether a grant's context covers a resource on which another depends. It is not asked what that one
// depends on in turn.
func (x *Judge) IsKnown(ctx context.Context, g access.Grant, of interaction.Reference) (bool, error) {
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
	a, err := x.Server.Ask(ctx, message.Get(of.String(), ""))
	if err != nil {
		return false, err
	}
	ok := false
	if a.Status == http.StatusOK && a.IsJSON() {
		res, err := x.At.Parse(a.Body)
		context := access.Grant{Type: smart.AnyType, Patient: g.Patient}
		v := x.Granted.Covers(context, res)
		ok = err == nil && res.Type == of.Type && res.ID == of.ID && v.Covered && len(v.Needed) == 0 &&
			x.Ruled(ctx, res) != policy.Deny
	}
	x.know(of, g.Patient, ok)
	return ok, nil
}

func (x *Judge) know(of interaction.Reference, patient string, ok bool) {
	if x.known == nil {
		x.known = map[known]bool{}
	}
	x.known[known{of, patient}] = ok
}

// Remember notes that a resource, which one of the grants covers, is in the context of those that need no other for it,
// because what comes along may depend on it.
func (x *Judge) Remember(res resource.Resource, grants []access.Grant) {
	for _, g := range grants {
		in := access.Grant{Type: smart.AnyType, Patient: g.Patient}
		if v := x.Granted.Covers(in, res); v.Covered && len(v.Needed) == 0 {
			x.know(interaction.Reference{Type: res.Type, ID: res.ID}, g.Patient, true)
		}
	}
}

// Promise looks ahead at a resource that the transaction writes: in which patients' records it will be, if that is
// certain. It says so from now on, whatever is stored.
func (x *Judge) Promise(res resource.Resource, certain bool) {
	if x.promised == nil {
		x.promised = map[known]bool{}
	}
	for _, g := range x.Granted.Grants {
		v := x.Granted.Covers(access.Grant{Type: smart.AnyType, Patient: g.Patient}, res)
		x.promised[known{interaction.Reference{Type: res.Type, ID: res.ID}, g.Patient}] = certain && v.Covered && len(v.Needed) == 0
	}
}

// Forget forgets what was looked up: the entry of a bundle before may have changed it.
func (x *Judge) Forget() { x.known = nil }

// Resource is the resource in an answer, if it is the one that was asked for and one of the grants covers it. What is not
// there gets the same answer as what is not covered, after as many questions to the server, so that nobody learns which
// it is.
func (x *Judge) Resource(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Answer) (resource.Resource, error) {
	asked := x.Server.Asked()
	res, err := x.resource(ctx, of, grants, a)
	if err != nil {
		err = x.EvenOut(ctx, of.Type, grants, asked, err)
	}
	return res, err
}

func (x *Judge) resource(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Answer) (resource.Resource, error) {
	if a.Status != http.StatusOK {
		// A status that depends on the resource would tell that it is there, or was: 410 does.
		if a.Status/100 == 5 || a.Status == http.StatusTooManyRequests {
			return resource.Resource{}, message.Failed(a)
		}
		return resource.Resource{}, message.NotFound()
	}
	if err := a.RequireJSON(); err != nil {
		return resource.Resource{}, err
	}
	res, err := x.At.Parse(a.Body)
	if err != nil {
		return res, err
	}
	ok, err := x.Covered(ctx, res, grants)
	if err == nil && (!ok || res.Type != of.Type || res.ID != of.ID) {
		err = message.NotFound()
	}
	return res, err
}

// EvenOut returns a refusal of a resource after as many questions to the server as one of its type takes that depends on
// another: what is not there would be told by fewer. What is asked for in the others' place is there: the patient. It
// counts from how many were asked before the resource was judged.
func (x *Judge) EvenOut(ctx context.Context, resourceType string, grants []access.Grant, asked int, refusal error) error {
	if !errors.Is(refusal, message.ErrOutside) || !x.Granted.Shared.Depends(resourceType) {
		return refusal
	}
	for _, patient := range boundTo(grants) {
		if asked++; x.Server.Asked() >= asked {
			continue
		}
		if _, err := x.Server.Ask(ctx, message.Get("Patient/"+patient, "")); err != nil {
			return err
		}
	}
	return refusal
}

// boundTo are the patients to whom grants are bound, each once.
func boundTo(grants []access.Grant) []string {
	var all []string
	for _, g := range grants {
		if g.Patient != "" && !slices.Contains(all, g.Patient) {
			all = append(all, g.Patient)
		}
	}
	return all
}
