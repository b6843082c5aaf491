// Package judge decides whether a token's rights cover a resource and how policies change that decision.
//
// Policies are evaluated first, then the grants (package access), including those for the resources on which a resource
// depends. No other package makes access decisions for resources. When in doubt, access is denied.
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

// requester sends requests to the FHIR server and counts them.
type requester interface {
	Do(ctx context.Context, c message.Call) (*message.Response, error)
	RequestCount() int
}

// Judge makes the access decisions for requests and resources, by the token's rights and the policies. [Judge.ForCall] derives
// the judge of a single call from the judge of the client's request.
type Judge struct {
	Server         requester         // looks up resources that others depend on
	Addresses      message.Addresses // public addresses of the FHIR API
	Policies       []rule.Policy     // policies, which override the rights
	Request        *http.Request     // the client's request
	Token          *guard.Token      // the client's token; may be nil
	GrantedRights  *access.Rights    // rights of the token, with those that policies add for the call
	policyJudgment policyJudgment    // the policies' judgment of the call
	cachedAccess   accessByKey       // access to resources looked up as dependencies
	expectedAccess accessByKey       // access to resources that the transaction will write
}

// accessByKey maps resources in patients' records to the token's permissions.
type accessByKey map[accessKey]access.ResourceAccess

type accessKey struct {
	reference interaction.Reference
	patient   string
}

// Rights returns the token's permissions in the call.
func (x *Judge) Rights() *access.Rights { return x.GrantedRights }

// MayDeny reports whether policies must judge each resource.
func (x *Judge) MayDeny() bool { return x.policyJudgment.mayDeny }

// DeniesType reports whether policies deny all resources of a type.
func (x *Judge) DeniesType(ctx context.Context, resourceType string) bool {
	return x.policyJudgment.deniesType(ctx, resourceType)
}

// MayForward reports whether policies permit forwarding a client's request and its response unjudged; the scopes have to permit
// that as well. A search by POST must be judged, because policies need its form, which has not been read yet.
func (x *Judge) MayForward(c message.Call, i interaction.Interaction) bool {
	if len(x.Policies) == 0 {
		return true
	}
	j := x.evaluatePolicies(x.Request.Context(), c, i, false)
	return j.Effect != rule.Deny && !j.mayDeny && !strings.HasSuffix(c.Path, "_search")
}

// ForCall returns the judge for one call, with the policies' judgment of the call and the resulting rights. Each entry of a
// bundle is a separate call.
func (x *Judge) ForCall(ctx context.Context, c message.Call, i interaction.Interaction) (*Judge, error) {
	if len(x.Policies) == 0 {
		return x, nil
	}
	of := *x
	of.policyJudgment, of.cachedAccess = x.evaluatePolicies(ctx, c, i, true), nil
	if of.policyJudgment.Effect == rule.Deny {
		return nil, message.DeniedByPolicy(of.policyJudgment.Decision)
	}
	if of.policyJudgment.Effect == rule.Allow || of.policyJudgment.mayAllow {
		of.GrantedRights = of.GrantedRights.WithGrant(policyGrant(of.policyJudgment, i))
	}
	if of.policyJudgment.mayDeny {
		of.GrantedRights = of.GrantedRights.WithoutUnrestricted()
	}
	return &of, nil
}

// PolicyEffect returns the effect of the policies on a resource in the call; empty if the scopes determine access.
func (x *Judge) PolicyEffect(ctx context.Context, res resource.Resource) rule.Effect {
	if x.MayDeny() && isExportFile(res) {
		return rule.Deny
	}
	return x.policyJudgment.judgeResource(ctx, x.Request, res).Effect
}

// IsCovered reports whether a policy allows the resource or, if no policy applies, whether one of the grants covers it.
func (x *Judge) IsCovered(ctx context.Context, res resource.Resource, grants []access.Grant) (bool, error) {
	return x.isCoveredBy(ctx, res, grants, (*access.Rights).Covers)
}

// verdictFunc is a method that judges a resource by a grant.
type verdictFunc func(*access.Rights, access.Grant, resource.Resource) access.Verdict

