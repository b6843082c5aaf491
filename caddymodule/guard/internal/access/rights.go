package access

import (
	"maps"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Rights are the permissions of a token.
type Rights struct {
	// Grants contains the grants of each scope, in the order of the scopes.
	Grants []Grant
	// Scopes are all scopes of the token, including those that grant nothing.
	Scopes []string
	// TypeRules are the rules for types outside of compartments.
	TypeRules TypeRules
	// UnusableScopeReason is the reason why some scopes grant nothing, for errors: see [Holder.UnusableScopeReason]. Empty if
	// all scopes grant something.
	UnusableScopeReason string

	parameters searchparam.Set // search parameters for constraints
	holder     Holder

	unrestricted map[string]smart.Permission // on all resources of a type
	mayBeDenied  bool                        // see [Rights.WithoutUnrestricted]
}

// New returns the rights of a token's holder. A scope that is malformed, lacks its launch context, or has a constraint that
// cannot be checked grants nothing.
func New(h Holder, shared TypeRules) *Rights {
	r := &Rights{Scopes: strings.Fields(h.Scope), TypeRules: shared, UnusableScopeReason: h.UnusableScopeReason(), parameters: h.Parameters, holder: h}
	for _, scope := range r.Scopes {
		r.Add(h.grantsForScope(scope)...)
	}
	return r
}

// Add adds grants.
func (r *Rights) Add(grants ...Grant) {
	for _, g := range grants {
		r.Grants = append(r.Grants, g)
		if !g.isUnrestricted() {
			continue
		}
		if r.unrestricted == nil {
			r.unrestricted = map[string]smart.Permission{}
		}
		r.unrestricted[g.Type] |= g.Permission
	}
}

// WithGrant returns the rights with an additional grant.
func (r *Rights) WithGrant(g Grant) *Rights {
	extended := *r
	extended.Grants, extended.unrestricted = slices.Clip(r.Grants), maps.Clone(r.unrestricted)
	extended.Add(g)
	return &extended
}

// WithoutUnrestricted returns the rights for calls with resources that policies must judge: no type is covered as a whole.
func (r *Rights) WithoutUnrestricted() *Rights {
	restricted := *r
	restricted.mayBeDenied = true
	return &restricted
}

// IsUnrestricted reports whether each of the permissions is granted on all resources of a type, or of all types. Grants without context
// and constraint may be combined for this.
func (r *Rights) IsUnrestricted(resourceType string, p smart.Permission) bool {
	return !r.mayBeDenied && (r.unrestricted[smart.AnyType]|r.unrestricted[resourceType])&p == p
}

// UnrestrictedTypes are the types that a scope covers without a patient or a constraint.
type UnrestrictedTypes struct {
	// Names are the types by name, in alphabetical order.
	Names []string
	// AllTypes reports whether every type is covered.
	AllTypes bool
	// MayBeDenied reports whether policies may deny some of the resources. Each resource must then be judged, and no response may
	// depend on denied ones.
	MayBeDenied bool
}

// Has reports whether the types include a type.
func (t UnrestrictedTypes) Has(name string) bool { return t.AllTypes || slices.Contains(t.Names, name) }

// UnrestrictedTypes returns the types on which the scopes of a level, such as "system", together grant all the permissions. An empty
// level means every level.
func (r *Rights) UnrestrictedTypes(level string, p smart.Permission) UnrestrictedTypes {
	unrestricted := map[string]smart.Permission{}
	for _, g := range r.Grants {
		if g.isUnrestricted() && (level == "" || strings.HasPrefix(g.Scope, level+"/")) {
			unrestricted[g.Type] |= g.Permission
		}
	}
	t := UnrestrictedTypes{MayBeDenied: r.mayBeDenied, AllTypes: unrestricted[smart.AnyType]&p == p}
	for name, permissions := range unrestricted {
		if name != smart.AnyType && (permissions|unrestricted[smart.AnyType])&p == p {
			t.Names = append(t.Names, name)
		}
	}
	slices.Sort(t.Names)
	return t
}

// GrantsFor returns the grants that give all the permissions on a type: single grants, or several together with the same
// patient and constraint, since .r and .s equal .rs. Under a grant that is bound to a patient, types that are shared between
// patients can be read and searched, but not changed.
func (r *Rights) GrantsFor(resourceType string, p smart.Permission) []Grant {
	var found []Grant
	for n := range r.Grants {
		if g := &r.Grants[n]; r.applies(g, resourceType, p) {
			found = append(found, *g)
		}
	}
	if len(found) == 0 && p&(p-1) != 0 {
		return r.combinedGrants(resourceType, p)
	}
	return found
}

// PatientsWithBinaries returns the patients with DocumentReferences that open Binaries: the client may read a Binary that it
// names in a DocumentReference of such a patient, but not every Binary. None for other types.
func (r *Rights) PatientsWithBinaries(resourceType string) []string {
	if resourceType != "DocumentReference" || r.IsUnrestricted("Binary", smart.Read) {
		return nil
	}
	var patients []string
	for _, g := range r.GrantsFor("Binary", smart.Read) {
		if g.Patient != "" && !slices.Contains(patients, g.Patient) {
			patients = append(patients, g.Patient)
		}
	}
	return patients
}

// combinedGrants returns grants that together give all the permissions on a type.
func (r *Rights) combinedGrants(resourceType string, p smart.Permission) []Grant {
	var all []Grant
	for n := range r.Grants {
		g := r.Grants[n]
		if g.Permission &= p; g.DependsOnPolicy || g.Permission == 0 || !r.applies(&g, resourceType, g.Permission) {
			continue
		}
		g.Type = resourceType
		if i := slices.IndexFunc(all, g.differsOnlyInPermission); i < 0 {
			all = append(all, g)
		} else if all[i].Permission|g.Permission != all[i].Permission {
			all[i].Permission |= g.Permission
			all[i].Scope += " " + g.Scope
		}
	}
	return slices.DeleteFunc(all, func(g Grant) bool { return g.Permission != p })
}

// differsOnlyInPermission reports whether two grants differ only in their permissions.
func (g Grant) differsOnlyInPermission(other Grant) bool {
	return g.Type == other.Type && g.Patient == other.Patient && g.OnlyResource == other.OnlyResource && slices.Equal(g.Constraint, other.Constraint)
}

func (r *Rights) applies(g *Grant, resourceType string, p smart.Permission) bool {
	switch {
	case g.Type != smart.AnyType && g.Type != resourceType, g.Permission&p != p:
		return false
	case g.Patient == "":
		return true
	}
	rule := r.TypeRules.rule(resourceType)
	return rule.judgeRead != nil && rule.isApplicable != nil && rule.isApplicable(resourceType) && p&^rule.permissions == 0
}

// isSearchable reports whether a search exists for the resources of a type that a bound grant covers. Binary and Bundle have
// none, because FHIR has no search parameter for their patient.
func (r *Rights) isSearchable(resourceType string) bool {
	return resourceType == smart.AnyType || len(r.TypeRules.Confine(Search{Type: resourceType, Patient: "x"})) > 0
}

// RequiresUnrestricted reports whether grants name the permissions on a type, but have no effect because they are bound to a patient:
// the type can only be accessed without a patient.
func (r *Rights) RequiresUnrestricted(resourceType string, p smart.Permission) bool {
	if len(r.GrantsFor(resourceType, p)) > 0 {
		return p&smart.Search != 0 && !r.isSearchable(resourceType)
	}
	return slices.ContainsFunc(r.Grants, func(g Grant) bool {
		g.Patient = ""
		return r.applies(&g, resourceType, p)
	})
}

// Types returns the types of grants with the permissions; anyType reports whether one is for all types.
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

// Grant is the permission of one scope. Grants are not combined, except as in [Rights.IsUnrestricted] and [Rights.GrantsFor].
type Grant struct {
	// Type is the resource type, or [smart.AnyType].
	Type string
	// Permission is the set of permitted interactions.
	Permission smart.Permission
	// Patient is the id of the patient that the grant is bound to. Empty: not bound.
	Patient string
	// OnlyResource is the single resource of a grant for the user's own resource. Zero for all other grants.
	OnlyResource interaction.Reference
	// Constraint contains the search parameters that a resource must match. Empty: no constraint.
	Constraint []smart.Parameter
	// DependsOnPolicy is true for a grant that depends on the policies' decision about each resource. The grant itself covers
	// nothing.
	DependsOnPolicy bool
	// Scope is the scope in the token, for the audit log.
	Scope string
}

// isUnrestricted reports whether the grant covers all resources of its type. Policies may still deny some of them, which only
// [Rights.IsUnrestricted] takes into account.
func (g Grant) isUnrestricted() bool {
	return !g.DependsOnPolicy && g.Patient == "" && g.OnlyResource == (interaction.Reference{}) && len(g.Constraint) == 0
}

// Holder is the holder of a token.
type Holder struct {
	// Scope are the granted scopes, separated by spaces.
	Scope string
	// Patient is the id of the patient in the launch context. May be empty.
	Patient string
	// User is the user's own resource, from fhirUser. Zero if unknown, or on another server.
	User interaction.Reference
	// UserPatient is the id of the patient whose data the user may see, if User is a Patient or a RelatedPerson. May be empty.
	UserPatient string
	// RelationshipEnded is true if User no longer acts for the patient in the token. Patient is then empty.
	RelationshipEnded bool
	// Parameters are the search parameters for constraints. Zero: those of R4.
	Parameters searchparam.Set
}

// grantsForScope returns the grant of one scope for the holder; none if it is not a resource scope, or lacks its context. A
// scope for all types remains a single grant, which is narrowed to a type when that type is checked.
func (h Holder) grantsForScope(scope string) []Grant {
	if scope == "fhirUser" && h.User != (interaction.Reference{}) {
		return []Grant{{Type: h.User.Type, Permission: smart.Read, OnlyResource: h.User, Scope: scope}}
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
	if !ok || !isEvaluable(g, h.Parameters) {
		return nil
	}
	return []Grant{g}
}

// isPractitioner reports whether user/ scopes cover all records. SMART leaves this to the server; practitioners may see the
// records of their patients, and a policy can restrict which ones.
func (h Holder) isPractitioner() bool {
	return h.User.Type == "Practitioner" || h.User.Type == "PractitionerRole"
}

// UnusableScopeReason describes why a scope of the holder grants nothing, for errors; empty if all grant something.
func (h Holder) UnusableScopeReason() string {
	for scope := range strings.FieldsSeq(h.Scope) {
		s, ok := smart.ParseResourceScope(scope)
		switch {
		case h.RelationshipEnded && ok && s.Level == "patient":
			return "According to their RelatedPerson or Person resource, the person who signed in no longer acts for the patient of the token."
		case ok && s.Level == "patient" && h.Patient == "":
			return "The token has patient scopes but no patient in context."
		case ok && s.Level == "user" && h.UserPatient == "" && !h.isPractitioner():
			return "The token has user scopes, but its fhirUser is not a Practitioner, PractitionerRole, Patient or RelatedPerson of this server."
		}
	}
	return ""
}

// isEvaluable reports whether a grant's constraint can be checked on a resource. For a grant on all types, this is decided per
// resource.
func isEvaluable(g Grant, parameters searchparam.Set) bool {
	if g.Type == smart.AnyType {
		return true
	}
	return !slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool {
		parameter, ok := parameters.Lookup(g.Type, p.Name)
		return !ok || len(parameter.Paths) == 0
	})
}

// MissingScopes returns scopes, separated by spaces, that would each give the permissions on a type (empty: all types):
// the smallest scope of each level that the token has, for all resources if unrestricted is true. Empty if no scope of these
// levels would suffice for this holder. The result depends on the token alone, and reveals nothing that is stored.
func (r *Rights) MissingScopes(resourceType string, p smart.Permission, unrestricted bool) string {
	if resourceType == "" {
		resourceType = smart.AnyType
	}
	var missing []string
	for _, scope := range r.Scopes {
		had, ok := smart.ParseResourceScope(scope)
		scopeNeeded := smart.ResourceScope{Level: had.Level, Type: resourceType, Permission: p}.String()
		if !ok || p == 0 || slices.Contains(missing, scopeNeeded) {
			continue
		}
		if slices.ContainsFunc(r.holder.grantsForScope(scopeNeeded), func(g Grant) bool { return r.isSufficient(&g, unrestricted) }) {
			missing = append(missing, scopeNeeded)
		}
	}
	return strings.Join(missing, " ")
}

// isSufficient reports whether a grant would give its permissions on its type.
func (r *Rights) isSufficient(g *Grant, unrestricted bool) bool {
	return g.Patient == "" || !unrestricted && (g.Type == smart.AnyType || r.applies(g, g.Type, g.Permission)) &&
		(g.Permission&smart.Search == 0 || r.isSearchable(g.Type))
}

// WithoutGranted removes the scopes that the token already has, alone or through several scopes, from the scopes of a challenge:
// requesting them again would not help the client.
func (r *Rights) WithoutGranted(scopes string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(scopes), func(scope string) bool { return r.HasAnyScope([]string{scope}) }), " ")
}

// terminologyTypes are the types of definitions, which contain no patient data.
var terminologyTypes = []string{"CodeSystem", "ConceptMap", "NamingSystem", "ValueSet"}

// TerminologyGrants returns the grants of every valid token, for [Rights.Add]: to read and search definitions.
func TerminologyGrants() []Grant {
	grants := make([]Grant, 0, len(terminologyTypes))
	for _, t := range terminologyTypes {
		grants = append(grants, Grant{Type: t, Permission: smart.Read | smart.Search})
	}
	return grants
}

// HasAnyScope reports whether the token's scopes fully cover at least one of the given scopes.
func (r *Rights) HasAnyScope(scopes []string) bool {
	return slices.ContainsFunc(scopes, func(scope string) bool {
		granted, err := smart.Grant([]string{scope}, r.Scopes)
		return err == nil && slices.Equal(granted, []string{scope})
	})
}
