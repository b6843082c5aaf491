// Package judge decides whether a token's rights cover a resource, and how policies change that decision.
//
// Policies decide first, then the grants of package access, together with the resources on which a resource depends. No other
// package decides about resources. In case of doubt, the decision is a rejection.
package judge

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// requester sends requests to the FHIR server, and counts them.
type requester interface {
	Do(ctx context.Context, c message.Call) (*message.Response, error)
	RequestCount() int
}

// Judge decides about requests and resources by the token's rights and the policies. [Judge.ForCall] derives the judge of a
// single call from the judge of the client's request.
type Judge struct {
	Server    requester         // looks up resources that others depend on
	Addresses message.Addresses // public addresses of the FHIR API
	Policies  []rule.Policy     // override the rights
	R         *http.Request     // client's request
	Token     *guard.Token      // of the client; may be nil
	Granted   *access.Rights    // of the token, and the call's additions from policies
	judgement judgement         // of the policies, about the call
	known     standings         // resources looked up as dependencies of others
	promised  standings         // resources that the transaction will write
}

// standings are the token's permissions on resources in patients' records.
type standings map[standingKey]access.ResourceAccess

type standingKey struct {
	of      interaction.Reference
	patient string
}

// Rights returns the token's permissions in the call.
func (x *Judge) Rights() *access.Rights { return x.Granted }

// MayDeny reports whether policies must judge each resource.
func (x *Judge) MayDeny() bool { return x.judgement.mayDeny }

// DeniesType reports whether policies deny all resources of a type.
func (x *Judge) DeniesType(ctx context.Context, resourceType string) bool {
	return x.judgement.deniesType(ctx, resourceType)
}

// MayForward reports whether policies permit forwarding a client's request and its response unjudged, which the scopes
// already permit. A search by POST must be judged: its form, which policies need, is not read yet.
func (x *Judge) MayForward(c message.Call, i interaction.Interaction) bool {
	if len(x.Policies) == 0 {
		return true
	}
	j := x.judge(x.R.Context(), c, i, false)
	return j.Effect != rule.Deny && !j.mayDeny && !strings.HasSuffix(c.Path, "_search")
}

// ForCall returns the judge of one call, with the policies' judgement of the call and the resulting rights. Each entry of a
// bundle is a call.
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
		of.Granted = of.Granted.WithoutUnrestricted()
	}
	return &of, nil
}

// PolicyEffect returns the effect of the policies on a resource in the call; empty if the scopes decide.
func (x *Judge) PolicyEffect(ctx context.Context, res resource.Resource) rule.Effect {
	if x.MayDeny() && isExportFile(res) {
		return rule.Deny
	}
	return x.judgement.ofResource(ctx, x.R, res).Effect
}

// IsCovered reports whether one of the grants covers the resource, unless a policy decides.
func (x *Judge) IsCovered(ctx context.Context, res resource.Resource, grants []access.Grant) (bool, error) {
	return x.covered(ctx, res, grants, (*access.Rights).Covers)
}

// verdictOf is a method that judges a resource by a grant.
type verdictOf func(*access.Rights, access.Grant, resource.Resource) access.Verdict

