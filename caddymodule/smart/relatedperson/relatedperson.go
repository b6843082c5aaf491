// Package relatedperson determines the patients for whom a RelatedPerson or a Person acts (FHIR R4 §8.3 and §8.2). Only
// relationships that are valid at the given time are considered.
package relatedperson

import (
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// maxLinks is the maximum number of a Person's links that are evaluated.
const maxLinks = 100

// Patients returns the ids of the patients on the same server for whom a RelatedPerson or a Person acts at a time, or none for
// resources of other types. A relationship that cannot be parsed or has a modifierExtension is treated as ended.
func Patients(r resource.Resource, at time.Time) []string {
	if !isActive(r) {
		return nil
	}
	switch r.Type {
	case "RelatedPerson":
		return relatedPatient(r, at)
	case "Person":
		return linkedPatients(r)
	}
	return nil
}

// relatedPatient returns the patient of a RelatedPerson if the time is within the period of the relationship.
func relatedPatient(r resource.Resource, at time.Time) []string {
	if period, ok := r.Member("period"); ok && !isWithinPeriod(period, at) {
		return nil
	}
	patient, ok := r.Member("patient")
	if !ok {
		return nil
	}
	return appendPatient(nil, r, patient)
}

// isActive reports whether a record is active. A missing active element means true.
func isActive(r resource.Resource) bool {
	active, isPresent := r.Member("active")
	_, isModified := r.Member("modifierExtension")
	return !isModified && (!isPresent || string(active) == "true")
}

// linkedPatients returns the patients to whom a Person is linked. It omits links with an assurance of little or some confidence
// (https://hl7.org/fhir/R4/valueset-identity-assuranceLevel.html). Links without an assurance are included.
func linkedPatients(r resource.Resource) (ids []string) {
	linkCount := 0
	for link := range r.Values(resource.Path{Elements: []string{"link"}}) {
		if linkCount++; linkCount > maxLinks {
			break
		}
		assurance, isPresent := resource.Field(link, "assurance")
		_, isModified := resource.Field(link, "modifierExtension")
		if level := resource.Text(assurance); isModified || isPresent && level != "level3" && level != "level4" {
			continue
		}
		if target, ok := resource.Field(link, "target"); ok {
			ids = appendPatient(ids, r, target)
		}
	}
	return ids
}

func appendPatient(ids []string, r resource.Resource, reference []byte) []string {
	to, _, ok := r.ReferenceTarget(reference)
	if !ok || to.Type != "Patient" || to.Base != "" || slices.Contains(ids, to.ID) {
		return ids
	}
	return append(ids, to.ID)
}

// isWithinPeriod reports whether a time is in a Period. The end is included, to its precision. Dates are in UTC.
func isWithinPeriod(period []byte, at time.Time) bool {
	if len(period) == 0 || period[0] != '{' {
		return false
	}
	if start, isPresent := resource.Field(period, "start"); isPresent {
		from, _, ok := searchparam.ParseDateRange(resource.Text(start))
		if !ok || at.Before(from) {
			return false
		}
	}
	if end, isPresent := resource.Field(period, "end"); isPresent {
		_, to, ok := searchparam.ParseDateRange(resource.Text(end))
		if !ok || !at.Before(to) {
			return false
		}
	}
	return true
}
