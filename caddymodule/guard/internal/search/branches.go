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

// withParameter returns a copy of the branch with an additional parameter.
func (b branch) withParameter(p smart.Parameter) branch {
	b.confiningParameters = append(slices.Clip(b.confiningParameters), p)
	return b
}

// addBranch adds a branch unless another branch finds all its matches. It removes branches if the new branch finds their
// matches, and joins the new branch with a branch that differs only in the value of one parameter, because a comma means "or".
func addBranch(all []branch, b branch) []branch {
	if slices.ContainsFunc(all, func(other branch) bool { return other.subsumes(b) }) {
		return all
	}
	all = slices.DeleteFunc(all, b.subsumes)
	for i, other := range all {
		if joined, ok := other.join(b); ok {
			all[i] = joined
			return all
		}
	}
	return append(all, b)
}

// hasSameTarget reports whether two branches search the same type in the same requested compartment.
func (b branch) hasSameTarget(o branch) bool {
	return b.resourceType == o.resourceType && b.requestedCompartment == o.requestedCompartment
}

// subsumes reports whether the parameters of b guarantee that it finds all matches of o.
func (b branch) subsumes(o branch) bool {
	return b.hasSameTarget(o) && (b.pathPatient == "" || b.pathPatient == o.pathPatient) &&
		!slices.ContainsFunc(b.confiningParameters, func(p smart.Parameter) bool { return !slices.Contains(o.confiningParameters, p) })
}

// intersect restricts the branch to matches that another branch also finds. It returns false for different compartments,
// because a single search cannot restrict to both.
func (b *branch) intersect(o branch) bool {
	if b.pathPatient != "" && o.pathPatient != "" && b.pathPatient != o.pathPatient || b.requestedCompartment != o.requestedCompartment {
		return false
	}
	if o.pathPatient != "" {
		b.pathPatient = o.pathPatient
	}
	b.confiningParameters = slices.Clip(b.confiningParameters)
	for _, p := range o.confiningParameters {
		if !slices.Contains(b.confiningParameters, p) {
			b.confiningParameters = append(b.confiningParameters, p)
		}
	}
	return true
}

// join returns a branch that finds the matches of both b and o, or false if there is none.
func (b branch) join(o branch) (branch, bool) {
	if !b.hasSameTarget(o) || b.pathPatient != o.pathPatient || b.confinedToPatient != o.confinedToPatient || len(b.confiningParameters) != len(o.confiningParameters) {
		return b, false
	}
	differentParameter := -1
	for i := range b.confiningParameters {
		if b.confiningParameters[i] == o.confiningParameters[i] {
			continue
		}
		if b.confiningParameters[i].Name != o.confiningParameters[i].Name || differentParameter >= 0 || b.confiningParameters[i].Name == "_id" {
			return b, false
		}
		differentParameter = i
	}
	b.dependsOnPolicies = b.dependsOnPolicies || o.dependsOnPolicies
	if differentParameter >= 0 {
		b.confiningParameters = slices.Clone(b.confiningParameters)
		b.confiningParameters[differentParameter].Value += "," + o.confiningParameters[differentParameter].Value
	}
	return b, true
}

// finds reports whether the branch would find a resource that the rights cover, ignoring the client's parameters.
func (b branch) finds(rights *access.Rights, res resource.Resource) bool {
	if b.resourceType != res.Type || b.pathPatient != "" && !compartment.IsInPatient(res, b.pathPatient) {
		return false
	}
	return !slices.ContainsFunc(b.confiningParameters, func(p smart.Parameter) bool { return !rights.MatchesSearch(p, res) })
}

// branchTypes returns the types of branches, without duplicates.
func branchTypes(branches []branch) []string {
	var types []string
	for _, b := range branches {
		if !slices.Contains(types, b.resourceType) {
			types = append(types, b.resourceType)
		}
	}
	return types
}

// maxTypes is the maximum number of types in a sorted search of the system or of a compartment, because each page requires a
// request for each type. An unsorted search proceeds from type to type, within the limit on requests per page.
const maxTypes = 16

