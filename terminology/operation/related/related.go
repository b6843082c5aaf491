// Package related implements ValueSet/$related, also called $compare, which returns the relationship between the codes of two
// value sets (HL7 terminology ecosystem IG, ValueSet Comparison).
package related

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

func init() {
	for _, name := range []string{"related", "compare"} { // HL7's test cases call the first name, the IG defines the second
		api.Register(api.Operation{
			Type: "ValueSet", Name: name, HasInstanceLevel: true, Handle: handle,
			Definition: "http://hl7.org/fhir/tools/OperationDefinition/ValueSet-compare",
		})
	}
}

func handle(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.MissingDefinition, error) {
	p, err := c.Parameters(inputs)
	if err != nil {
		return nil, nil, err
	}
	q, diagnostics, err := readQuery(p)
	if err != nil {
		return nil, nil, err
	}
	result, err := api.Fetch(c, l, func(l *terminology.Library) (result *Result, missing []outcome.MissingDefinition, err error) {
		if l, err = c.WithRequestResources(l, p); err == nil {
			if result, err = Run(&c.Budget, l, q); err == nil {
				return result, result.Undefined, nil
			}
		}
		return nil, api.MissingDefinitions(err), err
	})
	if err != nil {
		return nil, nil, err
	}
	return result.appendJSON(nil, diagnostics), result.Undefined, nil
}

// Values of [Query.VersionPolicy] other than the default.
const versionsAlways, versionsNever = "always", "never"

// Query contains the parameters of $related. VersionPolicy determines whether a code is another code in another version of its
// code system. By default, it is if the code system requires a version, or has filters, which may select other codes then.
type Query struct {
	This, Other   expansion.ValueSetRef // value sets to compare
	VersionPolicy string                // always, never or as-needed; default: as-needed
	Expansion     expansion.Query       // parameters for the expansion of both value sets, without ValueSetRef and Page
}

// Result is the response of $related. The result is about the value set This.
type Result struct {
	Relation   string                      // same, subset, superset, overlapping, disjoint, empty (both value sets are empty) or indeterminate
	Message    string                      // the relation or, for indeterminate, the reason as a text
	IsExpanded bool                        // whether the definitions did not suffice, so that the value sets had to be expanded
	Common     []string                    // the first 10,001 codes in both value sets; empty if the definitions suffice without lists
	Only       [2][]string                 // the same for the codes that only This contains, and those that only Other contains
	Undefined  []outcome.MissingDefinition // missing definitions because of which the relation is indeterminate
}

// Run performs ValueSet/$related. It returns an error if a value set is unknown or unsupported, or the context is done. If the
// codes of the value sets cannot be compared, the relation is indeterminate.
func Run(ctx context.Context, l *terminology.Library, q Query) (*Result, error) {
	c, err := newComparison(ctx, l, &q)
	if err == nil {
		c.definitions.Use(func() { err = c.run() })
	}
	return &c.result, err
}

// readQuery reads the parameters of a request. diagnostics requests details of the comparison. At the instance level, the value
// set "this" is the instance.
func readQuery(p *api.Parameters) (q Query, diagnostics bool, err error) {
	q.Expansion, q.This.ID = p.Query, p.ID
	for i := range p.Parameters {
		switch in := &p.Parameters[i]; in.Name {
		case "thisUrl":
			q.This.URL = in.Value
		case "thisValueSet":
			q.This.ValueSet = in.Resource
		case "otherUrl":
			q.Other.URL = in.Value
		case "otherValueSet":
			q.Other.ValueSet = in.Resource
		case "version-policy":
			q.VersionPolicy = in.Value
		case "diagnostics":
			diagnostics = in.Value == "true"
		}
	}
	for i, ref := range []*expansion.ValueSetRef{&q.Other, &q.This} {
		if name := []string{"other", "this"}[i]; ref.ID+ref.URL == "" && ref.ValueSet == nil {
			err = outcome.BadRequest("required", "the parameter %sUrl (the canonical of a value set) or %sValueSet (a resource) is required", name, name)
		}
		if !strings.Contains(ref.URL, "|") {
			ref.Version = p.Version
		}
	}
	if !slices.Contains([]string{"", "as-needed", versionsAlways, versionsNever}, q.VersionPolicy) {
		err = outcome.BadRequest("invalid", "the parameter version-policy must be always, as-needed or never")
	}
	return q, diagnostics, err
}

