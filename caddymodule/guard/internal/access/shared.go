package access

import (
	"maps"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Shared are the types' rules. A type without one is ruled by the Patient compartment; a type that is not in it either
// is closed to bound grants.
type Shared map[string]*Rule

// defaultShared are the rules of types that a site does not set.
var defaultShared = Shared{
	"Organization": everyone, "Practitioner": everyone, "PractitionerRole": everyone, "Location": everyone,
	"HealthcareService": everyone, "Endpoint": everyone, "Medication": everyone, "Substance": everyone,
	"Questionnaire": everyone,
	"Device":        unassigned,
	"Binary":        securityContext,
	"Provenance":    about,
	"Bundle":        about,
	"Group":         alone,
}

// NewShared returns the default rules, changed by a site's own.
func NewShared(own Shared) Shared {
	s := maps.Clone(defaultShared)
	maps.Copy(s, own)
	return s
}

// rule is the one of a type; one that is nil allows nothing.
func (s Shared) rule(resourceType string) *Rule {
	r, ok := s[resourceType]
	switch {
	case !ok:
		return compartmental
	case r == nil:
		return closed
	}
	return r
}

// inside reports whether a resource is the patient's, or one that every patient's records need.
func (s Shared) inside(res resource.Resource, patient string) Verdict {
	if r := s.rule(res.Type); r.covers != nil {
		return r.covers(s, res, patient)
	}
	return outside
}

// written reports whether a client may write a resource that is inside.
func (s Shared) written(res resource.Resource, patient string, read Verdict) Verdict {
	if r := s.rule(res.Type); r.writes != nil && read.Covered {
		return r.writes(s, res, patient, read)
	}
	return outside
}

// Confine returns searches that together find what a bound grant covers of a type. None: nothing is searched for.
func (s Shared) Confine(q Search) []Confinement {
	r := s.rule(q.Type)
	if r.confine == nil {
		return nil
	}
	all := r.confine(q)
	for i := range all {
		all[i].IsOwn = r.own
	}
	return all
}

// IsCounted reports whether the searches of [Shared.Confine] find nothing but what is covered, so that the number of
// matches tells of nothing else.
func (s Shared) IsCounted(resourceType string) bool { return s.rule(resourceType).counted }

// IsOwn reports whether all that a bound grant covers of a type is the patient's own, and nobody else's.
func (s Shared) IsOwn(resourceType string) bool { return s.rule(resourceType).own }

// IsEveryones reports whether all resources of a type are covered for every patient.
func (s Shared) IsEveryones(resourceType string) bool { return s.rule(resourceType).everyones }

// IsNamed reports whether a patient's records may refer to a resource of a type that nobody has looked at.
func (s Shared) IsNamed(resourceType string) bool {
	r := s.rule(resourceType)
	return r.named != nil && r.named(resourceType)
}

// Depends reports whether a resource of a type may be the patient's because others are, about which one must be asked.
func (s Shared) Depends(resourceType string) bool {
	r := s.rule(resourceType)
	return r.byItself == nil || !r.byItself(resourceType)
}
