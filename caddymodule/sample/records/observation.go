package records

import (
	"time"
)

// measured is something that is measured.
type measured struct {
	code       code
	unit, ucum string
}

// observer adds what is measured and asked.
type observer struct {
	records *collection
	dice    dice
}

// vitals adds the vital signs of a visit.
func (o *observer) vitals(p *patient, at time.Time, visit object, temperature float64) {
	grown := 1 - 0.06*Today.Sub(at).Hours()/24/365 // of a child, since then
	if p.age(Today) >= 18 {
		grown = 1
	}
	height, weight := p.height*grown, p.weight*grown*grown
	for _, v := range []struct {
		measured
		value decimal
	}{
		{measured{code{loinc, "8302-2", "Body height"}, "cm", "cm"}, o.dice.around(height, 0, 1)},
		{measured{code{loinc, "29463-7", "Body weight"}, "kg", "kg"}, o.dice.around(weight, 0, 1)},
		{measured{code{loinc, "39156-5", "Body mass index (BMI) [Ratio]"}, "kg/m2", "kg/m2"}, o.dice.around(weight/height/height*10_000, 0, 1)},
		{measured{code{loinc, "8867-4", "Heart rate"}, "beats/minute", "/min"}, o.dice.around(74, 10, 0)},
		{measured{code{loinc, "8310-5", "Body temperature"}, "°C", "Cel"}, o.dice.around(temperature, 0.3, 1)},
		{measured{code{loinc, "2708-6", "Oxygen saturation in Arterial blood"}, "%", "%"}, o.dice.around(97.5, 1.4, 0)},
	} {
		o.observation(p, at, visit, "vital-signs", v.code, member{"valueQuantity", quantity(v.value, v.unit, v.ucum)})
	}
	if p.age(at) >= 3 {
		o.bloodPressure(p, at, visit)
	}
}

func (o *observer) bloodPressure(p *patient, at time.Time, visit object) {
	systolic, diastolic := 116.0, 74.0
	if p.age(at) < 16 {
		systolic, diastolic = 100, 62
	}
	for _, h := range p.problems {
		if h.icd10 == "I10" && h.since.Before(at) {
			systolic, diastolic = 138, 86
		}
	}
	part := func(c code, middle float64) object {
		return object{{"code", concept(c)}, {"valueQuantity", quantity(o.dice.around(middle, 8, 0), "mmHg", "mm[Hg]")}}
	}
	o.observation(p, at, visit, "vital-signs", code{loinc, "85354-9", "Blood pressure panel with all children optional"},
		member{"component", []object{
			part(code{loinc, "8480-6", "Systolic blood pressure"}, systolic),
			part(code{loinc, "8462-4", "Diastolic blood pressure"}, diastolic),
		}})
}

// smoking adds whether a patient smokes, which some do and most never did.
func (o *observer) smoking(p *patient, at time.Time, visit object) {
	status := code{snomed, "266919005", "Never smoked tobacco"}
	switch {
	case p.age(at) >= 18 && p.weight > 80 && p.born.Day()%4 == 1:
		status = code{snomed, "449868002", "Smokes tobacco daily"}
	case p.age(at) >= 30 && p.born.Day()%4 == 0:
		status = code{snomed, "8517006", "Ex-smoker"}
	}
	o.observation(p, at, visit, "social-history", code{loinc, "72166-2", "Tobacco smoking status"},
		member{"valueCodeableConcept", concept(status)})
}

// observation adds an Observation with a value, and returns the Reference to it.
func (o *observer) observation(p *patient, at time.Time, visit object, category string, of code, value ...member) object {
	by := p.doctor.ref()
	if category == "laboratory" {
		by = reference(laboratory, "Millbrook Laboratory")
	}
	return reference(o.records.addFor(p, "Observation", at.Add(20*time.Minute), append([]member{
		{"status", "final"},
		{"category", concepts(code{terminology + "observation-category", category, title(category)})},
		{"code", concept(of)},
		{"subject", p.ref()},
		{"encounter", visit},
		{"effectiveDateTime", dateTime(at.Add(10 * time.Minute))},
		{"issued", dateTime(at.Add(20 * time.Minute))},
		{"performer", []object{by}},
	}, value...)...), of.display)
}
