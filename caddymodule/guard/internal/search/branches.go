package search

import (
	"context"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// with returns the branch with an additional parameter.
func (b branch) with(p smart.Parameter) branch {
	b.confining = append(slices.Clip(b.confining), p)
	return b
}

// addBranch adds a branch unless another branch finds all its matches. The branch replaces branches if it finds all of
// their matches, and is joined with a branch that differs only in the value of a single parameter, since a comma means or.
func addBranch(all []branch, b branch) []branch {
	if slices.ContainsFunc(all, func(other branch) bool { return other.findsAllOf(b) }) {
		return all
	}
	all = slices.DeleteFunc(all, b.findsAllOf)
	for i, other := range all {
		if joined, ok := other.join(b); ok {
			all[i] = joined
			return all
		}
	}
	return append(all, b)
}

// isBeside reports whether two branches have the same type and the same requested compartment.
func (b branch) isBeside(o branch) bool {
	return b.resourceType == o.resourceType && b.within == o.within
}

// findsAllOf reports whether the branch certainly finds all matches of another branch, judging by their parameters.
func (b branch) findsAllOf(o branch) bool {
	return b.isBeside(o) && (b.patient == "" || b.patient == o.patient) &&
		!slices.ContainsFunc(b.confining, func(p smart.Parameter) bool { return !slices.Contains(o.confining, p) })
}

// intersect restricts the branch to matches that another branch also finds. It returns false for two different compartments,
// which no single search can intersect.
func (b *branch) intersect(o branch) bool {
	if b.patient != "" && o.patient != "" && b.patient != o.patient || b.within != o.within {
		return false
	}
	if o.patient != "" {
		b.patient = o.patient
	}
	b.confining = slices.Clip(b.confining)
	for _, p := range o.confining {
		if !slices.Contains(b.confining, p) {
			b.confining = append(b.confining, p)
		}
	}
	return true
}

// join returns the branch that finds the matches of either branch.
func (b branch) join(o branch) (branch, bool) {
	if !b.isBeside(o) || b.patient != o.patient || b.member != o.member || len(b.confining) != len(o.confining) {
		return b, false
	}
	differing := -1
	for i := range b.confining {
		if b.confining[i] == o.confining[i] {
			continue
		}
		if b.confining[i].Name != o.confining[i].Name || differing >= 0 || b.confining[i].Name == "_id" {
			return b, false
		}
		differing = i
	}
	b.byRule = b.byRule || o.byRule
	if differing >= 0 {
		b.confining = slices.Clone(b.confining)
		b.confining[differing].Value += "," + o.confining[differing].Value
	}
	return b, true
}

// finds reports whether the branch would find a resource that the rights cover, regardless of the client's parameters.
func (b branch) finds(rights *access.Rights, res resource.Resource) bool {
	if b.resourceType != res.Type || b.patient != "" && !compartment.InPatient(res, b.patient) {
		return false
	}
	return !slices.ContainsFunc(b.confining, func(p smart.Parameter) bool { return !rights.MatchesSearch(p, res) })
}

// typesIn returns the types of branches, without duplicates.
func typesIn(branches []branch) []string {
	var types []string
	for _, b := range branches {
		if !slices.Contains(types, b.resourceType) {
			types = append(types, b.resourceType)
		}
	}
	return types
}

// maxTypes is the maximum number of types in a sorted search of the system or of a compartment, which requests all of them
// for each page. An unsorted search proceeds from type to type, within the limit on requests per page.
const maxTypes = 16

// branchesOf returns the branches of a search. A type without a scope is omitted if others remain, and otherwise rejected.
func branchesOf(x *Searches, i interaction.Interaction) ([]branch, error) {
	types, err := []string{i.Type}, error(nil)
	switch {
	case i.Type != "" && i.Type != smart.AnyType:
	case !x.Judge.Rights().IsUnrestricted(smart.AnyType, smart.Search):
		types, err = typesFor(x.Judge.Rights(), i)
	case i.Kind == interaction.SystemSearch:
		return []branch{{whole: true}}, nil
	case x.InCompartments:
		return []branch{{resourceType: smart.AnyType, within: i.Compartment, whole: true}}, nil
	default:
		types, err = typesFor(x.Judge.Rights(), i)
	}
	if err != nil {
		return nil, err
	}
	var all []branch
	for _, t := range types {
		all = append(all, branchesFor(x, t, i.Parameters)...)
	}
	switch {
	case len(all) == 0:
		return nil, message.InsufficientScope(x.Judge.Rights(), i)
	case i.Kind == interaction.CompartmentSearch:
		return within(i.Compartment, all, x.InCompartments), nil
	}
	return all, nil
}

// branchesFor returns the searches of a type that together find exactly the resources that the rights cover and the client
// requested.
func branchesFor(x *Searches, resourceType string, asked []smart.Parameter) []branch {
	if x.Judge.Rights().IsUnrestricted(resourceType, smart.Search) {
		return []branch{{resourceType: resourceType, whole: true}}
	}
	var all []branch
	for _, g := range x.Judge.Rights().For(resourceType, smart.Search) {
		confinements := []access.Confinement{{}}
		if g.Patient != "" {
			confinements = x.Shared.Confine(access.Search{Type: resourceType, Patient: g.Patient, Parameters: asked, InCompartment: x.InCompartments})
		}
		for _, c := range confinements {
			b := branch{resourceType: resourceType, byRule: g.ByRule, confining: append(slices.Clip(c.Parameters), g.Constraint...)}
			if c.IsOwn {
				b.member = g.Patient
			}
			if c.InCompartment {
				b.patient = g.Patient
			}
			all = addBranch(all, b)
		}
	}
	return all
}

// typesFor returns the types in _type or, without it, in the scopes.
func typesFor(rights *access.Rights, i interaction.Interaction) ([]string, error) {
	types, err := typesOf(i.Parameters)
	if err != nil {
		return nil, err
	}
	if len(types) == 0 {
		types = searchable(rights)
	}
	isSorted := slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool { return p.Name == "_sort" })
	if isSorted && len(types) > maxTypes {
		return nil, message.TooCostly("A sorted search may look in %d types at most here: name them with _type.", maxTypes)
	}
	return types, nil
}

