// Package relationship knows for whom a RelatedPerson or a Person acts (FHIR R4 §8.3 and §8.2),
// and when that counts: a relationship that has ended opens no record.
package relationship

import (
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// maxLinks is how many links of a Person are read.
const maxLinks = 100

// Patients returns the ids of the patients on the same server for whom a RelatedPerson or a Person acts at a time; none
// for other types. What cannot be read, or may mean the contrary (modifierExtension), counts as ended.
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

// related is the patient of a RelatedPerson, within the period of the relationship.
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

// isActive reports whether a record is in use. One that does not say is.
func isActive(r resource.Resource) bool {
	active, says := r.Member("active")
	_, modified := r.Member("modifierExtension")
	return !modified && (!says || string(active) == "true")
}

// linked are the patients that a Person is linked to, but for links in which there is little or some confidence
// (https://hl7.org/fhir/R4/valueset-identity-assuranceLevel.html). A link need not say.
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

// covers reports whether a time is in a Period, whose end is included to its precision. A date is of UTC.
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
