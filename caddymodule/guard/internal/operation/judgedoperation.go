package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// judgedOperation is an operation in progress with a response that is judged resource by resource.
type judgedOperation struct {
	handler    *Handler
	call       message.Call // the client's call
	serverCall message.Call // the call to send to the FHIR server
	operation  Operation

	parameters []smart.Parameter // parameters of serverCall

	pageSize         int    // number of entries per page
	coversEverything bool   // a grant covers all types, so no entry is withheld
	hasPolicies      bool   // policies may deny resources
	patient          string // id of the Patient on which the operation is called; empty if it is called on another resource or a type
}

// judgedEntries are the covered entries of one or more pages.
type judgedEntries struct {
	matches   []message.Entry
	included  []message.Entry
	hasHidden bool // an uncovered entry exists here or may exist on other pages
}

// operationRules are the rules for a known operation under patient-bound scopes.
type operationRules struct {
	// allowsInstance is true for an operation on a resource; unrestricted scopes may also use it on a type. False: types only.
	allowsInstance bool
	// parameters are the names of the parameters that do not reveal other resources.
	parameters []string
	// formatPatient formats the parameter that restricts the response to a patient. Nil: no such parameter.
	formatPatient func(id string) string
}

// rulesByOperation contains the rules by operation. Operations without rules, which a site has configured, keep all parameters.
var rulesByOperation = map[string]operationRules{
	"$everything": {allowsInstance: true, parameters: []string{"start", "end", "_since", "_type", "_count"}},
	"$lastn": {
		parameters:    []string{"patient", "subject", "max", "category", "code", "date", "status"},
		formatPatient: func(id string) string { return "Patient/" + id },
	},
	"$docref": {
		parameters:    []string{"patient", "start", "end", "type", "profile", "on-demand"},
		formatPatient: func(id string) string { return id },
	},
}

// handleJudged answers an operation with the covered resources of its response, starting at a position.
func (x *Handler) handleJudged(ctx context.Context, c message.Call, i interaction.Interaction, op Operation, at paging.BranchPosition) (*message.Response, error) {
	grants := x.Judge.Rights().GrantsFor(i.Type, op.Permission)
	if len(grants) == 0 {
		return nil, x.insufficientScope(op, i)
	}
	if i.ID != "" && (!at.IsFirst() || at.ReturnedCount > 0 || !x.isBoundPatient(i, grants)) {
		if err := x.checkInstance(ctx, op, i); err != nil {
			return nil, err
		}
	}
	j := &judgedOperation{handler: x, call: c, operation: op, pageSize: math.MaxInt, hasPolicies: x.Judge.MayDeny()}
	j.coversEverything = !j.hasPolicies && slices.ContainsFunc(grants, coversAllTypes)
	if i.Type == "Patient" {
		j.patient = i.ID
	}
	rules, ok := rulesByOperation[op.Name]
	if !ok {
		return j.execute(ctx, newOperationCall(c), slices.DeleteFunc(slices.Clone(i.Parameters), isFormatParameter), at)
	}
	return j.executeWithRules(ctx, i, rules, at)
}

// isBoundPatient reports whether an operation is called on a Patient to which an unconstrained grant is bound, without policies
// that may deny it. That Patient need not be read first: if it does not exist, the FHIR server reports it.
func (x *Handler) isBoundPatient(i interaction.Interaction, grants []access.Grant) bool {
	return i.Type == "Patient" && !x.Judge.MayDeny() && slices.ContainsFunc(grants, func(g access.Grant) bool {
		return g.Patient == i.ID && len(g.Constraint) == 0 && !g.DependsOnPolicy
	})
}

// execute calls the operation on the FHIR server, with parameters in the query. If the client requests no page size, the pages
// are as long as those of searches.
func (j *judgedOperation) execute(ctx context.Context, serverCall message.Call, parameters []smart.Parameter, at paging.BranchPosition) (*message.Response, error) {
	parameters = slices.Clone(parameters)
	for k, p := range parameters {
		if p.Name != "_count" {
			continue
		}
		n, err := strconv.Atoi(p.Value)
		if err != nil || n <= 0 {
			return nil, message.InvalidRequest(errInvalidParameters, "_count must be a positive integer.")
		}
		j.pageSize = n
		if j.hasPolicies { // longer pages, so that the next visible entry is found within the limit on requests
			parameters[k].Value = strconv.Itoa(max(n, search.DefaultCount))
		}
	}
	if j.pageSize == math.MaxInt && slices.Contains(rulesByOperation[j.operation.Name].parameters, "_count") {
		parameters = append(parameters, smart.Parameter{Name: "_count", Value: strconv.Itoa(search.DefaultCount)})
	}
	j.serverCall, j.parameters = serverCall, parameters
	j.serverCall.Query = smart.EncodeParameters(parameters)
	return j.readPage(ctx, at)
}

