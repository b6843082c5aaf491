package snomed

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/ecl"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// eclCacheBytes is the maximum size of cached results of expression constraints per version of an edition.
const eclCacheBytes = 16 << 20

// constraints evaluates expression constraints on a version of an edition. Its content and evaluator are created on first use.
type constraints struct {
	content   func() *eclContent
	evaluator func() *ecl.Evaluator
}

func newConstraints(s *snapshot) *constraints {
	content := sync.OnceValue(func() *eclContent { return newECLContent(s) })
	return &constraints{content: content, evaluator: sync.OnceValue(func() *ecl.Evaluator { return ecl.NewEvaluator(content(), eclCacheBytes) })}
}

// evaluate returns the concepts that match an expression constraint.
func (c *constraints) evaluate(text string, spend func(steps int) error) (bitset.Set, error) {
	set, err := evaluate(c.evaluator(), text, spend)
	return slices.Clone(set), err // the cached set is shared
}

// satisfies reports whether an expression satisfies an expression constraint.
func (c *constraints) satisfies(e *expression, constraint string, spend func(steps int) error) (bool, error) {
	x, err := newExpressionContent(c.content(), e, spend)
	if err != nil {
		return false, err
	}
	set, err := evaluate(ecl.NewEvaluator(x, 0), constraint, spend)
	return err == nil && set.Has(x.numbers[e]), err
}

func evaluate(e *ecl.Evaluator, text string, spend func(steps int) error) (bitset.Set, error) {
	q, err := ecl.Parse(text)
	if err != nil {
		return nil, newECLError(text, err)
	}
	set, err := e.Evaluate(q, spend)
	if errors.Is(err, ecl.ErrInvalid) {
		return nil, newECLError(text, err)
	}
	return set, err
}

// newECLError returns the error for an invalid expression constraint. HL7's test cases define the message ID.
func newECLError(text string, err error) error {
	e := outcome.New(http.StatusUnprocessableEntity, "invalid", "vs-invalid", "INVALID_ECL", fmt.Sprintf("Invalid ECL expression '%s': %v", text, err))
	e.Err = err
	return e
}
