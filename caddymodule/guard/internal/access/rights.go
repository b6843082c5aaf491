package access

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Rights are what a token may do.
type Rights struct {
	// Grants are those of the scopes, in their order.
	Grants []Grant
	// Scopes are all that the token has, those that grant nothing too.
	Scopes []string
	// Shared are the types that belong to no patient.
	Shared Shared
	// Missing says why some scopes grant nothing, for errors: see [Holder.Missing]. Empty if none does.
	Missing string

	parameters searchparam.Set // of constraints
	holder     Holder

	all    smart.Permission // on all types, in whole
	judged bool             // see Judged
}

// New returns the rights of a token's holder. Scopes that are malformed, that lack their context or whose constraint
// cannot be checked grant nothing.
func New(h Holder, shared Shared) *Rights {
	r := &Rights{Scopes: strings.Fields(h.Scope), Shared: shared, Missing: h.Missing(), parameters: h.Parameters, holder: h}
	for _, scope := range r.Scopes {
		r.Add(h.grants(scope)...)
	}
	return r
}

// Add adds grants.
func (r *Rights) Add(grants ...Grant) {
	for _, g := range grants {
		r.Grants = append(r.Grants, g)
		if g.Type == smart.AnyType && g.Whole() {
			r.all |= g.Permission
		}
	}
}

// With are the rights with one more grant.
func (r *Rights) With(g Grant) *Rights {
	more := *r
	more.Grants = slices.Clip(r.Grants)
	more.Add(g)
	return &more
}

// Judged are the rights where a site's rules judge each resource: what grants are about in whole, is not so any more.
func (r *Rights) Judged() *Rights {
	judged := *r
	judged.judged = true
	return &judged
}

// All are the permissions that some grant gives on all resources of all types.
func (r *Rights) All() smart.Permission {
	if r.judged {
		return 0
	}
	return r.all
}

// Whole reports whether each of the permissions is given on all resources of a type. Grants that have neither context
// nor constraint have nothing to be mixed up, so one may give what another does not.
func (r *Rights) Whole(resourceType string, p smart.Permission) bool {
	if r.judged {
		return false
	}
	have := r.all
	for _, g := range r.Grants {
		if have&p == p {
			break
		}
		if g.Type == resourceType && g.Whole() {
			have |= g.Permission
		}
	}
	return have&p == p
}

// For returns the grants that give all the permissions on a type, each alone. Types that are shared between patients
// may be read and searched, and are not changed, under a grant that is bound to a patient.
func (r *Rights) For(resourceType string, p smart.Permission) []Grant {
	var found []Grant
	for n := range r.Grants {
		if g := &r.Grants[n]; r.isAbout(g, resourceType, p) {
			found = append(found, *g)
		}
	}
	return found
}

// Allow reports whether there are grants [Rights.For] it.
func (r *Rights) Allow(resourceType string, p smart.Permission) bool {
	for n := range r.Grants {
		if r.isAbout(&r.Grants[n], resourceType, p) {
			return true
		}
	}
	return false
}

func (r *Rights) isAbout(g *Grant, resourceType string, p smart.Permission) bool {
	return g.allows(resourceType, p) && (g.Patient == "" || r.Shared.rule(resourceType).allows(resourceType, p))
}

// OnlyWhole reports whether grants that are bound to a patient have the permissions on a type, but cannot be about it:
// another grant would have to be.
func (r *Rights) OnlyWhole(resourceType string, p smart.Permission) bool {
	return len(r.For(resourceType, p)) == 0 && slices.ContainsFunc(r.Grants, func(g Grant) bool { return g.allows(resourceType, p) })
}

// Types are the types that some grant names with the permissions; any reports whether one is over all types.
func (r *Rights) Types(p smart.Permission) (types []string, anyType bool) {
	seen := map[string]bool{}
	for _, g := range r.Grants {
		if g.Permission&p != p {
			continue
		}
		if g.Type == smart.AnyType {
			anyType = true
		} else if !seen[g.Type] {
			seen[g.Type] = true
			types = append(types, g.Type)
		}
	}
	return types, anyType
}
