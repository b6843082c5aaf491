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
	// Scopes are all scopes in the token, including those that grant nothing.
	Scopes []string
	// TypeRules are the rules for types outside of compartments.
	TypeRules TypeRules
	// UnusableScopeReason is the reason why some scopes grant nothing, for errors: see [Holder.UnusableScopeReason]. It is
	// empty if all scopes grant something.
	UnusableScopeReason string

	parameters searchparam.Set // search parameters with which constraints are evaluated
	holder     Holder

	unrestricted map[string]smart.Permission // permissions on all resources of a type
	mayBeDenied  bool                        // see [Rights.WithoutUnrestricted]
}

// New returns the rights of a token's holder. A scope grants nothing if it is malformed, lacks its launch context, or has a
// constraint that cannot be evaluated.
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

// WithGrant returns a copy of the rights with an additional grant.
func (r *Rights) WithGrant(g Grant) *Rights {
	extended := *r
	extended.Grants, extended.unrestricted = slices.Clip(r.Grants), maps.Clone(r.unrestricted)
	extended.Add(g)
	return &extended
}

// WithoutUnrestricted returns the rights for calls with resources that policies must judge: no scope covers an entire type.
func (r *Rights) WithoutUnrestricted() *Rights {
	restricted := *r
	restricted.mayBeDenied = true
	return &restricted
}

// IsUnrestricted reports whether all the permissions are granted for every resource of a type (or of all types). Grants without
// context and constraint may be combined for this.
func (r *Rights) IsUnrestricted(resourceType string, p smart.Permission) bool {
	return !r.mayBeDenied && (r.unrestricted[smart.AnyType]|r.unrestricted[resourceType])&p == p
}

// UnrestrictedTypes are the types that scopes without a patient or a constraint cover.
type UnrestrictedTypes struct {
	// Names are the names of the types in alphabetical order.
	Names []string
	// AllTypes reports whether every type is covered.
	AllTypes bool
	// MayBeDenied reports whether policies may deny some of the resources. Each resource must then be judged, and no response may
	// depend on denied ones.
	MayBeDenied bool
}

// Has reports whether the types include the given type.
func (t UnrestrictedTypes) Has(name string) bool { return t.AllTypes || slices.Contains(t.Names, name) }

// UnrestrictedTypes returns the types for which the scopes of a level, such as "system", together grant all the permissions
// without a patient or a constraint. If the level is empty, it considers scopes of all levels.
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

// GrantsFor returns the grants of all the permissions on a type. Grants with the same patient and constraint are combined,
// because .r and .s together equal .rs. Patient-bound grants permit only reading and searching types that are shared between
// patients.
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

// PatientsWithBinaries returns the patients with DocumentReferences that make Binaries readable: the client may read a Binary
// that their DocumentReferences refer to, but not every Binary. It returns nil for types other than DocumentReference.
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

// combinedGrants returns combinations of grants that together include all the permissions on a type.
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

// isSearchable reports whether some search finds the resources of a type that a patient-bound grant covers. Binary and Bundle
// cannot be searched, because FHIR has no search parameter for their patient.
func (r *Rights) isSearchable(resourceType string) bool {
	return resourceType == smart.AnyType || len(r.TypeRules.Confine(Search{Type: resourceType, Patient: "x"})) > 0
}

// RequiresUnrestricted reports whether grants include the permissions on a type but have no effect because they are bound to a
// patient: the type can only be accessed without a patient.
func (r *Rights) RequiresUnrestricted(resourceType string, p smart.Permission) bool {
	if len(r.GrantsFor(resourceType, p)) > 0 {
		return p&smart.Search != 0 && !r.isSearchable(resourceType)
	}
	return slices.ContainsFunc(r.Grants, func(g Grant) bool {
		g.Patient = ""
		return r.applies(&g, resourceType, p)
	})
}

// Types returns the types of the grants with the permissions. anyType reports whether one of the grants applies to all types.
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

