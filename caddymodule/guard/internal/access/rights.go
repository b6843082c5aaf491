package access

import (
	"maps"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
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

	whole  map[string]smart.Permission // on all resources, by type
	judged bool                        // see Judged
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
		if !g.isWhole() {
			continue
		}
		if r.whole == nil {
			r.whole = map[string]smart.Permission{}
		}
		r.whole[g.Type] |= g.Permission
	}
}

// With are the rights with one more grant.
func (r *Rights) With(g Grant) *Rights {
	more := *r
	more.Grants, more.whole = slices.Clip(r.Grants), maps.Clone(r.whole)
	more.Add(g)
	return &more
}

// Judged are the rights where policies judge each resource: what grants are about in whole, is not so any more.
func (r *Rights) Judged() *Rights {
	judged := *r
	judged.judged = true
	return &judged
}

// Whole reports whether each of the permissions is given on all resources of a type, or of all types. Grants that have neither context
// nor constraint have nothing to be mixed up, so one may give what another does not.
func (r *Rights) Whole(resourceType string, p smart.Permission) bool {
	return !r.judged && (r.whole[smart.AnyType]|r.whole[resourceType])&p == p
}

// WholeTypes are the types whose resources a scope covers without a patient or a constraint.
type WholeTypes struct {
	// Names are the types by name, in alphabetical order.
	Names []string
	// All reports whether every type is covered.
	All bool
	// Judged reports whether site policies may deny some of the resources: each resource must be judged, and nothing may
	// depend on those that are denied.
	Judged bool
}

// Has reports whether the types include a type.
func (t WholeTypes) Has(name string) bool { return t.All || slices.Contains(t.Names, name) }

// WholeTypes returns the types over which the scopes of a level, such as "system", together have all the permissions. An
// empty level means every level.
func (r *Rights) WholeTypes(level string, p smart.Permission) WholeTypes {
	whole := map[string]smart.Permission{}
	for _, g := range r.Grants {
		if g.isWhole() && (level == "" || strings.HasPrefix(g.Scope, level+"/")) {
			whole[g.Type] |= g.Permission
		}
	}
	t := WholeTypes{Judged: r.judged, All: whole[smart.AnyType]&p == p}
	for name, permissions := range whole {
		if name != smart.AnyType && (permissions|whole[smart.AnyType])&p == p {
			t.Names = append(t.Names, name)
		}
	}
	slices.Sort(t.Names)
	return t
}

// For returns the grants that give all the permissions on a type: each alone, or several for the same patient and with the
// same constraint together, as .r and .s are as good as .rs. Types that are shared between patients may be read and
// searched, and are not changed, under a grant that is bound to a patient.
func (r *Rights) For(resourceType string, p smart.Permission) []Grant {
	var found []Grant
	for n := range r.Grants {
		if g := &r.Grants[n]; r.isAbout(g, resourceType, p) {
			found = append(found, *g)
		}
	}
	if len(found) == 0 && p&(p-1) != 0 {
		return r.joined(resourceType, p)
	}
	return found
}

// Opening are the patients whose records would show a Binary to the client if it writes a DocumentReference that names the
// Binary: it may read those of these patients, and not all. None for other types.
func (r *Rights) Opening(resourceType string) []string {
	if resourceType != "DocumentReference" || r.Whole("Binary", smart.Read) {
		return nil
	}
	var patients []string
	for _, g := range r.For("Binary", smart.Read) {
		if g.Patient != "" && !slices.Contains(patients, g.Patient) {
			patients = append(patients, g.Patient)
		}
	}
	return patients
}

// joined are grants that give all the permissions on a type together.
func (r *Rights) joined(resourceType string, p smart.Permission) []Grant {
	var all []Grant
	for n := range r.Grants {
		g := r.Grants[n]
		if g.Permission &= p; g.ByRule || g.Permission == 0 || !r.isAbout(&g, resourceType, g.Permission) {
			continue
		}
		g.Type = resourceType
		if i := slices.IndexFunc(all, g.isBeside); i < 0 {
			all = append(all, g)
		} else if all[i].Permission|g.Permission != all[i].Permission {
			all[i].Permission |= g.Permission
			all[i].Scope += " " + g.Scope
		}
	}
	return slices.DeleteFunc(all, func(g Grant) bool { return g.Permission != p })
}

