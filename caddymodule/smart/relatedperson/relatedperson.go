// Package relatedperson determines the patients for whom a RelatedPerson or a Person acts (FHIR R4 §8.3 and §8.2). Only
// relationships that are valid at the given time count.
package relatedperson

import (
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// maxLinks is the maximum number of links of a Person that are evaluated.
const maxLinks = 100

// Patients returns the ids of the patients on the same server for whom a RelatedPerson or a Person acts at a time; none for
// other types. A relationship that cannot be parsed, or that has a modifierExtension, counts as ended.
func Patients(r resource.Resource, at time.Time) []string {
	if !isActive(r) {
		return nil
	}
	switch r.Type {
	case "RelatedPerson":
		return related(r, at)
	case "Person":
		return linked(r)
	}
	return nil
}

// related returns the patient of a RelatedPerson, if the time is within the period of the relationship.
func related(r resource.Resource, at time.Time) []string {
	if period, ok := r.Member("period"); ok && !covers(period, at) {
		return nil
	}
	patient, ok := r.Member("patient")
	if !ok {
		return nil
	}
	return add(nil, r, patient)
}

// isActive reports whether a record is active. The default is true.
func isActive(r resource.Resource) bool {
	active, says := r.Member("active")
	_, modified := r.Member("modifierExtension")
	return !modified && (!says || string(active) == "true")
}

// linked returns the patients that a Person is linked to, except for links with an assurance of little or some confidence
// (https://hl7.org/fhir/R4/valueset-identity-assuranceLevel.html). A link without an assurance counts.
func linked(r resource.Resource) (ids []string) {
	read := 0
	for link := range r.Values(resource.Path{Elements: []string{"link"}}) {
		if read++; read > maxLinks {
			break
		}
		assurance, says := resource.Field(link, "assurance")
		_, modified := resource.Field(link, "modifierExtension")
		if level := resource.Text(assurance); modified || says && level != "level3" && level != "level4" {
			continue
		}
		if target, ok := resource.Field(link, "target"); ok {
			ids = add(ids, r, target)
		}
	}
	return ids
}

func add(ids []string, r resource.Resource, reference []byte) []string {
	to, _, ok := r.Refers(reference)
	if !ok || to.Type != "Patient" || to.Base != "" || slices.Contains(ids, to.ID) {
		return ids
	}
	return append(ids, to.ID)
}

// covers reports whether a time is in a Period, including its end to the end's precision. Dates are in UTC.
func covers(period []byte, at time.Time) bool {
	if len(period) == 0 || period[0] != '{' {
		return false
	}
	if start, says := resource.Field(period, "start"); says {
		from, _, ok := searchparam.Span(resource.Text(start))
		if !ok || at.Before(from) {
			return false
		}
	}
	if end, says := resource.Field(period, "end"); says {
		_, to, ok := searchparam.Span(resource.Text(end))
		if !ok || !at.Before(to) {
			return false
		}
	}
	return true
}