// planBranches returns the branches of a search. Types without a scope are omitted. If no type is left, the search is rejected.
func planBranches(x *Handler, i interaction.Interaction) ([]branch, error) {
	types, err := []string{i.Type}, error(nil)
	switch {
	case i.Type != "" && i.Type != smart.AnyType:
	case !x.Judge.Rights().IsUnrestricted(smart.AnyType, smart.Search):
		types, err = requestedTypes(x.Judge.Rights(), i)
	case i.Kind == interaction.SystemSearch:
		return []branch{{isFullyCovered: true}}, nil
	case x.SupportsCompartments:
		return []branch{{resourceType: smart.AnyType, requestedCompartment: i.Compartment, isFullyCovered: true}}, nil
	default:
		types, err = requestedTypes(x.Judge.Rights(), i)
	}
	if err != nil {
		return nil, err
	}
	var all []branch
	for _, t := range types {
		all = append(all, branchesForType(x, t, i.Parameters)...)
	}
	switch {
	case len(all) == 0:
		return nil, message.InsufficientScope(x.Judge.Rights(), i)
	case i.Kind == interaction.CompartmentSearch:
		return confineToCompartment(i.Compartment, all, x.SupportsCompartments), nil
	}
	return all, nil
}

// branchesForType returns the searches of a type that together find exactly the resources that the rights cover and the client
// requested.
func branchesForType(x *Handler, resourceType string, clientParameters []smart.Parameter) []branch {
	if x.Judge.Rights().IsUnrestricted(resourceType, smart.Search) {
		return []branch{{resourceType: resourceType, isFullyCovered: true}}
	}
	var all []branch
	for _, g := range x.Judge.Rights().GrantsFor(resourceType, smart.Search) {
		confinements := []access.Confinement{{}}
		if g.Patient != "" {
			confinements = x.TypeRules.Confine(access.Search{Type: resourceType, Patient: g.Patient, Parameters: clientParameters, InCompartment: x.SupportsCompartments})
		}
		for _, c := range confinements {
			b := branch{resourceType: resourceType, dependsOnPolicies: g.DependsOnPolicy, confiningParameters: append(slices.Clip(c.Parameters), g.Constraint...)}
			if c.IsPatientOnly {
				b.confinedToPatient = g.Patient
			}
			if c.InCompartment {
				b.pathPatient = g.Patient
			}
			all = addBranch(all, b)
		}
	}
	return all
}

// requestedTypes returns the types in _type or, if it is missing, the types in the scopes.
func requestedTypes(rights *access.Rights, i interaction.Interaction) ([]string, error) {
	types, err := parseTypes(i.Parameters)
	if err != nil {
		return nil, err
	}
	if len(types) == 0 {
		types = searchableTypes(rights)
	}
	isSorted := slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool { return p.Name == "_sort" })
	if isSorted && len(types) > maxTypes {
		return nil, message.TooCostly("A sorted search may cover at most %d types: specify them with _type.", maxTypes)
	}
	return types, nil
}

// searchableTypes returns the types in the scopes, or all types if a scope applies to all.
func searchableTypes(rights *access.Rights) []string {
	types, anyType := rights.Types(smart.Search)
	if !anyType {
		return types
	}
	rest := slices.DeleteFunc(interaction.Types(), func(t string) bool {
		return slices.Contains(commonTypes, t) || t == "OperationOutcome" || t == "Parameters" // these types are never stored
	})
	return slices.Concat(commonTypes, rest)
}

// commonTypes are searched first in a search of all types, because most stored resources have one of these types.
var commonTypes = strings.Fields(`Patient Observation Condition Encounter AllergyIntolerance MedicationRequest Procedure Immunization
	DiagnosticReport DocumentReference CarePlan CareTeam Goal Coverage ExplanationOfBenefit Claim Appointment ServiceRequest`)

// parseTypes returns the types in _type, without duplicates.
func parseTypes(parameters []smart.Parameter) ([]string, error) {
	var types []string
	for _, p := range parameters {
		if p.Name != "_type" {
			continue
		}
		for name := range strings.SplitSeq(p.Value, ",") {
			switch {
			case !interaction.IsType(name):
				return nil, message.InvalidRequest(message.ErrInvalidSearch, "_type contains a name that is not a resource type of FHIR R4.")
			case !slices.Contains(types, name):
				types = append(types, name)
			}
		}
	}
	return types, nil
}