// isBeside reports whether two grants differ in nothing but their permissions.
func (g Grant) isBeside(other Grant) bool {
	return g.Type == other.Type && g.Patient == other.Patient && g.Only == other.Only && slices.Equal(g.Constraint, other.Constraint)
}

func (r *Rights) isAbout(g *Grant, resourceType string, p smart.Permission) bool {
	switch {
	case g.Type != smart.AnyType && g.Type != resourceType, g.Permission&p != p:
		return false
	case g.Patient == "":
		return true
	}
	rule := r.Shared.rule(resourceType)
	return rule.covers != nil && rule.fits != nil && rule.fits(resourceType) && p&^rule.permits == 0
}

// isSearched reports whether there is a search that finds what a grant bound to a patient covers of a type. There is none
// for Binary and Bundle: FHIR has no parameter that says whose they are.
func (r *Rights) isSearched(resourceType string) bool {
	return resourceType == smart.AnyType || len(r.Shared.Confine(Search{Type: resourceType, Patient: "x"})) > 0
}

// OnlyWhole reports whether grants that are bound to a patient have the permissions on a type, but cannot give them: a
// grant without a patient would have to.
func (r *Rights) OnlyWhole(resourceType string, p smart.Permission) bool {
	if len(r.For(resourceType, p)) > 0 {
		return p&smart.Search != 0 && !r.isSearched(resourceType)
	}
	return slices.ContainsFunc(r.Grants, func(g Grant) bool {
		g.Patient = ""
		return r.isAbout(&g, resourceType, p)
	})
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

// Grant is what one scope allows. Two grants are never combined.
type Grant struct {
	// Type is the resource type, or [smart.AnyType].
	Type string
	// Permission is the set of permitted interactions.
	Permission smart.Permission
	// Patient is the id of the patient to whose compartment the grant is bound. Empty if it is bound to none.
	Patient string
	// Only is the one resource that the grant is about. Zero for all but the person's own record.
	Only interaction.Reference
	// Constraint is what a resource must match, as a search for it would say. Empty if nothing.
	Constraint []smart.Parameter
	// ByRule says that the grant is about the decision of policies about each resource, which the caller asks them. By itself
	// it covers nothing.
	ByRule bool
	// Scope is the scope as the token has it, for the audit trail.
	Scope string
}

// isWhole reports whether the grant is over all resources of its type. Site policies may still deny some of them, so only
// [Rights.Whole] says that access is unrestricted.
func (g Grant) isWhole() bool {
	return !g.ByRule && g.Patient == "" && g.Only == (interaction.Reference{}) && len(g.Constraint) == 0
}

// Holder is who holds a token.
type Holder struct {
	// Scope are the granted scopes, separated by spaces.
	Scope string
	// Patient is the id of the patient in context (launch context). May be empty.
	Patient string
	// User is the person's own record, from fhirUser. Zero if unknown, or if it is on another server.
	User interaction.Reference
	// UserPatient is the id of the patient whose data the person may see, where User is a Patient or a RelatedPerson.
	// May be empty.
	UserPatient string
	// Ended says that the User acts no longer for the patient whom the token names, so that Patient is empty.
	Ended bool
	// Parameters are the search parameters that constraints may have. Zero: those of R4.
	Parameters searchparam.Set
}

// grants are what one scope allows to the holder; none if it is no resource scope, or lacks its context. A scope
// over all types is narrowed to a type's own when it is asked about, so that it stays one grant.
func (h Holder) grants(scope string) []Grant {
	if scope == "fhirUser" && h.User != (interaction.Reference{}) {
		return []Grant{{Type: h.User.Type, Permission: smart.Read, Only: h.User, Scope: scope}}
	}
	s, ok := smart.ParseResourceScope(scope)
	if !ok {
		return nil
	}
	g := Grant{Type: s.Type, Permission: s.Permission, Constraint: s.Constraint(), Scope: scope}
	switch s.Level {
	case "patient":
		g.Patient, ok = h.Patient, h.Patient != ""
	case "user":
		g.Patient, ok = h.UserPatient, h.UserPatient != "" || h.isPractitioner()
	}
	if !ok || !evaluable(g, h.Parameters) {
		return nil
	}
	return []Grant{g}
}

// isPractitioner reports whether user/ scopes are about all records: SMART leaves to the server what a person may
// see, and who treats patients may see theirs. Which patients those are, a policy can say.
func (h Holder) isPractitioner() bool {
	return h.User.Type == "Practitioner" || h.User.Type == "PractitionerRole"
}

// Missing says what the holder's scopes lack, for the error's text; empty if nothing.
func (h Holder) Missing() string {
	for scope := range strings.FieldsSeq(h.Scope) {
		s, ok := smart.ParseResourceScope(scope)
		switch {
		case h.Ended && ok && s.Level == "patient":
			return "The person who signed in no longer acts for the patient of the token, as their RelatedPerson or Person says."
		case ok && s.Level == "patient" && h.Patient == "":
			return "The token has patient scopes but no patient in context."
		case ok && s.Level == "user" && h.UserPatient == "" && !h.isPractitioner():
			return "The token has user scopes, but no fhirUser that is a Practitioner, PractitionerRole, Patient or RelatedPerson of this server."
		}
	}
	return ""
}

// evaluable reports whether a grant's constraint can be checked on a resource. For a grant over all types that is told
// of each resource.
func evaluable(g Grant, parameters searchparam.Set) bool {
	if g.Type == smart.AnyType {
		return true
	}
	return !slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool {
		parameter, ok := parameters.Lookup(g.Type, p.Name)
		return !ok || len(parameter.Paths) == 0
	})
}