// Grant is the permission of one scope. Grants are combined only by [Rights.IsUnrestricted] and [Rights.GrantsFor].
type Grant struct {
	// Type is the resource type, or [smart.AnyType].
	Type string
	// Permission is the set of permitted interactions.
	Permission smart.Permission
	// Patient is the id of the patient to whom the grant is bound; empty if it is not bound.
	Patient string
	// OnlyResource is the single resource of a grant for the user's own resource. Zero for all other grants.
	OnlyResource interaction.Reference
	// Constraint contains the search parameters that a resource must match. If empty, there is no constraint.
	Constraint []smart.Parameter
	// DependsOnPolicy is true if policies must allow each resource. The grant itself covers nothing.
	DependsOnPolicy bool
	// Scope is the scope in the token, for the audit log.
	Scope string
}

// isUnrestricted reports whether the grant covers all resources of its type. Policies may still deny some of them; only
// [Rights.IsUnrestricted] takes that into account.
func (g Grant) isUnrestricted() bool {
	return !g.DependsOnPolicy && g.Patient == "" && g.OnlyResource == (interaction.Reference{}) && len(g.Constraint) == 0
}

// Holder is the holder of a token.
type Holder struct {
	// Scope are the granted scopes, separated by spaces.
	Scope string
	// Patient is the id of the patient in the launch context. May be empty.
	Patient string
	// User is the user's own resource, from fhirUser. It is zero if unknown or on another server.
	User interaction.Reference
	// UserPatient is the id of the patient for whom User may access data, if User is a Patient or RelatedPerson. May be empty.
	UserPatient string
	// RelationshipEnded is true if User no longer acts for the patient in the token. In this case, Patient is empty.
	RelationshipEnded bool
	// Parameters are the search parameters for constraints. Default: those of R4.
	Parameters searchparam.Set
}

// grantsForScope returns the grant of one scope, or none if it is not a resource scope or lacks its context. A scope for all
// types yields a single grant, which is narrowed when a type is checked.
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

// isPractitioner reports whether user/ scopes cover all records. SMART leaves this decision to the server. Practitioners may
// access the records of their patients; a policy can restrict which ones.
func (h Holder) isPractitioner() bool {
	return h.User.Type == "Practitioner" || h.User.Type == "PractitionerRole"
}

// UnusableScopeReason describes why one of the holder's scopes grants nothing, for errors. Empty if all grant something.
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

// isEvaluable reports whether a grant's constraint can be evaluated. For a grant on all types, this is checked for each
// resource instead.
func isEvaluable(g Grant, parameters searchparam.Set) bool {
	if g.Type == smart.AnyType {
		return true
	}
	return !slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool {
		parameter, ok := parameters.Lookup(g.Type, p.Name)
		return !ok || len(parameter.Paths) == 0
	})
}

// MissingScopes returns scopes, separated by spaces, each of which would grant the permissions on a type (empty: all types):
// the smallest scope for each level that the token has, for all resources if unrestricted is true. It is empty if no scope of
// these levels would suffice for this holder. The result depends only on the token, so it does not reveal stored data.
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

// isSufficient reports whether a grant would include its permissions on its type.
func (r *Rights) isSufficient(g *Grant, unrestricted bool) bool {
	return g.Patient == "" || !unrestricted && (g.Type == smart.AnyType || r.applies(g, g.Type, g.Permission)) &&
		(g.Permission&smart.Search == 0 || r.isSearchable(g.Type))
}

// WithoutGranted removes from the scopes of a challenge those that one or several of the token's scopes already cover:
// requesting them again would not help the client.
func (r *Rights) WithoutGranted(scopes string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(scopes), func(scope string) bool { return r.HasAnyScope([]string{scope}) }), " ")
}

// terminologyTypes are the types of terminology definitions, which contain no patient data.
var terminologyTypes = []string{"CodeSystem", "ConceptMap", "NamingSystem", "ValueSet"}

// TerminologyGrants returns the grants that every valid token has, for [Rights.Add]: reading and searching definitions.
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
