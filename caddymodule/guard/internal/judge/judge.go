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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// asker asks the FHIR server, and counts how often.
type asker interface {
	Ask(ctx context.Context, c message.Call) (*message.Answer, error)
	Asked() int
}

// Judge says what the token's rights and the policies make of requests and resources. [Judge.ForCall] makes the judge of one
// call from the judge of the client's request.
type Judge struct {
	Server    asker             // asks what others depend on
	At        message.Addresses // names what it holds as clients know it
	Policies  []rule.Policy     // judge besides the rights
	R         *http.Request     // is the client's
	Token     *guard.Token      // is the client's; may be nil
	Granted   *access.Rights    // are the token's, and what policies add for the call
	judgement judgement         // of the policies, about the call
	known     standings         // of resources that were looked up for others
	promised  standings         // of what the transaction will write
}

// standings are what the token may do with resources in patients' records.
type standings map[standingKey]access.Standing

type standingKey struct {
	of      interaction.Reference
	patient string
}

// Rights are what the token may do in the call.
func (x *Judge) Rights() *access.Rights { return x.Granted }

// MayDeny reports whether policies must judge each resource.
func (x *Judge) MayDeny() bool { return x.judgement.mayDeny }

// DeniesType reports whether policies deny all resources of a type.
func (x *Judge) DeniesType(ctx context.Context, resourceType string) bool {
	return x.judgement.deniesType(ctx, resourceType)
}

// LeavesPassing reports whether policies let a request of the client's pass as it is, and its answer, which the scopes
// let pass. The form of a search has parameters that policies must see, and is not read yet.
func (x *Judge) LeavesPassing(c message.Call, i interaction.Interaction) bool {
	if len(x.Policies) == 0 {
		return true
	}
	j := x.judge(x.R.Context(), c, i, false)
	return j.Effect != rule.Deny && !j.mayDeny && !strings.HasSuffix(c.Path, "_search")
}

// ForCall returns the judge of one call: it has the policies' judgement of the call, and the rights that follow. An entry of
// a bundle is a call of its own.
func (x *Judge) ForCall(ctx context.Context, c message.Call, i interaction.Interaction) (*Judge, error) {
	if len(x.Policies) == 0 {
		return x, nil
	}
	of := *x
	of.judgement, of.known = x.judge(ctx, c, i, true), nil
	if of.judgement.Effect == rule.Deny {
		return nil, message.Denied(of.judgement.Decision)
	}
	if of.judgement.Effect == rule.Allow || of.judgement.mayAllow {
		of.Granted = of.Granted.With(allowed(of.judgement, i))
	}
	if of.judgement.mayDeny {
		of.Granted = of.Granted.Judged()
	}
	return &of, nil
}

// Ruled is the effect of the policies on a resource in the call; empty if scopes decide.
func (x *Judge) Ruled(ctx context.Context, res resource.Resource) rule.Effect {
	if x.MayDeny() && isExportFile(res) {
		return rule.Deny
	}
	return x.judgement.ofResource(ctx, x.R, res).Effect
}

// Covered reports whether one of the grants covers the resource, unless a policy decides.
func (x *Judge) Covered(ctx context.Context, res resource.Resource, grants []access.Grant) (bool, error) {
	return x.covered(ctx, res, grants, (*access.Rights).Covers)
}

// verdictOf is how a grant judges a resource.
type verdictOf func(*access.Rights, access.Grant, resource.Resource) access.Verdict