// executeWithRules answers an operation with rules. It sends the judged parameters to the FHIR server by GET.
func (j *judgedOperation) executeWithRules(ctx context.Context, i interaction.Interaction, rules operationRules, at paging.BranchPosition) (*message.Response, error) {
	isUnrestricted := j.handler.coversType(j.operation, i.Type)
	switch {
	case !rules.allowsInstance && i.ID != "":
		return nil, message.NotFound()
	case rules.allowsInstance && i.ID == "" && !isUnrestricted:
		return nil, j.handler.unrestrictedScopeRequired(j.operation, i)
	case j.operation.Name == "$everything" && i.Type != "Patient" && j.hasPolicies:
		return nil, message.Forbidden(message.ErrDisclosure, "With the access policies of this server, $everything is only supported on Patient: on %s, the response could reveal other resources. Use a search instead.", i.Type)
	case rules.formatPatient != nil && j.hasPolicies:
		return nil, message.Forbidden(message.ErrDisclosure, "%s is not supported with the access policies of this server: its selection could reveal other resources.", j.operation.Name)
	}
	parameters, err := Parameters(j.call, i)
	if err != nil {
		return nil, err
	}
	if err := message.CheckParameterNames(j.operation.Name, parameters, rules.parameters); err != nil {
		return nil, err
	}
	j.call = message.NewGet(j.call.Path, smart.EncodeParameters(parameters))
	if rules.formatPatient != nil && !isUnrestricted {
		var found bool
		if parameters, found, err = j.confineToPatient(parameters, i, rules.formatPatient); err != nil {
			return nil, err
		} else if !found {
			return j.finish(ctx, &message.Bundle{Type: "searchset", Total: -1}, nil)
		}
	}
	return j.execute(ctx, message.NewGet(j.call.Path, ""), parameters, at)
}

var errInvalidParameters = errors.New("operation parameters cannot be checked")

// Parameters returns the parameters of the query and of a Parameters body as one list (R4 operations.html#3.2.0.4). It omits
// format parameters, because responses are JSON and partial resources cannot be judged.
func Parameters(c message.Call, i interaction.Interaction) ([]smart.Parameter, error) {
	bodyParameters, err := parseParameters(c.Body)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Concat(i.Parameters, bodyParameters), isFormatParameter), nil
}

// isFormatParameter reports whether a parameter affects only the format of the response.
func isFormatParameter(p smart.Parameter) bool {
	return slices.Contains([]string{"_format", "_pretty", "_summary", "_elements"}, p.Name)
}

// parseParameters parses a Parameters resource with values that are primitive or references.
func parseParameters(body []byte) ([]smart.Parameter, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var resource struct {
		ResourceType string
		Parameter    []map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &resource); err != nil || resource.ResourceType != "Parameters" {
		return nil, message.InvalidRequest(errInvalidParameters, "The body must be a Parameters resource.")
	}
	var list []smart.Parameter
	for _, members := range resource.Parameter {
		p, err := parseParameter(members)
		if err != nil {
			return nil, message.InvalidRequest(fmt.Errorf("%w: %w", errInvalidParameters, err), "Each parameter in the body must have a primitive value or a reference.")
		}
		list = append(list, p)
	}
	return list, nil
}

