package search

import (
	"context"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// maxTypes is in how many types one sorted search of the system or of a compartment may look, all of which are asked for
// each page. Others go from type to type, as many as a page may ask for.
const maxTypes = 16

// NewSearch plans a search.
func (x *Searches) NewSearch(ctx context.Context, c message.Call, i interaction.Interaction) (*search, error) {
	s := &search{x: x, c: c, i: i}
	var err error
	if s.branches, err = x.planned(i); err != nil {
		return nil, err
	}
	s.ruled = x.Judge.MayDeny() || slices.ContainsFunc(s.branches, branch.isByRule)
	rules := searchRules{x: x, s: s, resourceType: i.Type, trust: x.trust(s)}
	if types, _ := typesOf(i.Parameters); i.Kind == interaction.SystemSearch && len(types) == 1 {
		rules.resourceType = types[0]
	}
	if err := rules.apply(ctx, i.Parameters); err != nil {
		return nil, err
	}
	s.judged = rules.trust != open || len(s.branches) > 1
	return s, nil
}

// trust is how much of a search is left to the FHIR server.
type trust uint8

const (
	// bound: some scope is about a part of what could be found.
	bound trust = iota
	// whole: the scopes are about all resources of the types, but not about all types.
	whole
	// open: the scopes are about all resources of all types.
	open
)

// trust is how much of a search is left to the FHIR server.
func (x *Searches) trust(s *search) trust {
	switch {
	case s.ruled:
		return bound
	case x.Judge.Rights().All()&smart.Search != 0:
		return open
	case len(s.branches) > 0 && !slices.ContainsFunc(s.branches, func(b branch) bool { return !b.isWhole() }):
		return whole
	}
	return bound
}

// planned are the branches of a search.
func (x *Searches) planned(i interaction.Interaction) ([]branch, error) {
	switch {
	case i.Kind == interaction.CompartmentSearch:
		return x.plannedInCompartment(i)
	case i.Kind == interaction.SystemSearch && x.Judge.Rights().All()&smart.Search != 0:
		return []branch{{grants: x.Judge.Rights().For(smart.AnyType, smart.Search)}}, nil
	case i.Kind == interaction.SystemSearch:
		return x.plannedForMany(i)
	}
	return x.plannedFor(i, []string{i.Type})
}

// plannedFor are the branches for types. A type without a scope is left out among others, and refused alone.
func (x *Searches) plannedFor(i interaction.Interaction, types []string) ([]branch, error) {
	var all []branch
	for _, t := range types {
		all = append(all, x.branches(t, i.Parameters)...)
	}
	if len(all) == 0 {
		return nil, message.Refused(x.Judge.Rights(), i)
	}
	return all, nil
}

// plannedForMany are the branches for the types that _type names, or else the scopes.
func (x *Searches) plannedForMany(i interaction.Interaction) ([]branch, error) {
	types, err := typesOf(i.Parameters)
	if err != nil {
		return nil, err
	}
	if len(types) == 0 {
		types = x.searchable()
	}
	isSorted := slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool { return p.Name == "_sort" })
	if isSorted && len(types) > maxTypes {
		return nil, message.TooCostly("A sorted search may look in %d types at most here: name them with _type.", maxTypes)
	}
	return x.plannedFor(i, types)
}

// searchable are the types that the scopes name, or else all.
func (x *Searches) searchable() []string {
	named, anyType := x.Judge.Rights().Types(smart.Search)
	if !anyType {
		return named
	}
	rest := slices.DeleteFunc(interaction.Types(), func(t string) bool {
		return slices.Contains(commonTypes, t) || t == "OperationOutcome" || t == "Parameters" // these are never stored
	})
	return slices.Concat(commonTypes, rest)
}

// isOverAll reports whether the client has named no types, so that the FHIR server need not have them all.
func (s *search) isOverAll() bool {
	types, _ := typesOf(s.i.Parameters)
	return (s.i.Type == "" || s.i.Type == smart.AnyType) && len(types) == 0
}

// commonTypes are those that come first in a search of all types: most records are of these.
var commonTypes = strings.Fields(`Patient Observation Condition Encounter AllergyIntolerance MedicationRequest Procedure Immunization
	DiagnosticReport DocumentReference CarePlan CareTeam Goal Coverage ExplanationOfBenefit Claim Appointment ServiceRequest`)

// typesOf are the types that _type names, each once.
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

// plannedInCompartment are the branches of a search in a compartment: the FHIR server's own search of it where there
// is one, else one search for each parameter by which resources are in it.
func (x *Searches) plannedInCompartment(i interaction.Interaction) ([]branch, error) {
	var all []branch
	var err error
	switch {
	case i.Type != smart.AnyType:
		all, err = x.plannedFor(i, []string{i.Type})
	case x.Judge.Rights().All()&smart.Search != 0 && x.InCompartments:
		return []branch{{resourceType: smart.AnyType, within: i.Compartment, grants: x.Judge.Rights().For(smart.AnyType, smart.Search)}}, nil
	default:
		all, err = x.plannedForMany(i)
	}
	var within []branch
	for _, b := range all {
		for _, narrowed := range x.narrowed(b, i.Compartment) {
			within = addBranch(within, narrowed)
		}
	}
	return within, err
}

// narrowed is a branch within a compartment.
func (x *Searches) narrowed(b branch, to interaction.Reference) []branch {
	m, ok := compartment.Members(to.Type, b.resourceType)
	switch {
	case to.Type == "Patient" && b.member == to.ID:
		return []branch{b}
	case to.Type == b.resourceType:
		return []branch{b.with(smart.Parameter{Name: "_id", Value: to.ID})}
	case !ok:
		return nil
	case x.InCompartments && b.patient == "":
		b.within = to
		return []branch{b}
	}
	var all []branch
	for _, name := range m.Params {
		all = append(all, b.with(smart.Parameter{Name: name, Value: to.String()}))
	}
	return all
}

// isFound reports whether a branch before has found a resource as well.
func (s *search) isFound(res resource.Resource, branch int) bool {
	for _, b := range s.branches[:branch] {
		if b.finds(s.x.Judge.Rights(), res) {
			return true
		}
	}
	return false
}