// Lacking are the scopes of which each would give the permissions on a type (empty: all types), the smallest at each
// level that the token has, separated by spaces; with whole on all its resources. Empty if no scope would: for this
// holder those of the level grant nothing, or not this. It depends on the token alone, and on nothing that is stored.
func (r *Rights) Lacking(resourceType string, p smart.Permission, whole bool) string {
	if resourceType == "" {
		resourceType = smart.AnyType
	}
	var lacking []string
	for _, scope := range r.Scopes {
		had, ok := smart.ParseResourceScope(scope)
		wanted := smart.ResourceScope{Level: had.Level, Type: resourceType, Permission: p}.String()
		if !ok || p == 0 || slices.Contains(lacking, wanted) {
			continue
		}
		if slices.ContainsFunc(r.holder.grants(wanted), func(g Grant) bool { return r.suffices(&g, whole) }) {
			lacking = append(lacking, wanted)
		}
	}
	return strings.Join(lacking, " ")
}

// suffices reports whether a grant that names a type and permissions would be one for them.
func (r *Rights) suffices(g *Grant, whole bool) bool {
	return g.Patient == "" || !whole && (g.Type == smart.AnyType || r.isAbout(g, g.Type, g.Permission)) &&
		(g.Permission&smart.Search == 0 || r.isSearched(g.Type))
}

// WithoutHeld are the scopes of a challenge, separated by spaces, without those that the token has, alone or in several
// scopes: a client that asked for them again would be refused again.
func (r *Rights) WithoutHeld(scopes string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(scopes), func(scope string) bool { return r.HasOne([]string{scope}) }), " ")
}

// terminologyTypes are the types of definitions, which are about nobody.
var terminologyTypes = []string{"CodeSystem", "ConceptMap", "NamingSystem", "ValueSet"}

// Terminology are the grants of any valid token: to read and search definitions, which [Rights.Add] adds.
func Terminology() []Grant {
	grants := make([]Grant, 0, len(terminologyTypes))
	for _, t := range terminologyTypes {
		grants = append(grants, Grant{Type: t, Permission: smart.Read | smart.Search})
	}
	return grants
}

// HasOne reports whether the token's scopes cover one of the given ones whole.
func (r *Rights) HasOne(scopes []string) bool {
	return slices.ContainsFunc(scopes, func(scope string) bool {
		granted, err := smart.Grant([]string{scope}, r.Scopes)
		return err == nil && slices.Equal(granted, []string{scope})
	})
}