// maxListedCodes is the maximum number of codes in a list of the response. Longer lists are omitted.
const maxListedCodes = 10_000

// appendJSON appends the Parameters resource of the response. If diagnostics is true, it contains lists of codes.
func (r *Result) appendJSON(dst []byte, diagnostics bool) []byte {
	out := parameters.NewWriter(dst)
	out.Text("result", "valueCode", r.Relation)
	out.Text("message", "valueString", r.Message)
	if !diagnostics {
		return out.End()
	}
	out.Boolean("performed-expansion", r.IsExpanded)
	for i, codes := range [][]string{r.Only[0], r.Only[1], r.Common} {
		if len(codes) <= maxListedCodes {
			out.Optional([]string{"missing-codes", "extra-codes", "common-codes"}[i], "valueString", strings.Join(codes, ","))
		}
	}
	return out.End()
}

// comparison compares the codes of two value sets.
type comparison struct {
	definitions *definitions.Set // contains all definitions of both value sets
	expansions  *compose.CodeListCache
	query       *Query
	budget      *budget.Budget
	valueSets   [2]*definitions.ValueSet
	contexts    [2]*definitions.Set // definitions that each value set refers to
	relation    relation
	result      Result
}

// relation reports which kinds of codes exist: common codes, and codes in only one of the value sets.
type relation struct {
	common bool
	only   [2]bool
}

// newComparison resolves the two value sets. A value set from the library does not see those in the request. Two value sets
// in the request see each other, so that swapping them does not matter.
func newComparison(ctx context.Context, l *terminology.Library, q *Query) (*comparison, error) {
	loaded := l.Definitions()
	c := &comparison{definitions: loaded, expansions: l.CodeLists(), query: q, budget: budget.FromContext(ctx, loaded.Bounds.VisitedCodes)}
	for i, ref := range []*expansion.ValueSetRef{&q.Other, &q.This, &q.Other} { // first for This, then to see This
		set := loaded
		if ref.ValueSet != nil {
			set = c.definitions
		}
		set, vs, err := c.expansions.ValueSetFor(set, ref, &q.Expansion.Rules, c.budget)
		if err == nil {
			err = vs.CheckUsable("value set")
		}
		if err != nil {
			return c, err
		}
		c.contexts[(i+1)%2], c.valueSets[(i+1)%2] = set, vs
		if ref.ValueSet != nil {
			c.definitions = set
		}
	}
	return c, nil
}

// run determines the result: from the definitions if possible, otherwise from the expansions.
func (c *comparison) run() error {
	for _, vs := range c.valueSets {
		if !vs.HasCompose {
			c.result = Result{Relation: "indeterminate", Message: fmt.Sprintf("The ValueSet %s has no compose", vs.DisplayName()), Undefined: outcome.MissingOf("ValueSet", vs.URL, vs.Version)}
			return nil
		}
	}
	decided, err := c.compareDefinitions()
	if budget.IsRequestSpecific(err) {
		return err
	}
	if !decided {
		return c.compareExpansions()
	}
	if c.relation == (relation{}) { // definitions that select no codes are the same if they are equal
		c.relation.common = len(c.valueSets[0].Include) > 0 && c.hasEqualDefinitions()
	}
	c.conclude()
	return nil
}

// conclusions are the result and the message about each relation. The texts are those of other servers.
var conclusions = map[relation][2]string{
	{}:             {"empty", "Both the value sets %s and %s are empty"},
	{common: true}: {"same", "The value sets %s and %s contain the same codes"},
	{common: true, only: [2]bool{true, false}}: {"superset", "The valueSet %s is a super-set of the valueSet %s"},
	{common: true, only: [2]bool{false, true}}: {"subset", "The valueSet %s is a sub-set of the valueSet %s"},
	{common: true, only: [2]bool{true, true}}:  {"overlapping", "Both value sets %s and %s contain the codes the other doesn't, but there is some overlap"},
}

