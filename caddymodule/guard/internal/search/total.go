package search

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// maxCounted is how many branches of one type may overlap for their matches to be counted, which takes a request for
// every set of them.
const maxCounted = 4

var errNoTotal = errors.New("the answer tells no total")

// countAlone answers a search for the number of matches.
func (s *plan) countAlone(ctx context.Context, self string) (*message.Answer, error) {
	n, err := s.counted(ctx)
	if err != nil {
		return nil, err
	}
	out := &message.Bundle{Kind: "searchset", Total: n, Links: []message.Link{{Relation: "self", URL: self}}}
	return message.NewAnswer(http.StatusOK, out.Text()), nil
}

// isCountable reports whether the FHIR server finds just what may be seen. Of some types it finds more: the rest is
// dropped from answers, but it would be in a number.
func (s *plan) isCountable() bool {
	return !slices.ContainsFunc(s.branches, func(b branch) bool { return !b.whole && !s.x.Shared.IsCounted(b.resourceType) })
}

// counted is the number of matches, of which those that several branches find count once.
func (s *plan) counted(ctx context.Context) (int, error) {
	if s.nothing {
		return 0, nil
	}
	if s.ruled || s.judged && !s.isCountable() {
		return 0, message.Forbidden(message.ErrOracle, "The number of matches is not told under these scopes: some could be records of others.")
	}
	total := 0
	for rest := s.branches; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].resourceType == rest[0].resourceType {
			n++
		}
		of, err := s.union(ctx, rest[:n])
		if err != nil {
			return 0, err
		}
		total, rest = total+of, rest[n:]
	}
	return total, nil
}

// union counts what some branches of a type find, by inclusion and exclusion.
func (s *plan) union(ctx context.Context, branches []branch) (int, error) {
	if len(branches) > maxCounted {
		return 0, message.TooCostly("The number of matches is not told under these scopes: too many searches find them.")
	}
	total := 0
	for set := 1; set < 1<<len(branches); set++ {
		both, sign := branch{}, -1
		for i, b := range branches {
			if set&(1<<i) != 0 {
				sign = -sign
				if set&(1<<i-1) == 0 {
					both = b
				} else if !both.intersect(b) {
					return 0, message.TooCostly("The number of matches is not told under these scopes: they are about several patients.")
				}
			}
		}
		n, err := s.countOf(ctx, both)
		if err != nil {
			return 0, err
		}
		total += sign * n
	}
	return max(total, 0), nil
}

// countOf asks the FHIR server how much a branch finds.
func (s *plan) countOf(ctx context.Context, b branch) (int, error) {
	parameters := slices.Concat(s.parameters, b.confining, []smart.Parameter{{Name: "_summary", Value: "count"}})
	a, err := s.x.Server.Ask(ctx, searchCall(s.c.Method, b.path(), parameters, 0))
	if err != nil {
		return 0, err
	}
	got, err := s.x.At.BundleOf(a, false, s.said)
	switch {
	case err != nil:
		return 0, err
	case got.Total < 0:
		return 0, message.Withheld(errNoTotal)
	}
	return got.Total, nil
}
