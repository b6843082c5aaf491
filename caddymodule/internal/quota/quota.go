package quota

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// By is by whom a quota counts.
type By string

// The holders of quotas.
const (
	Client  By = "client"  // an app, by its client_id
	Person  By = "person"  // who is signed in, by the sub
	Network By = "network" // an IPv4 address, or the /64 of an IPv6 address
)

// What counts, beside operations by their names, such as $expand.
const (
	Request = "request" // a request to the FHIR API
	Token   = "token"   // a request to the token endpoint
)

// Quota says how much each holder may use in any window.
type Quota struct {
	Name   string         // in the answer's fields and in metrics
	By     By             // whom it counts
	Limit  int            // what one may use
	Window time.Duration  // in any time as long as this
	Costs  map[string]int // by what counts. Default: each [Request] costs 1.
}

// Bounds of a [Quota].
const (
	maxLimit  = 1_000_000_000
	minWindow = time.Second
	maxWindow = 31 * 24 * time.Hour
)

var (
	nameForm      = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	operationForm = regexp.MustCompile(`^\$[A-Za-z][A-Za-z0-9-]{0,63}$`)
)

// Check reports what is wrong with a quota.
func (q *Quota) Check() error {
	switch {
	case !nameForm.MatchString(q.Name):
		return fmt.Errorf("quota %q: a name has up to 32 lower-case letters, digits, - and _", q.Name)
	case !slices.Contains([]By{Client, Person, Network}, q.By):
		return fmt.Errorf("quota %s: %q is none of client, person and network", q.Name, q.By)
	case q.Limit < 1 || q.Limit > maxLimit:
		return fmt.Errorf("quota %s: the limit must be between 1 and %d", q.Name, maxLimit)
	case q.Window < minWindow || q.Window > maxWindow || q.Window%time.Second != 0:
		return fmt.Errorf("quota %s: the window must be whole seconds, from 1s to 31d", q.Name)
	}
	for what, cost := range q.Costs {
		if err := q.checkCost(what, cost); err != nil {
			return fmt.Errorf("quota %s: %w", q.Name, err)
		}
	}
	return nil
}

var errTokensOfPeople = errors.New("count token: a request for a token says which client it is from, and not yet for which person")

func (q *Quota) checkCost(what string, cost int) error {
	switch {
	case what != Request && what != Token && !operationForm.MatchString(what):
		return fmt.Errorf("count %q: use %s, %s, or an operation such as $expand", what, Request, Token)
	case what == Token && q.By == Person:
		return errTokensOfPeople
	case cost < 1 || cost > q.Limit:
		return fmt.Errorf("count %s: the cost must be between 1 and the limit", what)
	}
	return nil
}

// cost is what a request costs; 0 if it does not count.
func (q *Quota) cost(what string) int {
	switch cost, ok := q.Costs[what]; {
	case ok:
		return cost
	case what == Token:
		return 0
	case q.Costs == nil:
		return 1
	}
	return q.Costs[Request]
}

// Whose names a holder by what tells it from others.
func Whose(parts ...string) string { return strings.Join(parts, "\x00") }

// WhatOf is what a request to the FHIR API counts as, by its path.
func WhatOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); strings.HasPrefix(path[i+1:], "$") {
		return path[i+1:]
	}
	return Request
}
