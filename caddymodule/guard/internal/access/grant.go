package access

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

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
	// ByRule says that the grant is about what a site's rules say of each resource, which the caller asks them. By itself
	// it covers nothing.
	ByRule bool
	// Scope is the scope as the token has it, for the audit trail.
	Scope string
}

// Whole reports whether the grant is about all resources of its type.
func (g Grant) Whole() bool {
	return !g.ByRule && g.Patient == "" && g.Only == (interaction.Reference{}) && len(g.Constraint) == 0
}

// allows reports whether the grant is about a type and has all the permissions.
func (g Grant) allows(resourceType string, p smart.Permission) bool {
	return (g.Type == smart.AnyType || g.Type == resourceType) && g.Permission&p == p
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