func parseParameter(members map[string]json.RawMessage) (p smart.Parameter, err error) {
	if len(members) != 2 {
		return p, errors.New("parameter has members other than name and value")
	}
	for member, text := range members {
		switch {
		case member == "name":
			err = json.Unmarshal(text, &p.Name)
		case member == "valueReference":
			var reference struct{ Reference string }
			err = json.Unmarshal(text, &reference)
			p.Value = reference.Reference
		case strings.HasPrefix(member, "value"):
			p.Value, err = parsePrimitive(text)
		default:
			err = errors.New("no value")
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// parsePrimitive returns a string, number or boolean in the syntax of a query parameter.
func parsePrimitive(text []byte) (s string, err error) {
	switch text[0] {
	case '"':
		err = json.Unmarshal(text, &s)
		return s, err
	case '{', '[', 'n':
		return "", errors.New("value is not primitive")
	}
	return string(text), nil
}

// confineToPatient restricts an operation that selects the latest resources to the patient of a grant. If it selected among the
// records of several patients, or among records that a constraint hides, a missing result would reveal a hidden one. found is
// false if the client requests another patient; the result is then empty.
func (j *judgedOperation) confineToPatient(parameters []smart.Parameter, i interaction.Interaction, write func(id string) string) (_ []smart.Parameter, found bool, err error) {
	patients := boundPatients(j.handler.Judge.Rights().GrantsFor(i.Type, j.operation.Permission))
	if len(patients) == 0 {
		return nil, false, message.Forbidden(message.ErrDisclosure, "%s requires a scope without a constraint.", j.operation.Name).
			WithScope(j.handler.Judge.Rights().MissingScopes(i.Type, j.operation.Permission, false))
	}
	var rest, patientParameters []smart.Parameter
	for _, p := range parameters {
		if p.Name == "patient" || p.Name == "subject" {
			patientParameters = append(patientParameters, p)
		} else {
			rest = append(rest, p)
		}
	}
	if len(patientParameters) == 0 && len(patients) > 1 {
		return nil, false, message.InvalidRequest(errInvalidParameters, "Specify the patient, because the scopes cover several patients.")
	}
	patient := patients[0]
	for n, p := range patientParameters {
		id := strings.TrimPrefix(p.Value, "Patient/")
		if n > 0 && id != patient || !slices.Contains(patients, id) {
			return nil, false, nil
		}
		patient = id
	}
	return append(rest, smart.Parameter{Name: "patient", Value: write(patient)}), true, nil
}

// boundPatients returns the patients to whom grants without a constraint are bound.
func boundPatients(grants []access.Grant) []string {
	var patients []string
	for _, g := range grants {
		if g.Patient != "" && len(g.Constraint) == 0 && !slices.Contains(patients, g.Patient) {
			patients = append(patients, g.Patient)
		}
	}
	return patients
}

// coversAllTypes reports whether a grant applies to all types, without a constraint.
func coversAllTypes(g access.Grant) bool {
	return g.Type == smart.AnyType && !g.DependsOnPolicy && len(g.Constraint) == 0
}

// readPage returns the entries from a position on. If entries are withheld, a page of the requested length is filled from
// several pages of the FHIR server, because a shorter page would reveal their number. If no length is requested, all pages of
// the FHIR server are judged together, because an entry and the entries that refer to it may be on different pages.
func (j *judgedOperation) readPage(ctx context.Context, at paging.BranchPosition) (*message.Response, error) {
	var out *message.Bundle
	var size int64
	all := judgedEntries{hasHidden: !at.IsFirst()}
	had := at.Pending
	for fetched := 0; fetched < paging.MaxFetches && size < j.handler.MaxResponseBytes; fetched++ {
		a, err := j.fetch(ctx, at)
		if err != nil {
			return nil, err
		}
		got, err := message.ParseBundle(a.Body)
		if err != nil || got.Type == "document" || got.Type == "message" {
			return j.judgeSingle(ctx, a, got)
		}
		judged, err := j.judgeEntries(ctx, got)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = &message.Bundle{Type: got.Type, Total: -1}
		}
		next, isShort := got.Links.Find("next"), judged.hasHidden || !j.coversEverything
		if j.pageSize == math.MaxInt {
			all, judged = all.merge(judged), judgedEntries{}
		} else {
			judged.hasHidden = judged.hasHidden || !at.IsFirst() || next != ""
		}
		if j.addEntries(out, j.visibleEntries(judged), &at) {
			return j.finishWithShared(ctx, out, &at, had)
		}
		size += int64(len(a.Body))
		if next == "" && j.pageSize == math.MaxInt {
			return j.finishTogether(ctx, out, all, nil)
		} else if next == "" {
			return j.finishWithShared(ctx, out, nil, had)
		} else if at, err = at.Next(got.Links, at.Call(j.serverCall)); err != nil {
			return nil, err
		} else if j.pageSize < math.MaxInt && !isShort && len(out.Entries) > 0 {
			break
		}
	}
	if j.pageSize < math.MaxInt {
		return j.finishWithShared(ctx, out, &at, had)
	}
	all.hasHidden = true // following pages may contain hidden entries
	return j.finishTogether(ctx, out, all, &at)
}

// addEntries adds the entries of a page that were not added before. It reports whether some of them exceed the page size.
func (j *judgedOperation) addEntries(out *message.Bundle, visible []message.Entry, at *paging.BranchPosition) (isFull bool) {
	visible = visible[min(at.ReturnedCount, len(visible)):]
	remaining := j.pageSize - len(out.Entries)
	if isFull = remaining < len(visible); isFull {
		visible = visible[:remaining]
		at.ReturnedCount += remaining
	}
	out.Entries = append(out.Entries, visible...)
	return isFull
}

// fetch requests the page at a position from the FHIR server.
func (j *judgedOperation) fetch(ctx context.Context, at paging.BranchPosition) (*message.Response, error) {
	a, err := j.handler.Server.Do(ctx, at.Call(j.serverCall))
	if err != nil {
		return nil, err
	}
	if !a.IsSuccess() {
		return nil, Failure(a, j.serverCall.SentTerms())
	}
	return a, a.RequireJSON()
}

// judgeSingle returns a single resource, or a document or message with entries that are all covered.
func (j *judgedOperation) judgeSingle(ctx context.Context, a *message.Response, got *message.Bundle) (*message.Response, error) {
	parts := [][]byte{a.Body}
	if got.ResourceType == "Bundle" {
		parts = nil
		for _, e := range got.Entries {
			parts = append(parts, e.Resource)
		}
	}
	for _, text := range parts {
		res, err := j.handler.Addresses.Parse(text)
		if err != nil {
			return nil, err
		}
		if res.Type == "Parameters" || res.Type == "OperationOutcome" || res.Type == "Bundle" {
			return nil, message.NewWithheldError(errOperationResponse)
		}
		ok, err := j.handler.Judge.IsCovered(ctx, res, j.handler.responseGrants(j.operation, res.Type))
		if err == nil && !ok {
			err = message.NotFound()
		}
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

var errOperationResponse = errors.New("operation response is not a patient's resource")

// visibleEntries returns the visible entries: all members, and other entries that visible ones refer to. Any other entry may be
// in the response only because a withheld resource refers to it.
//
// Denied resources shift the boundaries of the FHIR server's pages. If there are policies, the shared entries of a $everything
// page with a requested length are therefore added only by finishWithShared, not taken from the FHIR server's page.
func (j *judgedOperation) visibleEntries(judged judgedEntries) []message.Entry {
	switch {
	case j.hasPolicies && j.operation.Name == "$everything" && j.pageSize < math.MaxInt:
		return judged.matches
	case judged.hasHidden || !j.coversEverything:
		return append(judged.matches, search.ReachableEntries(judged.matches, judged.included)...)
	}
	return append(judged.matches, judged.included...)
}

// finishTogether is like finish, but for entries that are judged together.
func (j *judgedOperation) finishTogether(ctx context.Context, out *message.Bundle, all judgedEntries, rest *paging.BranchPosition) (*message.Response, error) {
	out.Entries = append(out.Entries, j.visibleEntries(all)...)
	return j.finish(ctx, out, rest)
}

// merge returns the entries of both e and more.
func (e judgedEntries) merge(more judgedEntries) judgedEntries {
	return judgedEntries{append(e.matches, more.matches...), append(e.included, more.included...), e.hasHidden || more.hasHidden}
}

// judgeEntries returns the covered entries of a page.
func (j *judgedOperation) judgeEntries(ctx context.Context, got *message.Bundle) (judged judgedEntries, err error) {
	for _, e := range got.Entries {
		if e.Mode == "outcome" || e.Resource == nil {
			continue
		}
		if e.ParsedResource, err = j.handler.Addresses.Parse(e.Resource); err != nil {
			return judged, err
		}
		ok, err := j.handler.Judge.IsCovered(ctx, e.ParsedResource, j.handler.responseGrants(j.operation, e.ParsedResource.Type))
		switch {
		case err != nil:
			return judged, err
		case !ok:
			judged.hasHidden = true
		case j.isMember(e.ParsedResource):
			judged.matches = append(judged.matches, e)
		default:
			judged.included = append(judged.included, e)
		}
	}
	return judged, nil
}

// isMember reports whether a resource is in the response independently of other resources that refer to it: its type is in the
// compartment of patients, or it is a Device that is assigned to a patient. If policies may deny a resource that refers to it,
// the resource itself must be in the compartment of the call's patient, which excludes Devices.
func (j *judgedOperation) isMember(res resource.Resource) bool {
	if !j.hasPolicies {
		_, ok := compartment.PatientParameters(res.Type)
		return ok || res.Type == "Device" && access.NamesPatient(res)
	}
	for id := range compartment.Patients(res) {
		if j.patient == "" || j.patient == id {
			return true
		}
	}
	return false
}

// finish adds the self link and, if entries remain, the next link.
func (j *judgedOperation) finish(ctx context.Context, out *message.Bundle, rest *paging.BranchPosition) (*message.Response, error) {
	out.Links = []message.Link{{Relation: "self", URL: j.handler.Addresses.URL(j.call.Path, j.call.Query)}}
	if rest != nil {
		next, err := j.handler.Pages.Seal(ctx, paging.FullRequestPage(j.call, paging.Position{Branches: []paging.BranchPosition{*rest}}))
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return out.Response(), nil
}

// maxSharedFetched is the maximum number of shared resources of each type that are fetched for a page.
const maxSharedFetched = 100

// maxSharedListed is the maximum number of shared resources listed in a link.
const maxSharedListed = 2000

// finishWithShared is like finish, but for a page of requested length. It adds the shared resources that the entries refer to,
// because the FHIR server may return them on any page, possibly due to a withheld resource. Each is added once: the link lists
// those of earlier pages, unless there are too many.
func (j *judgedOperation) finishWithShared(ctx context.Context, out *message.Bundle, rest *paging.BranchPosition, had []string) (*message.Response, error) {
	if j.operation.Name == "$everything" {
		var err error
		if had, err = j.addSharedResources(ctx, out, had); err != nil {
			return nil, err
		}
	}
	if len(had) > maxSharedListed {
		had = nil
	}
	if rest != nil {
		rest.Pending = had
	}
	return j.finish(ctx, out, rest)
}

// addSharedResources adds the shared resources that entries refer to and that no earlier page contained, by one search per type. It
// returns the updated list of these resources.
func (j *judgedOperation) addSharedResources(ctx context.Context, out *message.Bundle, had []string) ([]string, error) {
	for _, e := range out.Entries {
		if name := e.ParsedResource.Type + "/" + e.ParsedResource.ID; j.isSharedType(e.ParsedResource.Type) && !slices.Contains(had, name) {
			had = append(had, name)
		}
	}
	ids := map[string][]string{}
	for _, e := range out.Entries {
		for _, name := range search.ReferencedIDs(e) {
			resourceType, id, _ := strings.Cut(name, "/")
			if j.isSharedType(resourceType) && !slices.Contains(had, name) && len(ids[resourceType]) < maxSharedFetched {
				had, ids[resourceType] = append(had, name), append(ids[resourceType], id)
			}
		}
	}
	for _, resourceType := range slices.Sorted(maps.Keys(ids)) {
		if err := j.addByIDs(ctx, out, resourceType, ids[resourceType]); err != nil {
			return nil, err
		}
	}
	return had, nil
}

// isSharedType reports whether a type is shared between all patients, granted, and not excluded by _type or _since.
func (j *judgedOperation) isSharedType(resourceType string) bool {
	isShared := j.handler.TypeRules.IsForAllPatients(resourceType) && len(j.handler.responseGrants(j.operation, resourceType)) > 0
	for _, p := range j.parameters {
		isShared = isShared && p.Name != "_since" && (p.Name != "_type" || slices.Contains(strings.Split(p.Value, ","), resourceType))
	}
	return isShared
}

// addByIDs adds the resources of a type with the given ids, or none if the FHIR server does not support the search.
func (j *judgedOperation) addByIDs(ctx context.Context, out *message.Bundle, resourceType string, ids []string) error {
	a, err := j.handler.Server.Do(ctx, message.NewGet(resourceType, smart.EncodeParameters([]smart.Parameter{
		{Name: "_id", Value: strings.Join(ids, ",")}, {Name: "_count", Value: strconv.Itoa(len(ids))},
	})))
	if err != nil || a.Status/100 == 4 {
		return err
	}
	got, err := j.handler.Addresses.ParseSearchResponse(a, false, nil, message.Call{}.SentTerms)
	if err != nil {
		return err
	}
	judged, err := j.judgeEntries(ctx, got)
	if err != nil {
		return err
	}
	entries := append(judged.matches, judged.included...) // in matches if a site has made a type of the compartment shared
	for _, e := range entries {
		if e.ParsedResource.Type == resourceType && slices.Contains(ids, e.ParsedResource.ID) {
			e.Search = search.IncludeSearch
			out.Entries = append(out.Entries, e)
		}
	}
	return nil
}
