package access

import (
	"maps"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Rule says which resources of a type a grant that is bound to a patient is about, where the Patient compartment of
// FHIR R4 does not say so, or says more than a patient may see.
type Rule string

// The rules. A type without one is ruled by the Patient compartment; a type that is not in it either is closed to
// bound grants.
const (
	// Everyone: all resources may be read and searched, none changed: they describe the world that records refer to.
	Everyone Rule = "everyone"
	// Unassigned: the patient's own, and those of no patient. Only the patient's own may be changed.
	Unassigned Rule = "unassigned"
	// SecurityContext: by Binary.securityContext: the patient, or a resource that the grant covers.
	SecurityContext Rule = "security_context"
	// About: all that the resource is about is the patient or is covered: each Provenance.target, or each entry of a
	// document or collection. Of other types: the patient's compartment.
	About Rule = "about"
	// Alone: in the compartment, and of no other patient: a Group of several names the others.
	Alone Rule = "alone"
	// OwnPatient: by the type's search parameter patient: it names the patient, and no other.
	OwnPatient Rule = "patient"
	// Closed: nothing.
	Closed Rule = "closed"
)

// Rules are all rules, for messages about unknown ones.
var Rules = []Rule{Everyone, Unassigned, SecurityContext, About, Alone, OwnPatient, Closed}

// Shared are the types' rules.
type Shared map[string]Rule

// defaultShared are the rules of types that a site does not set.
var defaultShared = Shared{
	"Organization": Everyone, "Practitioner": Everyone, "PractitionerRole": Everyone, "Location": Everyone,
	"HealthcareService": Everyone, "Endpoint": Everyone, "Medication": Everyone, "Substance": Everyone,
	"Questionnaire": Everyone,
	"Device":        Unassigned,
	"Binary":        SecurityContext,
	"Provenance":    About,
	"Bundle":        About,
	"Group":         Alone,
}

// NewShared returns the default rules, changed by a site's own.
func NewShared(own Shared) Shared {
	s := maps.Clone(defaultShared)
	maps.Copy(s, own)
	return s
}

// Takes reports whether a type can have the rule.
func (r Rule) Takes(resourceType string) bool {
	p, ok := searchparam.Lookup(resourceType, "patient")
	return r != OwnPatient || ok && p.Kind == searchparam.Reference && len(p.Paths) > 0
}

// bound reports whether a grant that is bound to a patient can be about resources of a type.
func (s Shared) bound(resourceType string, p smart.Permission) bool {
	switch s[resourceType] {
	case Closed:
		return false
	case Everyone:
		return p&^(smart.Read|smart.Search) == 0
	case "":
		_, ok := compartment.Patient(resourceType)
		return ok
	}
	return true
}

// Depends reports whether a resource of a type may be the patient's because others are, about which one must be asked.
func (s Shared) Depends(resourceType string) bool {
	switch s[resourceType] {
	case SecurityContext:
		return true
	case About:
		return resourceType == "Provenance" || resourceType == "Bundle"
	}
	return false
}
