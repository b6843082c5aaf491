package records

import (
	"fmt"
	"time"
)

// practitioner is somebody who looks after patients.
type practitioner struct {
	id, given, family, gender string
	specialty                 code
}

var practitioners = []practitioner{
	{"alice", "Alice", "Adams", "female", code{snomed, "419772000", "Family practice"}},
	{"bruno-keller", "Bruno", "Keller", "male", code{snomed, "419192003", "Internal medicine"}},
	{"farah-moradi", "Farah", "Moradi", "female", code{snomed, "419772000", "Family practice"}},
	{"henrik-solberg", "Henrik", "Solberg", "male", code{snomed, "394579002", "Cardiology"}},
}

const (
	clinic     = "Organization/clinic"
	clinicName = "Millbrook Family Clinic"
	payer      = "Organization/health-plan"
	payerName  = "Sample Health Plan"
	laboratory = "Organization/laboratory"
)

var (
	office = reference("Location/office", "Millbrook Family Clinic, consulting rooms")
	ward   = reference("Location/ward", "Millbrook Hospital, ward 2")
)

var opened = time.Date(2015, time.January, 5, 8, 0, 0, 0, time.UTC)

// ref is a Reference to a practitioner.
func (p practitioner) ref() object { return reference("Practitioner/"+p.id, p.name()) }

func (p practitioner) name() string { return p.given + " " + p.family }

// registrar adds patients, and those whom they deal with.
type registrar struct{ records *collection }

// staff adds the organizations, locations and practitioners.
func (r *registrar) staff() {
	r.organization("clinic", clinicName, "prov", "Healthcare Provider")
	r.organization("health-plan", payerName, "pay", "Payer")
	r.organization("laboratory", "Millbrook Laboratory", "prov", "Healthcare Provider")
	r.location("office", "Millbrook Family Clinic, consulting rooms", "HUSCS", "Outpatient facility")
	r.location("ward", "Millbrook Hospital, ward 2", "HOSP", "Hospital")
	for i, p := range practitioners {
		r.records.add("Practitioner", p.id, opened,
			member{"identifier", []object{{{"system", "http://clinic.example/staff"}, {"value", fmt.Sprintf("S-%03d", i+1)}}}},
			member{"active", true},
			member{"name", []object{{{"use", "official"}, {"family", p.family}, {"given", []string{p.given}}, {"prefix", []string{"Dr."}}}}},
			member{"telecom", telecom(fmt.Sprintf("+155501%02d", i), p.given+"."+p.family+"@clinic.example")},
			member{"gender", p.gender},
			member{"qualification", []object{{{"code", concept(p.specialty)}}}},
		)
	}
}

func (r *registrar) organization(id, name, kind, display string) {
	r.records.add("Organization", id, opened,
		member{"identifier", []object{{{"system", "http://clinic.example/organizations"}, {"value", id}}}},
		member{"active", true},
		member{"type", concepts(code{terminology + "organization-type", kind, display})},
		member{"name", name},
		member{"telecom", []object{{{"system", "phone"}, {"value", "+15550190"}, {"use", "work"}}}},
		member{"address", address(0, 1)},
	)
}

func (r *registrar) location(id, name, kind, display string) {
	r.records.add("Location", id, opened,
		member{"status", "active"},
		member{"name", name},
		member{"mode", "instance"},
		member{"type", concepts(code{terminology + "v3-RoleCode", kind, display})},
		member{"address", address(0, 1)[0]},
		member{"managingOrganization", reference(clinic, clinicName)},
	)
}

// address is one of the addresses of a town that does not exist.
func address(town, house int) []object {
	t := towns[town%len(towns)]
	return []object{{
		{"use", "home"}, {"line", []string{fmt.Sprintf("%d %s", house, streets[house%len(streets)])}},
		{"city", t.city}, {"postalCode", t.postalCode}, {"country", "US"},
	}}
}
