// Package validate has the operations ValueSet/$validate-code and CodeSystem/$validate-code: a [Query] becomes a [Result].
//
//	validate.go     the operations, Query, Result
//	request.go      reading a request
//	validator.go    validates the codings of a request and makes the result
//	coding.go       validates one coding
//	candidate.go    which includes may contain it, without an expansion, and in which version of the code system
//	display.go      whether a display is right
package validate

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

func init() {
	api.Register(
		api.Operation{Type: "CodeSystem", Name: "validate-code", OnInstance: true, Answer: answerInCodeSystem},
		api.Operation{Type: "ValueSet", Name: "validate-code", OnInstance: true, Answer: answerInValueSet, Capability: `"validateCode":{"translations":true}`},
	)
}

func answerInValueSet(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.Missing, error) {
	r, err := readRequest(c, inputs, true)
	if err != nil {
		return nil, nil, err
	}
	return r.answer(c, l, InValueSet)
}

func answerInCodeSystem(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.Missing, error) {
	r, err := readRequest(c, inputs, false)
	if err != nil {
		return nil, nil, err
	}
	return r.answer(c, l, InCodeSystem)
}

// answer validates, and fetches missing definitions if they could change the result.
func (r *request) answer(c *api.Call, l *terminology.Library, validate func(context.Context, *terminology.Library, Query) (*Result, error)) ([]byte, []outcome.Missing, error) {
	result, err := api.Fetch(c, l, func(l *terminology.Library) (*Result, []outcome.Missing, error) {
		l, err := c.Library(l, r.shared)
		if err != nil {
			return nil, api.MissingIn(err), err
		}
		result, err := validate(&c.Budget, l, r.query)
		if err != nil {
			return nil, api.MissingIn(err), err
		}
		return result, result.Missing, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return result.AppendJSON(nil), result.Missing, nil
}

// InValueSet answers ValueSet/$validate-code from a library: whether a code is in a value set. It fails as
// [terminology.Library.Expand] does; an invalid code is not an error.
func InValueSet(ctx context.Context, l *terminology.Library, q Query) (*Result, error) {
	b := budget.Of(ctx, l.Definitions().Bounds.Gathered)
	set, vs, err := l.CodeLists().ValueSetFor(l.Definitions(), &q.ValueSetRef, &q.Rules, b)
	if err != nil {
		return nil, err
	}
	return run(set, l.CodeLists(), vs, &q, b)
}

// InCodeSystem answers CodeSystem/$validate-code from a library: whether a code is in its code system.
func InCodeSystem(ctx context.Context, l *terminology.Library, q Query) (*Result, error) {
	if err := definitions.CheckDate(q.Date); err != nil {
		return nil, err
	}
	set := l.Definitions()
	q.Codings = slices.Clone(q.Codings)
	if q.ID != "" {
		for i := range q.Codings {
			if err := set.Systems.Instance(q.ID, &q.Codings[i]); err != nil {
				return nil, err
			}
		}
	}
	return run(set, nil, nil, &q, budget.Of(ctx, set.Bounds.Gathered))
}

// Query holds the parameters of $validate-code.
type Query struct {
	// ValueSetRef is the value set. For a code system, only its ID counts: it is the code system's.
	compose.ValueSetRef
	compose.Rules

	// Language says which languages displays should be in.
	Language definitions.Language

	// Codings are the codes to validate: one, or those of a CodeableConcept, of which one must be valid.
	Codings []parameters.Coding

	// CodeableConcept is the JSON of the CodeableConcept that Codings are from, to be repeated in the answer; nil if
	// none.
	CodeableConcept jsontext.Value

	// InferSystem says to find the system of the one coding from the value set, if the coding has none.
	InferSystem bool

	// NotAbstract says that abstract codes are not allowed.
	NotAbstract bool

	// LenientDisplay says that a wrong display is only a warning.
	LenientDisplay bool

	// MembershipOnly says to check only whether the code is in the value set.
	MembershipOnly bool
}

// Result is the response of $validate-code.
type Result struct {
	// Valid is the result.
	Valid bool

	// Found is what was found for the coding that the result is about, the first valid one of several; nil if nothing.
	Found *FoundCoding

	// Message sums up the issues for people; empty if there are none.
	Message string

	// Issues are what is wrong with the codings, or worth knowing about them.
	Issues []outcome.Issue

	// UnknownVersions are the canonicals of code system versions that the value set needs and that are not here,
	// UnknownSystems the urls of code systems that are not here at all.
	UnknownVersions, UnknownSystems []string

	// Missing are the definitions that could change the result.
	Missing []outcome.Missing

	concept jsontext.Value // the CodeableConcept that was validated, or nil
}

// FoundCoding is what was found for a coding.
type FoundCoding struct {
	// Coding is the coding, with the code system's version and display.
	parameters.Coding

	// NormalizedCode is the code as the code system has it, if that differs in case.
	NormalizedCode string

	// Inactive says that the code should no longer be used.
	Inactive bool

	// Status is the code system's word for why a code should no longer be used; empty if it may be used.
	Status string

	invalid bool // not in the value set: for a CodeableConcept, only the version is returned
}

// AppendJSON appends the Parameters that $validate-code answers with.
func (r *Result) AppendJSON(dst []byte) []byte {
	out := parameters.NewWriter(dst)
	out.Boolean("result", r.Valid)
	if r.concept != nil {
		out.Raw("codeableConcept", "valueCodeableConcept", r.concept)
	}
	if r.Found != nil && r.concept != nil && r.Found.invalid {
		out.Optional("version", "valueString", r.Found.Version)
	} else if r.Found != nil {
		writeFound(out, r.Found)
	}
	for _, canonical := range r.UnknownVersions {
		out.Text("x-caused-by-unknown-system", "valueCanonical", canonical)
	}
	for _, system := range r.UnknownSystems {
		out.Text("x-unknown-system", "valueCanonical", system)
	}
	out.Optional("message", "valueString", r.Message)
	if len(r.Issues) > 0 {
		out.Raw("issues", "resource", outcome.AppendOutcome(nil, r.Issues))
	}
	return out.End()
}

func writeFound(w *parameters.Writer, f *FoundCoding) {
	w.Optional("code", "valueCode", f.Code)
	w.Optional("system", "valueUri", f.System)
	w.Optional("version", "valueString", f.Version)
	w.Optional("display", "valueString", f.Display)
	w.Optional("normalized-code", "valueCode", f.NormalizedCode)
	if f.Inactive {
		w.Boolean("inactive", true)
	}
	w.Optional("status", "valueCode", f.Status)
}
