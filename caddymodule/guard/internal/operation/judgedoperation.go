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

// judgedCall is an operation on its way, whose answer is judged resource by resource.
type judgedCall struct {
	x     *Calls
	c     message.Call // the client's
	asked message.Call // what is asked of the FHIR server
	op    Operation

	parameters []smart.Parameter // of what is asked

	count    int    // entries of a page
	complete bool   // one grant is about all types, so that nothing of a patient's is hidden
	ruled    bool   // rules of the site may deny resources
	patient  string // ID of the Patient on which the operation is called; empty for other resources and types
}

// judgedEntries are the entries of some pages, without what is not covered.
type judgedEntries struct {
	matches []message.Entry
	others  []message.Entry
	hidden  bool // whether there is, or could be on other pages, something that is not covered
}

// operationRules say how an operation that is known here is called under scopes that are bound.
type operationRules struct {
	// onInstance: it is called on a resource, and on a type under whole scopes alone. Else on types alone.
	onInstance bool
	// parameters are those that tell of no other resource.
	parameters []string
	// patient writes the value of the parameter that confines the answer to a patient. Nil: there is none.
	patient func(id string) string
}

// knownOperations have rules. The parameters of others, which a site has listed, pass.
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

// judgedOperation answers an operation by those resources of its answer that are covered, from a position on.
func (x *Calls) judgedOperation(ctx context.Context, c message.Call, i interaction.Interaction, op Operation, at paging.Place) (*message.Answer, error) {
	grants := x.Judge.Rights().For(i.Type, op.Permission)
	if len(grants) == 0 {
		return nil, x.refusedOperation(op, i)
	}
	if i.ID != "" && (!at.IsFirst() || at.Taken > 0 || !x.isOwnPatient(i, grants)) {
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

// isOwnPatient reports whether an operation is called on a Patient that a grant is about by its id, so that it need not be
// read first: if it is not there, the FHIR server says so.
func (x *Calls) isOwnPatient(i interaction.Interaction, grants []access.Grant) bool {
	return i.Type == "Patient" && !x.Judge.MayDeny() && slices.ContainsFunc(grants, func(g access.Grant) bool {
		return g.Patient == i.ID && len(g.Constraint) == 0 && !g.ByRule
	})
}

// answer has the FHIR server called with parameters in the query. If the client asks for no pages, the server's are as
// long as those of searches.
func (j *judgedCall) answer(ctx context.Context, asked message.Call, parameters []smart.Parameter, at paging.Place) (*message.Answer, error) {
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
		if j.ruled { // longer pages, so that the limit of requests suffices to find out whether a visible entry follows
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

// answerKnown answers an operation that has rules. It is called by GET, with the parameters that were judged.
func (j *judgedCall) answerKnown(ctx context.Context, i interaction.Interaction, rules operationRules, at paging.Place) (*message.Answer, error) {
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

// Parameters are those of the query and of a Parameters body, which are one list (R4
// operations.html#3.2.0.4). Those about the form of the answer are left out: it is JSON, and cut resources cannot be
// judged.
func Parameters(c message.Call, i interaction.Interaction) ([]smart.Parameter, error) {
	posted, err := postedParameters(c.Body)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Concat(i.Parameters, posted), isForm), nil
}

// isForm reports whether a parameter is about the form of the answer.
func isForm(p smart.Parameter) bool {
	return slices.Contains([]string{"_format", "_pretty", "_summary", "_elements"}, p.Name)
}

// postedParameters reads a Parameters resource whose values are primitive, or references.
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

// primitive is a string, number or boolean as a query writes it.
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

// confined confines an operation that picks the latest of what it finds to the patient of a grant: among several
// patients' records, or among records that a constraint hides, what is missing would tell of what was picked instead.
// Found is false if the client asks for another patient, for whom nothing is found.
func (j *judgedCall) confined(parameters []smart.Parameter, i interaction.Interaction, write func(id string) string) (_ []smart.Parameter, found bool, err error) {
	patients := patientsOf(j.x.Judge.Rights().For(i.Type, j.op.Permission))
	if len(patients) == 0 {
		return nil, false, message.Forbidden(message.ErrOracle, "%s takes a scope without a constraint.", j.op.Name).
			Lifted(j.x.Judge.Rights().Lacking(i.Type, j.op.Permission, false))
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

// patientsOf are the patients to whom grants without a constraint are bound.
func patientsOf(grants []access.Grant) []string {
	var patients []string
	for _, g := range grants {
		if g.Patient != "" && len(g.Constraint) == 0 && !slices.Contains(patients, g.Patient) {
			patients = append(patients, g.Patient)
		}
	}
	return patients
}

// isOverAll reports whether a grant is about all types, without a constraint.
func isOverAll(g access.Grant) bool {
	return g.Type == smart.AnyType && !g.ByRule && len(g.Constraint) == 0
}

// page answers with the entries from a position on. A page has as many as were asked for, taken from several pages of
// the server if something is hidden: a shorter one would tell how much is withheld. If nobody asked for pages, those of
// the server are judged as one, for what names a resource may be on another page.
func (j *judgedCall) page(ctx context.Context, at paging.Place) (*message.Answer, error) {
	var out *message.Bundle
	var size int64
	all := judgedEntries{hidden: !at.IsFirst()}
	had := at.Left
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

// fill adds the entries behind those of a page that were taken before, and reports whether there was no room for all.
func (j *judgedCall) fill(out *message.Bundle, kept []message.Entry, at *paging.Place) (full bool) {
	kept = kept[min(at.Taken, len(kept)):]
	room := j.count - len(out.Entries)
	if full = room < len(kept); full {
		kept = kept[:room]
		at.Taken += room
	}
	out.Entries = append(out.Entries, kept...)
	return full
}

// fetch asks the FHIR server for the page at a position.
func (j *judgedCall) fetch(ctx context.Context, at paging.Place) (*message.Answer, error) {
	a, err := j.x.Server.Ask(ctx, at.Call(j.asked))
	if err != nil {
		return nil, err
	}
	if !a.Succeeded() {
		return nil, FailedOperation(a, j.asked.Said())
	}
	return a, a.RequireJSON()
}

// single answers with one resource, or with a document or message, of which each entry must be covered.
func (j *judgedCall) single(ctx context.Context, a *message.Answer, got *message.Bundle) (*message.Answer, error) {
	parts := [][]byte{a.Body}
	if got.ResourceType == "Bundle" {
		parts = nil
		for _, e := range got.Entries {
			parts = append(parts, e.Resource)
		}
	}
	for _, text := range parts {
		res, err := j.x.At.Parse(text)
		if err != nil {
			return nil, err
		}
		if res.Type == "Parameters" || res.Type == "OperationOutcome" || res.Type == "Bundle" {
			return nil, message.Withheld(errOperationAnswer)
		}
		ok, err := j.x.Judge.Covered(ctx, res, j.x.answerGrants(j.op, res.Type))
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

// kept returns the entries to show: all members, and other entries that visible ones refer to. The rest may be in the answer
// because a withheld resource refers to them.
//
// Denied resources move the boundaries of the FHIR server's pages. Under rules, a page of $everything with a length
// therefore gets its other entries from finishBeside alone: not from the FHIR server's page that happens to contain them.
func (j *judgedCall) kept(judged judgedEntries) []message.Entry {
	switch {
	case j.ruled && j.op.Name == "$everything" && j.count < math.MaxInt:
		return judged.matches
	case judged.hidden || !j.complete:
		return append(judged.matches, search.Reached(judged.matches, judged.others)...)
	}
	return append(judged.matches, judged.others...)
}

// finishAll is finish for entries that are judged as one, if there are any.
func (j *judgedCall) finishAll(ctx context.Context, out *message.Bundle, all judgedEntries, rest *paging.Place) (*message.Answer, error) {
	out.Entries = append(out.Entries, j.kept(all)...)
	return j.finish(ctx, out, rest)
}

// with are the entries of further pages, too.
func (e judgedEntries) with(more judgedEntries) judgedEntries {
	return judgedEntries{append(e.matches, more.matches...), append(e.others, more.others...), e.hidden || more.hidden}
}

// judged are the entries of a page that are covered.
func (j *judgedCall) judged(ctx context.Context, got *message.Bundle) (judged judgedEntries, err error) {
	for _, e := range got.Entries {
		if e.Mode == "outcome" || e.Resource == nil {
			continue
		}
		if e.Parsed, err = j.x.At.Parse(e.Resource); err != nil {
			return judged, err
		}
		ok, err := j.x.Judge.Covered(ctx, e.Parsed, j.x.answerGrants(j.op, e.Parsed.Type))
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

// isMember reports whether a resource is in the answer on its own account, and not because another resource refers to it. Its
// type must be in the compartment of patients, or it is a Device that is assigned to a patient. Where rules may deny the
// referrer, the resource itself must be in the compartment of the patient of the call: Devices are in none.
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

// finish adds the links: to the rest, if there is one.
func (j *judgedCall) finish(ctx context.Context, out *message.Bundle, rest *paging.Place) (*message.Answer, error) {
	out.Links = []message.Link{{Relation: "self", URL: j.x.At.URL(j.c.Path, j.c.Query)}}
	if rest != nil {
		next, err := j.x.Pages.Seal(ctx, paging.AsSent(j.c, paging.Position{Places: []paging.Place{*rest}}))
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return out.Answer(), nil
}

// maxBeside is how many resources may be fetched for a page beside its own.
const maxBeside = 100

// maxHad is how many resources beside the pages' own a link names at most.
const maxHad = 2000

// finishBeside is finish for a page that was asked for by its length, with what is everybody's that its entries name.
// The FHIR server may have that on any page, where a hidden resource may be why. So it comes with what names it, once:
// the link says which ones pages have had, unless these are too many.
func (j *judgedCall) finishBeside(ctx context.Context, out *message.Bundle, rest *paging.Place, had []string) (*message.Answer, error) {
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
		rest.Left = had
	}
	return j.finish(ctx, out, rest)
}

// beside adds what is everybody's that entries name and no page has had, by one search for each type. It returns what
// pages have had now.
func (j *judgedCall) beside(ctx context.Context, out *message.Bundle, had []string) ([]string, error) {
	for _, e := range out.Entries {
		if name := e.Parsed.Type + "/" + e.Parsed.ID; j.isBeside(e.Parsed.Type) && !slices.Contains(had, name) {
			had = append(had, name)
		}
	}
	ids := map[string][]string{}
	for _, e := range out.Entries {
		for _, name := range search.Named(e) {
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

// isBeside reports whether resources of a type are everybody's, and the client asks for them.
func (j *judgedCall) isBeside(resourceType string) bool {
	wanted := j.x.Shared.IsEveryones(resourceType) && len(j.x.answerGrants(j.op, resourceType)) > 0
	for _, p := range j.parameters {
		wanted = wanted && p.Name != "_since" && (p.Name != "_type" || slices.Contains(strings.Split(p.Value, ","), resourceType))
	}
	return wanted
}

// find adds resources of a type by their ids. Where the FHIR server knows no such search, there are none.
func (j *judgedCall) find(ctx context.Context, out *message.Bundle, resourceType string, ids []string) error {
	a, err := j.x.Server.Ask(ctx, message.Get(resourceType, smart.EncodeParameters([]smart.Parameter{
		{Name: "_id", Value: strings.Join(ids, ",")}, {Name: "_count", Value: strconv.Itoa(len(ids))},
	})))
	if err != nil || a.Status/100 == 4 {
		return err
	}
	got, err := j.x.At.BundleOf(a, false, nil, message.Call{}.Said)
	if err != nil {
		return err
	}
	judged, err := j.judged(ctx, got)
	if err != nil {
		return err
	}
	entries := append(judged.matches, judged.others...) // matches where a site has made a type of the compartment everybody's
	for _, e := range entries {
		if e.Parsed.Type == resourceType && slices.Contains(ids, e.Parsed.ID) {
			e.Search = search.IncludeMode
			out.Entries = append(out.Entries, e)
		}
	}
	return nil
}
