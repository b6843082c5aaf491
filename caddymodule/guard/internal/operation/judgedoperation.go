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

// judgedCall is an operation in progress with a response that is judged resource by resource.
type judgedCall struct {
	x     *Calls
	c     message.Call // the client's call
	asked message.Call // for the FHIR server
	op    Operation

	parameters []smart.Parameter // of the call for the FHIR server

	count    int    // entries per page
	complete bool   // a grant covers all types, so no entry is withheld
	ruled    bool   // policies may deny resources
	patient  string // id of the Patient on which the operation is called; empty for other resources and types
}

// judgedEntries are the covered entries of one or more pages.
type judgedEntries struct {
	matches []message.Entry
	others  []message.Entry
	hidden  bool // an uncovered entry exists, or may exist on other pages
}

// operationRules are the rules for a known operation under bound scopes.
type operationRules struct {
	// onInstance is true for an operation on a resource, which whole scopes may also call on a type. False: on types only.
	onInstance bool
	// parameters are the parameters that reveal no other resource.
	parameters []string
	// patient formats the parameter that confines the response to a patient. Nil: no such parameter.
	patient func(id string) string
}

// knownOperations are the operations with rules. Other operations, which a site has listed, keep all their parameters.
var knownOperations = map[string]operationRules{
	"$everything": {onInstance: true, parameters: []string{"start", "end", "_since", "_type", "_count"}},
	"$lastn": {
		parameters: []string{"patient", "subject", "max", "category", "code", "date", "status"},
		patient:    func(id string) string { return "Patient/" + id },
	},
	"$docref": {
		parameters: []string{"patient", "start", "end", "type", "profile", "on-demand"},
		patient:    func(id string) string { return id },
	},
}

// judgedOperation answers an operation with the covered resources of its response, from a position on.
func (x *Calls) judgedOperation(ctx context.Context, c message.Call, i interaction.Interaction, op Operation, at paging.BranchPosition) (*message.Response, error) {
	grants := x.Judge.Rights().For(i.Type, op.Permission)
	if len(grants) == 0 {
		return nil, x.refusedOperation(op, i)
	}
	if i.ID != "" && (!at.IsFirst() || at.Returned > 0 || !x.isOwnPatient(i, grants)) {
		if err := x.checkInstance(ctx, op, i); err != nil {
			return nil, err
		}
	}
	j := &judgedCall{x: x, c: c, op: op, count: math.MaxInt, ruled: x.Judge.MayDeny()}
	j.complete = !j.ruled && slices.ContainsFunc(grants, isOverAll)
	if i.Type == "Patient" {
		j.patient = i.ID
	}
	rules, ok := knownOperations[op.Name]
	if !ok {
		return j.answer(ctx, operationCall(c), slices.DeleteFunc(slices.Clone(i.Parameters), isForm), at)
	}
	return j.answerKnown(ctx, i, rules, at)
}

// isOwnPatient reports whether an operation is called on the Patient that a grant is bound to. The Patient need not be read
// first: if it does not exist, the FHIR server reports so.
func (x *Calls) isOwnPatient(i interaction.Interaction, grants []access.Grant) bool {
	return i.Type == "Patient" && !x.Judge.MayDeny() && slices.ContainsFunc(grants, func(g access.Grant) bool {
		return g.Patient == i.ID && len(g.Constraint) == 0 && !g.ByRule
	})
}

// answer calls the FHIR server with parameters in the query. If the client requests no page size, the FHIR server's pages are
// as long as those of searches.
func (j *judgedCall) answer(ctx context.Context, asked message.Call, parameters []smart.Parameter, at paging.BranchPosition) (*message.Response, error) {
	parameters = slices.Clone(parameters)
	for k, p := range parameters {
		if p.Name != "_count" {
			continue
		}
		n, err := strconv.Atoi(p.Value)
		if err != nil || n <= 0 {
			return nil, message.Invalid(errParameters, "_count is no number above 0.")
		}
		j.count = n
		if j.ruled { // longer pages, so that a visible next entry can be found within the limit on requests
			parameters[k].Value = strconv.Itoa(max(n, search.DefaultCount))
		}
	}
	if j.count == math.MaxInt && slices.Contains(knownOperations[j.op.Name].parameters, "_count") {
		parameters = append(parameters, smart.Parameter{Name: "_count", Value: strconv.Itoa(search.DefaultCount)})
	}
	j.asked, j.parameters = asked, parameters
	j.asked.Query = smart.EncodeParameters(parameters)
	return j.page(ctx, at)
}