func (x *Judge) isCoveredBy(ctx context.Context, res resource.Resource, grants []access.Grant, by verdictFunc) (bool, error) {
	if effect := x.PolicyEffect(ctx, res); effect != "" {
		return effect == rule.Allow, nil
	}
	for _, g := range grants {
		ok, err := x.CheckVerdict(ctx, g, by(x.GrantedRights, g, res))
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// CheckVerdict looks up the dependencies of a verdict and reports whether access to them suffices.
func (x *Judge) CheckVerdict(ctx context.Context, g access.Grant, v access.Verdict) (bool, error) {
	if !v.Covered {
		return false, nil
	}
	own := !v.RequiresPatientOwned
	for _, needed := range v.Dependencies {
		s, err := x.resourceAccess(ctx, g.Patient, needed)
		if err != nil || s.Permissions&v.RequiredPermissions == 0 {
			return false, err
		}
		own = own || s.BelongsToPatient
	}
	return own, nil
}

// IsInRecord reports whether a resource is in the record of the grant's patient or in every record, even if no scope covers it.
func (x *Judge) IsInRecord(ctx context.Context, g access.Grant, of interaction.Reference) (bool, error) {
	s, err := x.resourceAccess(ctx, g.Patient, of)
	return s.InRecord, err
}

// resourceAccess looks up the token's permissions on a resource that another resource depends on. Dependencies of the resource
// itself are not looked up.
func (x *Judge) resourceAccess(ctx context.Context, patient string, of interaction.Reference) (access.ResourceAccess, error) {
	key := accessKey{of, patient}
	if s, found := x.expectedAccess[key]; found {
		return s, nil
	}
	if s, found := x.cachedAccess[key]; found {
		return s, nil
	}
	if _, err := interaction.Parse(http.MethodGet, of.String(), "", nil); err != nil {
		return access.ResourceAccess{}, nil // not a FHIR resource, or a dot segment
	}
	a, err := x.Server.Do(ctx, message.NewGet(of.String(), ""))
	if err != nil {
		return access.ResourceAccess{}, err
	}
	var s access.ResourceAccess
	if a.Status == http.StatusOK && a.IsJSON() {
		res, err := x.Addresses.Parse(a.Body)
		if err == nil && res.Type == of.Type && res.ID == of.ID && x.PolicyEffect(ctx, res) != rule.Deny {
			s = x.GrantedRights.AccessTo(res, patient)
		}
	}
	x.storeAccess(key, s)
	return s, nil
}

func (x *Judge) storeAccess(key accessKey, s access.ResourceAccess) {
	if x.cachedAccess == nil {
		x.cachedAccess = accessByKey{}
	}
	x.cachedAccess[key] = s
}

// CacheAccess caches the access to a resource that one of the grants covers, because included resources may depend on it.
func (x *Judge) CacheAccess(res resource.Resource, grants []access.Grant) {
	for _, patient := range boundPatients(grants) {
		if s := x.GrantedRights.AccessTo(res, patient); s.InRecord {
			x.storeAccess(accessKey{interaction.Reference{Type: res.Type, ID: res.ID}, patient}, s)
		}
	}
}

// BelongsToBoundPatient reports whether a resource belongs to a patient to whom the token's scopes are bound.
func (x *Judge) BelongsToBoundPatient(res resource.Resource) bool {
	return slices.ContainsFunc(boundPatients(x.GrantedRights.Grants), func(patient string) bool { return x.GrantedRights.AccessTo(res, patient).BelongsToPatient })
}

// ExpectWrite sets the access to a resource that the transaction will write, whatever is currently stored. A write that is not
// certain grants no permissions.
func (x *Judge) ExpectWrite(res resource.Resource, isCertain bool) {
	if x.expectedAccess == nil {
		x.expectedAccess = accessByKey{}
	}
	for _, patient := range append(boundPatients(x.GrantedRights.Grants), "") {
		var s access.ResourceAccess
		if isCertain {
			s = x.GrantedRights.AccessTo(res, patient)
		}
		x.expectedAccess[accessKey{interaction.Reference{Type: res.Type, ID: res.ID}, patient}] = s
	}
}

// ClearAccessCache clears the cache, because the previous entry of a bundle may have changed resources.
func (x *Judge) ClearAccessCache() { x.cachedAccess = nil }

// ReadCovered returns the requested resource from a response if one of the grants covers reading it. A missing resource and an
// uncovered one get the same rejection after the same number of requests, so that clients cannot distinguish them.
func (x *Judge) ReadCovered(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response) (resource.Resource, error) {
	return x.readJudged(ctx, of, grants, a, (*access.Rights).Covers)
}

// ReadForUpdate is like ReadCovered, but for a resource that the client changes.
func (x *Judge) ReadForUpdate(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response) (resource.Resource, error) {
	return x.readJudged(ctx, of, grants, a, (*access.Rights).CoversStored)
}

func (x *Judge) readJudged(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response, by verdictFunc) (resource.Resource, error) {
	requestsBefore := x.Server.RequestCount()
	res, err := x.readCoveredBy(ctx, of, grants, a, by)
	if err != nil {
		err = x.PadRejection(ctx, of.Type, grants, requestsBefore, err)
	}
	return res, err
}

func (x *Judge) readCoveredBy(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response, by verdictFunc) (resource.Resource, error) {
	if a.Status != http.StatusOK {
		// A status that depends on the resource, such as 410, would reveal that the resource exists or existed.
		if a.Status/100 == 5 || a.Status == http.StatusTooManyRequests {
			return resource.Resource{}, message.ServerFailure(a)
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
	ok, err := x.isCoveredBy(ctx, res, grants, by)
	if err == nil && (!ok || res.Type != of.Type || res.ID != of.ID) {
		err = message.NotFound()
	}
	return res, err
}

// PadRejection sends lookups of the patient until a rejection has caused as many requests as for a resource with a dependency,
// so that timing does not reveal existence. requestsBefore is the number of requests before the resource was judged.
func (x *Judge) PadRejection(ctx context.Context, resourceType string, grants []access.Grant, requestsBefore int, rejection error) error {
	if !errors.Is(rejection, message.ErrNotCovered) || !x.GrantedRights.TypeRules.MayNeedLookups(resourceType) {
		return rejection
	}
	for _, patient := range boundPatients(grants) {
		if requestsBefore++; x.Server.RequestCount() >= requestsBefore {
			continue
		}
		if _, err := x.Server.Do(ctx, message.NewGet("Patient/"+patient, "")); err != nil {
			return err
		}
	}
	return rejection
}

// boundPatients returns the patients to whom grants are bound, without duplicates.
func boundPatients(grants []access.Grant) []string {
	var all []string
	for _, g := range grants {
		if g.Patient != "" && !slices.Contains(all, g.Patient) {
			all = append(all, g.Patient)
		}
	}
	return all
}

// policyJudgment is the judgment of all policies for one call. The zero value means that the scopes determine access.
type policyJudgment struct {
	rule.Decision // decision for the call as a whole

	mayDeny, mayAllow   bool // some policy may deny or allow resources
	conditionalPolicies []conditionalPolicy
}

// conditionalPolicy is a policy that depends on resources.
type conditionalPolicy struct {
	policy    rule.Policy
	resources rule.ResourceEvaluator
}

// evaluatePolicies judges a call by all policies, except for metadata, which is public and requested without a token.
func (x *Judge) evaluatePolicies(ctx context.Context, c message.Call, i interaction.Interaction, reportErrors bool) (j policyJudgment) {
	if i.Kind == interaction.Capabilities {
		return j
	}
	r := rule.Request{ClientRequest: x.Request, Token: x.Token, Method: c.Method, Interaction: i}
	for _, p := range x.Policies {
		by := p.Evaluate(ctx, r)
		if by.Err != nil && reportErrors {
			p.ReportFailure(x.Request, by.Err)
		}
		if j.Decision = combineDecisions(j.Decision, by.Decision); j.Effect == rule.Deny {
			return policyJudgment{Decision: j.Decision}
		}
		if by.Resources != nil && (by.Resources.MayDeny() || by.Resources.MayAllow()) {
			j.conditionalPolicies = append(j.conditionalPolicies, conditionalPolicy{p, by.Resources})
			j.mayDeny, j.mayAllow = j.mayDeny || by.Resources.MayDeny(), j.mayAllow || by.Resources.MayAllow()
		}
	}
	return j
}

// combineDecisions combines the decisions of two policies: a denial takes precedence, then the first permission.
func combineDecisions(d, next rule.Decision) rule.Decision {
	switch {
	case next.Effect != "" && next.Effect != rule.Allow:
		next.Effect = rule.Deny
		return next
	case d.Effect == "":
		return next
	}
	return d
}

// judgeResource judges a resource by the policies that depend on it.
func (j policyJudgment) judgeResource(ctx context.Context, r *http.Request, res resource.Resource) (d rule.Decision) {
	for _, o := range j.conditionalPolicies {
		by := o.resources.Evaluate(ctx, res)
		if by.Err != nil {
			o.policy.ReportFailure(r, by.Err)
		}
		if d = combineDecisions(d, by); d.Effect == rule.Deny {
			return d
		}
	}
	return d
}

func (j policyJudgment) deniesType(ctx context.Context, resourceType string) bool {
	return slices.ContainsFunc(j.conditionalPolicies, func(o conditionalPolicy) bool { return o.resources.DeniesType(ctx, resourceType) })
}

func (j policyJudgment) dependsOn(element string) bool {
	return slices.ContainsFunc(j.conditionalPolicies, func(o conditionalPolicy) bool { return o.resources.DependsOn(element) })
}

// maxDeletedVersions is the maximum number of versions that are searched for the last one before a deletion.
const maxDeletedVersions = 10

// CheckCurrent rejects a request for older versions of a resource if a policy denies its current version, because a label that
// is added later protects all versions. For a deleted resource, the last version before the deletion is judged. The error is
// the same as for a missing resource.
func (x *Judge) CheckCurrent(ctx context.Context, of interaction.Reference) error {
	if !x.MayDeny() {
		return nil
	}
	a, err := x.Server.Do(ctx, message.NewGet(of.String(), ""))
	if err != nil {
		return err
	}
	if a.Status == http.StatusGone {
		return x.checkDeleted(ctx, of)
	}
	if a.Status/100 == 5 || a.Status == http.StatusTooManyRequests {
		return message.ServerFailure(a)
	}
	if a.Status != http.StatusOK {
		return message.NotFound()
	}
	return x.checkVersion(ctx, of, a.Body)
}

// checkDeleted is like [Judge.CheckCurrent], but for a deleted resource.
func (x *Judge) checkDeleted(ctx context.Context, of interaction.Reference) error {
	a, err := x.Server.Do(ctx, message.NewGet(of.String()+"/_history", "_count="+strconv.Itoa(maxDeletedVersions)))
	if err != nil {
		return err
	}
	b, err := x.Addresses.ParseSearchResponse(a, false, nil, message.Call{}.SentTerms)
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

// isExportFile reports whether a resource is a Binary in which a FHIR server, such as HAPI, stores an export file. Policies
// cannot judge the resources in such a file.
func isExportFile(res resource.Resource) bool {
	if res.Type != "Binary" {
		return false
	}
	contentType, _ := res.Member("contentType")
	return strings.Contains(strings.ToLower(resource.Text(contentType)), "ndjson")
}

// policyGrant returns the grant for an interaction that policies allow. It covers the entire type, or depends on the policies'
// decision for each resource. Operations may involve any type. A bundle doesn't need a grant, because its entries are judged.
func policyGrant(j policyJudgment, i interaction.Interaction) access.Grant {
	g := access.Grant{Type: i.Type, Permission: i.Permission(), DependsOnPolicy: j.Effect != rule.Allow, Scope: "allow " + j.Rule}
	if i.Kind == interaction.Operation {
		g.Type, g.Permission = smart.AnyType, smart.Create|smart.Read|smart.Update|smart.Delete|smart.Search
	}
	if g.Type == "" {
		g.Type = smart.AnyType
	}
	return g
}

// maxReferrers is the maximum number of DocumentReferences that refer to a Binary. If there are more, the Binary is withheld.
const maxReferrers = 20

// ReadCurrent is like [Judge.ReadCovered], but for the current version of a resource. A Binary with a securityContext is judged
// by it. Any other Binary, such as those of HAPI, is readable if a DocumentReference that the token's scopes cover has it as an
// attachment and no DocumentReference of another patient does.
//
// The search for DocumentReferences is sent even if the Binary does not exist, so that the number of requests does not reveal
// its existence.
func (x *Judge) ReadCurrent(ctx context.Context, of interaction.Reference, grants []access.Grant, a *message.Response) (resource.Resource, error) {
	res, err := x.ReadCovered(ctx, of, grants, a)
	patients := boundPatients(grants)
	if of.Type != "Binary" || !message.IsNotCovered(err) || !x.GrantedRights.TypeRules.UsesSecurityContext(of.Type) || len(patients) == 0 {
		return res, err
	}
	addresses := x.attachmentURLs(of, a)
	referrers, lookupErr := x.referrers(ctx, addresses)
	if lookupErr != nil {
		return res, lookupErr
	}
	if a.Status != http.StatusOK || res.Type != of.Type || res.ID != of.ID || x.PolicyEffect(ctx, res) == rule.Deny {
		return res, err
	}
	for _, patient := range patients {
		if !x.GrantedRights.MayBeAttachment(res, patient) {
			continue
		}
		ok, lookupErr := x.isAttachment(ctx, patient, addresses, referrers)
		if ok || lookupErr != nil {
			return res, lookupErr
		}
	}
	return res, err
}

// attachmentURLs returns the URLs by which an attachment may refer to a resource: relative ones, and those below the base URLs
// of clients and of the FHIR server.
func (x *Judge) attachmentURLs(of interaction.Reference, a *message.Response) []string {
	all := []string{of.String(), "/" + of.String(), x.Addresses.URL(of.String(), "")}
	own := message.WithoutVersion(a.Header.Get("Content-Location"))
	if strings.HasSuffix(own, "/"+of.String()) {
		all = append(all, own)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(address string) bool { return strings.ContainsAny(address, `,|$\`) })
}

// referrers returns all patients' DocumentReferences with one of the addresses as location.
func (x *Judge) referrers(ctx context.Context, addresses []string) (*message.Bundle, error) {
	c := message.NewGet("DocumentReference", smart.EncodeParameters([]smart.Parameter{
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
	return x.Addresses.ParseSearchResponse(a, true, nil, message.Call{}.SentTerms)
}

// isAttachment reports whether a DocumentReference of the patient that a scope covers refers to one of the addresses, and no
// DocumentReference of another patient does. It returns false if there are too many.
func (x *Judge) isAttachment(ctx context.Context, patient string, addresses []string, referrers *message.Bundle) (bool, error) {
	if referrers.Links.Find("next") != "" || len(referrers.Entries) > maxReferrers {
		return false, nil
	}
	grants := slices.DeleteFunc(x.GrantedRights.GrantsFor("DocumentReference", smart.Read), func(g access.Grant) bool { return !g.AppliesToPatient(patient) })
	found := false
	for _, e := range referrers.Entries {
		if e.ParsedResource.Type != "DocumentReference" || !slices.ContainsFunc(access.AttachmentURLs(e.ParsedResource), func(url string) bool { return slices.Contains(addresses, url) }) {
			continue
		}
		if !access.ReferencesOnlyPatient(e.ParsedResource, patient) {
			return false, nil
		}
		if found {
			continue
		}
		var err error
		if found, err = x.IsCovered(ctx, e.ParsedResource, grants); err != nil {
			return false, err
		}
	}
	return found, nil
}

// DependsOnBinaryData reports whether policies may evaluate the data of a Binary.
func (x *Judge) DependsOnBinaryData() bool { return x.policyJudgment.dependsOn("data") }

// BinaryCall returns the call for the part of a Binary that is needed to judge it: without its data, which may be large, unless
// policies evaluate the data.
func (x *Judge) BinaryCall(path string) message.Call {
	if x.DependsOnBinaryData() {
		return message.NewGet(path, "")
	}
	return message.GetBinaryMetadata(path)
}

// MayAttach reports whether a resource in a patient's record may refer to a Binary as an attachment: the client may read the
// Binary, or the transaction writes it. Otherwise, the attachment would make the Binary readable: see [Judge.ReadCurrent].
func (x *Judge) MayAttach(ctx context.Context, patient string, of interaction.Reference) (bool, error) {
	if s, found := x.expectedAccess[accessKey{of, patient}]; found && s.Permissions != 0 {
		return true, nil
	}
	if _, err := interaction.Parse(http.MethodGet, of.String(), "", nil); err != nil {
		return false, nil
	}
	grants := slices.DeleteFunc(slices.Clone(x.GrantedRights.Grants), func(g access.Grant) bool {
		return !g.AppliesToPatient(patient) || g.Type != smart.AnyType && g.Type != of.Type
	})
	a, err := x.Server.Do(ctx, x.BinaryCall(of.String()))
	if err != nil {
		return false, err
	}
	if _, err = x.readJudged(ctx, of, grants, a, (*access.Rights).CoversStored); err == nil || !message.IsNotCovered(err) {
		return err == nil, err
	}
	_, err = x.ReadCurrent(ctx, of, slices.DeleteFunc(x.GrantedRights.GrantsFor(of.Type, smart.Read), func(g access.Grant) bool { return !g.AppliesToPatient(patient) }), a)
	if message.IsNotCovered(err) {
		return false, nil
	}
	return err == nil, err
}
