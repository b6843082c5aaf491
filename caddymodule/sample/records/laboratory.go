package records

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// test is a laboratory test, with its reference range, and what it shows: of most, and of those who have a problem that
// it is for.
type test struct {
	measured
	low, high     float64
	decimals      int
	most, problem float64
	spread        float64
}

var tests = map[string]test{
	"hemoglobin":    {measured{code{loinc, "718-7", "Hemoglobin [Mass/volume] in Blood"}, "g/dL", "g/dL"}, 12, 17.5, 1, 14, 14, 1.6},
	"leukocytes":    {measured{code{loinc, "6690-2", "Leukocytes [#/volume] in Blood by Automated count"}, "10*3/uL", "10*3/uL"}, 4, 11, 1, 7, 11.5, 1.8},
	"glucose":       {measured{code{loinc, "2345-7", "Glucose [Mass/volume] in Serum or Plasma"}, "mg/dL", "mg/dL"}, 70, 99, 0, 88, 142, 12},
	"hba1c":         {measured{code{loinc, "4548-4", "Hemoglobin A1c/Hemoglobin.total in Blood"}, "%", "%"}, 4, 5.6, 1, 5.2, 7.3, 0.7},
	"creatinine":    {measured{code{loinc, "2160-0", "Creatinine [Mass/volume] in Serum or Plasma"}, "mg/dL", "mg/dL"}, 0.6, 1.3, 2, 0.9, 1.1, 0.2},
	"potassium":     {measured{code{loinc, "2823-3", "Potassium [Moles/volume] in Serum or Plasma"}, "mmol/L", "mmol/L"}, 3.5, 5.1, 1, 4.3, 4.4, 0.5},
	"cholesterol":   {measured{code{loinc, "2093-3", "Cholesterol [Mass/volume] in Serum or Plasma"}, "mg/dL", "mg/dL"}, 0, 200, 0, 180, 205, 22},
	"hdl":           {measured{code{loinc, "2085-9", "Cholesterol in HDL [Mass/volume] in Serum or Plasma"}, "mg/dL", "mg/dL"}, 40, 90, 0, 56, 48, 9},
	"ldl":           {measured{code{loinc, "18262-6", "Cholesterol in LDL [Mass/volume] in Serum or Plasma by Direct assay"}, "mg/dL", "mg/dL"}, 0, 100, 0, 96, 122, 18},
	"triglycerides": {measured{code{loinc, "2571-8", "Triglyceride [Mass/volume] in Serum or Plasma"}, "mg/dL", "mg/dL"}, 0, 150, 0, 110, 165, 30},
	"tsh":           {measured{code{loinc, "3016-3", "Thyrotropin [Units/volume] in Serum or Plasma"}, "m[IU]/L", "m[IU]/L"}, 0.4, 4.2, 2, 2, 3.6, 1.2},
	"inr":           {measured{code{loinc, "6301-6", "INR in Platelet poor plasma by Coagulation assay"}, "1", "1"}, 2, 3, 1, 1, 2.5, 0.6},
}

// report adds the results of some tests, and the DiagnosticReport about them.
func (o *observer) report(p *patient, at time.Time, visit object, names []string) {
	var results []object
	for _, name := range names {
		results = append(results, o.result(p, at, visit, name))
	}
	o.records.addFor(p, "DiagnosticReport", at.Add(24*time.Hour),
		member{"status", "final"},
		member{"category", concepts(code{terminology + "v2-0074", "LAB", "Laboratory"})},
		member{"code", concept(code{loinc, "11502-2", "Laboratory report"})},
		member{"subject", p.ref()},
		member{"encounter", visit},
		member{"effectiveDateTime", dateTime(at.Add(10 * time.Minute))},
		member{"issued", dateTime(at.Add(24 * time.Hour))},
		member{"performer", []object{reference(laboratory, "Millbrook Laboratory")}},
		member{"result", results},
	)
}

// result adds the result of a test.
func (o *observer) result(p *patient, at time.Time, visit object, name string) object {
	t := tests[name]
	middle := t.most
	if slices.ContainsFunc(p.problems, func(h held) bool { return slices.Contains(h.problem.tests, name) && h.since.Before(at) }) {
		middle = t.problem
	}
	value := o.dice.around(middle, t.spread, t.decimals)
	return o.observation(p, at, visit, "laboratory", t.code,
		member{"valueQuantity", quantity(value, t.unit, t.ucum)},
		member{"interpretation", concepts(t.interpret(value))},
		member{"referenceRange", []object{{{"low", t.quantity(t.low)}, {"high", t.quantity(t.high)}}}},
	)
}

// quantity is a bound of the reference range.
func (t test) quantity(value float64) object {
	return quantity(decimal(strconv.FormatFloat(value, 'f', -1, 64)), t.unit, t.ucum)
}

// interpret says whether a value is within the reference range.
func (t test) interpret(value decimal) code {
	system := terminology + "v3-ObservationInterpretation"
	v, _ := strconv.ParseFloat(strings.TrimSpace(string(value)), 64)
	switch {
	case v < t.low:
		return code{system, "L", "Low"}
	case v > t.high:
		return code{system, "H", "High"}
	}
	return code{system, "N", "Normal"}
}
