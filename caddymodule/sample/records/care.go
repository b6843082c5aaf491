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

func (m *maker) allergy(p *patient) {
	known := Today.AddDate(0, -10, 0)
	status := member{"clinicalStatus", concept(code{terminology + "allergyintolerance-clinical", "active", "Active"})}
	confirmed := member{"verificationStatus", concept(code{terminology + "allergyintolerance-verification", "confirmed", "Confirmed"})}
	if !m.chance(0.35) {
		m.addFor(p, "AllergyIntolerance", known, status, confirmed,
			member{"code", concept(code{snomed, "716186003", "No known allergy"})}, member{"patient", p.ref()})
		return
	}
	to := allergies
	if p.age(known) < 13 {
		to = allergies[1:] // who has otitis gets amoxicillin
	}
	a := to[m.random.IntN(len(to))]
	criticality := "low"
	if a.severity == "severe" {
		criticality = "high"
	}
	m.addFor(p, "AllergyIntolerance", known, status, confirmed,
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
func (m *maker) vaccinate(p *patient, at time.Time, visit object) {
	m.immunization(p, at, visit, code{cvx, "140", "Influenza, split virus, trivalent, preservative free"})
	switch age := p.age(at); {
	case age >= 7 && at.Year() == 2024:
		m.immunization(p, at, visit, code{cvx, "113", "Td (adult), 5 Lf tetanus toxoid, preservative free, adsorbed"})
	case age < 5 && at.Year() == 2025:
		m.immunization(p, at, visit, code{cvx, "03", "MMR"})
	case age >= 65 && at.Year() == 2025:
		m.immunization(p, at, visit, code{cvx, "187", "zoster recombinant"})
	}
}

func (m *maker) immunization(p *patient, at time.Time, visit object, vaccine code) {
	m.addFor(p, "Immunization", at.Add(25*time.Minute),
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

// procedures adds what was done to a patient by age and by problem. Whoever has atrial fibrillation was in the ward.
func (m *maker) procedures(p *patient) {
	at := m.workday(time.Date(2025, time.October, 20, 8, 0, 0, 0, time.UTC), 60)
	if age := p.age(at); age >= 50 && age <= 75 {
		m.procedure(p, at, nil, code{snomed, "73761001", "Colonoscopy"}, nil)
	}
	for _, h := range p.problems {
		switch h.icd10 {
		case "I48.91":
			visit := m.stay(p, at.AddDate(0, 3, 0), h.code)
			m.procedure(p, at.AddDate(0, 3, 0).Add(time.Hour), visit, code{snomed, "29303009", "Electrocardiographic procedure"}, h.condition)
		case "J45.909":
			m.procedure(p, at, nil, code{snomed, "127783003", "Spirometry"}, h.condition)
		}
	}
}

func (m *maker) procedure(p *patient, at time.Time, visit object, what code, why object) {
	var reasons []object
	if why != nil {
		reasons = []object{why}
	}
	m.addFor(p, "Procedure", at.Add(time.Hour),
		member{"status", "completed"},
		member{"code", concept(what)},
		member{"subject", p.ref()},
		member{"encounter", visit},
		member{"performedPeriod", period(at, at.Add(40*time.Minute))},
		member{"performer", []object{{{"actor", practitioners[3].ref()}}}},
		member{"reasonReference", reasons},
	)
}

// appointments adds the next visit, and one that was kept.
func (m *maker) appointments(p *patient) {
	m.appointment(p, m.workday(time.Date(2026, time.October, 5, 8, 0, 0, 0, time.UTC), 20), "fulfilled")
	m.appointment(p, m.workday(time.Date(2027, time.January, 11, 8, 0, 0, 0, time.UTC), 90), "booked")
}

func (m *maker) appointment(p *patient, at time.Time, status string) {
	m.addFor(p, "Appointment", Today.AddDate(0, -2, 0),
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