// answerKnown answers an operation with rules. It calls the FHIR server by GET, with the judged parameters.
func (j *judgedCall) answerKnown(ctx context.Context, i interaction.Interaction, rules operationRules, at paging.BranchPosition) (*message.Response, error) {
	whole := j.x.isOverType(j.op, i.Type)
	switch {
	case !rules.onInstance && i.ID != "":
		return nil, message.NotFound()
	case rules.onInstance && i.ID == "" && !whole:
		return nil, j.x.refusedWhole(j.op, i)
	case j.op.Name == "$everything" && i.Type != "Patient" && j.ruled:
		return nil, message.Forbidden(message.ErrOracle, "$everything is possible on Patient only where rules of this server judge each resource: on %s, what it adds would tell of others. Search instead.", i.Type)
	case rules.patient != nil && j.ruled:
		return nil, message.Forbidden(message.ErrOracle, "%s is not possible where rules of this server judge each resource: what it picks would tell of others.", j.op.Name)
	}
	parameters, err := Parameters(j.c, i)
	if err != nil {
		return nil, err
	}
	if err := message.CheckNames(j.op.Name, parameters, rules.parameters); err != nil {
		return nil, err
	}
	j.c = message.Get(j.c.Path, smart.EncodeParameters(parameters))
	if rules.patient != nil && !whole {
		var found bool
		if parameters, found, err = j.confined(parameters, i, rules.patient); err != nil {
			return nil, err
		} else if !found {
			return j.finish(ctx, &message.Bundle{Kind: "searchset", Total: -1}, nil)
		}
	}
	return j.answer(ctx, message.Get(j.c.Path, ""), parameters, at)
}

var errParameters = errors.New("parameters that cannot be judged")

// Parameters returns the parameters of the query and of a Parameters body as one list (R4 operations.html#3.2.0.4), without
// those for the format: responses are JSON, and incomplete resources cannot be judged.
func Parameters(c message.Call, i interaction.Interaction) ([]smart.Parameter, error) {
	posted, err := postedParameters(c.Body)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Concat(i.Parameters, posted), isForm), nil
}

// isForm reports whether a parameter affects only the format of the response.
func isForm(p smart.Parameter) bool {
	return slices.Contains([]string{"_format", "_pretty", "_summary", "_elements"}, p.Name)
}

// postedParameters parses a Parameters resource with values that are primitive or references.
func postedParameters(body []byte) ([]smart.Parameter, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var resource struct {
		ResourceType string
		Parameter    []map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &resource); err != nil || resource.ResourceType != "Parameters" {
		return nil, message.Invalid(errParameters, "The body is no Parameters resource.")
	}
	var list []smart.Parameter
	for _, members := range resource.Parameter {
		p, err := postedParameter(members)
		if err != nil {
			return nil, message.Invalid(fmt.Errorf("%w: %w", errParameters, err), "A parameter in the body has no primitive value.")
		}
		list = append(list, p)
	}
	return list, nil
}

