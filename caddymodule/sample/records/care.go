package records

import (
	"time"
)

// allergies are what some patients must not have. Two in three have none that is known.
var allergies = []struct {
	to       code
	category string
	reaction code
	severity string
}{
	{code{rxnorm, "7980", "penicillin G"}, "medication", code{snomed, "271807003", "Eruption of skin"}, "moderate"},
	{code{snomed, "762952008", "Peanut"}, "food", code{snomed, "39579001", "Anaphylaxis"}, "severe"},
	{code{snomed, "111088007", "Latex"}, "environment", code{snomed, "126485001", "Urticaria"}, "mild"},
}

func (c *clinician) allergy(p *patient) {
	known := Today.AddDate(0, -10, 0)
	status := member{"clinicalStatus", concept(code{terminology + "allergyintolerance-clinical", "active", "Active"})}
	confirmed := member{"verificationStatus", concept(code{terminology + "allergyintolerance-verification", "confirmed", "Confirmed"})}
	if !c.dice.chance(0.35) {
		c.records.addFor(p, "AllergyIntolerance", known, status, confirmed,
			member{"code", concept(code{snomed, "716186003", "No known allergy"})}, member{"patient", p.ref()})
		return
	}
	to := allergies
	if p.age(known) < 13 {
		to = allergies[1:] // who has otitis gets amoxicillin
	}
	a := to[c.dice.IntN(len(to))]
	criticality := "low"
	if a.severity == "severe" {
		criticality = "high"
	}
	c.records.addFor(p, "AllergyIntolerance", known, status, confirmed,
		member{"type", "allergy"},
		member{"category", []string{a.category}},
		member{"criticality", criticality},
		member{"code", concept(a.to)},
		member{"patient", p.ref()},
		member{"recordedDate", date(known)},
		member{"recorder", p.doctor.ref()},
		member{"reaction", []object{{{"manifestation", concepts(a.reaction)}, {"severity", a.severity}}}},
	)
}

// vaccinate adds the vaccinations of a check-up: against influenza, and others once.
func (c *clinician) vaccinate(p *patient, at time.Time, visit object) {
	c.immunization(p, at, visit, code{cvx, "140", "Influenza, split virus, trivalent, preservative free"})
	switch age := p.age(at); {
	case age >= 7 && at.Year() == 2024:
		c.immunization(p, at, visit, code{cvx, "113", "Td (adult), 5 Lf tetanus toxoid, preservative free, adsorbed"})
	case age < 5 && at.Year() == 2025:
		c.immunization(p, at, visit, code{cvx, "03", "MMR"})
	case age >= 65 && at.Year() == 2025:
		c.immunization(p, at, visit, code{cvx, "187", "zoster recombinant"})
	}
}

func (c *clinician) immunization(p *patient, at time.Time, visit object, vaccine code) {
	c.records.addFor(p, "Immunization", at.Add(25*time.Minute),
		member{"status", "completed"},
		member{"vaccineCode", concept(vaccine)},
		member{"patient", p.ref()},
		member{"encounter", visit},
		member{"occurrenceDateTime", dateTime(at.Add(25 * time.Minute))},
		member{"primarySource", true},
		member{"location", office},
		member{"performer", []object{{{"actor", p.doctor.ref()}}}},
	)
}

func (c *clinician) procedure(p *patient, at time.Time, visit object, what code, why object) {
	var reasons []object
	if why != nil {
		reasons = []object{why}
	}
	c.records.addFor(p, "Procedure", at.Add(time.Hour),
		member{"status", "completed"},
		member{"code", concept(what)},
		member{"subject", p.ref()},
		member{"encounter", visit},
		member{"performedPeriod", period(at, at.Add(40*time.Minute))},
		member{"performer", []object{{{"actor", practitioners[3].ref()}}}},
		member{"reasonReference", reasons},
	)
}

func (c *clinician) appointment(p *patient, at time.Time, status string) {
	c.records.addFor(p, "Appointment", Today.AddDate(0, -2, 0),
		member{"status", status},
		member{"serviceType", concepts(code{terminology + "service-type", "124", "General Practice"})},
		member{"start", dateTime(at)},
		member{"end", dateTime(at.Add(30 * time.Minute))},
		member{"created", dateTime(Today.AddDate(0, -2, 0))},
		member{"participant", []object{
			{{"actor", p.ref()}, {"status", "accepted"}},
			{{"actor", p.doctor.ref()}, {"status", "accepted"}},
			{{"actor", office}, {"status", "accepted"}},
		}},
	)
}
