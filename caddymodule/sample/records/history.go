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

// history adds what has happened to a patient: lasting problems, a check-up in each of three years, and visits between.
func (m *maker) history(p *patient) {
	m.measure(p)
	m.lasting(p)
	m.allergy(p)
	for year := 2024; year <= 2026; year++ {
		at := m.workday(time.Date(year, time.September, 1, 8, 0, 0, 0, time.UTC), 45)
		if p.born.After(at.AddDate(0, -2, 0)) {
			continue
		}
		m.checkUp(p, at, year == 2026)
	}
	for year := 2025; year <= 2026; year++ {
		if m.chance(0.6) {
			m.illness(p, m.workday(time.Date(year, time.January, 10, 9, 0, 0, 0, time.UTC), 180))
		}
	}
	m.procedures(p)
	m.appointments(p)
}

// workday is a time on one of the workdays after a day.
func (m *maker) workday(after time.Time, days int) time.Time {
	at := after.AddDate(0, 0, m.random.IntN(days)).Add(time.Duration(m.random.IntN(30)) * 15 * time.Minute)
	for at.Weekday() == time.Saturday || at.Weekday() == time.Sunday {
		at = at.AddDate(0, 0, 1)
	}
	return at
}

// measure decides how tall and heavy a patient is.
func (m *maker) measure(p *patient) {
	age := p.age(Today)
	tall := 164.0
	if p.gender == "male" {
		tall = 177
	}
	p.height = tall + m.random.Float64()*14 - 7
	if age < 17 {
		p.height = 78 + float64(age)*5.7 + m.random.Float64()*6
	}
	index := 22 + m.random.Float64()*9
	if age < 17 {
		index = 15.5 + float64(age)*0.3 + m.random.Float64()*2
	}
	p.weight = index * p.height * p.height / 10_000
}

// lasting adds the problems of a patient's problem list, and what weighs on their health.
func (m *maker) lasting(p *patient) {
	for _, candidate := range lasting {
		age := candidate.from + m.random.IntN(candidate.to-candidate.from+1)
		since := p.born.AddDate(age, m.random.IntN(12), m.random.IntN(28))
		if m.chance(candidate.chance) && since.Before(Today.AddDate(-1, 0, 0)) {
			p.problems = append(p.problems, held{candidate, since, m.condition(p, candidate, onset{since: since, category: "problem-list-item"})})
		}
	}
	for _, concern := range concerns {
		if age := p.age(Today); age >= concern.from && age <= concern.to && m.chance(concern.chance) {
			m.condition(p, concern, onset{since: Today.AddDate(0, -2-m.random.IntN(12), 0), category: "health-concern"})
		}
	}
	for _, h := range p.problems {
		m.plan(p, h)
	}
}

// checkUp adds a visit at which a patient is measured, tested and vaccinated. At the latest one their medicines are
// ordered again.
func (m *maker) checkUp(p *patient, at time.Time, latest bool) {
	visit := m.encounter(p, at, checkUpVisit, nil)
	m.vitals(p, at, visit, 36.7)
	if p.age(at) >= 14 {
		m.smoking(p, at, visit)
	}
	if tests := p.tests(at); len(tests) > 0 {
		m.report(p, at, visit, tests)
	}
	m.vaccinate(p, at, visit)
	for _, h := range p.problems {
		if latest && h.drug.code.code != "" {
			m.order(p, h.drug, at, visit, h.condition, "active")
		}
	}
	m.note(p, at, visit, "Check-up")
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
func (m *maker) illness(p *patient, at time.Time) {
	age := p.age(at)
	fitting := slices.DeleteFunc(slices.Clone(passing), func(c problem) bool { return age < c.from || age > c.to })
	if len(fitting) == 0 || p.born.After(at) {
		return
	}
	found := fitting[m.random.IntN(len(fitting))]
	visit := m.encounter(p, at, illnessVisit, &found)
	condition := m.condition(p, found, onset{at.AddDate(0, 0, -2), at.AddDate(0, 0, 12), "encounter-diagnosis", visit})
	m.vitals(p, at, visit, 37.6)
	if len(found.tests) > 0 {
		m.report(p, at, visit, found.tests)
	}
	if found.drug.code.code != "" {
		m.order(p, found.drug, at, visit, condition, "completed")
	}
	m.note(p, at, visit, found.code.display)
}