func postedParameter(members map[string]json.RawMessage) (p smart.Parameter, err error) {
	if len(members) != 2 {
		return p, errors.New("more members than name and value")
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
			p.Value, err = primitive(text)
		default:
			err = errors.New("no value")
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// primitive returns a string, number or boolean in the form of a query parameter.
func primitive(text []byte) (s string, err error) {
	switch text[0] {
	case '"':
		err = json.Unmarshal(text, &s)
		return s, err
	case '{', '[', 'n':
		return "", errors.New("no primitive value")
	}
	return string(text), nil
}

// confined confines an operation that selects the latest resources to the patient of a grant. Among the records of several
// patients, or with records that a constraint hides, a missing result would reveal a hidden one. found is false if the client
// names another patient, for whom the result is empty.
func (j *judgedCall) confined(parameters []smart.Parameter, i interaction.Interaction, write func(id string) string) (_ []smart.Parameter, found bool, err error) {
	patients := patientsOf(j.x.Judge.Rights().For(i.Type, j.op.Permission))
	if len(patients) == 0 {
		return nil, false, message.Forbidden(message.ErrOracle, "%s takes a scope without a constraint.", j.op.Name).
			Lifted(j.x.Judge.Rights().MissingScopes(i.Type, j.op.Permission, false))
	}
	var rest, named []smart.Parameter
	for _, p := range parameters {
		if p.Name == "patient" || p.Name == "subject" {
			named = append(named, p)
		} else {
			rest = append(rest, p)
		}
	}
	if len(named) == 0 && len(patients) > 1 {
		return nil, false, message.Invalid(errParameters, "Name the patient: the scopes are about several.")
	}
	patient := patients[0]
	for n, p := range named {
		id := strings.TrimPrefix(p.Value, "Patient/")
		if n > 0 && id != patient || !slices.Contains(patients, id) {
			return nil, false, nil
		}
		patient = id
	}
	return append(rest, smart.Parameter{Name: "patient", Value: write(patient)}), true, nil
}

// patientsOf returns the patients to whom grants without a constraint are bound.
func patientsOf(grants []access.Grant) []string {
	var patients []string
	for _, g := range grants {
		if g.Patient != "" && len(g.Constraint) == 0 && !slices.Contains(patients, g.Patient) {
			patients = append(patients, g.Patient)
		}
	}
	return patients
}

// isOverAll reports whether a grant is for all types, without a constraint.
func isOverAll(g access.Grant) bool {
	return g.Type == smart.AnyType && !g.ByRule && len(g.Constraint) == 0
}

// page returns the entries from a position on. A page has the requested length, filled from several pages of the FHIR server if
// entries are withheld, because a shorter page would reveal their number. Without a requested length, all pages of the FHIR
// server are judged as one, because an entry and its referrer may be on different pages.
func (j *judgedCall) page(ctx context.Context, at paging.BranchPosition) (*message.Response, error) {
	var out *message.Bundle
	var size int64
	all := judgedEntries{hidden: !at.IsFirst()}
	had := at.Pending
	for fetched := 0; fetched < paging.MaxFetches && size < j.x.Limit; fetched++ {
		a, err := j.fetch(ctx, at)
		if err != nil {
			return nil, err
		}
		got, err := message.ParseBundle(a.Body)
		if err != nil || got.Kind == "document" || got.Kind == "message" {
			return j.single(ctx, a, got)
		}
		judged, err := j.judged(ctx, got)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = &message.Bundle{Kind: got.Kind, Total: -1}
		}
		next, isShort := got.Links.To("next"), judged.hidden || !j.complete
		if j.count == math.MaxInt {
			all, judged = all.with(judged), judgedEntries{}
		} else {
			judged.hidden = judged.hidden || !at.IsFirst() || next != ""
		}
		if j.fill(out, j.kept(judged), &at) {
			return j.finishBeside(ctx, out, &at, had)
		}
		size += int64(len(a.Body))
		if next == "" && j.count == math.MaxInt {
			return j.finishAll(ctx, out, all, nil)
		} else if next == "" {
			return j.finishBeside(ctx, out, nil, had)
		} else if at, err = at.Next(got.Links, at.Call(j.asked)); err != nil {
			return nil, err
		} else if j.count < math.MaxInt && !isShort && len(out.Entries) > 0 {
			break
		}
	}
	if j.count < math.MaxInt {
		return j.finishBeside(ctx, out, &at, had)
	}
	all.hidden = true // perhaps, on the pages that follow
	return j.finishAll(ctx, out, all, &at)
}

// fill adds the entries of a page after those already taken, and reports whether some did not fit.
func (j *judgedCall) fill(out *message.Bundle, kept []message.Entry, at *paging.BranchPosition) (full bool) {
	kept = kept[min(at.Returned, len(kept)):]
	room := j.count - len(out.Entries)
	if full = room < len(kept); full {
		kept = kept[:room]
		at.Returned += room
	}
	out.Entries = append(out.Entries, kept...)
	return full
}

// fetch requests the page at a position from the FHIR server.
func (j *judgedCall) fetch(ctx context.Context, at paging.BranchPosition) (*message.Response, error) {
	a, err := j.x.Server.Do(ctx, at.Call(j.asked))
	if err != nil {
		return nil, err
	}
	if !a.Succeeded() {
		return nil, FailedOperation(a, j.asked.SentTerms())
	}
	return a, a.RequireJSON()
}

// single returns a single resource, or a document or message, if all of its entries are covered.
func (j *judgedCall) single(ctx context.Context, a *message.Response, got *message.Bundle) (*message.Response, error) {
	parts := [][]byte{a.Body}
	if got.ResourceType == "Bundle" {
		parts = nil
		for _, e := range got.Entries {
			parts = append(parts, e.Resource)
		}
	}
	for _, text := range parts {
		res, err := j.x.Addresses.Parse(text)
		if err != nil {
			return nil, err
		}
		if res.Type == "Parameters" || res.Type == "OperationOutcome" || res.Type == "Bundle" {
			return nil, message.NewWithheldError(errOperationAnswer)
		}
		ok, err := j.x.Judge.IsCovered(ctx, res, j.x.answerGrants(j.op, res.Type))
		if err == nil && !ok {
			err = message.NotFound()
		}
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

var errOperationAnswer = errors.New("answer of an operation that is no resource of somebody's")

// kept returns the visible entries: all members, and other entries that visible ones refer to. The rest may be in the response
// only because a withheld resource refers to them.
//
// Denied resources shift the boundaries of the FHIR server's pages. With policies, a page of $everything with a length
// therefore gets its other entries only from finishBeside, not from the FHIR server's page that happens to contain them.
func (j *judgedCall) kept(judged judgedEntries) []message.Entry {
	switch {
	case j.ruled && j.op.Name == "$everything" && j.count < math.MaxInt:
		return judged.matches
	case judged.hidden || !j.complete:
		return append(judged.matches, search.ReachableEntries(judged.matches, judged.others)...)
	}
	return append(judged.matches, judged.others...)
}

// finishAll is like finish, but for entries that are judged together.
func (j *judgedCall) finishAll(ctx context.Context, out *message.Bundle, all judgedEntries, rest *paging.BranchPosition) (*message.Response, error) {
	out.Entries = append(out.Entries, j.kept(all)...)
	return j.finish(ctx, out, rest)
}

// with returns the entries of both.
func (e judgedEntries) with(more judgedEntries) judgedEntries {
	return judgedEntries{append(e.matches, more.matches...), append(e.others, more.others...), e.hidden || more.hidden}
}

// judged returns the covered entries of a page.
func (j *judgedCall) judged(ctx context.Context, got *message.Bundle) (judged judgedEntries, err error) {
	for _, e := range got.Entries {
		if e.Mode == "outcome" || e.Resource == nil {
			continue
		}
		if e.Parsed, err = j.x.Addresses.Parse(e.Resource); err != nil {
			return judged, err
		}
		ok, err := j.x.Judge.IsCovered(ctx, e.Parsed, j.x.answerGrants(j.op, e.Parsed.Type))
		switch {
		case err != nil:
			return judged, err
		case !ok:
			judged.hidden = true
		case j.isMember(e.Parsed):
			judged.matches = append(judged.matches, e)
		default:
			judged.others = append(judged.others, e)
		}
	}
	return judged, nil
}

// isMember reports whether a resource is in the response in its own right, and not because another resource refers to it: its
// type is in the compartment of patients, or it is a Device that is assigned to a patient. If policies may deny the referrer,
// the resource itself must be in the compartment of the call's patient, which excludes Devices.
func (j *judgedCall) isMember(res resource.Resource) bool {
	if !j.ruled {
		_, ok := compartment.Patient(res.Type)
		return ok || res.Type == "Device" && access.OfPatients(res)
	}
	for id := range compartment.Patients(res) {
		if j.patient == "" || j.patient == id {
			return true
		}
	}
	return false
}

// finish adds the self link and, if entries remain, the next link.
func (j *judgedCall) finish(ctx context.Context, out *message.Bundle, rest *paging.BranchPosition) (*message.Response, error) {
	out.Links = []message.Link{{Relation: "self", URL: j.x.Addresses.URL(j.c.Path, j.c.Query)}}
	if rest != nil {
		next, err := j.x.Pages.Seal(ctx, paging.FullRequestPage(j.c, paging.Position{Branches: []paging.BranchPosition{*rest}}))
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return out.Response(), nil
}

// maxBeside is the maximum number of additional resources fetched per type for a page.
const maxBeside = 100

// maxHad is the maximum number of additional resources listed in a link.
const maxHad = 2000

// finishBeside is finish for a page with a requested length. It adds the shared resources that the entries refer to, because
// the FHIR server may have them on any page, possibly due to a withheld resource. Each is added once: the link lists those of
// earlier pages, unless there are too many.
func (j *judgedCall) finishBeside(ctx context.Context, out *message.Bundle, rest *paging.BranchPosition, had []string) (*message.Response, error) {
	if j.op.Name == "$everything" {
		var err error
		if had, err = j.beside(ctx, out, had); err != nil {
			return nil, err
		}
	}
	if len(had) > maxHad {
		had = nil
	}
	if rest != nil {
		rest.Pending = had
	}
	return j.finish(ctx, out, rest)
}

// beside adds the shared resources that entries refer to and that were on no earlier page, by one search per type. It returns
// the updated list of such resources.
func (j *judgedCall) beside(ctx context.Context, out *message.Bundle, had []string) ([]string, error) {
	for _, e := range out.Entries {
		if name := e.Parsed.Type + "/" + e.Parsed.ID; j.isBeside(e.Parsed.Type) && !slices.Contains(had, name) {
			had = append(had, name)
		}
	}
	ids := map[string][]string{}
	for _, e := range out.Entries {
		for _, name := range search.ReferencedIDs(e) {
			resourceType, id, _ := strings.Cut(name, "/")
			if j.isBeside(resourceType) && !slices.Contains(had, name) && len(ids[resourceType]) < maxBeside {
				had, ids[resourceType] = append(had, name), append(ids[resourceType], id)
			}
		}
	}
	for _, resourceType := range slices.Sorted(maps.Keys(ids)) {
		if err := j.find(ctx, out, resourceType, ids[resourceType]); err != nil {
			return nil, err
		}
	}
	return had, nil
}

// isBeside reports whether resources of a type are shared between all patients and requested by the client.
func (j *judgedCall) isBeside(resourceType string) bool {
	wanted := j.x.Shared.IsForAllPatients(resourceType) && len(j.x.answerGrants(j.op, resourceType)) > 0
	for _, p := range j.parameters {
		wanted = wanted && p.Name != "_since" && (p.Name != "_type" || slices.Contains(strings.Split(p.Value, ","), resourceType))
	}
	return wanted
}

// find adds resources of a type by their ids; none if the FHIR server does not support the search.
func (j *judgedCall) find(ctx context.Context, out *message.Bundle, resourceType string, ids []string) error {
	a, err := j.x.Server.Do(ctx, message.Get(resourceType, smart.EncodeParameters([]smart.Parameter{
		{Name: "_id", Value: strings.Join(ids, ",")}, {Name: "_count", Value: strconv.Itoa(len(ids))},
	})))
	if err != nil || a.Status/100 == 4 {
		return err
	}
	got, err := j.x.Addresses.BundleOf(a, false, nil, message.Call{}.SentTerms)
	if err != nil {
		return err
	}
	judged, err := j.judged(ctx, got)
	if err != nil {
		return err
	}
	entries := append(judged.matches, judged.others...) // matches if a site has made a type of the compartment shared
	for _, e := range entries {
		if e.Parsed.Type == resourceType && slices.Contains(ids, e.Parsed.ID) {
			e.Search = search.IncludeMode
			out.Entries = append(out.Entries, e)
		}
	}
	return nil
}
