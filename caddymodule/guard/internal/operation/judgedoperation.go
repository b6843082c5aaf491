package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

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