// searchable returns the types in the scopes, or all types if a scope is for all.
func searchable(rights *access.Rights) []string {
	named, anyType := rights.Types(smart.Search)
	if !anyType {
		return named
	}
	rest := slices.DeleteFunc(interaction.Types(), func(t string) bool {
		return slices.Contains(commonTypes, t) || t == "OperationOutcome" || t == "Parameters" // never stored
	})
	return slices.Concat(commonTypes, rest)
}

// commonTypes are searched first in a search of all types: most stored resources have one of these types.
var commonTypes = strings.Fields(`Patient Observation Condition Encounter AllergyIntolerance MedicationRequest Procedure Immunization
	DiagnosticReport DocumentReference CarePlan CareTeam Goal Coverage ExplanationOfBenefit Claim Appointment ServiceRequest`)

// typesOf returns the types in _type, without duplicates.
func typesOf(parameters []smart.Parameter) ([]string, error) {
	var types []string
	for _, p := range parameters {
		if p.Name != "_type" {
			continue
		}
		for name := range strings.SplitSeq(p.Value, ",") {
			switch {
			case !interaction.IsType(name):
				return nil, message.Invalid(message.ErrSearch, "_type names no resource type of FHIR R4.")
			case !slices.Contains(types, name):
				types = append(types, name)
			}
		}
	}
	return types, nil
}

// within confines branches to a compartment: by the FHIR server's compartment search if supported, and otherwise by one
// search for each membership parameter.
func within(to interaction.Reference, all []branch, inCompartments bool) []branch {
	var within []branch
	for _, b := range all {
		for _, narrowed := range narrowed(b, to, inCompartments) {
			within = addBranch(within, narrowed)
		}
	}
	return within
}

// narrowed returns the branches that confine a branch to a compartment.
func narrowed(b branch, to interaction.Reference, inCompartments bool) []branch {
	m, ok := compartment.Members(to.Type, b.resourceType)
	switch {
	case to.Type == "Patient" && b.member == to.ID:
		return []branch{b}
	case to.Type == b.resourceType:
		return []branch{b.with(smart.Parameter{Name: "_id", Value: to.ID})}
	case !ok:
		return nil
	case inCompartments && b.patient == "":
		b.within = to
		return []branch{b}
	}
	var all []branch
	for _, name := range m.Params {
		all = append(all, b.with(smart.Parameter{Name: name, Value: to.String()}))
	}
	return all
}

const (
	// maxLinks is the maximum number of links in a chain.
	maxLinks = 4
	// maxTargets is the maximum number of target types for a link of a chain that names no type.
	maxTargets = 4
	// maxChained is the maximum number of resources found for a link of a chain.
	maxChained = 100
)

// readChain parses a chained parameter, such as subject:Patient.name, subject.name or _has:Observation:subject:code.
func readChain(known searchparam.Set, resourceType string, p smart.Parameter) (chain, error) {
	if strings.Count(p.Name, ".")+strings.Count(p.Name, "_has:") > maxLinks {
		return chain{}, message.TooCostly("A chained search may have %d links at most under these scopes.", maxLinks)
	}
	if rest, ok := strings.CutPrefix(p.Name, "_has:"); ok {
		return readHas(known, resourceType, rest, p.Value)
	}
	first, rest, _ := strings.Cut(p.Name, ".")
	name, target, typed := strings.Cut(first, ":")
	c := chain{rest: smart.Parameter{Name: rest, Value: p.Value}}
	var ok bool
	c.by, ok = known.Lookup(resourceType, name)
	if !ok || c.by.Kind != searchparam.Reference || rest == "" || typed && !interaction.IsType(target) {
		return c, message.Invalid(message.ErrSearch, "The chained search parameter is none of FHIR R4's for the type.")
	}
	if typed {
		c.types = []string{target}
		return c, nil
	}
	c.types = slices.DeleteFunc(targets(c.by), func(t string) bool { return !isAsked(known, t, rest) })
	if len(c.types) == 0 || len(c.types) > maxTargets {
		return c, message.TooCostly("Name the type that the chain goes to under these scopes, as in %s:Type.%s.", name, rest)
	}
	return c, nil
}

