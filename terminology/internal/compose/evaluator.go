package compose

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Evaluator evaluates ValueSet.compose (R4 §4.9.5). It lists the codes of a value set, or, with a probe, tests where the
// value set has one code.
type Evaluator struct {
	library *definitions.Set
	rules   *Rules
	budget  *budget.Budget
	Probe   *Probe                  // nil: all codes are listed
	Path    []*definitions.ValueSet // being evaluated: each imports the next
	done    map[*definitions.ValueSet]*CodeList
	used    *CodeList            // of the last value set in path
	among   *[]definitions.Entry // while excludes are evaluated: what they are excluded from
	filters filters
}

// NewEvaluator returns an evaluator.
func NewEvaluator(l *definitions.Set, r *Rules, b *budget.Budget) *Evaluator {
	c := &Evaluator{library: l, rules: r, budget: b, done: make(map[*definitions.ValueSet]*CodeList)}
	c.filters = filters{spend: c.spend, regexStates: l.Bounds.RegexStates}
	return c
}

// spend pays for codes that are gathered or looked at: a value set of a request may repeat a costly include a hundred
// thousand times.
func (c *Evaluator) spend(n int) error {
	err := c.budget.Spend(n)
	if err == nil || !errors.Is(err, budget.ErrSpent) {
		return err
	}
	return &outcome.Error{
		Status: http.StatusUnprocessableEntity, Code: "too-costly", MessageID: "VALUESET_TOO_COSTLY", Err: budget.ErrSpent,
		Text: fmt.Sprintf("value set %s gathers or looks at more than %d codes before it is whole", c.Path[0].Canonical(), c.library.Bounds.Gathered),
	}
}

// Probe is the one code that an evaluator looks for. An include then has one entry, or none: value sets are not
// expanded.
type Probe struct {
	Code     []byte                                                     // the code
	Choose   func(set *definitions.ConceptSet) (index uint32, use bool) // the version of the code system that an include means
	Chosen   int                                                        // how many versions choose has returned
	Imported []*definitions.ValueSet                                    // the value sets searched
	Mismatch []string                                                   // why filters do not hold, where code systems can say
}

// isSettled reports whether an evaluator knows enough: what it looks for is not among the entries, and can no longer be.
// What else there is, such as a value set that is missing, matters only where it is needed.
func (c *Evaluator) isSettled(entries []definitions.Entry) bool {
	return c.Probe != nil && len(entries) == 0
}

// Locate finds the concept of an entry, by the code that is looked for if there is no number for it.
func (c *Evaluator) Locate(e definitions.Entry) definitions.LocatedEntry {
	at := definitions.LocatedEntry{Entry: e}
	if e.Concept == definitions.Parsed && c.Probe != nil {
		at.At, _ = c.library.Systems.CodeSystems[e.CodeSystem].Concepts.Locate(c.Probe.Code)
		return at
	}
	return c.library.Locate(e)
}

// enter adds a value set to the path, unless it is there already or the path is too long.
func (c *Evaluator) enter(vs *definitions.ValueSet) error {
	if i := slices.Index(c.Path, vs); i >= 0 {
		return circular(slices.Concat(c.Path[i:], []*definitions.ValueSet{vs}))
	}
	if len(c.Path) > c.library.Bounds.ImportDepth {
		return outcome.Unprocessable("too-costly", "value set %s imports value sets more than %d deep", c.Path[0].Canonical(), c.library.Bounds.ImportDepth)
	}
	if !vs.Composed {
		e := outcome.Incomplete("not-found", "value set %s has no compose, so its content is not here", vs.DisplayName())
		if vs.Partial != "" {
			e.Text = fmt.Sprintf("value set %s has no compose, and its stored expansion is not complete: %s", vs.DisplayName(), vs.Partial)
		}
		e.Missing = outcome.MissingOf("ValueSet", vs.URL, vs.Version)
		return e
	}
	if err := vs.Usable("value set"); err != nil {
		return err
	}
	c.Path = append(c.Path, vs)
	return c.spend(len(vs.Include) + len(vs.Exclude))
}

func circular(path []*definitions.ValueSet) error {
	names := make([]string, len(path))
	for i, vs := range path {
		names[i] = vs.Canonical()
	}
	return outcome.New(http.StatusUnprocessableEntity, "processing", "vs-invalid", "VALUESET_CIRCULAR_REFERENCE",
		"value sets import each other: "+strings.Join(names, " -> "))
}
