package scopelimit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Limits are the rows of a configuration. Nil limits nobody. They are safe for concurrent use.
type Limits struct {
	rows    []Row
	covered boundedcache.Cache[string, bool] // by who matches which rows, and the scope
}

// maxCovered is how many answers of [Limits.Covers] are kept.
const maxCovered = 10_000

// New returns the limits of rows, or an error if one is invalid. Without rows there are none.
func New(rows []Row) (*Limits, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	for _, r := range rows {
		if err := r.Check(); err != nil {
			return nil, err
		}
	}
	l := &Limits{rows: rows}
	l.covered.MaxEntries = maxCovered
	return l, nil
}

// Person is what rows look at.
type Person struct {
	Groups []string            // that they are in
	Claims map[string][]string // as their identity provider says
}

func (r *Row) matches(p Person) bool {
	switch r.By {
	case "group":
		return slices.Contains(p.Groups, r.Value)
	case "claim":
		return slices.Contains(p.Claims[r.Claim], r.Value)
	}
	return r.By == "any"
}

// Narrow returns what of a scope a person may have: what their rows cover, of a wildcard the part that they do, and
// what is not limited. It is nil if only words are left that say how others are used.
func (l *Limits) Narrow(p Person, scope []string) []string {
	if l == nil {
		return scope
	}
	var allowed []string
	for i := range l.rows {
		if l.rows[i].matches(p) {
			allowed = append(allowed, l.rows[i].Scopes...)
		}
	}
	for _, s := range scope {
		if isFree(s) {
			allowed = append(allowed, s)
		}
	}
	granted, err := smart.GrantInPart(scope, allowed, true)
	if err != nil || !slices.Equal(granted, scope) && !slices.ContainsFunc(granted, func(s string) bool { return !isHelper(s) }) {
		return nil
	}
	return granted
}

// Covers reports whether a person may have all of a scope now. It keeps the answer, which takes longer to compute than
// the rest of a request.
func (l *Limits) Covers(p Person, scope string) bool {
	if l == nil {
		return true
	}
	key := make([]byte, len(l.rows), len(l.rows)+len(scope))
	for i := range l.rows {
		if l.rows[i].matches(p) {
			key[i] = 1
		}
	}
	known := string(append(key, scope...))
	covers, ok := l.covered.Get(known)
	if !ok {
		words := strings.Fields(scope)
		covers = slices.Equal(l.Narrow(p, words), words)
		l.covered.Put(known, covers, 0)
	}
	return covers
}

// CheckClaims refuses rows for a claim of none of the names: they match nobody.
func (l *Limits) CheckClaims(names []string) error {
	if l == nil {
		return nil
	}
	for _, r := range l.rows {
		if r.By == "claim" && !slices.Contains(names, r.Claim) {
			return fmt.Errorf("scope_limit claim %s: no idp has a token_claim of that name", r.Claim)
		}
	}
	return nil
}
