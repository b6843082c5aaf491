package search

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// branch is a search that the FHIR server confines to what some grants cover. A search that no single one can confine
// becomes several, whose results are joined.
type branch struct {
	resourceType string
	patient      string                // the compartment to which the path confines; empty for none
	member       string                // the patient to whose compartment path or parameters confine; empty for none
	within       interaction.Reference // the compartment that the client asked for, if the path is to say so
	confining    []smart.Parameter     // come on top of the client's
	grants       []access.Grant        // that cover what is found
}

// isWhole reports whether all that the branch could find is covered.
func (b branch) isWhole() bool { return slices.ContainsFunc(b.grants, access.Grant.Whole) }

// isByRule reports whether the site's rules must say of what the branch finds whether it may be seen.
func (b branch) isByRule() bool {
	return slices.ContainsFunc(b.grants, func(g access.Grant) bool { return g.ByRule })
}

// path is where the branch searches.
func (b branch) path() string {
	switch {
	case b.patient != "":
		return "Patient/" + b.patient + "/" + b.resourceType
	case b.within != (interaction.Reference{}):
		return b.within.String() + "/" + b.resourceType
	}
	return b.resourceType
}

// branches are the searches for a type that together find what the rights cover of what the client asks for, and nothing
// else.
func (x *Searches) branches(resourceType string, asked []smart.Parameter) []branch {
	if x.Judge.Rights().Whole(resourceType, smart.Search) {
		grants := slices.DeleteFunc(x.Judge.Rights().For(resourceType, smart.Search), func(g access.Grant) bool { return !g.Whole() })
		return []branch{{resourceType: resourceType, grants: grants}}
	}
	var all []branch
	for _, g := range x.Judge.Rights().For(resourceType, smart.Search) {
		for _, b := range x.confined(resourceType, g, asked) {
			b.confining = append(b.confining, g.Constraint...)
			all = addBranch(all, b)
		}
	}
	return all
}

// confined are the searches that confine a type to a grant's context.
func (x *Searches) confined(resourceType string, g access.Grant, asked []smart.Parameter) []branch {
	plain := branch{resourceType: resourceType, grants: []access.Grant{g}}
	if g.Patient == "" {
		return []branch{plain}
	}
	if x.Shared.IsOwn(resourceType) {
		plain.member = g.Patient
	}
	var all []branch
	for _, c := range x.Shared.Confine(access.Search{Type: resourceType, Patient: g.Patient, Asked: asked, InCompartment: x.InCompartments}) {
		b := plain
		b.confining = c.Parameters
		if c.InCompartment {
			b.patient = g.Patient
		}
		all = append(all, b)
	}
	return all
}

// with is the branch with another parameter.
func (b branch) with(p smart.Parameter) branch {
	b.confining = append(slices.Clip(b.confining), p)
	return b
}

// addBranch adds a branch, unless another one finds all of it. It takes the place of those of which it finds all, and
// is joined with one that differs in the value of one parameter alone: a comma says or.
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

// isBeside reports whether two branches are about the same type and the same compartment that the client asked for.
func (b branch) isBeside(o branch) bool {
	return b.resourceType == o.resourceType && b.within == o.within
}

// findsAllOf reports whether the branch finds all that another one finds, as far as their conditions show.
func (b branch) findsAllOf(o branch) bool {
	return b.isBeside(o) && (b.patient == "" || b.patient == o.patient) &&
		!slices.ContainsFunc(b.confining, func(p smart.Parameter) bool { return !slices.Contains(o.confining, p) })
}

// intersect makes the branch one that finds what another one finds too. Of two compartments no search does.
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

// join is the branch that finds what either of two finds.
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
	b.grants = append(slices.Clip(b.grants), o.grants...)
	if differing >= 0 {
		b.confining = slices.Clone(b.confining)
		b.confining[differing].Value += "," + o.confining[differing].Value
	}
	return b, true
}

// finds reports whether the branch would find a resource that the rights cover, apart from what the client asked for.
func (b branch) finds(rights *access.Rights, res resource.Resource) bool {
	if b.resourceType != res.Type || b.patient != "" && !compartment.InPatient(res, b.patient) {
		return false
	}
	return !slices.ContainsFunc(b.confining, func(p smart.Parameter) bool { return !rights.FoundBy(p, res) })
}
