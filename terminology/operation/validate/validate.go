// Package validate implements ValueSet/$validate-code and CodeSystem/$validate-code. Validating a [Query] returns a [Result].
//
//	validate.go     parses requests; the operations, Query, Result
//	validator.go    validates the codings of a request and builds the result
//	candidate.go    finds the includes that may contain a coding, without expansion; selects the code system version; and
//	                  validates displays
package validate

import (
	"cmp"
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
		api.Operation{Type: "CodeSystem", Name: "validate-code", HasInstanceLevel: true, Handle: handleInCodeSystem},
		api.Operation{Type: "ValueSet", Name: "validate-code", HasInstanceLevel: true, Handle: handleInValueSet, Capability: `"validateCode":{"translations":true}`},
	)
}

func handleInValueSet(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.MissingDefinition, error) {
	r, err := readRequest(c, inputs, true)
	if err != nil {
		return nil, nil, err
	}
	return r.handle(c, l, InValueSet)
}

func handleInCodeSystem(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.MissingDefinition, error) {
	r, err := readRequest(c, inputs, false)
	if err != nil {
		return nil, nil, err
	}
	return r.handle(c, l, InCodeSystem)
}

// handle performs a validation. It fetches missing definitions if they could change the result.
func (r *request) handle(c *api.Call, l *terminology.Library, validate func(context.Context, *terminology.Library, Query) (*Result, error)) ([]byte, []outcome.MissingDefinition, error) {
	result, err := api.Fetch(c, l, func(l *terminology.Library) (*Result, []outcome.MissingDefinition, error) {
		l, err := c.WithRequestResources(l, r.common)
		if err != nil {
			return nil, api.MissingDefinitions(err), err
		}
		result, err := validate(&c.Budget, l, r.query)
		if err != nil {
			return nil, api.MissingDefinitions(err), err
		}
		return result, result.Missing, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return result.AppendJSON(nil), result.Missing, nil
}

// InValueSet performs ValueSet/$validate-code, which checks whether a code is in a value set. Its errors are those of
// [terminology.Library.Expand]. An invalid code is not an error.
func InValueSet(ctx context.Context, l *terminology.Library, q Query) (*Result, error) {
	b := budget.FromContext(ctx, l.Definitions().Bounds.VisitedCodes)
	set, vs, err := l.CodeLists().ValueSetFor(l.Definitions(), &q.ValueSetRef, &q.Rules, b)
	if err != nil {
		return nil, err
	}
	return run(set, l.CodeLists(), vs, &q, b)
}

// InCodeSystem performs CodeSystem/$validate-code, which checks whether a code is in its code system. Its errors are
// those of [terminology.Library.Expand]. An invalid code is not an error.
func InCodeSystem(ctx context.Context, l *terminology.Library, q Query) (*Result, error) {
	if err := definitions.CheckDate(q.Date); err != nil {
		return nil, err
	}
	set := l.Definitions()
	q.Codings = slices.Clone(q.Codings)
	if q.ID != "" {
		for i := range q.Codings {
			if err := set.Systems.CompleteCodings(q.ID, &q.Codings[i]); err != nil {
				return nil, err
			}
		}
	}
	return run(set, nil, nil, &q, budget.FromContext(ctx, set.Bounds.VisitedCodes))
}

// Query contains the parameters of $validate-code.
type Query struct {
	// ValueSetRef refers to the value set. InCodeSystem uses only ID, which identifies the code system.
	compose.ValueSetRef
	compose.Rules

	// Language selects the languages of valid displays.
	Language definitions.Language

	// Codings are the codes to validate: a single one, or those of a CodeableConcept, of which at least one must be valid.
	Codings []parameters.Coding

	// CodeableConcept is the CodeableConcept that contains Codings, in JSON, or nil. It is included in the response.
	CodeableConcept jsontext.Value

	// InferSystem determines the system of a single coding from the value set if the coding has none.
	InferSystem bool

	// NotAbstract rejects abstract codes.
	NotAbstract bool

	// LenientDisplay makes a wrong display a warning instead of an error. Default: false.
	LenientDisplay bool

	// MembershipOnly checks only whether the code is in the value set.
	MembershipOnly bool
}

// Result is the response of $validate-code.
type Result struct {
	// Valid reports whether the code is valid.
	Valid bool

	// Found is the data of the first valid coding or of the coding that the result is about. It may be nil.
	Found *FoundCoding

	// Message summarizes the issues for users. It is empty if there are no issues.
	Message string

	// Issues are the errors, warnings and informational messages about the codings.
	Issues []outcome.Issue

	// UnknownVersions are the canonicals of code system versions that the value set needs but that are missing. UnknownSystems
	// are the URLs of code systems of which no version is loaded.
	UnknownVersions, UnknownSystems []string

	// Missing are the definitions that could change the result.
	Missing []outcome.MissingDefinition

	concept jsontext.Value // validated CodeableConcept, or nil
}

// FoundCoding is the data found for a coding.
type FoundCoding struct {
	// Coding is the coding, with the version and display from the code system.
	parameters.Coding

	// NormalizedCode is the code as written in the code system if its case differs from the coding's, otherwise "".
	NormalizedCode string

	// Inactive reports whether the code is inactive and should no longer be used.
	Inactive bool

	// Status is the code system's status of an inactive or deprecated code, unless it is "inactive"; otherwise "".
	Status string

	notInValueSet bool // the coding is not in the value set; for a CodeableConcept, only its version is returned
}

// AppendJSON appends the Parameters response of $validate-code.
func (r *Result) AppendJSON(dst []byte) []byte {
	out := parameters.NewWriter(dst)
	out.Boolean("result", r.Valid)
	if r.concept != nil {
		out.Raw("codeableConcept", "valueCodeableConcept", r.concept)
	}
	if r.Found != nil && r.concept != nil && r.Found.notInValueSet {
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
		out.Raw("issues", "resource", outcome.OperationOutcome(r.Issues))
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

// request is a $validate-code request for value sets or code systems.
type request struct {
	common      *api.Parameters
	query       Query
	code        *parameters.Coding // from the parameters code, system, systemVersion and display
	inferSystem bool               // parameter inferSystem
	codeSystem  jsontext.Value
	codeVersion string // parameter version
}

func readRequest(c *api.Call, inputs []parameters.Input, inValueSet bool) (*request, error) {
	shared, err := c.Parameters(inputs)
	if err != nil {
		return nil, err
	}
	r := &request{common: shared}
	for i := range inputs {
		if err := r.readParameter(&inputs[i]); err != nil {
			return nil, err
		}
	}
	if err := r.chooseCoding(inValueSet); err != nil {
		return nil, err
	}
	r.query.ValueSetRef, r.query.Rules, r.query.Language = shared.ValueSetRef, shared.Rules, shared.Language
	if r.codeSystem != nil {
		shared.Resources = append(shared.Resources, r.codeSystem)
	}
	return r, nil
}

// chooseCoding returns an error unless the request has exactly one of the parameters code, coding and codeableConcept (R4
// ValueSet/$validate-code). It sets the codings to validate.
func (r *request) chooseCoding(inValueSet bool) error {
	given := 0
	for _, name := range []string{"code", "coding", "codeableConcept"} {
		if r.common.HasParameter(name) {
			given++
		}
	}
	switch {
	case given == 0: // other servers return the same text
		return outcome.BadRequest("invalid", "Unable to find code to validate (looked for coding | codeableConcept | code+system | code+inferSystem in parameters)")
	case given > 1:
		return outcome.BadRequest("invalid", "exactly one of the parameters code, coding and codeableConcept is required")
	}
	if !r.common.HasParameter("code") {
		r.code = nil // system, display and similar parameters only apply to code
	} else if r.code.Code == "" {
		return outcome.BadRequest("required", "the parameter code is empty")
	}
	if !inValueSet {
		return r.chooseCodingInSystem()
	}
	if r.code == nil {
		return nil
	}
	r.query.InferSystem = r.inferSystem || r.common.Context != ""
	if r.code.System == "" && !r.query.InferSystem {
		return outcome.BadRequest("invalid", "the parameter code requires the parameter system, inferSystem or context")
	}
	r.query.Codings = []parameters.Coding{*r.code}
	return nil
}

// chooseCodingInSystem is like chooseCoding, but for a code system. The code system is that of url, codeSystem, the instance,
// or system, in this order of precedence. A coding must belong to it. In a CodeableConcept, codings of other code systems are
// ignored (R4 CodeSystem/$validate-code).
func (r *request) chooseCodingInSystem() error {
	system, version := outcome.SplitCanonical(r.common.URL)
	r.codeVersion = cmp.Or(r.codeVersion, version)
	if system == "" && r.codeSystem != nil {
		d, err := definitions.ParseDefinition(r.codeSystem)
		if err != nil {
			return outcome.BadRequest("structure", "invalid parameter codeSystem: %v", err)
		}
		system, r.codeVersion = d.URL, cmp.Or(r.codeVersion, d.Version)
	}
	if r.code != nil {
		r.code.System, r.code.Version = cmp.Or(system, r.code.System), cmp.Or(r.codeVersion, r.code.Version)
		if r.code.System == "" && r.common.ID == "" {
			return outcome.BadRequest("required", "the parameter code requires the parameter url with the URL of the code system")
		}
		r.query.Codings = []parameters.Coding{*r.code}
		return nil
	}
	other := func(c parameters.Coding) bool { return system != "" && c.System != "" && c.System != system }
	if r.query.CodeableConcept == nil && other(r.query.Codings[0]) {
		return outcome.BadRequest("invalid", "the coding belongs to %s, not to the code system %s", r.query.Codings[0].System, system)
	}
	r.query.Codings = slices.DeleteFunc(r.query.Codings, other)
	return nil
}

// readParameter reads a parameter. It ignores common parameters.
func (r *request) readParameter(in *parameters.Input) error {
	switch in.Name {
	case "version":
		r.codeVersion = in.Value
	case "codeSystem":
		r.codeSystem = in.Resource
	case "inferSystem", "implySystem":
		r.inferSystem = in.Value == "true"
	case "lenient-display-validation":
		r.query.LenientDisplay = in.Value == "true"
	case "valueset-membership-only":
		r.query.MembershipOnly = in.Value == "true"
	case "abstract":
		r.query.NotAbstract = in.Value == "false"
	default:
		return r.readCode(in)
	}
	return nil
}

// readCode reads a parameter that contains a coding or a part of one.
func (r *request) readCode(in *parameters.Input) (err error) {
	alone := func() *parameters.Coding {
		if r.code == nil {
			r.code = &parameters.Coding{}
		}
		return r.code
	}
	switch in.Name {
	case "code":
		alone().Code = in.Value
	case "system":
		alone().System = in.Value
	case "systemVersion":
		alone().Version = in.Value
	case "display":
		alone().Display = in.Value
	case "coding":
		var c parameters.Coding
		c, err = parameters.ParseCoding(in.Complex, "Coding")
		r.query.Codings = []parameters.Coding{c}
	case "codeableConcept":
		r.query.CodeableConcept = in.Complex
		r.query.Codings, err = parameters.ParseConcept(in.Complex)
	}
	return err
}
