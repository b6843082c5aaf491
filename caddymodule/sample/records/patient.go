package records

import (
	"fmt"
	"strings"
	"time"
)

// patient is a patient while the records are being made.
type patient struct {
	id, given, family, gender string
	born                      time.Time
	doctor                    practitioner
	problems                  []held
	weight, height            float64 // today, in kg and cm
}

func (p *patient) name() string { return p.given + " " + p.family }

// ref is a Reference to the patient.
func (p *patient) ref() object { return reference("Patient/"+p.id, p.name()) }

// age is how many years old the patient is at a time.
func (p *patient) age(at time.Time) int {
	years := at.Year() - p.born.Year()
	if at.AddDate(-years, 0, 0).Before(p.born) {
		years--
	}
	return years
}

var languages = []code{
	{"urn:ietf:bcp:47", "en", "English"}, {"urn:ietf:bcp:47", "es", "Spanish"}, {"urn:ietf:bcp:47", "de", "German"},
}

// patient adds the Patient, and who is with them.
func (r *registrar) patient(p *patient, number int) {
	language := languages[0]
	if number%7 == 2 {
		language = languages[1+number%2]
	}
	members := []member{
		{"identifier", []object{{
			{"use", "usual"}, {"type", concept(code{terminology + "v2-0203", "MR", "Medical record number"})},
			{"system", "http://clinic.example/mrn"}, {"value", fmt.Sprintf("MRN-%05d", 10001+37*number)},
		}}},
		{"active", true},
		{"name", []object{{{"use", "official"}, {"family", p.family}, {"given", []string{p.given}}}}},
		{"telecom", telecom(fmt.Sprintf("+155501%02d", 20+number), strings.ToLower(p.given+"."+p.family)+"@mail.example")},
		{"gender", p.gender},
		{"birthDate", date(p.born)},
		{"address", address(number, 3+number*2)},
		{"communication", []object{{{"language", concept(language)}, {"preferred", true}}}},
		{"generalPractitioner", []object{p.doctor.ref()}},
		{"managingOrganization", reference(clinic, clinicName)},
	}
	r.records.add("Patient", p.id, Today.AddDate(0, -1, -number), members...)
	r.coverage(p, number)
	r.careTeam(p)
	if p.age(Today) < 18 || p.age(Today) > 75 {
		r.relative(p)
	}
}

func (r *registrar) coverage(p *patient, number int) {
	r.records.addFor(p, "Coverage", Today.AddDate(0, -10, 0),
		member{"status", "active"},
		member{"type", concept(code{terminology + "v3-ActCode", "EHCPOL", "extended healthcare"})},
		member{"subscriberId", fmt.Sprintf("SHP-%06d", 200100+number)},
		member{"beneficiary", p.ref()},
		member{"relationship", concept(code{terminology + "subscriber-relationship", "self", "Self"})},
		member{"period", object{{"start", "2026-01-01"}, {"end", "2026-12-31"}}},
		member{"payor", []object{reference(payer, payerName)}},
	)
}

func (r *registrar) careTeam(p *patient) {
	r.records.addFor(p, "CareTeam", Today.AddDate(-1, 0, 0),
		member{"status", "active"},
		member{"name", "Care team of " + p.name()},
		member{"subject", p.ref()},
		member{"participant", []object{
			{{"role", concepts(code{snomed, "446050000", "Primary care provider"})}, {"member", p.doctor.ref()}},
			{{"role", concepts(code{snomed, "116154003", "Patient"})}, {"member", p.ref()}},
		}},
		member{"managingOrganization", []object{reference(clinic, clinicName)}},
	)
}

// group adds the patients of a practitioner as a Group, such as Group/alice, for Bulk Data exports.
func (r *registrar) group(of practitioner, all []*patient) {
	var members []object
	for _, p := range all {
		if p.doctor.id == of.id {
			members = append(members, object{{"entity", p.ref()}})
		}
	}
	r.records.add("Group", of.id, opened,
		member{"active", true},
		member{"type", "person"},
		member{"actual", true},
		member{"name", "Patients of " + of.name()},
		member{"quantity", len(members)},
		member{"managingEntity", of.ref()},
		member{"member", members},
	)
}

// relative adds a parent of a child, or a child of an old person.
func (r *registrar) relative(p *patient) {
	given, gender, relationship, born := "Robin", "female", code{terminology + "v3-RoleCode", "MTH", "mother"}, p.born.AddDate(-31, 2, 5)
	if p.age(Today) > 75 {
		given, gender, relationship, born = "Adrian", "male", code{terminology + "v3-RoleCode", "SONC", "son"}, p.born.AddDate(27, 1, 9)
	}
	r.records.addFor(p, "RelatedPerson", Today.AddDate(-1, 0, 0),
		member{"active", true},
		member{"patient", p.ref()},
		member{"relationship", concepts(relationship)},
		member{"name", []object{{{"use", "official"}, {"family", p.family}, {"given", []string{given}}}}},
		member{"telecom", telecom("+15550180", "")},
		member{"gender", gender},
		member{"birthDate", date(born)},
	)
}
