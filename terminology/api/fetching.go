package api

import (
	"errors"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// fetchInstance returns the library with the resource that the path names by its id. Where definitions are fetched, ids are
// those of the source: only what it does not have is found by the ids of the library.
func (o *operation) fetchInstance(l *terminology.Library) (*terminology.Library, error) {
	kind, id := instance(o.URL.Path)
	if id == "" || o.handler.Fetched == nil {
		return l, nil
	}
	return o.handler.Fetched.Complete(o.Context(), []outcome.Missing{{Kind: kind, ID: id}})
}

// fetching tries an operation, and again after fetching what it lacked, as long as there is more to fetch.
func fetching[T any](o *operation, l *terminology.Library, try func(*terminology.Library) (T, []outcome.Missing, error)) (T, error) {
	l, err := o.fetchInstance(l)
	if err != nil {
		return *new(T), err
	}
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