func readHas(known searchparam.Set, resourceType, parts, value string) (chain, error) {
	of, parts, _ := strings.Cut(parts, ":")
	by, rest, _ := strings.Cut(parts, ":")
	c := chain{types: []string{of}, rest: smart.Parameter{Name: rest, Value: value}, reverse: true}
	var ok bool
	c.by, ok = known.Lookup(of, by)
	if !ok || c.by.Kind != searchparam.Reference || !interaction.IsType(of) || !interaction.IsType(resourceType) || rest == "" {
		return c, message.Invalid(message.ErrSearch, "The parameter _has names a type, a reference and a parameter, as in _has:Observation:subject:code.")
	}
	return c, nil
}

// targets returns the types that a reference can point to.
func targets(p searchparam.Parameter) []string {
	var only []string
	for _, path := range p.Paths {
		if path.Target == "" {
			return slices.Clone(p.Targets)
		}
		only = append(only, path.Target)
	}
	return only
}

// isAsked reports whether resources of a type support the rest of a chain.
func isAsked(known searchparam.Set, resourceType, rest string) bool {
	if strings.HasPrefix(rest, "_has:") {
		return true
	}
	first, _, _ := strings.Cut(rest, ".")
	name, _, _ := strings.Cut(first, ":")
	_, ok := known.Lookup(resourceType, name)
	return ok || rest == "_type"
}

// named returns the reference to a resource that a chain has found or, for _has, the ids of the resources of a type that it
// refers to.
func (c chain) named(resourceType string, res resource.Resource) []string {
	if !c.reverse {
		return []string{res.Type + "/" + res.ID}
	}
	var ids []string
	for _, path := range c.by.Paths {
		for element := range res.Values(path) {
			if to, _, ok := res.Refers(element); ok && to.Type == resourceType && to.Base == "" {
				ids = append(ids, to.ID)
			}
		}
	}
	return ids
}

// chained returns the effects of a chain: the chain itself if the client may search everything that it involves, and
// otherwise a search for the ids that the gateway's own searches find.
func (r searchRules) chained(ctx context.Context, p smart.Parameter) (effects, error) {
	c, err := readChain(r.x.Parameters, r.resourceType, p)
	if err != nil {
		return effects{}, err
	}
	if r.isOwn(c) {
		return effects{passed: []smart.Parameter{p}}, nil
	}
	ids, err := r.lookedUp(ctx, c)
	switch {
	case err != nil:
		return effects{}, err
	case len(ids) == 0:
		return effects{chained: true, nothing: true}, nil
	}
	by := smart.Parameter{Name: "_id", Value: strings.Join(ids, ",")}
	if !c.reverse {
		by.Name = c.by.Name
	}
	return effects{chained: true, passed: []smart.Parameter{by}}, nil
}

// isOwn reports whether the client may search all resources of all types that a chain involves. A reference defined by a
// site does not qualify, because the FHIR server may define it differently.
func (r searchRules) isOwn(c chain) bool {
	return !c.by.IsSiteDefined && !slices.ContainsFunc(c.types, func(t string) bool {
		if !r.x.Judge.Rights().IsUnrestricted(t, smart.Search) {
			return true
		}
		if strings.HasPrefix(c.rest.Name, "_has:") || strings.Contains(c.rest.Name, ".") {
			next, err := readChain(r.x.Parameters, t, c.rest)
			return err != nil || !r.isOwn(next)
		}
		name, modifier, _ := strings.Cut(c.rest.Name, ":")
		return telling[name] != "" || checkPlain(r.x.Parameters, t, name, modifier, c.rest.Value) != nil
	})
}

// granted returns the types with a scope. If none has one, it returns all types, so that the search is rejected.
func (r searchRules) granted(types []string) []string {
	some := slices.DeleteFunc(slices.Clone(types), func(t string) bool { return len(r.x.Judge.Rights().For(t, smart.Search)) == 0 })
	if len(some) == 0 {
		return types
	}
	return some
}

// lookedUp returns the ids of the resources at the end of a chain or, for _has, of those that the linked resources refer to.
func (r searchRules) lookedUp(ctx context.Context, c chain) ([]string, error) {
	var ids []string
	for _, t := range r.granted(c.types) {
		if !isAsked(r.x.Parameters, t, c.rest.Name) {
			return nil, message.Invalid(message.ErrSearch, "The chained search parameter is none of FHIR R4's for %s.", t)
		}
		if c.rest.Name == "_type" && !slices.Contains(strings.Split(c.rest.Value, ","), t) {
			continue
		}
		err := r.x.each(ctx, t, c.rest, func(e *message.Entry) error {
			for _, id := range c.named(r.resourceType, e.Parsed) {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
			if len(ids) > maxChained {
				return message.TooCostly("The chained search finds more than %d resources of the type in between under these scopes.", maxChained)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}
