package operation

import (
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

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
	j := &judgedCall{x: x, c: c, op: op, count: math.MaxInt, complete: slices.ContainsFunc(grants, isOverAll)}
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
	for _, p := range parameters {
		if p.Name != "_count" {
			continue
		}
		n, err := strconv.Atoi(p.Value)
		if err != nil || n <= 0 {
			return nil, message.Invalid(errParameters, "_count is no number above 0.")
		}
		j.count = n
	}
	if j.count == math.MaxInt && slices.Contains(knownOperations[j.op.Name].parameters, "_count") {
		parameters = append(slices.Clip(parameters), smart.Parameter{Name: "_count", Value: strconv.Itoa(search.DefaultCount)})
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
