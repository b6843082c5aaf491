package records

import (
	"slices"
	"time"
)

// held is a problem that a patient has.
type held struct {
	problem
	since     time.Time
	condition object // the Reference to it
}

// narrator tells what has happened to a patient.
type narrator struct {
	dice      dice
	clinician *clinician
	observer  *observer
}

// history adds what has happened to a patient: lasting problems, a check-up in each of three years, and visits between.
func (n *narrator) history(p *patient) {
	n.measure(p)
	n.lasting(p)
	n.clinician.allergy(p)
	for year := 2024; year <= 2026; year++ {
		at := n.dice.workday(time.Date(year, time.September, 1, 8, 0, 0, 0, time.UTC), 45)
		if p.born.After(at.AddDate(0, -2, 0)) {
			continue
		}
		n.checkUp(p, at, year == 2026)
	}
	for year := 2025; year <= 2026; year++ {
		if n.dice.chance(0.6) {
			n.illness(p, n.dice.workday(time.Date(year, time.January, 10, 9, 0, 0, 0, time.UTC), 180))
		}
	}
	n.procedures(p)
	n.appointments(p)
}

// measure decides how tall and heavy a patient is.
func (n *narrator) measure(p *patient) {
	age := p.age(Today)
	tall := 164.0
	if p.gender == "male" {
		tall = 177
	}
	p.height = tall + n.dice.Float64()*14 - 7
	if age < 17 {
		p.height = 78 + float64(age)*5.7 + n.dice.Float64()*6
	}
	index := 22 + n.dice.Float64()*9
	if age < 17 {
		index = 15.5 + float64(age)*0.3 + n.dice.Float64()*2
	}
	p.weight = index * p.height * p.height / 10_000
}

// lasting adds the problems of a patient's problem list, and what weighs on their health.
func (n *narrator) lasting(p *patient) {
	for _, candidate := range lasting {
		age := candidate.from + n.dice.IntN(candidate.to-candidate.from+1)
		since := p.born.AddDate(age, n.dice.IntN(12), n.dice.IntN(28))
		if n.dice.chance(candidate.chance) && since.Before(Today.AddDate(-1, 0, 0)) {
			p.problems = append(p.problems, held{candidate, since, n.clinician.condition(p, candidate, onset{since: since, category: "problem-list-item"})})
		}
	}
	for _, concern := range concerns {
		if age := p.age(Today); age >= concern.from && age <= concern.to && n.dice.chance(concern.chance) {
			n.clinician.condition(p, concern, onset{since: Today.AddDate(0, -2-n.dice.IntN(12), 0), category: "health-concern"})
		}
	}
	for _, h := range p.problems {
		n.clinician.plan(p, h)
	}
}

// checkUp adds a visit at which a patient is measured, tested and vaccinated. At the latest one their medicines are
// ordered again.
func (n *narrator) checkUp(p *patient, at time.Time, latest bool) {
	visit := n.clinician.encounter(p, at, checkUpVisit, nil)
	n.observer.vitals(p, at, visit, 36.7)
	if p.age(at) >= 14 {
		n.observer.smoking(p, at, visit)
	}
	if tests := p.tests(at); len(tests) > 0 {
		n.observer.report(p, at, visit, tests)
	}
	n.clinician.vaccinate(p, at, visit)
	for _, h := range p.problems {
		if latest && h.drug.code.code != "" {
			n.clinician.order(p, h.drug, at, visit, h.condition, "active")
		}
	}
	n.clinician.note(p, at, visit, "Check-up")
}

// tests are the laboratory tests that are due at a check-up.
func (p *patient) tests(at time.Time) []string {
	var names []string
	if p.age(at) >= 18 {
		names = append(names, "hemoglobin", "leukocytes", "glucose", "creatinine")
	}
	for _, h := range p.problems {
		for _, name := range h.problem.tests {
			if h.since.Before(at) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// illness adds a visit for something that passes.
func (n *narrator) illness(p *patient, at time.Time) {
	age := p.age(at)
	fitting := slices.DeleteFunc(slices.Clone(passing), func(c problem) bool { return age < c.from || age > c.to })
	if len(fitting) == 0 || p.born.After(at) {
		return
	}
	found := fitting[n.dice.IntN(len(fitting))]
	visit := n.clinician.encounter(p, at, illnessVisit, &found)
	condition := n.clinician.condition(p, found, onset{at.AddDate(0, 0, -2), at.AddDate(0, 0, 12), "encounter-diagnosis", visit})
	n.observer.vitals(p, at, visit, 37.6)
	if len(found.tests) > 0 {
		n.observer.report(p, at, visit, found.tests)
	}
	if found.drug.code.code != "" {
		n.clinician.order(p, found.drug, at, visit, condition, "completed")
	}
	n.clinician.note(p, at, visit, found.code.display)
}

// procedures adds what was done to a patient by age and by problem. Whoever has atrial fibrillation was in the ward.
func (n *narrator) procedures(p *patient) {
	at := n.dice.workday(time.Date(2025, time.October, 20, 8, 0, 0, 0, time.UTC), 60)
	if age := p.age(at); age >= 50 && age <= 75 {
		n.clinician.procedure(p, at, nil, code{snomed, "73761001", "Colonoscopy"}, nil)
	}
	for _, h := range p.problems {
		switch h.icd10 {
		case "I48.91":
			visit := n.clinician.stay(p, at.AddDate(0, 3, 0), h.code)
			n.clinician.procedure(p, at.AddDate(0, 3, 0).Add(time.Hour), visit, code{snomed, "29303009", "Electrocardiographic procedure"}, h.condition)
		case "J45.909":
			n.clinician.procedure(p, at, nil, code{snomed, "127783003", "Spirometry"}, h.condition)
		}
	}
}

// appointments adds the next visit, and one that was kept.
func (n *narrator) appointments(p *patient) {
	n.clinician.appointment(p, n.dice.workday(time.Date(2026, time.October, 5, 8, 0, 0, 0, time.UTC), 20), "fulfilled")
	n.clinician.appointment(p, n.dice.workday(time.Date(2027, time.January, 11, 8, 0, 0, 0, time.UTC), 90), "booked")
}