// conclude sets the relation of the result and the message about it.
func (c *comparison) conclude() {
	conclusion := cmp.Or(conclusions[c.relation], [2]string{"disjoint", "No shared codes between the value sets %s and %s"})
	c.result.Relation, c.result.Message = conclusion[0], fmt.Sprintf(conclusion[1], c.valueSets[0].DisplayName(), c.valueSets[1].DisplayName())
}

// compareExpansions expands both value sets and compares their codes.
func (c *comparison) compareExpansions() error {
	c.relation, c.result = relation{}, Result{IsExpanded: true}
	var lists [2][]definitions.Entry
	var errs [2]error
	for i := range lists {
		lists[i], errs[i] = c.expand(i)
	}
	var common []definitions.Entry
	if errs == [2]error{} {
		common, lists, errs[0] = compose.Compare(c.definitions, lists, c.isVersioned, c.budget)
	}
	if errs != [2]error{} {
		return c.explainFailure(errs)
	}
	c.relation.common = len(common) > 0
	for i, only := range lists {
		c.relation.only[i], c.result.Only[i] = len(only) > 0, c.codes(only)
	}
	if c.relation.only != [2]bool{} {
		c.result.Common = c.codes(common)
	}
	c.conclude()
	return nil
}

// isVersioned reports whether codes in different versions of a code system are different: by default, if its current version
// says so.
func (c *comparison) isVersioned(cs *definitions.CodeSystem) bool {
	if policy := c.query.VersionPolicy; policy == versionsAlways || policy == versionsNever || cs == nil {
		return policy == versionsAlways
	}
	current := c.definitions.Systems.CodeSystem(cs.URL, "")
	return current != definitions.None && c.definitions.Systems.CodeSystems[current].VersionNeeded
}

// errUnclosed is the error for a value set that may contain codes that cannot be listed.
var errUnclosed = errors.New("expansion is unclosed")

// expand returns the codes of a value set.
func (c *comparison) expand(i int) ([]definitions.Entry, error) {
	q := c.query.Expansion
	if err := q.ApplyDefaults(c.valueSets[i].Defaults); err != nil {
		return nil, err
	}
	e := &compose.Expander{Definitions: c.contexts[i], Cache: c.expansions, Rules: &q.Rules, Budget: c.budget}
	x, err := e.Codes(c.valueSets[i])
	if err == nil && x.IsUnclosed(c.contexts[i]) {
		err = errUnclosed
	}
	if err != nil {
		return nil, err
	}
	return x.Entries, nil
}

// codes returns the codes of entries, or as many as it takes to omit the list.
func (c *comparison) codes(entries []definitions.Entry) (codes []string) {
	for _, e := range entries[:min(len(entries), maxListedCodes+1)] {
		codes = append(codes, string(c.definitions.Code(e)))
	}
	return codes
}

// explainFailure determines the result if an expansion failed. Value sets with equal definitions contain the same codes anyway.
func (c *comparison) explainFailure(errs [2]error) error {
	for _, err := range errs {
		if budget.IsRequestSpecific(err) {
			return err
		}
		c.result.Undefined = append(c.result.Undefined, api.MissingDefinitions(err)...)
	}
	if c.hasEqualDefinitions() {
		c.relation, c.result = relation{common: true}, Result{}
		c.conclude()
		return nil
	}
	c.result.Relation = "indeterminate"
	c.result.Message = fmt.Sprintf("Unable to compare %s and %s: %s", c.valueSets[0].DisplayName(), c.valueSets[1].DisplayName(), failureReason(errs[0], errs[1]))
	return nil
}

// failureReason returns why expansions cannot be compared. The texts are those of other servers.
func failureReason(this, other error) string {
	describe := func(name string, err error) string {
		if errors.Is(err, errUnclosed) {
			return name + " is unclosed."
		}
		return name + " failed: " + err.Error()
	}
	switch {
	case other == nil:
		return describe("This expansion", this)
	case this == nil:
		return describe("Other expansion", other)
	case errors.Is(this, errUnclosed) && errors.Is(other, errUnclosed):
		return "Both expansions are unclosed."
	}
	return "Both expansions failed with different errors: " + this.Error() + "; " + other.Error()
}
