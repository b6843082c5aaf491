package terminology

import (
	"context"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Validation holds the parameters of $validate-code, for [Library.ValidateCode] and [Library.ValidateCodeInSystem].
type Validation struct {
	// ValueSetRef is the value set. In a code system, only its ID counts: it is that of the code system.
	ValueSetRef
	Rules

	// Language says in which language displays are to be.
	Language Language

	// Codings are the codes that are validated: one, or those of a CodeableConcept, of which one valid one is enough.
	Codings []Coding

	// CodeableConcept is the CodeableConcept that Codings are of, in JSON, to be repeated in the answer; nil where they
	// are of none.
	CodeableConcept jsontext.Value

	// InferSystem says that the code system of the one coding is found by the value set, where the coding has none.
	InferSystem bool

	// NotAbstract says that abstract codes are not allowed.
	NotAbstract bool

	// LenientDisplay says that a wrong display is a warning only.
	LenientDisplay bool

	// MembershipOnly says that nothing matters but whether the code is in the value set.
	MembershipOnly bool
}

// ValidateCode answers ValueSet/$validate-code: whether a code is in a value set. It fails as [Library.Expand] does; an
// invalid code is not an error.
func (l *Library) ValidateCode(ctx context.Context, q Validation) (*ValidationResult, error) {
	b := l.budget(ctx)
	l, vs, err := l.valueSetFor(&q.ValueSetRef, &q.Rules, b)
	if err != nil {
		return nil, err
	}
	return l.validate(vs, &q, b)
}

// ValidateCodeInSystem answers CodeSystem/$validate-code: whether a code is in its code system.
func (l *Library) ValidateCodeInSystem(ctx context.Context, q Validation) (*ValidationResult, error) {
	if err := checkDate(q.Date); err != nil {
		return nil, err
	}
	q.Codings = slices.Clone(q.Codings)
	if q.ID != "" {
		for i := range q.Codings {
			if err := l.instance(q.ID, &q.Codings[i]); err != nil {
				return nil, err
			}
		}
	}
	return l.validate(nil, &q, l.budget(ctx))
}

// BatchValidateCode answers ValueSet/$batch-validate-code: it validates one after the other, as they are asked for.
// Together they may cost no more than one operation.
func (l *Library) BatchValidateCode(ctx context.Context, list []Validation) iter.Seq2[*ValidationResult, error] {
	b := l.budget(ctx)
	return func(yield func(*ValidationResult, error) bool) {
		for _, q := range list {
			if !yield(l.ValidateCode(b, q)) {
				return
			}
		}
	}
}

// validate validates codings against a value set of the library, or, where it is nil, against their code systems.
func (l *Library) validate(vs *valueSet, q *Validation, b *budget) (result *ValidationResult, err error) {
	l.use(func() {
		var v *validator
		if v, err = newValidator(l, vs, q, b); err == nil {
			result, err = v.result()
		}
	})
	return result, err
}

// ValidationResult says whether a code is valid, and what else there is to say of it.
type ValidationResult struct {
	// Valid is the result.
	Valid bool

	// Found is what was found of the coding that the result is about; of several, the first valid one. Nil: nothing.
	Found *FoundCoding

	// Message sums up the issues, for a person; empty where there are none.
	Message string

	// Issues are what is wrong with the codings, or should be known of them.
	Issues []Issue

	// UnknownVersions are the canonicals of the versions of code systems that are not here and that the value set
	// needs, and UnknownSystems the urls of code systems that are not here at all.
	UnknownVersions, UnknownSystems []string

	// Missing are the definitions with which the result might be another one.
	Missing []Missing

	concept jsontext.Value // the CodeableConcept, if that is what was validated
}

// FoundCoding is what was found of a coding.
type FoundCoding struct {
	// Coding is the coding, with the version of the code system and the display that it has there.
	Coding

	// NormalizedCode is the code as the code system has it, where that differs by case.
	NormalizedCode string

	// Inactive says that the code should not be used any more, and Status why, or that it is deprecated.
	Inactive bool

	// Status is why a code should not be used any more, in the words of the code system; empty where it may be.
	Status string

	invalid bool // it is not in the value set, so that of a CodeableConcept nothing but the version is told
}

// AppendJSON appends the Parameters that $validate-code answers with.
func (r *ValidationResult) AppendJSON(dst []byte) []byte {
	out := newParametersWriter(dst)
	out.boolean("result", r.Valid)
	if r.concept != nil {
		out.raw("codeableConcept", "valueCodeableConcept", r.concept)
	}
	if r.Found != nil && r.concept != nil && r.Found.invalid {
		out.optional("version", "valueString", r.Found.Version)
	} else if r.Found != nil {
		out.found(r.Found)
	}
	for _, canonical := range r.UnknownVersions {
		out.text("x-caused-by-unknown-system", "valueCanonical", canonical)
	}
	for _, system := range r.UnknownSystems {
		out.text("x-unknown-system", "valueCanonical", system)
	}
	out.optional("message", "valueString", r.Message)
	if len(r.Issues) > 0 {
		out.raw("issues", "resource", appendOutcome(nil, r.Issues))
	}
	return out.end()
}

// found writes what was found of a coding.
func (w *parametersWriter) found(f *FoundCoding) {
	w.optional("code", "valueCode", f.Code)
	w.optional("system", "valueUri", f.System)
	w.optional("version", "valueString", f.Version)
	w.optional("display", "valueString", f.Display)
	w.optional("normalized-code", "valueCode", f.NormalizedCode)
	if f.Inactive {
		w.boolean("inactive", true)
	}
	w.optional("status", "valueCode", f.Status)
}