func (x *Judge) covered(ctx context.Context, res resource.Resource, grants []access.Grant, by verdictOf) (bool, error) {
	if effect := x.PolicyEffect(ctx, res); effect != "" {
		return effect == rule.Allow, nil
	}
	for _, g := range grants {
		ok, err := x.CheckVerdict(ctx, g, by(x.Granted, g, res))
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// CheckVerdict reports whether a verdict holds, after looking up the resources that it needs.
func (x *Judge) CheckVerdict(ctx context.Context, g access.Grant, v access.Verdict) (bool, error) {
	if !v.Covered {
		return false, nil
	}
	own := !v.RequiresPatientOwned
	for _, needed := range v.Needed {
		s, err := x.standing(ctx, g.Patient, needed)
		if err != nil || s.Permissions&v.RequiredPermissions == 0 {
			return false, err
		}
		own = own || s.BelongsToPatient
	}
	return own, nil
}

// IsInRecord reports whether a resource is in the record of a grant's patient, or in every record, even if no scope covers it.
func (x *Judge) IsInRecord(ctx context.Context, g access.Grant, of interaction.Reference) (bool, error) {
	s, err := x.standing(ctx, g.Patient, of)
	return s.InRecord, err
}

// standing looks up the token's permissions on a resource that another resource depends on. Dependencies of that resource are not
// looked up.
func (x *Judge) standing(ctx context.Context, patient string, of interaction.Reference) (access.ResourceAccess, error) {
	key := standingKey{of, patient}
	if s, found := x.promised[key]; found {
		return s, nil
	}
	if s, found := x.known[key]; found {
		return s, nil
	}
	if _, err := interaction.Parse(http.MethodGet, of.String(), "", nil); err != nil {
		return access.ResourceAccess{}, nil // no FHIR resource, or a dot segment
	}
	a, err := x.Server.Do(ctx, message.Get(of.String(), ""))
	if err != nil {
		return access.ResourceAccess{}, err
	}
	var s access.ResourceAccess
	if a.Status == http.StatusOK && a.IsJSON() {
		res, err := x.Addresses.Parse(a.Body)
		if err == nil && res.Type == of.Type && res.ID == of.ID && x.PolicyEffect(ctx, res) != rule.Deny {
			s = x.Granted.AccessTo(res, patient)
		}
	}
	x.know(key, s)
	return s, nil
}

func (x *Judge) know(key standingKey, s access.ResourceAccess) {
	if x.known == nil {
		x.known = standings{}
	}
	x.known[key] = s
}

// CacheStanding caches the standing of a resource that one of the grants covers, because included resources may depend on it.
func (x *Judge) CacheStanding(res resource.Resource, grants []access.Grant) {
	for _, patient := range boundTo(grants) {
		if s := x.Granted.AccessTo(res, patient); s.InRecord {
			x.know(standingKey{interaction.Reference{Type: res.Type, ID: res.ID}, patient}, s)
		}
	}
}

// IsOwn reports whether a resource belongs to a patient to whom the token's scopes are bound.
func (x *Judge) IsOwn(res resource.Resource) bool {
	return slices.ContainsFunc(boundTo(x.Granted.Grants), func(patient string) bool { return x.Granted.AccessTo(res, patient).BelongsToPatient })
}

// ExpectWrite sets the standing of a resource that the transaction will write, whatever is stored. An uncertain write gives no
// permissions.
func (x *Judge) ExpectWrite(res resource.Resource, certain bool) {
	if x.promised == nil {
		x.promised = standings{}
	}
	for _, patient := range append(boundTo(x.Granted.Grants), "") {
		var s access.ResourceAccess
		if certain {
			s = x.Granted.AccessTo(res, patient)
		}
		x.promised[standingKey{interaction.Reference{Type: res.Type, ID: res.ID}, patient}] = s
	}
}

// ClearStandings clears the cached standings, because the previous entry of a bundle may have changed the resources.
func (x *Judge) ClearStandings() { x.known = nil }

// ReadCovered returns the requested resource from a response if one of the grants covers reading it. A resource that does not
// exist and a resource that is not covered get the same rejection after the same number of requests, so that clients cannot
// distinguish them.
func (x *Judge) ReadCovered(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response) (resource.Resource, error) {
	return x.judged(ctx, of, grants, a, (*access.Rights).Covers)
}

// ReadForUpdate is like ReadCovered, but for a resource that is to be changed.
func (x *Judge) ReadForUpdate(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response) (resource.Resource, error) {
	return x.judged(ctx, of, grants, a, (*access.Rights).CoversStored)
}

func (x *Judge) judged(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response, by verdictOf) (resource.Resource, error) {
	asked := x.Server.RequestCount()
	res, err := x.resource(ctx, of, grants, a, by)
	if err != nil {
		err = x.PadRejection(ctx, of.Type, grants, asked, err)
	}
	return res, err
}

func (x *Judge) resource(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response, by verdictOf) (resource.Resource, error) {
	if a.Status != http.StatusOK {
		// A status that depends on the resource, such as 410, would reveal that it exists or existed.
		if a.Status/100 == 5 || a.Status == http.StatusTooManyRequests {
			return resource.Resource{}, message.Failed(a)
		}
		return resource.Resource{}, message.NotFound()
	}
	if err := a.RequireJSON(); err != nil {
		return resource.Resource{}, err
	}
	res, err := x.Addresses.Parse(a.Body)
	if err != nil {
		return res, err
	}
	ok, err := x.covered(ctx, res, grants, by)
	if err == nil && (!ok || res.Type != of.Type || res.ID != of.ID) {
		err = message.NotFound()
	}
	return res, err
}

// PadRejection pads a rejection with lookups of the patient until it has cost as many requests as a resource that depends on
// another, so that timing does not reveal existence. asked is the number of requests before the resource was judged.
func (x *Judge) PadRejection(ctx context.Context, resourceType string, grants []access.Grant, asked int, refusal error) error {
	if !errors.Is(refusal, message.ErrOutside) || !x.Granted.Shared.Depends(resourceType) {
		return refusal
	}
	for _, patient := range boundTo(grants) {
		if asked++; x.Server.RequestCount() >= asked {
			continue
		}
		if _, err := x.Server.Do(ctx, message.Get("Patient/"+patient, "")); err != nil {
			return err
		}
	}
	return refusal
}

// boundTo returns the patients to whom grants are bound, without duplicates.
func boundTo(grants []access.Grant) []string {
	var all []string
	for _, g := range grants {
		if g.Patient != "" && !slices.Contains(all, g.Patient) {
			all = append(all, g.Patient)
		}
	}
	return all
}

// judgement is the judgement of all policies about one call. With the zero value, the scopes decide.
type judgement struct {
	rule.Decision // about the whole call

	mayDeny, mayAllow bool // some policy may deny or allow resources
	open              []openPolicy
}

// openPolicy is a policy that depends on resources.
type openPolicy struct {
	policy    rule.Policy
	resources rule.Resources
}

// judge judges a call by all policies. Metadata is public, and requested without a token.
func (x *Judge) judge(ctx context.Context, c message.Call, i interaction.Interaction, reporting bool) (j judgement) {
	if i.Kind == interaction.Capabilities {
		return j
	}
	r := rule.Request{Client: x.R, Token: x.Token, Method: c.Method, Interaction: i}
	for _, p := range x.Policies {
		by := p.Evaluate(ctx, r)
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

// combine combines the decisions of two policies: a denial wins, then the first allowance.
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

// ofResource judges a resource by the policies that depend on it.
func (j judgement) ofResource(ctx context.Context, r *http.Request, res resource.Resource) (d rule.Decision) {
	for _, o := range j.open {
		by := o.resources.Evaluate(ctx, res)
		if by.Err != nil {
			o.policy.Failed(r, by.Err)
		}
		if d = combine(d, by); d.Effect == rule.Deny {
			return d
		}
	}
	return d
}

func (j judgement) deniesType(ctx context.Context, resourceType string) bool {
	return slices.ContainsFunc(j.open, func(o openPolicy) bool { return o.resources.DeniesType(ctx, resourceType) })
}

func (j judgement) looksAt(element string) bool {
	return slices.ContainsFunc(j.open, func(o openPolicy) bool { return o.resources.DependsOn(element) })
}

// maxDeletions is the number of versions that are searched for the last version before a deletion.
const maxDeletions = 10

// CheckCurrent rejects a request for older versions of a resource if a policy denies its current version, because a label that
// is added later protects all versions. For a deleted resource, the last version before the deletion counts. The rejection is
// that of a missing resource.
func (x *Judge) CheckCurrent(ctx context.Context, of interaction.Reference) error {
	if !x.MayDeny() {
		return nil
	}
	a, err := x.Server.Do(ctx, message.Get(of.String(), ""))
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

// checkLast is like [Judge.CheckCurrent], but for a deleted resource.
func (x *Judge) checkLast(ctx context.Context, of interaction.Reference) error {
	a, err := x.Server.Do(ctx, message.Get(of.String()+"/_history", "_count="+strconv.Itoa(maxDeletions)))
	if err != nil {
		return err
	}
	b, err := x.Addresses.BundleOf(a, false, nil, message.Call{}.SentTerms)
	if err != nil {
		return err
	}
	for _, e := range b.Entries { // newest first (R4 http.html#history)
		if len(e.Resource) > 0 {
			return x.checkVersion(ctx, of, e.Resource)
		}
	}
	return message.NotFound()
}

func (x *Judge) checkVersion(ctx context.Context, of interaction.Reference, text []byte) error {
	res, err := x.Addresses.Parse(text)
	if err == nil && (res.Type != of.Type || res.ID != of.ID || x.PolicyEffect(ctx, res) == rule.Deny) {
		err = message.NotFound()
	}
	return err
}

// isExportFile reports whether a resource is a Binary in which a FHIR server, such as HAPI, stores a file of an export.
// Policies cannot judge the resources in such a file.
func isExportFile(res resource.Resource) bool {
	if res.Type != "Binary" {
		return false
	}
	contentType, _ := res.Member("contentType")
	return strings.Contains(strings.ToLower(resource.Text(contentType)), "ndjson")
}

// allowed returns the grant for an interaction that policies allow: over the whole type, or depending on their decision about
// each resource. An operation may involve any type. A bundle needs no grant, because its entries are judged.
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

// maxReferrers is the maximum number of DocumentReferences that name a Binary. With more, the Binary is withheld.
const maxReferrers = 20

// Readable is [Judge.ReadCovered] for the current version of a resource. A Binary with a securityContext is judged by it. Any
// other Binary, such as those of HAPI, is readable if a DocumentReference that the token's scopes cover names it as an
// attachment, and no DocumentReference of another patient does.
//
// The search for DocumentReferences is sent even if the Binary does not exist, so that the number of requests does not reveal
// its existence.
func (x *Judge) Readable(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response) (resource.Resource, error) {
	res, err := x.ReadCovered(ctx, of, grants, a)
	patients := boundTo(grants)
	if of.Type != "Binary" || !message.IsOutside(err) || !x.Granted.Shared.IsSecured(of.Type) || len(patients) == 0 {
		return res, err
	}
	addresses := x.addressesOf(of, a)
	referrers, failure := x.referrers(ctx, addresses)
	if failure != nil {
		return res, failure
	}
	if a.Status != http.StatusOK || res.Type != of.Type || res.ID != of.ID || x.PolicyEffect(ctx, res) == rule.Deny {
		return res, err
	}
	for _, patient := range patients {
		if !x.Granted.MayBeReferred(res, patient) {
			continue
		}
		ok, failure := x.isReferred(ctx, patient, addresses, referrers)
		if ok || failure != nil {
			return res, failure
		}
	}
	return res, err
}

// addressesOf returns the URLs that an attachment may use to name a resource: relative, and below the base URLs of clients and of
// the FHIR server.
func (x *Judge) addressesOf(of interaction.Reference, a *message.Response) []string {
	all := []string{of.String(), "/" + of.String(), x.Addresses.URL(of.String(), "")}
	own := message.WithoutVersion(a.Header.Get("Content-Location"))
	if strings.HasSuffix(own, "/"+of.String()) {
		all = append(all, own)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(address string) bool { return strings.ContainsAny(address, `,|$\`) })
}

// referrers returns the DocumentReferences of all patients with one of the addresses as their location.
func (x *Judge) referrers(ctx context.Context, addresses []string) (*message.Bundle, error) {
	c := message.Get("DocumentReference", smart.EncodeParameters([]smart.Parameter{
		{Name: "location", Value: strings.Join(addresses, ",")}, {Name: "_count", Value: strconv.Itoa(maxReferrers)},
	}))
	c.Header = http.Header{"Cache-Control": {"no-cache"}} // HAPI caches search results for a minute
	a, err := x.Server.Do(ctx, c)
	if err != nil {
		return nil, err
	}
	if a.Status/100 == 4 && a.Status != http.StatusTooManyRequests {
		return &message.Bundle{}, nil // the FHIR server does not support the search
	}
	return x.Addresses.BundleOf(a, true, nil, message.Call{}.SentTerms)
}

// isReferred reports whether a DocumentReference of a patient that a scope covers names one of the addresses, and no
// DocumentReference of another patient does.
func (x *Judge) isReferred(ctx context.Context, patient string, addresses []string, referrers *message.Bundle) (bool, error) {
	if referrers.Links.To("next") != "" || len(referrers.Entries) > maxReferrers {
		return false, nil
	}
	grants := slices.DeleteFunc(x.Granted.For("DocumentReference", smart.Read), func(g access.Grant) bool { return !g.IsFor(patient) })
	found := false
	for _, e := range referrers.Entries {
		if e.Parsed.Type != "DocumentReference" || !slices.ContainsFunc(access.Attachments(e.Parsed), func(url string) bool { return slices.Contains(addresses, url) }) {
			continue
		}
		if !access.NamesOnly(e.Parsed, patient) {
			return false, nil
		}
		if found {
			continue
		}
		var err error
		if found, err = x.IsCovered(ctx, e.Parsed, grants); err != nil {
			return false, err
		}
	}
	return found, nil
}

// LooksAtData reports whether policies may look at the data of a Binary.
func (x *Judge) LooksAtData() bool { return x.judgement.looksAt("data") }

// BinaryCall returns the call for the part of a Binary that is needed to judge it: without its data, which may be long, unless
// policies look at the data.
func (x *Judge) BinaryCall(path string) message.Call {
	if x.LooksAtData() {
		return message.Get(path, "")
	}
	return message.BinaryMetadata(path)
}

// MayAttach reports whether a resource in a patient's record may name a Binary as an attachment: the client may read the
// Binary, or the transaction writes it. Otherwise the attachment would make the Binary readable, see [Judge.Readable].
func (x *Judge) MayAttach(ctx context.Context, patient string, of interaction.Reference) (bool, error) {
	if s, found := x.promised[standingKey{of, patient}]; found && s.Permissions != 0 {
		return true, nil
	}
	if _, err := interaction.Parse(http.MethodGet, of.String(), "", nil); err != nil {
		return false, nil
	}
	grants := slices.DeleteFunc(slices.Clone(x.Granted.Grants), func(g access.Grant) bool {
		return !g.IsFor(patient) || g.Type != smart.AnyType && g.Type != of.Type
	})
	a, err := x.Server.Do(ctx, x.BinaryCall(of.String()))
	if err != nil {
		return false, err
	}
	if _, err = x.judged(ctx, of, grants, a, (*access.Rights).CoversStored); err == nil || !message.IsOutside(err) {
		return err == nil, err
	}
	_, err = x.Readable(ctx, of, slices.DeleteFunc(x.Granted.For(of.Type, smart.Read), func(g access.Grant) bool { return !g.IsFor(patient) }), a)
	if message.IsOutside(err) {
		return false, nil
	}
	return err == nil, err
}
