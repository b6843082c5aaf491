package terminology

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Validation holds the parameters of $validate-code, for [Library.ValidateCode] and [Library.ValidateCodeInSystem].
type Validation struct {
	// ValueSetRef is the value set. For a code system, only its ID counts: it is the code system's.
	ValueSetRef
	Rules

	// Language says which languages displays should be in.
	Language Language

	// Codings are the codes to validate: one, or those of a CodeableConcept, of which one must be valid.
	Codings []Coding

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

// inValueSet answers ValueSet/$validate-code.
func inValueSet(l *Set, expansions *codeListCache, q Validation, b *budget) (*ValidationResult, error) {
	l, vs, err := valueSetFor(l, &q.ValueSetRef, &q.Rules, b)
	if err != nil {
		return nil, err
	}
	return validate(l, expansions, vs, &q, b)
}

// inCodeSystem answers CodeSystem/$validate-code.
func inCodeSystem(l *Set, q Validation, b *budget) (*ValidationResult, error) {
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
	return validate(l, nil, nil, &q, b)
}

// validate validates codings against a value set of the library, or against their code systems if it is nil.
func validate(l *Set, expansions *codeListCache, vs *valueSet, q *Validation, b *budget) (result *ValidationResult, err error) {
	l.use(func() {
		var v *validator
		if v, err = newValidator(l, vs, q, b); err == nil {
			v.expansions = expansions
			result, err = v.result()
		}
	})
	return result, err
}

// ValidationResult says whether a code is valid, and what else is known about it.
type ValidationResult struct {
	// Valid is the result.
	Valid bool

	// Found is what was found for the coding that the result is about, the first valid one of several; nil if nothing.
	Found *FoundCoding

	// Message sums up the issues for people; empty if there are none.
	Message string

	// Issues are what is wrong with the codings, or worth knowing about them.
	Issues []Issue

	// UnknownVersions are the canonicals of code system versions that the value set needs and that are not here,
	// UnknownSystems the urls of code systems that are not here at all.
	UnknownVersions, UnknownSystems []string

	// Missing are the definitions that could change the result.
	Missing []Missing

	concept jsontext.Value // the CodeableConcept that was validated, or nil
}

// FoundCoding is what was found for a coding.
type FoundCoding struct {
	// Coding is the coding, with the code system's version and display.
	Coding

	// NormalizedCode is the code as the code system has it, if that differs in case.
	NormalizedCode string

	// Inactive says that the code should no longer be used.
	Inactive bool

	// Status is the code system's word for why a code should no longer be used; empty if it may be used.
	Status string

	invalid bool // not in the value set: for a CodeableConcept, only the version is returned
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
		writeFound(out, r.Found)
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

func writeFound(w *parametersWriter, f *FoundCoding) {
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
