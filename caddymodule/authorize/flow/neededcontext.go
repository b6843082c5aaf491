package flow

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// wantsPatient reports whether the client asks for the patient. A scope for a patient's
// records needs the patient, even if launch/patient was not asked for.
func (req *authorizationRequest) wantsPatient() bool {
	return slices.ContainsFunc(req.scope, needsPatient)
}

func needsPatient(scope string) bool {
	return contextType(scope) == "patient" || strings.HasPrefix(scope, "patient/")
}

// needsFHIRUser reports whether a scope is about the records that the person has or may see.
func needsFHIRUser(scope string) bool {
	return scope == "fhirUser" || strings.HasPrefix(scope, "user/") || needsPatient(scope)
}

// contextType is the resource type, in lower case, that a scope such as launch/patient asks
// for; "" for other scopes. A role, as in launch/imagingstudy?role=…, narrows it; as SMART
// permits, what is known of the type is given.
func contextType(scope string) string {
	name, ok := strings.CutPrefix(scope, "launch/")
	if !ok {
		return ""
	}
	name, _, _ = strings.Cut(name, "?")
	return strings.ToLower(name)
}

// patient is the patient that the client is launched for, as far as is known.
func (req *authorizationRequest) patient(person launch.Person) string {
	if req.launch.registered != nil && req.launch.registered.Patient != "" {
		return req.launch.registered.Patient
	}
	if !req.wantsPatient() {
		return ""
	}
	return cmp.Or(req.launch.picked.patient, person.Own())
}

func (req *authorizationRequest) encounter() string {
	if req.launch.registered != nil {
		return req.launch.registered.Encounter
	}
	return req.launch.picked.encounter
}

// missing is the page on which the person chooses what is still unknown, or "". An EHR that
// launches a client without an encounter knows of none.
func (req *authorizationRequest) missing(person launch.Person) string {
	patient := req.patient(person)
	switch {
	case patient == "" && req.wantsPatient() && !req.launch.picked.noPatient && person.MayChoose():
		return endpoint.SelectPatient
	case patient != "" && slices.ContainsFunc(req.scope, asksEncounter) && req.encounter() == "" &&
		req.launch.registered == nil && !req.launch.picked.noEncounter:
		return endpoint.SelectEncounter
	}
	return ""
}

func asksEncounter(scope string) bool { return contextType(scope) == "encounter" }

// dropUnmet removes the scopes whose context is missing, and fhirUser if the person has none. It reports whether any is left.
func (req *authorizationRequest) dropUnmet(person launch.Person) bool {
	patient := req.patient(person)
	req.scope = slices.DeleteFunc(slices.Clone(req.scope), func(scope string) bool {
		switch wanted := contextType(scope); {
		case scope == "launch":
			return req.launch.registered == nil
		case scope == "fhirUser":
			return person.FHIRUser == ""
		case needsPatient(scope):
			return patient == ""
		case wanted == "encounter":
			return patient == "" || req.encounter() == ""
		default:
			return wanted != "" && !req.launch.has(wanted)
		}
	})
	return len(req.scope) > 0
}

var errNoContext = &oauth2.Error{
	Code:        "invalid_scope",
	Description: "the scope is for the records of a patient, or fhirUser, and this person has no such record and can choose none",
}

// context is what goes into the grant; nil if that is nothing. An EHR that names no style has
// the site's.
func (req *authorizationRequest) context(person launch.Person, styleURL string) *launch.Context {
	c := new(launch.Context)
	if req.launch.registered != nil {
		*c = req.launch.registered.Context
		c.SMARTStyleURL = cmp.Or(c.SMARTStyleURL, styleURL)
	}
	c.Patient = req.patient(person)
	if c.Patient != "" {
		c.Encounter = req.encounter()
	}
	if c.IsEmpty() {
		return nil
	}
	return c
}
