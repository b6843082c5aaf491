package api

import (
	"errors"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// fetchInstance returns the library with the resource that the path names by its id. Where definitions are fetched, ids are
// those of the source: only what it does not have is found by the ids of the library.
func (c *Call) fetchInstance(l *terminology.Library) (*terminology.Library, error) {
	kind, id := instance(c.URL.Path)
	if id == "" || c.handler.Fetched == nil {
		return l, nil
	}
	return c.handler.Fetched.Complete(c.Context(), []outcome.Missing{{Kind: kind, ID: id}})
}

// Fetch tries to answer from a library, and again after fetching the definitions that it lacked, as long as there are more to
// fetch. The function returns which definitions could change its result.
func Fetch[T any](c *Call, l *terminology.Library, try func(*terminology.Library) (T, []outcome.Missing, error)) (T, error) {
	l, err := c.fetchInstance(l)
	if err != nil {
		return *new(T), err
	}
	for round := 0; ; round++ {
		result, missed, err := try(l)
		if c.handler.Fetched == nil || len(missed) == 0 || round == terminology.MaxFetches {
			return result, err
		}
		c.Budget.Rest()
		more, failure := c.handler.Fetched.Complete(c.Context(), missed)
		if failure != nil {
			return *new(T), failure
		}
		if more == l {
			return result, err
		}
		l = more
	}
}

// MissingIn returns the definitions whose lack is the error.
func MissingIn(err error) []outcome.Missing {
	if failed, ok := errors.AsType[*outcome.Error](err); ok && failed.Provisional == nil {
		return failed.Missing
	}
	return nil
}
