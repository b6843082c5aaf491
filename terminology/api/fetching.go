package api

import (
	"errors"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// fetching tries an operation, and again after fetching what it lacked, as long as there is more to fetch.
func fetching[T any](o *operation, l *terminology.Library, try func(*terminology.Library) (T, []outcome.Missing, error)) (T, error) {
	for round := 0; ; round++ {
		result, missed, err := try(l)
		if o.handler.Fetched == nil || len(missed) == 0 || round == terminology.MaxFetches {
			return result, err
		}
		o.budget.Rest()
		more, failure := o.handler.Fetched.Complete(o.Context(), missed)
		if failure != nil {
			return *new(T), failure
		}
		if more == l {
			return result, err
		}
		l = more
	}
}

// missingIn returns the definitions whose lack is the error.
func missingIn(err error) []outcome.Missing {
	if failed, ok := errors.AsType[*outcome.Error](err); ok && failed.Provisional == nil {
		return failed.Missing
	}
	return nil
}