// confineToCompartment restricts branches to a compartment: by a compartment search if the FHIR server supports it, otherwise
// by one search for each membership parameter.
func confineToCompartment(to interaction.Reference, all []branch, inCompartments bool) []branch {
	var within []branch
	for _, b := range all {
		for _, narrowed := range narrowBranch(b, to, inCompartments) {
			within = addBranch(within, narrowed)
		}
	}
	return within
}

// narrowBranch returns the branches that restrict b to a compartment.
func narrowBranch(b branch, to interaction.Reference, inCompartments bool) []branch {
	m, ok := compartment.LookUp(to.Type, b.resourceType)
	switch {
	case to.Type == "Patient" && b.confinedToPatient == to.ID:
		return []branch{b}
	case to.Type == b.resourceType:
		return []branch{b.withParameter(smart.Parameter{Name: "_id", Value: to.ID})}
	case !ok:
		return nil
	case inCompartments && b.pathPatient == "":
		b.requestedCompartment = to
		return []branch{b}
	}
	var all []branch
	for _, name := range m.Params {
		all = append(all, b.withParameter(smart.Parameter{Name: name, Value: to.String()}))
	}
	return all
}

const (
	// maxChainLinks is the maximum number of links in a chain.
	maxChainLinks = 4
	// maxChainTargets is the maximum number of target types for a link of a chain that specifies no type.
	maxChainTargets = 4
	// maxChainedResources is the maximum number of resources that may be found for a link of a chain.
	maxChainedResources = 100
)

// parseChain parses a chained parameter such as subject:Patient.name, subject.name or _has:Observation:subject:code.
func parseChain(supported searchparam.Set, resourceType string, p smart.Parameter) (chain, error) {
	if strings.Count(p.Name, ".")+strings.Count(p.Name, "_has:") > maxChainLinks {
		return chain{}, message.TooCostly("With these scopes, a chained search may have at most %d links.", maxChainLinks)
	}
	if rest, ok := strings.CutPrefix(p.Name, "_has:"); ok {
		return parseHas(supported, resourceType, rest, p.Value)
	}
	first, rest, _ := strings.Cut(p.Name, ".")
	name, target, hasTarget := strings.Cut(first, ":")
	c := chain{condition: smart.Parameter{Name: rest, Value: p.Value}}
	var ok bool
	c.parameter, ok = supported.Lookup(resourceType, name)
	if !ok || c.parameter.Kind != searchparam.Reference || rest == "" || hasTarget && !interaction.IsType(target) {
		return c, message.InvalidRequest(message.ErrInvalidSearch, "The chained search parameter is not supported for this type.")
	}
	if hasTarget {
		c.types = []string{target}
		return c, nil
	}
	c.types = slices.DeleteFunc(targetTypes(c.parameter), func(t string) bool { return !supportsChain(supported, t, rest) })
	if len(c.types) == 0 || len(c.types) > maxChainTargets {
		return c, message.TooCostly("With these scopes, a chain must specify the target type, as in %s:Type.%s.", name, rest)
	}
	return c, nil
}

func parseHas(supported searchparam.Set, resourceType, parts, value string) (chain, error) {
	of, parts, _ := strings.Cut(parts, ":")
	by, rest, _ := strings.Cut(parts, ":")
	c := chain{types: []string{of}, condition: smart.Parameter{Name: rest, Value: value}, isReverse: true}
	var ok bool
	c.parameter, ok = supported.Lookup(of, by)
	if !ok || c.parameter.Kind != searchparam.Reference || !interaction.IsType(of) || !interaction.IsType(resourceType) || rest == "" {
		return c, message.InvalidRequest(message.ErrInvalidSearch, "The parameter _has requires a type, a reference and a parameter, as in _has:Observation:subject:code.")
	}
	return c, nil
}

// targetTypes returns the types that a reference can refer to.
func targetTypes(p searchparam.Parameter) []string {
	var pathTargets []string
	for _, path := range p.Paths {
		if path.Target == "" {
			return slices.Clone(p.Targets)
		}
		pathTargets = append(pathTargets, path.Target)
	}
	return pathTargets
}