func (x *Judge) covered(ctx context.Context, res resource.Resource, grants []access.Grant, by verdictOf) (bool, error) {
	if effect := x.Ruled(ctx, res); effect != "" {
		return effect == rule.Allow, nil
	}
	for _, g := range grants {
		ok, err := x.Holds(ctx, g, by(x.Granted, g, res))
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
	own := !v.OneOwn
	for _, needed := range v.Needed {
		s, err := x.standing(ctx, g.Patient, needed)
		if err != nil || s.Permissions&v.By == 0 {
			return false, err
		}
		own = own || s.Own
	}
	return own, nil
}

// IsInRecord reports whether a resource is in the record of a grant's patient, or in everyone's. No scope need cover it.
func (x *Judge) IsInRecord(ctx context.Context, g access.Grant, of interaction.Reference) (bool, error) {
	s, err := x.standing(ctx, g.Patient, of)
	return s.InRecord, err
}

// standing looks up what the token may do with a resource on which another depends. What that one depends on in turn is
// not looked up.
func (x *Judge) standing(ctx context.Context, patient string, of interaction.Reference) (access.Standing, error) {
	key := standingKey{of, patient}
	if s, found := x.promised[key]; found {
		return s, nil
	}
	if s, found := x.known[key]; found {
		return s, nil
	}
	if _, err := interaction.Parse(http.MethodGet, of.String(), "", nil); err != nil {
		return access.Standing{}, nil // no resource that FHIR has, or a dot segment
	}
	a, err := x.Server.Ask(ctx, message.Get(of.String(), ""))
	if err != nil {
		return access.Standing{}, err
	}
	var s access.Standing
	if a.Status == http.StatusOK && a.IsJSON() {
		res, err := x.At.Parse(a.Body)
		if err == nil && res.Type == of.Type && res.ID == of.ID && x.Ruled(ctx, res) != rule.Deny {
			s = x.Granted.Standing(res, patient)
		}
	}
	x.know(key, s)
	return s, nil
}

func (x *Judge) know(key standingKey, s access.Standing) {
	if x.known == nil {
		x.known = standings{}
	}
	x.known[key] = s
}

// Remember keeps the standing of a resource that one of the grants covers, because what comes along may depend on it.
func (x *Judge) Remember(res resource.Resource, grants []access.Grant) {
	for _, patient := range boundTo(grants) {
		if s := x.Granted.Standing(res, patient); s.InRecord {
			x.know(standingKey{interaction.Reference{Type: res.Type, ID: res.ID}, patient}, s)
		}
	}
}

// IsOwn reports whether a resource is a patient's own, to whom the token's scopes are bound.
func (x *Judge) IsOwn(res resource.Resource) bool {
	return slices.ContainsFunc(boundTo(x.Granted.Grants), func(patient string) bool { return x.Granted.Standing(res, patient).Own })
}

// Promise keeps the standing of a resource that the transaction will write, whatever is stored. If that is not certain,
// the resource has none.
func (x *Judge) Promise(res resource.Resource, certain bool) {
	if x.promised == nil {
		x.promised = standings{}
	}
	for _, patient := range append(boundTo(x.Granted.Grants), "") {
		var s access.Standing
		if certain {
			s = x.Granted.Standing(res, patient)
		}
		x.promised[standingKey{interaction.Reference{Type: res.Type, ID: res.ID}, patient}] = s
	}
}

// Forget forgets what was looked up: the entry of a bundle before may have changed it.
func (x *Judge) Forget() { x.known = nil }

// Resource is the resource in an answer, if it is the one that was asked for and one of the grants lets it be read. What is
// not there gets the same answer as what is not covered, after as many questions to the server, so that nobody learns
// which it is.
func (x *Judge) Resource(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Answer) (resource.Resource, error) {
	return x.judged(ctx, of, grants, a, (*access.Rights).Covers)
}

// Stored is Resource for one that is to be changed.
func (x *Judge) Stored(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Answer) (resource.Resource, error) {
	return x.judged(ctx, of, grants, a, (*access.Rights).CoversStored)
}

func (x *Judge) judged(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Answer, by verdictOf) (resource.Resource, error) {
	asked := x.Server.Asked()
	res, err := x.resource(ctx, of, grants, a, by)
	if err != nil {
		err = x.EvenOut(ctx, of.Type, grants, asked, err)
	}
	return res, err
}

func (x *Judge) resource(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Answer, by verdictOf) (resource.Resource, error) {
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
	ok, err := x.covered(ctx, res, grants, by)
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