// supportsChain reports whether resources of a type support the rest of a chain.
func supportsChain(supported searchparam.Set, resourceType, rest string) bool {
	if strings.HasPrefix(rest, "_has:") {
		return true
	}
	first, _, _ := strings.Cut(rest, ".")
	name, _, _ := strings.Cut(first, ":")
	_, ok := supported.Lookup(resourceType, name)
	return ok || rest == "_type"
}

// referencesFor returns a reference to res, which a chain has found. For _has, it returns the ids of the resources of
// resourceType to which res refers.
func (c chain) referencesFor(resourceType string, res resource.Resource) []string {
	if !c.isReverse {
		return []string{res.Type + "/" + res.ID}
	}
	var ids []string
	for _, path := range c.parameter.Paths {
		for element := range res.Values(path) {
			if to, _, ok := res.ReferenceTarget(element); ok && to.Type == resourceType && to.Base == "" {
				ids = append(ids, to.ID)
			}
		}
	}
	return ids
}

// resolveChain returns the effects of a chain: the chain itself if the client may search everything that it involves, otherwise
// a search for the ids that the gateway's own searches find.
func (r searchRules) resolveChain(ctx context.Context, p smart.Parameter) (parameterEffects, error) {
	c, err := parseChain(r.handler.Parameters, r.resourceType, p)
	if err != nil {
		return parameterEffects{}, err
	}
	if r.mayForwardChain(c) {
		return parameterEffects{forwarded: []smart.Parameter{p}}, nil
	}
	ids, err := r.lookUpChain(ctx, c)
	switch {
	case err != nil:
		return parameterEffects{}, err
	case len(ids) == 0:
		return parameterEffects{hasResolvedChain: true, matchesNothing: true}, nil
	}
	by := smart.Parameter{Name: "_id", Value: strings.Join(ids, ",")}
	if !c.isReverse {
		by.Name = c.parameter.Name
	}
	return parameterEffects{hasResolvedChain: true, forwarded: []smart.Parameter{by}}, nil
}

// mayForwardChain reports whether the client may search all resources of all types that a chain involves, and its condition
// depends on nothing else. It returns false for references defined by a site: the FHIR server may define them differently.
func (r searchRules) mayForwardChain(c chain) bool {
	return !c.parameter.IsSiteDefined && !slices.ContainsFunc(c.types, func(t string) bool {
		if !r.handler.Judge.Rights().IsUnrestricted(t, smart.Search) {
			return true
		}
		if strings.HasPrefix(c.condition.Name, "_has:") || strings.Contains(c.condition.Name, ".") {
			next, err := parseChain(r.handler.Parameters, t, c.condition)
			return err != nil || !r.mayForwardChain(next)
		}
		name, modifier, _ := strings.Cut(c.condition.Name, ":")
		return leakyParameters[name] != "" || checkPlainParameter(r.handler.Parameters, t, name, modifier, c.condition.Value) != nil
	})
}

// grantedTypes returns the types that have a scope. If none has, it returns all types, so that the search is rejected.
func (r searchRules) grantedTypes(types []string) []string {
	granted := slices.DeleteFunc(slices.Clone(types), func(t string) bool { return len(r.handler.Judge.Rights().GrantsFor(t, smart.Search)) == 0 })
	if len(granted) == 0 {
		return types
	}
	return granted
}

// lookUpChain returns the ids of the resources at the end of a chain or, for _has, of the resources that those refer to.
func (r searchRules) lookUpChain(ctx context.Context, c chain) ([]string, error) {
	var ids []string
	for _, t := range r.grantedTypes(c.types) {
		if !supportsChain(r.handler.Parameters, t, c.condition.Name) {
			return nil, message.InvalidRequest(message.ErrInvalidSearch, "The chained search parameter is not supported for %s.", t)
		}
		if c.condition.Name == "_type" && !slices.Contains(strings.Split(c.condition.Value, ","), t) {
			continue
		}
		err := r.handler.eachMatch(ctx, t, c.condition, func(e *message.Entry) error {
			for _, id := range c.referencesFor(r.resourceType, e.ParsedResource) {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
			if len(ids) > maxChainedResources {
				return message.TooCostly("With these scopes, the chained search matches too many intermediate resources (more than %d).", maxChainedResources)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}
